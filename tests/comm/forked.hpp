// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/forked.hpp
/// \brief  What a communicator owes a child that a rank forks: to say that it is no rank.
#pragma once

#include <reshard/comm/collectives.hpp>

#include <string>
#include <string_view>

namespace reshard::test {

/// Whether that is a TransportError which says so.
template <class Call>
[[nodiscard]] bool refuses(Call&& call) {
    try {
        call();
    } catch (TransportError const& error) {
        return error.message().find(": this process was forked from rank ") != std::string::npos;
    } catch (Error const&) {
    }
    return false;
}
/// Within the child.
template <Communicator C>
[[nodiscard]] bool refuses_a_child(C& comm) {
    return refuses([&] { barrier(comm); }) && refuses([&] { static_cast<void>(comm.split(0, 0)); }) &&
           refuses([&] { comm.exchange({}, {}).wait(); });
}

}  // namespace reshard::test
