// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/watch/check.hpp
/// \brief  What tests of sound kernels end with.
#pragma once

#include "cuda/watch/watch.hpp"

#include <doctest/doctest.h>

namespace reshard::test::watch {

/// Each fault found since forget() fails the test.
inline void check_no_faults() {
    for (std::string const& fault : faults()) {
        CAPTURE(fault);
        CHECK(false);
    }
}

}  // namespace reshard::test::watch
