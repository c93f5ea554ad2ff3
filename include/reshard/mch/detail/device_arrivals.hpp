// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/device_arrivals.hpp
/// \brief  Entries that arrive at a shard on a device: put in order, given slots, written once all ranks have agreed.
/// \depends mch/transition, mch/detail/{device_slots,incoming}, cuda/{merge_runs,partitions,work}.
///
/// What mch/detail/incoming.hpp does, step by step: the same shard, the same lists, the same errors, which it finds
/// again on the host for this. A step asks the device what the next has to know, so that the host waits once for all
/// tables, and launches once for all where arguments fit.
#pragma once

#include <reshard/cuda/merge_runs.hpp>
#include <reshard/cuda/partitions.hpp>
#include <reshard/cuda/work.hpp>
#include <reshard/mch/detail/device_slots.hpp>
#include <reshard/mch/detail/incoming.hpp>
#include <reshard/mch/transition.hpp>

#include <algorithm>  // sort

namespace reshard::inline v0_1::detail {

/// What becomes of a shard, as the receiver finds it.
template <class Work>
struct MchDeviceLists {
    MchChange numbers;
    WorkList<MchRowMove, Work> moves;
    WorkList<Index, Work> left_out;
    WorkList<Index, Work> evicted;
    WorkList<Index, Work> free;  ///< behind the first `given` of them: those that are freed
    Index given = 0;
};

/// An MchChange whose lists lie in memory of the device: they may be as long as the table. Their memory is given back
/// in the order of the stream, which has to outlive this.
template <class Work>
class BasicMchDeviceChange {
public:
    BasicMchDeviceChange(Work const& work, MchDeviceLists<Work>&& lists) : work_(work), lists_(std::move(lists)) {}

    /// Its lists are empty.
    [[nodiscard]] MchChange const& numbers() const noexcept { return lists_.numbers; }
    /// Moves into this rank's slots, as MchChange::moves: what apply_row_moves_on_device() takes.
    [[nodiscard]] std::span<MchRowMove const> moves() const noexcept { return lists_.moves.span(); }
    /// Ids this rank had and sent nowhere: MchChange::left_out.
    [[nodiscard]] std::span<Index const> left_out() const noexcept { return lists_.left_out.span(); }
    /// Ids that found no slot on it, lowest score first: MchChange::evicted.
    [[nodiscard]] std::span<Index const> evicted() const noexcept { return lists_.evicted.span(); }
    /// Slots of this rank whose rows are to be what new rows are: MchChange::freed.
    [[nodiscard]] std::span<Index const> freed() const noexcept {
        return lists_.free.span().subspan(as_size(lists_.given));
    }

    /// All of it, as redistribute() returns it. Copies the lists, and waits for them.
    [[nodiscard]] MchChange on_host() {
        MchChange change = lists_.numbers;
        change.moves = lists_.moves.host(work_);
        change.left_out = lists_.left_out.host(work_);
        change.evicted = lists_.evicted.host(work_);
        change.freed = fetch(work_, freed().data(), as_index(freed().size()));
        return change;
    }

private:
    Work work_;
    MchDeviceLists<Work> lists_;
};

/// What the steps of a call do to all of its tables: arrivals say what, and whoever has heard all of them lets it run.
template <class Work>
struct MchDeviceSteps {
    Uploads<Work> told;  ///< at the begin of a step
    Fetches<Work> asked;
    Partitions<Work, MchLeavingRule> leaving;
    Together<Work, MchInspect, MchInspectState> inspect{"inspect"};
    EachTogether<Work, MchCheckSlots> check_slots{"slots"};
    EachTogether<Work, MchListArrivals> arrivals{"arrivals"};
    MergeRuns<Work> merges;
    EachTogether<Work, MchFindRepeats> repeats{"repeats"};
    Sums<Work> moved;
    EachTogether<Work, MchMarkSlots> mark{"slots"};
    Sums<Work> free;
    EachTogether<Work, MchCountFree> count_free{"free slots"};
    EachTogether<Work, MchListFree> list_free{"free slots"};
    EachTogether<Work, MchWriteIds> write_ids{"ids"};
    EachTogether<Work, MchGiveSlots> write_slots{"slots"};
    EachTogether<Work, MchWriteColumns<std::uint64_t>> write_words{"columns"};
    EachTogether<Work, MchWriteColumns<std::uint32_t>> write_halves{"columns"};
    EachTogether<Work, MchWriteColumns<std::uint16_t>> write_quarters{"columns"};
    EachTogether<Work, MchWriteColumns<std::uint8_t>> write_bytes{"columns"};
    Uploads<Work> written;
};

template <class Work>
class MchDeviceArrivals : public MchExpected {
    template <class T>
    using List = WorkList<T, Work>;

public:
    /// \pre `table` outlives this.
    MchDeviceArrivals(MchTable const& table, MchShard const& shard) : MchExpected(table, shard) {}

    /// Throws OutOfMemory, and ShapeError for more entries than 32 bits count.
    void allocate(Work& work, Uploads<Work>& told) {
        for (MchBlock const& block : blocks_) {
            if (block.entries > Index{UINT32_MAX} - entries_) {
                refuse_table(ErrorCode::shape, *table_, "more than ", UINT32_MAX,
                             " entries arrive at one device. Fix: use more ranks, or redistribute() on the host.");
            }
            begins_.push_back(entries_ += block.entries);
        }
        memory_ = List<std::byte>(work, total_);
        arriving_ = memory_.data();
        std::vector<Index> where = begins_;
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            for (std::size_t c = 0; c < widths_.size(); ++c) {
                auto const first = reinterpret_cast<std::uintptr_t>(column_of(blocks_[b], c));
                where.push_back(as_index(first) - begins_[b] * widths_[c]);
            }
        }
        where_ = List<Index>(work, as_index(where.size()));
        told.add(where_.data(), where.data(), where_.size());
        received_ = {where_.data(), where_.data() + begins_.size(), static_cast<int>(blocks_.size()),
                     static_cast<int>(widths_.size()), entries_};
    }
    [[nodiscard]] Index kept() const noexcept { return kept_; }
    /// Ids of the shard to be, ascending.
    [[nodiscard]] Index const* ids() const noexcept { return ids_.data(); }

    // Steps that work out the shard, and list what becomes of the entries. They throw as MchIncoming::arrange().
    // Nothing of the caller's is written.

    /// Looks at what came.
    void inspect(Work& work, bool may_move, MchDeviceSteps<Work>& steps) {
        found_ = List<MchFindings>(work, 1);
        ids_ = List<Index>(work, entries_);
        descents_ = List<std::uint32_t>(work, entries_);
        reset(steps.told);
        if (entries_ != 0) {
            MchInspect const inspect{received_,   scored_.counts,   scored_.access, iteration_,
                                     ids_.data(), descents_.data(), found_.data()};
            steps.inspect.add(inspect.tiles(), inspect);
        }
        may_move_ = may_move;
        bool const evicts = entries_ >= shard_.entries;
        if (evicts && !may_move) {  // what is evicted would not be looked at: all arrive at their owner, none twice
            taken_ = zeros<std::uint32_t>(work, ceil_div(shard_.entries, 32));
            steps.check_slots.add(entries_, {received_, shard_.offset, shard_.entries, taken_.data(), found_.data()});
        }
        ask(steps.asked);
    }
    /// Asks where runs of ids begin.
    void find_runs(Work& work, Fetches<Work>& asked) {
        see(asked);
        if (seen_.faults != 0) refuse(work);
        descents_.shorten(as_index(seen_.descents));
        if (descents_.size() != 0) descents_at_ = asked.add(descents_.data(), ceil_div(descents_.size(), 2));
    }
    /// Sorts ids, by a merge.
    void order(Work& work, MchDeviceSteps<Work>& steps) {
        if (entries_ != 0) {
            order_ = List<std::uint32_t>(work, entries_);
            other_ids_ = List<Index>(work, entries_);
            other_order_ = List<std::uint32_t>(work, entries_);
            std::vector<Index> begins = begins_of_runs(steps.asked);
            if (begins.size() == 2) steps.arrivals.add(entries_, {order_.data()});
            if (steps.merges.add(std::move(begins), {ids_.data(), order_.data()},
                                 {other_ids_.data(), other_order_.data()})) {
                std::swap(ids_, other_ids_);
                std::swap(order_, other_order_);
            }
            steps.repeats.add(entries_, {ids_.data(), found_.data()});
        }
        ask(steps.asked);
    }
    /// Sends away what does not fit, and counts what is to be summed.
    void place(Work& work, MchDeviceSteps<Work>& steps, MchDeviceLists<Work>& change) {
        descents_ = {};
        other_ids_ = {};
        other_order_ = {};
        see(steps.asked);
        if (seen_.faults != 0) refuse(work);
        largest_count_ = as_index(seen_.largest_count);
        change.numbers.unpinned = as_index(seen_.pinned);
        kept_ = entries_;
        evict(work, change.evicted);
        if (shard_.entries == 0) return;
        moved_at_ = steps.moved.add(kept_ + 1);
        free_at_ = steps.free.add(free_slots().words() + 1);
    }
    /// Marks the slots that are kept: its own where an entry can keep it, else the lowest free one; the last slot is
    /// the row of misses.
    void mark(Work& work, MchDeviceSteps<Work>& steps) {
        if (shard_.entries == 0) return;
        taken_ = zeros<std::uint32_t>(work, free_slots().words());
        reset(steps.told);
        steps.mark.add(kept_ + 1, {received_, order_.data(), kept_, shard_.offset, shard_.entries, taken_.data(),
                                   steps.moved.numbers(moved_at_), found_.data()});
        ask(steps.asked);
        moved_before_ = steps.moved.sums(moved_at_);
        homeless_at_ = steps.asked.add(moved_before_);
        steps.asked.add(moved_before_ + kept_);
    }
    /// Gives the others a slot. The last of the moves is that of the row of misses.
    void give(Work& work, MchDeviceSteps<Work>& steps, MchTable const& saved, Index part,
              MchDeviceLists<Work>& change) {
        Index const z = shard_.entries;
        if (z == 0) return;
        see(steps.asked);
        Index const homeless = steps.asked[homeless_at_ + 1] - steps.asked[homeless_at_];
        auto const on_reserved = as_index(seen_.on_reserved);
        bool const strange = !may_move_ && homeless != on_reserved;  // one is not of the shard
        if (seen_.faults != 0 || on_reserved > 1 || strange) refuse(work);

        MchFreeSlots among = free_slots();
        among.taken = taken_.data();
        among.free = steps.free.numbers(free_at_);
        among.free_before = steps.free.sums(free_at_);
        steps.count_free.add(among.words() + 1, {among});
        free_ = List<Index>(work, z - (kept_ - homeless));
        steps.list_free.add(z, {among, free_.data()});
        auto const miss = miss_move(saved, *table_, part);
        List<MchRowMove>& moves = change.moves;
        moves = List<MchRowMove>(work, homeless + (miss ? 1 : 0));
        if (miss) steps.written.add(moves.data() + homeless, &*miss, sizeof(MchRowMove) / 8);
        steps.write_ids.add(z, {ids_.data(), kept_, empty_id(table_->layout), shard_.ids});
        steps.write_slots.add(
            z, {received_, order_.data(), kept_, homeless, moved_before_, free_.data(), shard_.slots, moves.data()});
        write_columns(steps.write_words);
        write_columns(steps.write_halves);
        write_columns(steps.write_quarters);
        write_columns(steps.write_bytes);
        if (!has_freed(saved, *table_, part, change.numbers.live_before, kept_ - homeless + on_reserved)) return;
        free_.shorten(homeless + z - 1 - kept_);
        change.free = std::move(free_);
        change.given = homeless;
    }

    /// What is to be written of the shard but for its columns.
    void tell(Uploads<Work>& told) const {
        if (shard_.iteration != nullptr) told.add(shard_.iteration, &iteration_, 1);
        std::vector<Index> segments;
        for (Index i = 0; i < shard_.segment_count; ++i) segments.push_back(table_->segment(i));
        told.add(shard_.segments, segments.data(), shard_.segment_count);
    }

private:
    void reset(Uploads<Work>& told) {
        seen_ = {};
        told.add(found_.data(), &seen_, sizeof(MchFindings) / 8);
    }
    /// The same for all tables at once.
    void ask(Fetches<Work>& asked) { found_at_ = asked.add(found_.data(), sizeof(MchFindings) / 8); }
    void see(Fetches<Work> const& asked) { asked.read(found_at_, &seen_, sizeof(seen_)); }

    /// Where runs begin, and where the last ends: those of blocks, and those that begin inside a block.
    [[nodiscard]] std::vector<Index> begins_of_runs(Fetches<Work> const& asked) const {
        std::vector<Index> begins = begins_;
        Index const inside = descents_.size();
        if (inside != 0) {
            std::vector<std::uint32_t> at(as_size(inside));
            asked.read(descents_at_, at.data(), 4 * at.size());
            begins.insert(begins.end(), at.begin(), at.end());
        }
        std::sort(begins.begin(), begins.end());
        return begins;
    }

    // ---- Eviction ------------------------------------------------------------------------------------------------

    /// What does not fit goes: the lowest scores and, among equals, the largest ids.
    void evict(Work& work, List<Index>& evicted) {
        Index const room = larger<Index>(shard_.entries - 1, 0);
        Index const surplus = entries_ - room;
        if (surplus <= 0) return;
        kept_ = room;
        evicted = List<Index>(work, surplus);
        auto const gone = zeros<std::uint32_t>(work, entries_);
        {
            List<Index> scores(work, entries_);
            List<Index> sorted(work, entries_);
            List<std::uint32_t> places(work, entries_);
            List<std::uint32_t> ranked(work, entries_);
            for_each_index(work, "scores", entries_,
                           MchScores{received_, order_.data(), table_->eviction, table_->decay_exponent, scored_.counts,
                                     scored_.access, iteration_, largest_count_, scores.data(), places.data()});
            work.sort(scores.data(), sorted.data(), places.data(), ranked.data(), entries_);
            for_each_index(work, "evict", surplus, MchEvict{ranked.data(), ids_.data(), evicted.data(), gone.data()});
        }
        List<Index> gone_before(work, entries_);
        work.sum(gone.data(), gone_before.data(), entries_);
        List<Index> ids(work, kept_);
        List<std::uint32_t> order(work, kept_);
        for_each_index(
            work, "compact", entries_,
            MchCompact{gone.data(), gone_before.data(), ids_.data(), order_.data(), ids.data(), order.data()});
        std::swap(ids_, ids);
        std::swap(order_, order);
    }

    // ---- Slots ---------------------------------------------------------------------------------------------------

    [[nodiscard]] MchFreeSlots free_slots() const noexcept { return {shard_.offset, shard_.entries - 1}; }

    // ---- What is wrong ---------------------------------------------------------------------------------------------

    /// Only once something is: throws what the host finds in the same entries.
    [[noreturn]] void refuse(Work& work) const {
        MchIncoming host(*table_, shard_, 1);
        std::vector<std::vector<std::byte>> held;
        for (MchBlock const& block : blocks_) {
            held.push_back(fetch(work, start_of(block), block.bytes));
            host.expect(block.rank, block.entries, iteration_, held.back().data());
        }
        MchChange change;
        host.arrange(may_move_ ? MchMode::route : MchMode::slot_owner, change);
        // Where scores are powers the host may have evicted another of two ids, and then finds nothing.
        refuse_table(ErrorCode::mismatch, *table_,
                     "two ids hold one slot. Fix: the saved state is corrupt; validate() says where.");
    }

    /// Columns in pieces of T: those of one piece an element at once, each of the others by itself.
    template <class T>
    void write_columns(EachTogether<Work, MchWriteColumns<T>>& writes) {
        constexpr auto size = as_index(sizeof(T));
        MchWriteColumns<T> together{received_, order_.data(), kept_, 1, largest_count_, {}};
        for (std::size_t c = 0; c < table_->metadata.size(); ++c) {
            std::byte* const to = shard_.metadata[c];
            Index const width = widths_[c + 2];
            if (to == nullptr || ByteColumns::piece_of(reinterpret_cast<std::uintptr_t>(to), width) != size) continue;
            int const column = static_cast<int>(c) + 2;
            MchWrittenColumn const one{column, table_->metadata[c].empty, column == scored_.counts, to};
            if (width == size) {
                together.columns.push_back(one);
                continue;
            }
            MchWriteColumns<T> const alone{received_, order_.data(), kept_, width / size, largest_count_, {one}};
            writes.add(shard_.entries * (width / size), alone);
        }
        if (together.columns.size() != 0) writes.add(shard_.entries, together);
    }

    Index entries_ = 0;
    Index largest_count_ = 0;
    Index kept_ = 0;
    List<std::byte> memory_;
    std::vector<Index> begins_{0};  ///< arrivals before each block, and all
    List<Index> where_;             ///< the same, and where columns lie, on the device
    MchReceived received_;
    List<MchFindings> found_;
    MchFindings seen_;
    std::size_t found_at_ = 0;      ///< among what is asked, as the others
    List<std::uint32_t> descents_;  ///< where runs begin inside a block
    std::size_t descents_at_ = 0;
    bool may_move_ = true;
    List<Index> ids_;            ///< as they came; then of what is kept, ascending
    List<std::uint32_t> order_;  ///< their arrivals
    List<Index> other_ids_;      ///< what a merge takes in turn with these
    List<std::uint32_t> other_order_;
    List<std::uint32_t> taken_;  ///< slots: a bit each
    Index moved_at_ = 0;         ///< among the sums of all tables
    Index free_at_ = 0;
    Index const* moved_before_ = nullptr;  ///< entries of [0, kept_] that need another slot, and of tables before
    std::size_t homeless_at_ = 0;
    List<Index> free_;  ///< slots
};

}  // namespace reshard::inline v0_1::detail
