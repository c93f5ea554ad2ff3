// SPDX-License-Identifier: Apache-2.0
// How mch/report.hpp is done.
#pragma once

#include <reshard/mch/report.hpp>

#include <algorithm>  // sort

namespace reshard::inline v0_1 {

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
    auto const& [fault, rank, position, value, other] = violation;
    detail::MchFaultWords const& words = detail::mch_fault_words[static_cast<std::size_t>(fault)];
    std::string place = errors::concat("rank ", rank);
    if (fault == MchFault::never_loaded) return place;
    if (fault != MchFault::iteration) place += errors::concat(", position ", position);
    place += errors::concat(": ", words.value, value);
    if (fault == MchFault::unreachable && other == rank) return place + ", looked up in another bucket of the rank";
    if (fault == MchFault::reserved_slot && other < 0) return place + ", the last slot is nowhere";
    return errors::concat(place, words.other, other);
}

RESHARD_INLINE std::string explain(MchReport const& report) {
    if (report.sound()) return "sound";
    std::string text;
    for (int i = 0; i < mch_fault_count; ++i) {
        auto const fault = static_cast<MchFault>(i);
        if (report.total(fault) == 0) continue;
        text += errors::concat(text.empty() ? "" : "\n", name(fault), ": ", report.total(fault));
        Index places = 0;
        for (MchViolation const& violation : report.violations()) {
            if (violation.fault != fault) continue;
            text += errors::concat(places == 0 ? " (" : "; ", to_string(violation));
            ++places;
        }
        if (places != 0) text += places < report.total(fault) ? "; ...)" : ")";
    }
    return text;
}

}  // namespace reshard::inline v0_1
