// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/sorted_run.hpp
/// \brief  SortedRun: what a merge is made of.
/// \depends core/index.
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0 {

/// Keys in ascending order, equal ones allowed. Aligned to 8 bytes, as the columns of a packed block are if its buffer
/// is.
struct SortedRun {
    Index const* keys = nullptr;
    Index count = 0;
};

}  // namespace reshard::inline v0
