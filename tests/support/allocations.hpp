// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/allocations.hpp
/// \brief  Counts what a thread allocates. The operators that count are in allocations.cpp, once per program.
#pragma once

namespace reshard::test {

/// What this thread has allocated since counting was switched on.
struct AllocationCounter {
    bool counting = false;
    int allocations = 0;
};
AllocationCounter& allocation_counter() noexcept;

/// The allocations of this thread while `body` runs.
template <class Body>
int allocations_in(Body&& body) {
    allocation_counter() = {true, 0};
    body();
    allocation_counter().counting = false;
    return allocation_counter().allocations;
}

}  // namespace reshard::test
