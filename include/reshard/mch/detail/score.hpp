// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/score.hpp
/// \brief  TorchRec's scores: which id goes first when a shard is full.
/// \depends mch/table.
#pragma once

#include <reshard/mch/table.hpp>

#include <cmath>  // pow

namespace reshard::inline v0::detail {

/// The lowest goes first. `age`: iterations since the last access, and 1.
[[nodiscard]] RESHARD_HOST_DEVICE inline double mch_score(MchEviction eviction, double exponent, double count,
                                                          double age) noexcept {
    double const since = age > 1.0 ? age : 1.0;
    double const decay = exponent == 1.0 ? since : std::pow(since, exponent);
    switch (eviction) {
        case MchEviction::lfu: return count;
        case MchEviction::lru: return -decay;
        case MchEviction::distance_lfu: return count / decay;
        case MchEviction::none: break;
    }
    return 0;
}

}  // namespace reshard::inline v0::detail
