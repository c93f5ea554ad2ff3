// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/ranged_read.hpp
/// \brief  From boxes of tensors in files to few large reads, several of them in flight.
/// \depends checkpoint/{read_options,detail/file_box}, memory/{memory_policy,scratch}, threads. Knows no file system:
/// the caller brings the function that reads.
///
/// Reading each run of a shard by itself is millions of reads when the inner dimension is cut; reading whole tensors
/// reads everything several times. Between the two lies one rule per gap: it is read as well when it is small, and
/// when the read stays worth it. The rule decides from shapes alone, so what a load will read can be told in advance.
#pragma once

#include <reshard/checkpoint/detail/file_box.hpp>
#include <reshard/checkpoint/read_options.hpp>
#include <reshard/core/detail/workers.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/memory/memory_policy.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // push_heap, lower_bound
#include <atomic>     // atomic
#include <mutex>      // mutex
#include <span>       // span
#include <vector>     // vector

namespace reshard::inline v0_1::detail {

/// What reading comes to.
struct ReadTotals {
    Index reads = 0;
    Index bytes_read = 0;
    Index bytes_wanted = 0;   ///< bytes that go to memory; what two boxes want counts twice
    Index scratch_bytes = 0;  ///< of all reads in flight together, at most; 0 when all go straight into their places
    Index files = 0;          ///< with at least one read
    friend constexpr bool operator==(ReadTotals const&, ReadTotals const&) = default;
};

/// One call of `read_at`.
struct PlannedRead {
    int file = 0;
    Index offset = 0;
    Index bytes = 0;
    std::byte* to = nullptr;  ///< where all of it belongs, in this order; null: scratch, and a copy per box
};

inline void check(ReadOptions const& options) {
    check_option("ReadOptions", "in_flight", options.in_flight, 1, "allow at least one read.");
    check_option("ReadOptions", "chunk_bytes", options.chunk_bytes, 1, "allow at least 1 byte; millions are fast.");
    check_option("ReadOptions", "gap_bytes", options.gap_bytes, 0, "0 reads no gap beyond a page.");
    check_option("ReadOptions", "direct_bytes", options.direct_bytes, 1, "name a length of at least 1 byte.");
    if (options.over_read >= 1.0) return;
    raise(ErrorCode::buffer, "reshard::ReadOptions: over_read is below 1. Fix: 1.0 reads no gap beyond a page.");
}

/// The boxes in the order of the files, and the reads that cover them.
class ReadPlan {
public:
    /// `unkept` is read as well, and goes nowhere. Throws BufferError for options that mean nothing.
    ReadPlan(std::span<ReadBox const> boxes, ReadOptions const& options, std::span<ReadBox const> unkept = {})
        : options_(options) {
        check(options);
        boxes_.reserve(boxes.size() + unkept.size());
        for (ReadBox const& run : unkept) boxes_.push_back({FileBox(run, options.direct_bytes), 0});
        for (ReadBox const& box : boxes) {
            if (box.in_file.payload_bytes() <= 0) continue;
            if (box.onto != nullptr) onto_ = box.onto;
            totals_.bytes_wanted += box.in_file.payload_bytes();
            boxes_.push_back({FileBox(box, options.direct_bytes), 0});
        }
        sort_list(boxes_, [](Entry const& a, Entry const& b) {
            if (a.box.file() != b.box.file()) return a.box.file() < b.box.file();
            if (a.box.begin() != b.box.begin()) return a.box.begin() < b.box.begin();
            return a.box.end() > b.box.end();  // what the longer one reads, the shorter one has
        });
        for (std::size_t i = 0; i != boxes_.size(); ++i) {
            bool const same_file = i != 0 && boxes_[i - 1].box.file() == boxes_[i].box.file();
            boxes_[i].reach = larger(boxes_[i].box.end(), same_file ? boxes_[i - 1].reach : 0);
        }
        plan();
        Index const in_flight = smaller(Index{options.in_flight}, scratch_reads_);
        totals_.scratch_bytes = in_flight * longest_scratch_;
    }

    /// In (file, offset) order, apart.
    [[nodiscard]] std::vector<PlannedRead> const& reads() const noexcept { return reads_; }
    [[nodiscard]] ReadTotals const& totals() const noexcept { return totals_; }
    [[nodiscard]] Index longest_scratch() const noexcept { return longest_scratch_; }
    [[nodiscard]] int in_flight() const noexcept { return options_.in_flight; }
    /// What brings it to devices, where something goes there.
    [[nodiscard]] MemoryPolicy const* onto() const noexcept { return onto_; }

    /// Copies what a read has brought to all who want it.
    void deliver(PlannedRead const& read, std::byte const* bytes, CopyHint hint) const {
        for (std::size_t i = first_box(read.file, read.offset); i != boxes_.size(); ++i) {
            FileBox const& box = boxes_[i].box;
            if (box.file() != read.file || box.begin() >= read.offset + read.bytes) break;
            box.fill(bytes, read.offset, read.bytes, hint);
        }
    }

private:
    struct Entry {
        FileBox box;
        Index reach;  ///< the farthest end of this box and those before it in its file: never less than the last
    };

    /// What is read as one, but for the length of a read.
    struct Run {
        int file = -1;
        Index begin = 0;
        Index end = 0;
        Index wanted = 0;
        std::byte* to = nullptr;  ///< as in PlannedRead
        [[nodiscard]] Index bytes() const noexcept { return end - begin; }
        /// Whether the next one goes on where this one ends, in the file and in memory.
        [[nodiscard]] bool continued_by(Run const& next) const noexcept {
            return to != nullptr && next.to == to + bytes() && next.begin == end;
        }
        void join(Run const& next) noexcept {
            bool const has_it = next.end <= end;  // bytes that are wanted twice: copied from where they were read to
            if (!has_it && !continued_by(next)) to = nullptr;
            end = larger(end, next.end);
            wanted += next.wanted;
        }
    };

    /// Boxes before this one end at or before `position`.
    [[nodiscard]] std::size_t first_box(int file, Index position) const noexcept {
        auto const found = std::lower_bound(boxes_.begin(), boxes_.end(), position, [&](Entry const& a, Index at) {
            return a.box.file() != file ? a.box.file() < file : a.reach <= at;
        });
        return as_size(found - boxes_.begin());
    }

    /// Merges the units of all boxes into one sequence by (file, begin).
    void plan() {
        auto const later = [](FileBox::Cursor const& a, FileBox::Cursor const& b) { return a.begin() > b.begin(); };
        std::vector<FileBox::Cursor> open;  // a heap of the boxes whose units interleave
        Run solid;                          // empty at first, in no file: joining or reading it does nothing
        Run pending;
        auto const close_solid = [&, this] {
            if (joins(pending, solid)) {
                pending.join(solid);
            } else {
                emit_reads(pending);
                pending = solid;
            }
        };
        std::size_t next = 0;
        while (next != boxes_.size() || !open.empty()) {
            bool const from_open =
                !open.empty() && (next == boxes_.size() || boxes_[next].box.file() != open.front().box().file() ||
                                  open.front().begin() <= boxes_[next].box.begin());
            if (from_open) {
                std::pop_heap(open.begin(), open.end(), later);
            } else {
                open.emplace_back(boxes_[next++].box);
            }
            FileBox::Cursor& cursor = open.back();
            FileBox const& box = cursor.box();
            Run const unit{box.file(), cursor.begin(), cursor.begin() + box.unit_bytes(), box.unit_wanted(),
                           box.unit_is_dense() ? cursor.to() : nullptr};
            if (cursor.next()) {
                std::push_heap(open.begin(), open.end(), later);
            } else {
                open.pop_back();
            }
            if (is_solid(solid, unit)) {
                solid.join(unit);
            } else {
                close_solid();
                solid = unit;
            }
        }
        close_solid();
        emit_reads(pending);
    }

    /// Long runs that go straight to memory stay alone: a copy of all they have costs more than one more read.
    [[nodiscard]] bool stands_alone(Run const& run) const noexcept {
        return run.to != nullptr && run.bytes() >= options_.direct_bytes;
    }
    /// Whether the two are read as one whatever the options say.
    [[nodiscard]] bool is_solid(Run const& before, Run const& after) const noexcept {
        if (before.file != after.file) return false;
        Index const gap = after.begin - before.end;
        if (gap < 0 || before.continued_by(after)) return true;
        return gap <= FileBox::page_bytes && !stands_alone(before) && !stands_alone(after);
    }
    [[nodiscard]] bool joins(Run const& before, Run const& after) const noexcept {
        if (before.file != after.file || stands_alone(before) || stands_alone(after)) return false;
        Index const bytes = after.end - before.begin;
        return after.begin - before.end <= options_.gap_bytes && bytes <= options_.chunk_bytes &&
               static_cast<double>(bytes) <= options_.over_read * static_cast<double>(before.wanted + after.wanted);
    }

    /// One read, or several when it is too long.
    void emit_reads(Run const& run) {
        if (run.file >= 0 && run.file != last_file_) ++totals_.files;
        last_file_ = run.file;
        for (Index begin = run.begin; begin < run.end;) {
            Index const end = begin + smaller(run.end - begin, options_.chunk_bytes);
            PlannedRead read{run.file, begin, end - begin, nullptr};
            if (run.to != nullptr) {
                read.to = run.to + (begin - run.begin);
            } else {
                ++scratch_reads_;
                longest_scratch_ = larger(longest_scratch_, read.bytes);
            }
            ++totals_.reads;
            totals_.bytes_read += read.bytes;
            reads_.push_back(read);
            begin = end;
        }
    }

    ReadOptions options_;
    MemoryPolicy const* onto_ = nullptr;
    std::vector<Entry> boxes_;
    std::vector<PlannedRead> reads_;
    ReadTotals totals_;
    Index longest_scratch_ = 0;
    Index scratch_reads_ = 0;
    int last_file_ = -1;
};

/// What read_boxes would do, without doing it: exactly the same numbers. Throws BufferError for options that mean
/// nothing.
[[nodiscard]] inline ReadTotals count_reads(std::span<ReadBox const> boxes, ReadOptions const& options) {
    return ReadPlan(boxes, options).totals();
}

/// Reads all boxes; read_at(int file, Index offset, std::span<std::byte> bytes) fills `bytes` or throws. It is called
/// from up to in_flight threads at once, in (file, offset) order when that is 1; otherwise reads start in that order.
///
/// After a failure no read is started but those of threads that have chosen theirs. The exception of the failed read
/// that is first in (file, offset) order is thrown once all reads have ended; the boxes are partly filled then. Throws
/// OutOfMemory when there is no memory for scratch: who has some, as much as in_flight reads of chunk_bytes need,
/// may bring it. \pre Boxes do not overlap in memory. In files they may.
template <class ReadAt>
ReadTotals read_boxes(ReadPlan const& plan, ReadAt&& read_at, std::byte* scratch = nullptr) {
    std::vector<PlannedRead> const& reads = plan.reads();
    ReadTotals const& totals = plan.totals();
    MemoryPolicy const* const onto = plan.onto();
    // Pinned memory takes its time to be made: only for what is read through it several times.
    Workspace quick;
    if (onto != nullptr && scratch == nullptr && totals.scratch_bytes != 0 &&
        totals.bytes_wanted >= 4 * totals.scratch_bytes) {
        quick = onto->allocate_on_host(totals.scratch_bytes);
        scratch = quick.data();
    }
    Scratch made;
    if (scratch == nullptr) scratch = (made = Scratch(totals.scratch_bytes)).data();
    CopyHint const hint = hint_for(totals.bytes_wanted);

    std::vector<std::byte*> own(
        smaller(as_size(plan.in_flight()), reads.size()));  // scratch, of each worker that needs some
    std::atomic<Index> scratch_used{0};
    std::mutex placing;  // on devices, whose policy is one thread's at a time
    run_on_workers(reads.size(), plan.in_flight(), [&](std::size_t i, int worker) {
        PlannedRead const& read = reads[i];
        std::byte* to = read.to;
        if (to == nullptr) {
            std::byte*& mine = own[as_size(worker)];
            if (mine == nullptr) {
                mine = scratch + scratch_used.fetch_add(plan.longest_scratch(), std::memory_order_relaxed);
            }
            to = mine;
        }
        read_at(read.file, read.offset, std::span<std::byte>(to, as_size(read.bytes)));
        std::unique_lock lock(placing, std::defer_lock);
        if (onto != nullptr) lock.lock();
        plan.deliver(read, to, hint);
    });
    return totals;
}

}  // namespace reshard::inline v0_1::detail
