// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/replica_distance.hpp
/// \brief  How far two values are apart.
/// \depends standard library only.
#pragma once

#include <reshard/core/config.hpp>

#include <cstdint>  // uint64_t

namespace reshard::inline v0 {

/// How far two values of one element type are apart.
struct ValueDistance {
    bool comparable = false;  ///< neither is NaN, and the element type has an order that is known here
    /// Values of the type between them, plus one, for floats ("ulps"; 0 between -0.0 and 0.0); for integers and
    /// booleans, the difference; for complex numbers, of the part that differs more.
    std::uint64_t steps = 0;
    double absolute = 0.0;  ///< |a - b|; of the part that differs more, for complex numbers

    [[nodiscard]] friend bool operator==(ValueDistance const&, ValueDistance const&) = default;
};

}  // namespace reshard::inline v0
