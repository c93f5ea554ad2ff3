// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/thrown.hpp
/// \brief  What every rank of a run on threads threw, and that it was the same, with a remedy.
#pragma once

#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include <ostream>
#include <string>
#include <vector>

namespace reshard::test {

/// What one rank threw; no code, no message: nothing.
struct Thrown {
    ErrorCode code = ErrorCode::none;
    std::string message;
    friend bool operator==(Thrown const&, Thrown const&) = default;
};
inline std::ostream& operator<<(std::ostream& out, Thrown const& thrown) {
    return out << "error " << static_cast<int>(thrown.code) << ": " << thrown.message;
}

/// Runs `body` on every rank and returns what each threw; errors do not end the run.
template <class Body>
std::vector<Thrown> thrown_by(int ranks, Body const& body, ThreadOptions const& options = {}) {
    std::vector<Thrown> result(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, options, [&](ThreadCommunicator& comm) {
        try {
            body(comm);
        } catch (Error const& error) {
            result[static_cast<std::size_t>(comm.rank())] = {error.code(), error.message()};
        }
    });
    return result;
}

/// The same error on every rank, and a message with these parts that says what to do.
inline void check_same(std::vector<Thrown> const& thrown, ErrorCode code, std::vector<std::string> const& parts) {
    for (Thrown const& each : thrown) {
        CHECK(each == thrown[0]);
        CHECK(each.code == code);
    }
    CAPTURE(thrown[0]);
    for (std::string const& part : parts) {
        CAPTURE(part);
        CHECK(thrown[0].message.find(part) != std::string::npos);
    }
    CHECK(thrown[0].message.find("Fix: ") != std::string::npos);
}

}  // namespace reshard::test
