// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/ended.hpp
/// \brief  How a rank that is a thread has ended.
#pragma once

#include <reshard/core/error.hpp>

#include <doctest/doctest.h>

#include <exception>
#include <string>
#include <vector>

namespace reshard::test {

/// What one rank threw; empty: nothing.
struct Ended {
    ErrorCode code = ErrorCode::none;
    std::string text;
    [[nodiscard]] bool says(std::string const& part) const { return text.find(part) != std::string::npos; }
};

/// Runs body() and keeps what it throws, which goes on.
template <class Body>
void keep_end(Ended& ended, Body const& body) {
    try {
        body();
    } catch (Error const& error) {
        ended = {error.code(), error.message()};
        throw;
    } catch (std::exception const& error) {
        ended = {ErrorCode::user, error.what()};
        throw;
    }
}

inline void check_none(std::vector<Ended> const& ended) {
    for (Ended const& each : ended) {
        CAPTURE(each.text);
        CHECK(each.code == ErrorCode::none);
    }
}

}  // namespace reshard::test
