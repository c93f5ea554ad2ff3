// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/fails_to_bind.hpp
/// \brief  Ranks as threads, of which one may lack the memory to bind its next exchange.
#pragma once

#include <reshard/comm/policy.hpp>
#include <reshard/comm/threads.hpp>

#include "thrown.hpp"

#include <new>
#include <string>
#include <utility>

namespace reshard::test {

class FailsToBind : public PolicyBase<FailsToBind, ThreadCommunicator> {
public:
    using PolicyBase::split;
    explicit FailsToBind(ThreadCommunicator inner, bool fails = false) noexcept
        : PolicyBase(std::move(inner)), fails_(fails) {}

    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        if (std::exchange(fails_, false)) throw std::bad_alloc();
        return inner_.bind(sends, receives);
    }
    [[nodiscard]] FailsToBind split(int colour, int key) { return FailsToBind(inner_.split(colour, key)); }

private:
    bool fails_;
};

/// Rank 1 cannot bind what call(comm) exchanges: it has OutOfMemory, the others hear of it, and no later call succeeds.
template <class Call>
void check_failing_bind(Call const& call) {
    for (int calls : {1, 2}) {
        CAPTURE(calls);
        auto const thrown = thrown_by(3, [&](ThreadCommunicator& plain) {
            FailsToBind comm(plain.split(0, plain.rank()), plain.rank() == 1);
            try {
                call(comm);
            } catch (Error const&) {
                if (calls == 1) throw;
            }
            if (calls == 2) call(comm);
        });
        CHECK((thrown[1].code == ErrorCode::out_of_memory || calls == 2));
        for (Thrown const& each : thrown) {
            CAPTURE(each);
            CHECK((each.code == ErrorCode::peer_failed || &each == &thrown[1]));
            CHECK(each.message.find("reshard: out of memory") != std::string::npos);
        }
    }
}

}  // namespace reshard::test
