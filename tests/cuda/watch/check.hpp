// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/watch/check.hpp
/// \brief  What tests of sound kernels end with.
#pragma once

#include "cuda/watch/watch.hpp"
#include "support/random.hpp"

#include <doctest/doctest.h>

#include <string>

namespace reshard::test::watch {

/// Each fault found since forget() fails the test, and says in which order of blocks it was found.
inline void check_no_faults() {
    for (std::string const& fault : faults()) {
        INFO("RESHARD_TEST_SEED=", seeds(1).front());
        CAPTURE(fault);
        CHECK(false);
    }
}

}  // namespace reshard::test::watch
