// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/around.hpp
/// \brief  Sizes around those from which the library does something in another way.
#pragma once

#include "random.hpp"

#include <algorithm>
#include <vector>

namespace reshard::test {

/// One less than a limit, the limit, one more; some times as much, or nearly, and a remainder; 1 or more.
inline Index around(Random& random, Index limit) {
    return std::max<Index>(random.pick(std::vector<Index>{limit - 1, limit, limit, limit + 1, 2 * limit, 2 * limit + 1,
                                                          3 * limit - 1, 5 * limit}),
                           1);
}

}  // namespace reshard::test
