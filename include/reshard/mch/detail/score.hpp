// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/score.hpp
/// \brief  TorchRec's scores: which id goes first when a shard is full, and the columns they are made of.
/// \depends mch/table.
#pragma once

#include <reshard/mch/table.hpp>

#include <cmath>  // pow

namespace reshard::inline v0_1::detail {

/// Where the columns of 8-byte integers that policies score by stand among ids, slots and metadata; -1: nowhere.
struct MchScored {
    int counts = -1;
    int access = -1;

    explicit MchScored(MchTable const& table) noexcept {
        for (std::size_t c = 0; c < table.metadata.size(); ++c) {
            MchColumn const& column = table.metadata[c];
            if (column.bytes == 8 && column.name == mch_counts) counts = static_cast<int>(c) + 2;
            if (column.bytes == 8 && column.name == mch_last_access) access = static_cast<int>(c) + 2;
        }
    }
};

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

}  // namespace reshard::inline v0_1::detail
