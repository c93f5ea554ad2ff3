// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/allocations.hpp
/// \brief  Counts what a thread allocates, and refuses what the test says it cannot get. The operators that count are
/// in allocations.cpp, once per program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reshard::test {

/// What this thread has allocated since counting was switched on.
struct AllocationCounter {
    bool counting = false;
    int allocations = 0;
    std::size_t refused_from = SIZE_MAX;  ///< bytes that this thread cannot get
    int granted = 0;                      ///< of those that size, how many it gets before
    bool once = false;                    ///< it is refused one, and gets what it asks for afterwards
    int refused = 0;                      ///< what it has been refused
};
AllocationCounter& allocation_counter() noexcept;

/// The allocations of this thread while `body` runs.
template <class Body>
int allocations_in(Body&& body) {
    allocation_counter().counting = true;
    allocation_counter().allocations = 0;
    body();
    allocation_counter().counting = false;
    return allocation_counter().allocations;
}

}  // namespace reshard::test
