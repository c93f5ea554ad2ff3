// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/leaving_rule.hpp
/// \brief  Where a saved entry goes, as a value that loops of the host and kernels ask.
/// \depends mch/{routing,state}, mch/detail/stray_ids.
#pragma once

#include <reshard/mch/detail/stray_ids.hpp>
#include <reshard/mch/routing.hpp>
#include <reshard/mch/state.hpp>

namespace reshard::inline v0::detail {

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
    bool refuse_strays = false;
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
          refuse_strays(refuses_strays(options, saved)),
          saved_router(saved, saved_offsets) {}

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index entry) const noexcept {
        Index const id = ids[entry];
        if (id == empty) return empty_place;
        Index const slot = slots[entry];
        std::int32_t const part = saved_router.part_of_slot(offset + entry);
        if (slot < 0 || slot >= saved_slots || saved_router.part_of_slot(slot) != part) return misplaced;
        if (refuse_strays && saved_router.part_of_id(id) != part) return misplaced;
        if (!by_slot) return router.part_of_id(id);
        Index const owner = router.part_of_slot(slot);
        return !drop_unreachable || owner == router.part_of_id(id) ? owner : left_out;
    }
    /// Whether shards may come to hold ids that are looked up elsewhere.
    [[nodiscard]] bool leaves_strays() const noexcept { return by_slot && !drop_unreachable; }
};

}  // namespace reshard::inline v0::detail
