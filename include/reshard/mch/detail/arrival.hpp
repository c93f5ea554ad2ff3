// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/arrival.hpp
/// \brief  What ranks tell each other before entries move, and a block of entries that comes.
/// \depends core.
#pragma once

#include <reshard/core/index.hpp>

#include <cstddef>  // byte

namespace reshard::inline v0::detail {

/// What every pair of ranks tells each other of each table before entries move.
struct MchArrival {
    Index entries = 0;
    Index iteration = 0;
};

/// A block of entries from one rank.
struct MchBlock {
    int rank = 0;
    Index entries = 0;
    Index bytes = 0;
    Index begin = 0;           ///< in the memory for what arrives
    std::byte* own = nullptr;  ///< where it lies already, when it is this rank's
};

}  // namespace reshard::inline v0::detail
