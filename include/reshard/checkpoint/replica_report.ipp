// SPDX-License-Identifier: Apache-2.0
// How checkpoint/replica_report.hpp is done.
#pragma once

#include <reshard/algebra/draw.hpp>
#include <reshard/checkpoint/detail/replica_value.hpp>
#include <reshard/checkpoint/replica_report.hpp>
#include <reshard/core/error.hpp>

#include <algorithm>  // min

namespace reshard::inline v0_1 {

namespace detail {

[[nodiscard]] inline std::string spot_text(DType dtype, ReplicaSpot const& spot) {
    if (!spot.found) {
        return concat("rank ", spot.rank, " and rank ", spot.reference,
                      " no longer differ: the memory was written while it was compared");
    }
    return concat("first at ", to_string(spot.index), ": ", value_text(dtype, spot.value), " on rank ", spot.rank, ", ",
                  value_text(dtype, spot.reference_value), " on rank ", spot.reference);
}

}  // namespace detail

RESHARD_INLINE std::string detail::counted_ranks(std::vector<int> const& ranks) {
    return concat(ranks.size() == 1 ? "rank " : "ranks ", ranks_text(ranks));
}

RESHARD_INLINE std::string to_string(ReplicaDifference const& difference) {
    std::string text = errors::concat("'", difference.name, "' ", name(difference.dtype), " on ",
                                      detail::counted_ranks(difference.ranks), ": ");
    if (difference.is_tie()) {
        text += "a tie, nobody is odd; ";
    } else {
        detail::append(
            text, {detail::counted_ranks(difference.odd), difference.odd.size() == 1 ? " is odd; " : " are odd; "});
    }
    text += detail::spot_text(difference.dtype, difference.spot);
    if (!difference.repaired.empty()) {
        detail::append(text,
                       {"; ", detail::counted_ranks(difference.repaired), " repaired from rank ", difference.source});
    }
    return text;
}

RESHARD_INLINE std::string explain(ReplicaReport const& report, std::size_t most) {
    if (report.equal()) return errors::concat(report.compared, " tensors with replicas, all equal");
    std::size_t differing = 0;
    for (std::size_t i = 0; i < report.differences.size(); ++i) {
        if (i == 0 || report.differences[i].tensor != report.differences[i - 1].tensor) ++differing;
    }
    std::string text = errors::concat(differing, " of ", report.compared, " tensors with replicas differ");
    std::size_t const shown = std::min(most, report.differences.size());
    for (std::size_t i = 0; i < shown; ++i) text += "\n  " + to_string(report.differences[i]);
    if (shown != report.differences.size()) {
        detail::append(text, {"\n  and ", report.differences.size() - shown, " more differences"});
    }
    return text;
}

}  // namespace reshard::inline v0_1
