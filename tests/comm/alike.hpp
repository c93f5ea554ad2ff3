// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/alike.hpp
/// \brief  What the tests of several transports do alike, beyond the conformance suite. Called by all ranks.
#pragma once

#include "conformance.hpp"

#include <random>  // mt19937
#include <string>
#include <vector>

namespace reshard::test {

/// Exchanges of random numbers of transfers, of random sizes, one after another: every byte arrives.
inline void moves_at_random(CommunicatorRef comm, unsigned seed, int trials) {
    std::mt19937 rng(seed);  // the same on every rank
    for (int trial = 0; trial != trials; ++trial) {
        auto const salt = static_cast<unsigned>(rng());
        moves_in_order(
            comm,
            [&](int from, int to) { return static_cast<int>((salt + static_cast<unsigned>(from * 5 + to * 3)) % 4U); },
            [&](int from, int to, int k) {
                return 1 + static_cast<int>((salt / 7U + static_cast<unsigned>(from * 11 + to * 17 + k * 29)) % 3000U);
            });
    }
}

/// Pairs of which linked(a, b) is true, the same both ways round, exchange floats, three times over: from where they
/// have gaps to where they lie in a row, the other way round, and doubled on their way.
template <class Linked>
void moves_among(CommunicatorRef comm, Linked const& linked, Index count) {
    int const me = comm.rank();
    transport::Conversion const doubled{DType::f32, DType::f32, 2.0, transport::convert};
    transport::Conversion const kept{DType::f32, DType::f32, 1.0, transport::convert};
    std::vector<std::vector<float>> from;
    std::vector<std::vector<float>> to;
    std::vector<transport::Send> sends;
    std::vector<transport::Receive> receives;
    for (int r = 0; r != comm.size(); ++r) {
        for (int k = 0; k != 3 && linked(me, r); ++k) {
            Index const elements = count / (k + 1) + 5 * (me + r);
            auto const mine = from.emplace_back(2 * static_cast<std::size_t>(elements)).data();
            auto const theirs = to.emplace_back(2 * static_cast<std::size_t>(elements)).data();
            sends.push_back({r, reinterpret_cast<std::byte const*>(mine), box_of(4, {{elements, k == 1 ? 4 : 8}}),
                             k == 2 ? doubled : transport::Conversion{}});
            receives.push_back({r, reinterpret_cast<std::byte*>(theirs), box_of(4, {{elements, k == 0 ? 4 : 8}}),
                                k == 2 ? kept : transport::Conversion{}});
        }
    }
    auto exchange = comm.bind(sends, receives);
    for (int round = 0; round != 3; ++round) {
        auto const value = [&](int source, int target, std::size_t k, std::size_t i) {
            return static_cast<float>((i + 100 * k) % 1000) + static_cast<float>(1000 * source + 50 * target + round);
        };
        for (std::size_t n = 0; n != sends.size(); ++n)
            for (std::size_t i = 0; i != from[n].size(); ++i)
                from[n][i] = value(me, sends[n].peer, n % 3, n % 3 == 1 ? i : i / 2);
        exchange.start();
        exchange.wait();
        int wrong = 0;
        for (std::size_t n = 0; n != receives.size(); ++n) {
            std::size_t const step = n % 3 == 0 ? 1 : 2;
            for (std::size_t i = 0; 2 * i != to[n].size(); ++i) {
                float const sent = value(receives[n].peer, me, n % 3, i);
                wrong += to[n][step * i] != (n % 3 == 2 ? 2 * sent : sent) ? 1 : 0;
            }
        }
        CHECK(wrong == 0);
    }
}
/// Of eight ranks: rank 0 has five peers, one of which has another one; rank 7 has none.
inline bool has_link(int a, int b) {
    int const low = a < b ? a : b;
    int const high = a < b ? b : a;
    return low != high && ((low == 0 && high <= 5) || (low == 5 && high == 6));
}

/// After a failure each further call says so again.
inline void check_poisoned(CommunicatorRef comm) {
    CHECK_THROWS_AS(comm.exchange({}, {}).wait(), PeerFailed);
    CHECK_THROWS_AS(static_cast<void>(comm.agree({})), PeerFailed);
    CHECK_THROWS_AS(static_cast<void>(comm.split(0, 0)), PeerFailed);
}

/// Rank 1 of 4 sends what rank 3 does not expect.
struct Mismatch {
    std::vector<Index> sent;      ///< bytes of each transfer from rank 1 to rank 3
    std::vector<Index> expected;  ///< and of each transfer rank 3 receives from rank 1
    std::string story;            ///< part of the message of both
};
inline std::vector<Mismatch> const mismatches = {
    {{24}, {32}, "rank 1 sends 24 bytes, rank 3 expects 32 bytes"},
    {{24, 8}, {24}, "rank 1 sends 8 bytes, rank 3 expects nothing"},
    {{24}, {24, 8}, "rank 1 sends nothing, rank 3 expects 8 bytes"},
    {{24}, {}, "rank 1 sends 24 bytes, rank 3 expects nothing"},  // only the sender can see this one
    {{}, {24}, "rank 1 sends nothing, rank 3 expects 24 bytes"},  // and only the receiver this one
};

/// Ends with the error of such an exchange, in wait() or in test(). `to` is where rank 3 would receive.
inline void exchange_mismatched(CommunicatorRef comm, Mismatch const& one, bool by_test, std::byte* to) {
    std::vector<std::byte> const from(64);
    std::vector<transport::Send> sends;
    std::vector<transport::Receive> receives;
    if (comm.rank() == 1) {
        for (Index bytes : one.sent) sends.push_back({3, from.data(), box_of(1, {{bytes, 1}})});
    }
    if (comm.rank() == 3) {
        for (Index bytes : one.expected) receives.push_back({1, to, box_of(1, {{bytes, 1}})});
    }
    auto request = comm.exchange(sends, receives);
    while (by_test && !request.test()) {
    }
    request.wait();
}

/// Everybody sends to everybody out of memory that is freed as soon as an exchange has ended. In the second one rank
/// `culprit` calls spoil(request), and the error of that ends it.
template <class Spoil>
void exchange_until_spoilt(CommunicatorRef comm, int culprit, Index size, Spoil const& spoil) {
    for (int round = 0;; ++round) {
        std::vector<std::byte> mine(static_cast<std::size_t>(size), std::byte{static_cast<unsigned char>(comm.rank())});
        std::vector<std::byte> got(mine.size() * static_cast<std::size_t>(comm.size()));
        std::vector<transport::Send> sends;
        std::vector<transport::Receive> receives;
        for (int r = 0; r != comm.size(); ++r) {
            sends.push_back({r, mine.data(), box_of(1, {{size / 64, 64}, {64, 1}})});
            receives.push_back({r, got.data() + r * size, box_of(1, {{size / 64, 64}, {64, 1}})});
        }
        auto request = comm.exchange(sends, receives);
        if (comm.rank() == culprit && round == 1) spoil(request);
        request.wait();
    }
}

}  // namespace reshard::test
