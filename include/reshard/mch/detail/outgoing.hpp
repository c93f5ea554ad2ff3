// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/outgoing.hpp
/// \brief  Entries that leave a shard: checked, counted by destination, and packed into one block for each.
/// \depends mch/{state,partition}, mch/detail/{leaving_rule,own_entries,refusals}, memory/scratch.
#pragma once

#include <reshard/mch/detail/leaving_rule.hpp>
#include <reshard/mch/detail/own_entries.hpp>
#include <reshard/mch/detail/refusals.hpp>
#include <reshard/mch/partition.hpp>
#include <reshard/mch/state.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // any_of

namespace reshard::inline v0_1::detail {

inline constexpr MchDestination mch_nowhere = 0xffff;  ///< an empty place, or left out
static_assert(Partition::max_destinations <= mch_nowhere);

/// One shard's entries on their way out.
class MchOutgoing {
public:
    /// \pre `saved` and `current` outlive this. `own`: the rank's part, -1 for none, whose entries are not packed.
    MchOutgoing(MchTable const& saved, MchTable const& current, MchShard const& shard, Index own,
                MchOptions const& options)
        : saved_(&saved),
          current_(&current),
          shard_(shard),
          bounds_(saved.offsets()),
          rule_(saved, current, shard, options),
          partition_(shard.entries, current.parts(), options.threads) {
        own_.part = own < 0 ? mch_nowhere : static_cast<MchDestination>(own);
    }

    /// Throws MismatchError for entries that are not of the saved shard they lie in, by their slot or, where strays are
    /// refused, by their id. Writes nothing of the caller's.
    void count() {
        check();
        partition_.count(Leaving{to_, own_.part});
    }
    void pack() {
        std::vector<PartitionColumn> columns;
        for (Index width : widths_of(*current_)) columns.push_back({shard_.column(columns.size()), width});
        packed_ = Scratch(partition_.lay_out(columns));
        partition_.scatter(Leaving{to_, own_.part}, columns, packed_.bytes());
    }
    /// Frees what pack() made, once it has been sent.
    void unpack() noexcept { packed_ = {}; }

    [[nodiscard]] MchLeavingRule const& rule() const noexcept { return rule_; }
    /// Ids in the shard, whether they go anywhere or not.
    [[nodiscard]] Index live() const noexcept { return live_; }
    /// Those that stay included.
    [[nodiscard]] Index entries_for(Index part) const noexcept {
        return part == own_.part ? own_.count : partition_.counts()[as_size(part)];
    }
    [[nodiscard]] MchOwnEntries& own() noexcept { return own_; }
    /// What pack() made for a part of the mesh; nothing for the rank's own.
    [[nodiscard]] std::byte* block(Index part) const noexcept {
        return packed_.data() + partition_.blocks()[as_size(part)];
    }
    [[nodiscard]] Index block_bytes(Index part) const noexcept {
        auto const p = as_size(part);
        return partition_.blocks()[p + 1] - partition_.blocks()[p];
    }
    /// Ids that go nowhere, ascending with their positions.
    [[nodiscard]] std::vector<Index> left_out() const {
        std::vector<Index> ids;
        Index const count = live_ - partition_.kept() - own_.count;
        ids.reserve(as_size(count));
        for (Index i = 0; i < shard_.entries && count != 0; ++i) {
            if (to_[i] == mch_nowhere && shard_.ids[i] != empty_id(current_->layout)) ids.push_back(shard_.ids[i]);
        }
        return ids;
    }

private:
    static constexpr Index block_entries = 64;

    struct Leaving {
        MchDestination const* to;
        MchDestination own;
        [[nodiscard]] Index operator()(Index i) const noexcept { return to[i] == own ? mch_nowhere : to[i]; }
        [[nodiscard]] Index skip(Index i, Index end) const noexcept {
            std::uint64_t const all = own * std::uint64_t{0x0001000100010001};
            for (; i + 4 <= end; i += 4) {
                std::uint64_t four = 0;
                std::memcpy(&four, to + i, sizeof four);
                if (four != all) break;
            }
            return i;
        }
    };
    struct Findings {
        Index live = 0;
        Index wrong = -1;  ///< the first entry that is not of its saved shard
        MchOwnEntries own;
        Index last_own = INT64_MIN;  ///< the id
    };

    void check() {
        int const parts = partition_.parts();
        std::vector<Findings> found(as_size(parts));
        to_memory_ = Scratch(shard_.entries * as_index(sizeof(MchDestination)));
        to_ = reinterpret_cast<MchDestination*>(to_memory_.data());
        run_parts(parts, parts, [&, this](int part) {
            found[as_size(part)] =
                look(part_begin(shard_.entries, parts, part), part_begin(shard_.entries, parts, part + 1));
        });
        live_ = 0;
        Index wrong = -1;
        own_.parts = to_;
        for (Findings const& one : found) {
            live_ += one.live;
            own_.count += one.own.count;
            own_.in_runs = own_.in_runs && one.own.in_runs;
            own_.runs.insert(own_.runs.end(), one.own.runs.begin(), one.own.runs.end());
            if (wrong < 0) wrong = one.wrong;
        }
        if (wrong < 0) return;
        refuse_misplaced(*saved_, *current_, shard_.offset, wrong, shard_.ids[wrong], shard_.slots[wrong],
                         [this] { return std::span(shard_.ids, as_size(shard_.entries)); });
    }
    /// Entries [begin, end): fills their destinations. Blocks without anything to notice, which are nearly all, are
    /// looked at together.
    [[nodiscard]] Findings look(Index begin, Index end) const {
        Findings found;
        while (begin < end) {
            Index const part = part_at(bounds_.data(), saved_->parts(), shard_.offset + begin);
            Interval const range{bounds_[as_size(part)], bounds_[as_size(part) + 1]};
            Index const stop = smaller(end, range.end - shard_.offset);
            Owners const owners = rule_.by_slot ? owners_of(range) : Owners{};
            for (; begin < stop; begin = smaller(stop, begin + block_entries)) {
                Index const last = smaller(stop, begin + block_entries);
                if (is_regular(begin, last, range) && !(rule_.refuse_strays && has_strays(begin, last, part))) {
                    found.live += last - begin;
                    rule_.by_slot ? fill_by_slot(begin, last, owners) : fill_by_id(begin, last);
                    list_regular(begin, last, found);
                } else {
                    look_at_each(begin, last, found);
                }
            }
        }
        return found;
    }
    /// The owners of a range of slots: `first`, and one more from each of the bounds on; `few`: three bounds are
    /// enough.
    struct Owners {
        bool few = false;
        std::uint64_t first = 0;
        std::uint64_t bounds[3] = {INT64_MAX, INT64_MAX, INT64_MAX};
    };
    [[nodiscard]] Owners owners_of(Interval range) const {
        Owners owners;
        Index const first = rule_.router.part_of_slot(range.begin);
        Index const last = rule_.router.part_of_slot(range.end - 1);
        owners.few = last - first <= 3;
        owners.first = static_cast<std::uint64_t>(first);
        for (Index p = first + 1; owners.few && p <= last; ++p) {
            owners.bounds[p - first - 1] = static_cast<std::uint64_t>(current_->segment(p));
        }
        return owners;
    }
    /// Calls f(i, part that looks its id up). Ids of one block are mostly looked up by one part, which its ends tell.
    template <class F>
    void for_each_lookup(Index begin, Index end, F&& f) const noexcept {
        std::int32_t const same = rule_.router.part_of_ids(shard_.ids[begin], shard_.ids[end - 1]);
        for (Index i = begin; i < end; ++i) {
            f(i, static_cast<MchDestination>(same >= 0 ? same : rule_.router.part_of_id(shard_.ids[i])));
        }
    }
    void fill_by_id(Index begin, Index end) const noexcept {
        for_each_lookup(begin, end, [this](Index i, MchDestination part) { to_[i] = part; });
    }
    void fill_by_slot(Index begin, Index end, Owners const& owners) const noexcept {
        if (owners.few) {
            for (Index i = begin; i < end; ++i) {  // what the bound is not above has no sign
                auto const slot = static_cast<std::uint64_t>(shard_.slots[i]);
                std::uint64_t const above = ((owners.bounds[0] - 1 - slot) >> 63) +
                                            ((owners.bounds[1] - 1 - slot) >> 63) +
                                            ((owners.bounds[2] - 1 - slot) >> 63);
                to_[i] = static_cast<MchDestination>(owners.first + above);
            }
        } else {
            for (Index i = begin; i < end; ++i)
                to_[i] = static_cast<MchDestination>(rule_.router.part_of_slot(shard_.slots[i]));
        }
        if (!rule_.drop_unreachable) return;
        for_each_lookup(begin, end, [this](Index i, MchDestination part) {
            if (to_[i] != part) to_[i] = mch_nowhere;
        });
    }
    /// Whether all entries are ids, ascending and of one sign, and their slots are of their saved shard.
    [[nodiscard]] bool is_regular(Index begin, Index end, Interval range) const noexcept {
        if (shard_.ids[end - 1] == empty_id(current_->layout)) return false;
        if (!ascend_with_one_sign(shard_.ids + begin, end - begin)) return false;
        auto const first = static_cast<std::uint64_t>(range.begin);
        auto const last = static_cast<std::uint64_t>(range.end - 1);
        std::uint64_t signs = 0;  // two numbers from 0 on have a difference, whose sign tells
        for (Index i = begin; i < end; ++i) {
            auto const slot = static_cast<std::uint64_t>(shard_.slots[i]);
            signs |= slot | (slot - first) | (last - slot);
        }
        return as_index(signs) >= 0;
    }
    /// Whether the saved part that has these ids would not look all of them up.
    [[nodiscard]] bool has_strays(Index begin, Index end, Index part) const noexcept {
        Router const& router = rule_.saved_router;
        if (router.part_of_ids(shard_.ids[begin], shard_.ids[end - 1]) == part) return false;
        return std::any_of(shard_.ids + begin, shard_.ids + end,
                           [&](Index id) { return router.part_of_id(id) != part; });
    }
    /// The same entry by entry, whatever they are.
    void look_at_each(Index begin, Index end, Findings& found) const {
        Index const empty = empty_id(current_->layout);
        for (Index i = begin; i < end; ++i) {
            Index const to = rule_(i);
            bool const goes = to >= 0 && to != rule_.left_out;
            found.live += shard_.ids[i] != empty ? 1 : 0;
            if (to == MchLeavingRule::misplaced && found.wrong < 0) found.wrong = i;
            to_[i] = goes ? static_cast<MchDestination>(to) : mch_nowhere;
            if (goes && to_[i] == own_.part) list_run({i, i + 1, 1}, found);
        }
    }
    /// Lists what stays of a block of ascending ids, as one run.
    void list_regular(Index begin, Index end, Findings& found) const {
        MchDestination const own = own_.part;
        MchDestination staying = 0;
        for (Index i = begin; i < end; ++i) staying = static_cast<MchDestination>(staying + (to_[i] == own ? 1 : 0));
        if (own == mch_nowhere || staying == 0) return;
        bool const all = staying == end - begin;
        while (!all && to_[begin] != own) ++begin;
        while (!all && to_[end - 1] != own) --end;
        list_run({begin, end, staying}, found);
    }
    [[nodiscard]] static bool is_long(MchOwnRun const& one) noexcept {
        return one.is_dense() && one.count >= block_entries;
    }
    /// Joins what follows: dense runs without a gap, short and mixed ones with a gap of less than a block.
    void list_run(MchOwnRun const& one, Findings& found) const {
        MchOwnEntries& own = found.own;
        own.count += one.count;
        if (!own.in_runs) return;
        Index const last_id = std::exchange(found.last_own, shard_.ids[one.end - 1]);
        if (!own.runs.empty() && last_id < shard_.ids[one.begin]) {
            MchOwnRun& last = own.runs.back();
            bool const dense = last.is_dense() && one.is_dense();
            bool const near = one.begin - last.end < block_entries;
            if ((dense && last.end == one.begin) || (near && !is_long(last) && !is_long(one))) {
                last.end = one.end;
                last.count += one.count;
                return;
            }
        }
        own.runs.push_back(one);
        own.in_runs = as_index(own.runs.size()) <= shard_.entries / block_entries + block_entries;
    }
    MchTable const* saved_;
    MchTable const* current_;
    MchShard shard_;
    std::vector<Index> bounds_;
    MchLeavingRule rule_;
    Partition partition_;
    Scratch to_memory_;
    MchDestination* to_ = nullptr;
    Index live_ = 0;
    MchOwnEntries own_;
    Scratch packed_;
};

}  // namespace reshard::inline v0_1::detail
