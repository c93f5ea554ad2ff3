// SPDX-License-Identifier: Apache-2.0
// How mch/report.hpp is done.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/mch/report.hpp>

#include <algorithm>  // sort

namespace reshard::inline v0 {

RESHARD_INLINE Index MchReport::total() const noexcept {
    Index sum = 0;
    for (Index count : totals_) sum += count;
    return sum;
}

RESHARD_INLINE void MchReport::add(MchViolation const& violation) {
    if (totals_[static_cast<std::size_t>(violation.fault)]++ < listed) violations_.push_back(violation);
}

RESHARD_INLINE void MchReport::sort() noexcept { std::sort(violations_.begin(), violations_.end()); }

RESHARD_INLINE std::string to_string(MchViolation const& violation) {
    std::string place = concat("rank ", violation.rank, ", position ", violation.position, ": ");
    Index const value = violation.value;
    Index const other = violation.other;
    switch (violation.fault) {
        case MchFault::never_loaded: return concat("rank ", violation.rank);
        case MchFault::id_order: return concat(place, "id ", value, " after ", other);
        case MchFault::id_repeated: return concat(place, "id ", value, ", as at position ", other);
        case MchFault::slot_range: return concat(place, "slot ", value, ", the shard begins at ", other);
        case MchFault::slot_repeated: return concat(place, "slot ", value, ", as at position ", other);
        case MchFault::reserved_live: return concat(place, "id ", value, " with slot ", other);
        case MchFault::reserved_slot:
            if (other < 0) return concat(place, "slot ", value, ", the last slot is nowhere");
            return concat(place, "slot ", value, ", the last slot is at position ", other);
        case MchFault::count_negative: return concat(place, "count ", value, " of id ", other);
        case MchFault::count_pinned: return concat(place, "id ", other);
        case MchFault::access_late: return concat(place, "iteration ", value, ", the current one is ", other);
        case MchFault::stale_metadata: return concat(place, "column ", value, " begins with byte ", other);
        case MchFault::stale_segments: return concat(place, value, " instead of ", other);
        case MchFault::unreachable: return concat(place, "id ", value, ", looked up on rank ", other);
        case MchFault::iteration: return concat("rank ", violation.rank, ": ", value, " instead of ", other);
        case MchFault::id_on_two_ranks: return concat(place, "id ", value, ", also on rank ", other);
    }
    return place;
}

RESHARD_INLINE std::string to_string(MchReport const& report) {
    if (report.sound()) return "sound";
    std::string text;
    for (int i = 0; i < mch_fault_count; ++i) {
        auto const fault = static_cast<MchFault>(i);
        if (report.total(fault) == 0) continue;
        text += concat(text.empty() ? "" : "\n", name(fault), ": ", report.total(fault));
        Index places = 0;
        for (MchViolation const& violation : report.violations()) {
            if (violation.fault != fault) continue;
            text += concat(places == 0 ? " (" : "; ", to_string(violation));
            ++places;
        }
        if (places != 0) text += places < report.total(fault) ? "; ...)" : ")";
    }
    return text;
}

}  // namespace reshard::inline v0
