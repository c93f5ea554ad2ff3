// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_staged.hpp
/// \brief  Reads windows into staging memory and passes them on, window after window; which extents are summed up,
///         and how ranks put together what several of them have read of one.
/// \depends checkpoint/detail/{load_files,load_match}, comm/collectives, memory/copy.
#pragma once

#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/checkpoint/detail/load_match.hpp>
#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/checkpoint/ranged_read.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/core/detail/keep_for_good.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/exec/agree_tensors.hpp>
#include <reshard/memory/copy.hpp>

#include <algorithm>  // any_of
#include <array>      // array

namespace reshard::inline v0_1::detail {

/// What one rank's local tensors need, as boxes of the files.
[[nodiscard]] inline std::vector<ReadBox> needed_boxes(std::span<WantedExtent const> wanted,
                                                       std::span<LocalTensor const> targets, int rank,
                                                       MemoryPolicy const* memory = nullptr) {
    std::vector<ReadBox> boxes;
    Needs needs;
    for (WantedExtent const& extent : wanted) {
        if (extent.target == WantedExtent::nobody) continue;
        LocalTensor const& target = targets[extent.target];
        if (!find_needs(needs, extent, extent.box, target, rank)) continue;
        MemoryPolicy const* const onto = policy_for(memory, target.view.data());
        needs.for_each(target, [&](MessagePart const& from, MessagePart const& to) {
            boxes.push_back(
                {extent.file, extent.begin + from.offset, from.box, target.view.data() + to.offset, to.box, onto});
        });
    }
    return boxes;
}

/// Collective calls that pass on a window so.
[[nodiscard]] inline Index& passes_of(Collectives& all, Spread spread) noexcept {
    return spread == Spread::scatter ? all.scatters : spread == Spread::broadcast ? all.broadcasts : all.exchanges;
}

/// Staging memory of one rank.
[[nodiscard]] inline Index staging_bytes(ReadSchedule const& schedule, Spread spread, int rank) noexcept {
    if (spread == Spread::broadcast) return schedule.staging_bytes;
    Index bytes = 0;
    for (Piece const& piece : schedule.pieces)
        if (piece.reader == rank) bytes = larger(bytes, piece.place + piece.bytes);
    return bytes;
}

/// The pieces of one window that this rank reads, as boxes of the files. `staging` is its staging memory.
[[nodiscard]] inline std::vector<ReadBox> staging_boxes(std::span<Piece const> pieces,
                                                        std::span<WantedExtent const> wanted, int rank,
                                                        std::byte* staging) {
    std::vector<ReadBox> boxes;
    for (Piece const& piece : pieces) {
        if (piece.reader != rank) continue;
        int const file = wanted[piece.wanted].file;
        std::byte* const to = staging + piece.place;
        if (!boxes.empty()) {  // pieces that touch in the file touch in staging memory: one read
            ReadBox& last = boxes.back();
            Index& bytes = last.in_file.dims[0].extent;
            if (last.file == file && last.offset + bytes == piece.begin && last.to + bytes == to) {
                bytes += piece.bytes;
                last.in_memory = last.in_file;
                continue;
            }
        }
        boxes.push_back({file, piece.begin, byte_box(piece.bytes), to, byte_box(piece.bytes), nullptr});
    }
    return boxes;
}

/// Visits the pieces window by window: visit(pieces of the window).
template <class Visit>
void for_each_window(ReadSchedule const& schedule, Visit&& visit) {
    std::span<Piece const> rest = schedule.pieces;
    for (Index window = 0; window < schedule.windows; ++window) {
        std::size_t count = 0;
        while (count < rest.size() && rest[count].window == window) ++count;
        visit(rest.first(count));
        rest = rest.subspan(count);
    }
}

/// visit(run) for each run without a gap that `reads` have of the extents with a checksum, in their order.
/// \pre `wanted` is sorted by extent
template <class Visit>
void for_each_run_read(Catalogue const& catalogue, std::span<WantedExtent const> wanted,
                       std::span<PlannedRead const> reads, Visit&& visit) {
    ExtentRun run;
    for (WantedExtent const& one : wanted) {
        Extent const& extent = catalogue.extents()[one.extent];
        if (!extent.has_checksum || run.extent == as_index(one.extent)) continue;
        run = {as_index(one.extent), 0, 0, 0};
        Index const end = extent.begin + catalogue.extent_bytes(extent);
        auto read = std::partition_point(reads.begin(), reads.end(), [&](PlannedRead const& it) {
            return it.file != extent.file ? it.file < extent.file : it.offset + it.bytes <= extent.begin;
        });
        for (; read != reads.end() && read->file == extent.file && read->offset < end; ++read) {
            Index const begin = larger<Index>(read->offset - extent.begin, 0);
            if (begin > run.end) {
                if (run.begin < run.end) visit(std::as_const(run));
                run.begin = begin;
            }
            run.end = smaller(read->offset + read->bytes, end) - extent.begin;
        }
        if (run.begin < run.end) visit(std::as_const(run));
    }
}
/// What is compared with its sums of what a rank reads directly: the blocks, and extents without blocks, that it has
/// read whole ...
[[nodiscard]] inline std::vector<ExtentRun> summed_runs(Catalogue const& catalogue,
                                                        std::span<WantedExtent const> wanted,
                                                        std::span<PlannedRead const> reads,
                                                        LoadOptions const& options) {
    std::vector<ExtentRun> runs;
    if (options.verify_checksums == Checksums::none) return runs;
    for_each_run_read(catalogue, wanted, reads, [&](ExtentRun run) {
        ExtentRun const behind{run.extent, run.end, 0, 0};
        SummedBytes const first = summed_bytes(catalogue, run);
        if (run.begin != first.begin) run.begin = first.end;
        Extent const& extent = catalogue.extents()[as_size(run.extent)];
        if (run.end != catalogue.extent_bytes(extent)) run.end = summed_bytes(catalogue, behind).begin;
        if (run.begin < run.end) runs.push_back(run);
    });
    return runs;
}
/// The rows that are wanted, as if each were read by itself.
[[nodiscard]] inline std::vector<PlannedRead> wanted_rows(std::span<WantedExtent const> wanted) {
    std::vector<PlannedRead> reads;
    reads.reserve(wanted.size());
    for (WantedExtent const& extent : wanted) {
        if (extent.bytes() == 0) continue;
        Index const before = place_in(extent.box, extent.read()) * bytes(extent.dtype);
        reads.push_back({extent.file, extent.begin + before, extent.bytes(), nullptr});
    }
    return reads;
}
/// ... and of what goes by way of staging memory, where ranks together read all rows that are wanted.
[[nodiscard]] inline std::vector<ExtentRun> summed_runs(Catalogue const& catalogue,
                                                        std::span<WantedExtent const> wanted,
                                                        LoadOptions const& options) {
    return summed_runs(catalogue, wanted, wanted_rows(wanted), options);
}

/// What these reads lack of the blocks that they have some of, sorted and apart.
[[nodiscard]] inline std::vector<ExtentRun> rest_of_blocks(Catalogue const& catalogue,
                                                           std::span<WantedExtent const> wanted,
                                                           std::span<PlannedRead const> reads, Index short_run = 0) {
    std::vector<ExtentRun> rest;
    auto const add = [&](ExtentRun const& run) {
        if (run.begin < run.end) rest.push_back(run);
    };
    ExtentRun behind;  // the run before, up to the end of its last block
    Index last_end = 0;
    for_each_run_read(catalogue, wanted, reads, [&](ExtentRun const& run) {
        Extent const& extent = catalogue.extents()[as_size(run.extent)];
        Interval const blocks = touched_blocks(catalogue.manifest(), extent, run.begin, run.end);
        if (blocks.empty()) return;
        Index begin = blocks.begin;
        if (behind.extent == run.extent) {
            behind.end = smaller(behind.end, run.begin);
            begin = larger(begin, behind.end);
        }
        ExtentRun const before{run.extent, begin, run.begin, 0};
        // Between short runs farther apart than they are long: one with them, or every row of columns has one.
        Index const bytes = run.end - run.begin;
        if (bytes < short_run && bytes <= run.begin - last_end && behind.begin < behind.end && behind.end == begin &&
            behind.extent == run.extent) {
            behind.end = blocks.end;
        } else {
            add(behind);
            add(before);
            behind = {run.extent, run.end, blocks.end, 0};
        }
        last_end = run.end;
    });
    add(behind);
    return rest;
}
/// What one rank reads for itself: boxes of the files, and the rest of blocks that are to be compared.
[[nodiscard]] inline ReadPlan plan_reads(Catalogue const& catalogue, std::span<WantedExtent const> wanted,
                                         std::span<ReadBox const> boxes, ReadOptions const& reads,
                                         LoadOptions const& options) {
    if (options.verify_checksums != Checksums::touched_blocks) return ReadPlan(boxes, reads);
    ReadOptions no_gaps = reads;  // which of them are worth it changes with what is added
    no_gaps.gap_bytes = 0;
    std::vector<ReadBox> unkept;
    for (ExtentRun const& run :
         rest_of_blocks(catalogue, wanted, ReadPlan(boxes, no_gaps).reads(), reads.direct_bytes)) {
        Extent const& extent = catalogue.extents()[as_size(run.extent)];
        StridedBox const bytes = byte_box(run.end - run.begin);
        unkept.push_back({extent.file, extent.begin + run.begin, bytes, nullptr, bytes, nullptr});
    }
    return ReadPlan(boxes, reads, unkept);
}
/// For readers who pass on rows: adds what nobody wants of the blocks that rows touch, where it is in the files.
/// \pre `wanted` is as match() has it
inline void add_touched_blocks(Catalogue const& catalogue, std::vector<WantedExtent>& wanted,
                               LoadOptions const& options) {
    if (options.verify_checksums != Checksums::touched_blocks) return;
    std::vector<ExtentRun> const rest = rest_of_blocks(catalogue, wanted, wanted_rows(wanted));
    std::vector<WantedExtent> all;
    all.reserve(wanted.size() + rest.size());
    auto next = rest.begin();
    auto const add_before = [&](Index number, Index begin) {
        for (; next != rest.end() && std::tie(next->extent, next->begin) < std::tie(number, begin); ++next) {
            Extent const& extent = catalogue.extents()[as_size(next->extent)];
            all.push_back({WantedExtent::nobody, as_size(next->extent), extent.file, extent.begin + next->begin,
                           DType::u8, Box(Shape{next->end - next->begin})});
        }
    };
    for (WantedExtent& one : wanted) {
        if (one.bytes() != 0)  // else it is read with one before it
            add_before(as_index(one.extent), place_in(one.box, one.read()) * bytes(one.dtype));
        all.push_back(std::move(one));
    }
    add_before(INT64_MAX, 0);
    wanted = std::move(all);
}

/// Runs that one rank tells the others: a span of the files has a part of an extent at each of its ends.
using ExtentParts = std::array<ExtentRun, 2>;

/// Puts together the parts that all ranks have read. All find the same; of `own` that was compared counts here.
inline void join_parts(Catalogue const& catalogue, ExtentParts const& own, std::vector<ExtentRun> all,
                       SumVerdict& mine) {
    SumVerdict const together = sum_up(catalogue, std::move(all));
    for (ExtentRun const& part : own) {
        bool const left = std::ranges::any_of(together.parts, [&](ExtentRun const& run) {
            return run.extent == part.extent && run.begin <= part.begin && part.end <= run.end;
        });
        if (!left) mine.bytes += part.end - part.begin;
    }
    mine.wrong.insert(mine.wrong.end(), together.wrong.begin(), together.wrong.end());
}

/// What every message ends with once the first byte may have been written.
inline constexpr std::string_view partly_filled = "The tensors are partly filled: load them again.";

/// One call of a plan, beside so much staging memory.
inline void add_reads(LoadFigures& report, ReadTotals const& totals, Index staging = 0) noexcept {
    report.reads += totals.reads;
    report.bytes_read += totals.bytes_read;
    report.extra_bytes = larger(report.extra_bytes, staging + totals.scratch_bytes);
}

/// One rank's part of a schedule.
class StagedLoad {
public:
    StagedLoad(CommunicatorRef comm, std::span<WantedExtent const> wanted, std::span<LocalTensor const> targets,
               ReadSchedule const& schedule, Spread spread, LoadReport& report)
        : comm_(comm),
          wanted_(wanted),
          targets_(targets),
          schedule_(schedule),
          spread_(spread),
          report_(report),
          staging_bytes_(staging_bytes(schedule, spread, comm.rank())),
          staging_(comm.allocate(staging_bytes_)) {
        add_reads(report, {}, staging_bytes_);
        ++report.collectives.agreements;  // about the memory
    }
    StagedLoad& operator=(StagedLoad&&) = delete;
    ~StagedLoad() {
        if (passing_) keep_for_good(std::move(staging_));  // a device that is late may still read it
    }

    /// Collective. Throws the error of the lowest rank that fails to read, or to list what it passes on, on every rank.
    void run(LoadFiles& files, ReadOptions const& reads) {
        for_each_window(schedule_, [&](std::span<Piece const> pieces) {
            ++report_.collectives.agreements;
            agree_on_errors(
                comm_,
                [&] {
                    finish();  // with the window before: staging memory is needed again
                    read(pieces, files, reads);
                    if (spread_ == Spread::broadcast) {
                        lists_.make_room(comm_.size());
                    } else {
                        list_needs(pieces);
                    }
                },
                "load");
            passing_ = true;
            ++passes_of(report_.collectives, spread_);
            if (spread_ == Spread::broadcast) {
                Index const bytes = pieces.back().place + pieces.back().bytes;
                broadcast(comm_, {at(0), as_size(bytes)}, pieces.front().reader, lists_);
                came_ = pieces;
            } else {
                lists_.deliver(comm_);
            }
            passing_ = false;
        });
    }

    /// Local, after run(), where all ranks agree next: takes what is needed of the last window that was broadcast.
    void finish() {
        for (Piece const& piece : std::exchange(came_, {})) {
            for_each_wanting(wanted_, piece, [&, this](WantedExtent const& extent) {
                LocalTensor const& target = targets_[extent.target];
                if (!finds(extent, piece, comm_.rank())) return;
                MemoryPolicy const* const onto = policy_for(comm_.memory(), target.view.data());
                needs_.for_each(target, [&, this](MessagePart const& from, MessagePart const& to) {
                    place(onto, {0, at(piece.place) + from.offset, from.box},
                          {0, target.view.data() + to.offset, to.box});
                    report_.bytes_loaded += from.box.payload_bytes();
                });
            });
        }
    }

private:
    [[nodiscard]] std::byte* at(Index place) noexcept { return staging_.data() + place; }

    void read(std::span<Piece const> pieces, LoadFiles& files, ReadOptions const& options) {
        auto const boxes = staging_boxes(pieces, wanted_, comm_.rank(), at(0));
        add_reads(report_, files.read(ReadPlan(boxes, options)), staging_bytes_);
    }

    /// Sends to a rank and receives from one are in the order of the sender's pieces.
    void list_needs(std::span<Piece const> pieces) {
        lists_.clear();
        lists_.receives.reserve(pieces.size());
        for (Piece const& piece : pieces) {
            for_each_wanting(wanted_, piece, [&, this](WantedExtent const& extent) {
                if (piece.reader == comm_.rank()) add_sends(extent, piece);
                add_receives(extent, piece);
            });
        }
        lists_.make_room(lists_.sends.size(), lists_.receives.size());  // to be put in order
    }

    void add_sends(WantedExtent const& extent, Piece const& piece) {
        for_each_needing(extent, piece.box, targets_[extent.target], [&, this](Index rank) {
            if (!finds(extent, piece, rank)) return;
            needs_.for_each_in(extent.dtype, [&](MessagePart const& part) {
                lists_.sends.push_back({static_cast<int>(rank), at(piece.place) + part.offset, part.box});
            });
        });
    }
    void add_receives(WantedExtent const& extent, Piece const& piece) {
        LocalTensor const& target = targets_[extent.target];
        if (!finds(extent, piece, comm_.rank())) return;
        needs_.for_each_in(target, [&](MessagePart const& part) {
            lists_.receives.push_back({piece.reader, target.view.data() + part.offset, part.box});
            report_.bytes_loaded += part.box.payload_bytes();
        });
    }

    /// What a rank needs of a piece is in needs_ then.
    [[nodiscard]] bool finds(WantedExtent const& extent, Piece const& piece, Index rank) {
        return find_needs(needs_, extent, piece.box, targets_[extent.target], rank);
    }

    CommunicatorRef comm_;
    std::span<WantedExtent const> wanted_;
    std::span<LocalTensor const> targets_;
    ReadSchedule const& schedule_;
    Spread spread_;
    LoadReport& report_;
    bool passing_ = false;
    Index staging_bytes_;
    Workspace staging_;  ///< which the ranks of a node read in place, where the transport has it
    Needs needs_;
    TransferLists lists_;
    std::span<Piece const> came_;  ///< by broadcast, and not yet taken from staging memory
};

}  // namespace reshard::inline v0_1::detail
