// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/leaving_rule.hpp
/// \brief  Where a saved entry goes, as a value that loops of the host and kernels ask; and what is said of ids that
///         their rank would not have looked up, and which hash sizes fit.
/// \depends mch/{routing,state,transition}.
///
/// The hash size is in no column. With another one than the table was trained with, ids seem to be looked up elsewhere,
/// and would be evicted or dropped there by the thousand; so the first that is not where it should be stops everything.
#pragma once

#include <reshard/mch/routing.hpp>
#include <reshard/mch/state.hpp>
#include <reshard/mch/transition.hpp>

namespace reshard::inline v0_1::detail {

/// The hash sizes with which ids are looked up in the saved shards that hold them.
class MchHashSizes {
public:
    /// \pre a sorted table that check_table() takes.
    explicit MchHashSizes(MchTable const& saved) noexcept
        : buckets_(saved.buckets), local_(saved.buckets / saved.parts()) {}

    void add(Index id, Index part) noexcept {
        auto const raw = static_cast<std::uint64_t>(id);
        bool const dealt = as_index(raw % static_cast<std::uint64_t>(buckets_)) / local_ == part;
        all_dealt_ = all_dealt_ && dealt;
        if (id < 0) {  // beyond every hash size
            possible_ = possible_ && dealt;
            return;
        }
        lowest_ = smaller(lowest_, id);
        least_span_ = larger(least_span_, id / (part + 1) + 1);  // part * span <= id < (part + 1) * span
        if (part > 0) most_span_ = smaller(most_span_, id / part);
    }
    [[nodiscard]] std::string text() const {
        Index const least = ceil_div(least_span_, local_);  // of a block
        Index const most = smaller(most_span_ / local_, ceil_div(INT64_MAX, buckets_));
        std::string found;
        if (possible_ && all_dealt_ && lowest_ >= buckets_) found = concat("up to ", lowest_ / buckets_ * buckets_);
        if (possible_ && least <= most) {
            Index size = 0;
            if (!multiply_fits(most, buckets_, size)) size = INT64_MAX;
            found += concat(found.empty() ? "" : " and ", "from ", (least - 1) * buckets_ + 1, " to ", size);
        }
        if (found.empty())
            return "no hash size was found that fits (are the saved shards those of the ranks that trained them, and "
                   "`saved` the same table on all ranks?)";
        return concat("hash sizes ", found, " would fit");
    }

private:
    Index buckets_;
    Index local_;  ///< buckets of one part
    bool possible_ = true;
    bool all_dealt_ = true;
    Index lowest_ = INT64_MAX;
    Index least_span_ = 1;  ///< ids of one part, where they are counted off
    Index most_span_ = INT64_MAX;
};

/// `part` holds the id, `asked` would be asked for it.
[[noreturn]] inline void refuse_stray(MchTable const& saved, MchTable const& current, Index position, Index id,
                                      Index part, Index asked, std::string_view sizes) {
    DynamicMesh const& mesh = saved.slots.mesh();
    refuse_table(ErrorCode::mismatch, current, "position ", position, " of the saved columns has id ", id,
                 ", saved by rank ", mesh.rank_at(part), ", but with hash size ", saved.hash_size,
                 " it was looked up on rank ", mesh.rank_at(asked), "; ", sizes,
                 ". Fix: give the hash size and the hash function that the table was trained with; where an earlier "
                 "change left ids out of reach, MchOptions::accept_strays.");
}
/// Of an entry that is not of the saved shard it lies in, by its slot or, else, by its id. `offset`: the position of
/// the rank's first entry; `ids()`: those of all its entries.
template <class Ids>
[[noreturn]] void refuse_misplaced(MchTable const& saved, MchTable const& current, Index offset, Index entry, Index id,
                                   Index slot, Ids&& ids) {
    std::vector<Index> const begins = saved.offsets();
    auto const part_of = [&](Index position) { return part_at(begins.data(), saved.parts(), position); };
    Index const part = part_of(offset + entry);
    Interval const range = saved.part_range(part);
    if (!range.contains(slot)) {
        refuse_table(ErrorCode::mismatch, current, "position ", offset + entry, " of the saved columns has id ", id,
                     " with slot ", slot, ", outside its saved shard of slots ", range.begin, " to ", range.end,
                     ". Fix: load the columns by position, and give the offsets they were saved with.");
    }
    MchHashSizes sizes(saved);
    Index position = offset;
    for (Index const one : ids()) {
        if (one != empty_id(saved.layout)) sizes.add(one, part_of(position));
        ++position;
    }
    refuse_stray(saved, current, offset + entry, id, part, Router(saved).part_of_id(id),
                 concat("of the ids that this rank has, ", sizes.text()));
}

/// The destination of an entry: a part, `left_out` for an id that no look-up would find and that is to be dropped,
/// `empty_place`, or `misplaced` for a slot that is not of the saved shard it lies in, or an id that was not looked up
/// there.
struct MchLeavingRule {
    static constexpr Index empty_place = -1;  ///< to kernels `not_sent`
    static constexpr Index misplaced = -2;    ///< and `out_of_range`

    Index const* ids = nullptr;
    Index const* slots = nullptr;
    Index offset = 0;       ///< position of entry 0 among the saved slots
    Index saved_slots = 0;  ///< of the saved table
    Index empty = INT64_MAX;
    Router router;
    bool by_slot = false;           ///< to the owner of the slot, else to where the id is looked up
    bool drop_unreachable = false;  ///< by_slot: nowhere, when the id is looked up elsewhere
    Index left_out = 0;
    bool refuse_strays = false;  ///< not where one shard has all ids, nor where their routes decide nothing
    Router saved_router;

    MchLeavingRule() = default;
    /// Offsets as Router's.
    MchLeavingRule(MchTable const& saved, MchTable const& current, MchShard const& shard, MchOptions const& options,
                   Index const* saved_offsets = nullptr, Index const* current_offsets = nullptr)
        : ids(shard.ids),
          slots(shard.slots),
          offset(shard.offset),
          saved_slots(saved.size()),
          empty(empty_id(current.layout)),
          router(current, current_offsets),
          by_slot(options.mode == MchMode::slot_owner),
          drop_unreachable(by_slot && options.drop_unreachable),
          left_out(current.parts()),
          refuse_strays((!by_slot || drop_unreachable) && !options.accept_strays && saved.parts() > 1),
          saved_router(saved, saved_offsets) {}

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index entry) const noexcept {
        return with(table())(entry);
    }
    /// As a thread asks it, entry by entry: the saved shard of one is that of most that follow, and what it has is told
    /// by comparing.
    class Asked {
    public:
        RESHARD_HOST_DEVICE constexpr Asked(MchLeavingRule const& rule, Index const* offsets) noexcept
            : rule_(&rule), offsets_(offsets) {}
        [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index entry) noexcept {
            Index const id = rule_->ids[entry];
            Index const slot = rule_->slots[entry];
            if (id == rule_->empty) return empty_place;
            Router const& saved = rule_->saved_router;
            Index const position = rule_->offset + entry;
            if (!saved_.has(position)) {
                part_ = saved.part_of_slot(position);
                saved_ = saved.slots_of(part_);
            }
            if (slot >= rule_->saved_slots || !saved_.has(slot)) return misplaced;
            if (rule_->refuse_strays && !saved.looks_up(part_, saved_, id)) return misplaced;
            if (!rule_->by_slot) return rule_->router.part_of_id(id, offsets_);
            Index const owner = rule_->router.part_of_slot(slot, offsets_);
            bool const goes = !rule_->drop_unreachable || owner == rule_->router.part_of_id(id, offsets_);
            return goes ? owner : rule_->left_out;
        }

    private:
        MchLeavingRule const* rule_;
        Index const* offsets_;  ///< of the cut that entries go to
        SlotRouter::Range saved_;
        std::int32_t part_ = 0;
    };
    /// Offsets that kernels copy to where they are nearer.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index const* table() const noexcept { return router.table(); }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int table_size() const noexcept { return router.table_size(); }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Asked with(Index const* offsets) const noexcept {
        return {*this, offsets};
    }

    /// Whether shards may come to hold ids that are looked up elsewhere.
    [[nodiscard]] bool leaves_strays() const noexcept { return by_slot && !drop_unreachable; }
};

}  // namespace reshard::inline v0_1::detail
