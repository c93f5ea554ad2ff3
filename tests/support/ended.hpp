// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/ended.hpp
/// \brief  How a rank that is a thread has ended.
#pragma once

#include <reshard/core/error.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace reshard::test {

/// What one rank threw; empty: nothing.
struct Ended {
    ErrorCode code = ErrorCode::none;
    std::string text;
    [[nodiscard]] bool says(std::string const& part) const { return text.find(part) != std::string::npos; }
};

inline void check_none(std::vector<Ended> const& ended) {
    for (Ended const& each : ended) {
        CAPTURE(each.text);
        CHECK(each.code == ErrorCode::none);
    }
}

}  // namespace reshard::test
