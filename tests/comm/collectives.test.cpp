// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/collectives.hpp.
#include <reshard/comm/collectives.hpp>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "conformance.hpp"
#include "support/allocations.hpp"
#include "support/fails_to_bind.hpp"
#include "support/thrown.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

TEST_SUITE("comm/collectives") {
    TEST_CASE("collectives: barrier, broadcast, all_gather and all_to_all on 1, 2, 3 and 5 ranks") {
        reshard::SelfCommunicator self;
        reshard::test::derives_collectives(self);
        for (int ranks : {1, 2, 3, 5}) {
            CAPTURE(ranks);
            reshard::run_on_threads(ranks, [](auto& comm) { reshard::test::derives_collectives(comm); });
        }
    }

    TEST_CASE("collectives: a size that is no multiple of the ranks is an error that says so") {
        reshard::run_on_threads(2, [](reshard::ThreadCommunicator& comm) {
            std::vector<std::byte> three(3);
            CHECK_THROWS_WITH_AS(reshard::all_to_all(comm, three, three), doctest::Contains("one block per rank"),
                                 reshard::BufferError);
            std::span const all(three);
            CHECK_THROWS_WITH_AS(reshard::all_to_all(comm, all.first(2), all.subspan(1)),
                                 doctest::Contains("both sides overlap"), reshard::BufferError);
            reshard::barrier(comm);
        });
    }

    TEST_CASE("all_to_all: counts that do not fit are refused before anything is said, and those of two that differ") {
        auto const thrown = reshard::test::thrown_by(3, [](reshard::ThreadCommunicator& comm) {
            std::vector<std::byte> from(12);
            std::vector<std::byte> to(12);
            std::vector<reshard::Index> const ones{1, 1, 1};
            std::vector<std::vector<reshard::Index>> const wrong{
                {1, 1}, {1, 1, 1, 0}, {2, -1, 1}, {2, 1, 1}, {INT64_MAX, INT64_MAX, 2}};
            for (std::vector<reshard::Index> const& counts : wrong) {
                CHECK_THROWS_WITH_AS(reshard::all_to_all(comm, from, counts, to, ones, 4),
                                     doctest::Contains("Fix: give a count for each rank"), reshard::BufferError);
                CHECK_THROWS_WITH_AS(reshard::all_to_all(comm, from, ones, to, counts, 4),
                                     doctest::Contains("12 bytes for "), reshard::BufferError);
            }
            CHECK_THROWS_AS(reshard::all_to_all(comm, from, ones, to, ones, -1), reshard::BufferError);
            CHECK_THROWS_WITH_AS(reshard::all_to_all(comm, to, ones, to, ones, 4),
                                 doctest::Contains("both sides overlap"), reshard::BufferError);
            reshard::barrier(comm);
            std::vector<reshard::Index> sent{1, 1, 1};
            if (comm.rank() == 0) sent[1] = 0;
            reshard::all_to_all(comm, from, sent, to, ones, 4);
        });
        CHECK(thrown[0].code == reshard::ErrorCode::mismatch);
        CHECK(thrown[1].code == reshard::ErrorCode::mismatch);
        CHECK(thrown[2].code == reshard::ErrorCode::peer_failed);
    }

    TEST_CASE("all_gather: a rank's own block is gathered in place; what lies elsewhere in the result is refused") {
        reshard::run_on_threads(2, [](reshard::ThreadCommunicator& comm) {
            auto const me = static_cast<std::size_t>(comm.rank());
            std::vector<std::byte> bytes(5);
            std::span const all = std::span(bytes).first(4);
            for (std::size_t at : {2 - 2 * me, std::size_t{1}}) {
                CHECK_THROWS_WITH_AS(reshard::all_gather(comm, all.subspan(at, 2), all),
                                     doctest::Contains("both sides overlap"), reshard::BufferError);
            }
            bytes[2 * me] = static_cast<std::byte>(10 + me);
            reshard::all_gather(comm, all.subspan(2 * me, 2), all);
            for (std::size_t r : {0U, 1U}) CHECK(static_cast<std::size_t>(bytes[2 * r]) == 10 + r);
            CHECK_THROWS_WITH_AS(reshard::broadcast(comm, all, 2), doctest::Contains("roots count from 0"),
                                 reshard::MeshError);
        });
    }

    TEST_CASE(
        "a rank without memory, wherever in a call that is, has this library's error, and the others hear of it") {
        static constexpr void (*calls[])(reshard::ThreadCommunicator&, std::span<std::byte>) = {
            [](auto& comm, auto bytes) { reshard::all_to_all(comm, bytes.first(3), bytes.subspan(3, 3)); },
            [](auto& comm, auto bytes) { reshard::all_gather(comm, bytes.first(1), bytes.subspan(1, 3)); },
            [](auto& comm, auto bytes) { reshard::broadcast(comm, bytes, 1); },
            [](auto& comm, auto) { static_cast<void>(comm.split(0, 0)); },
        };
        for (auto const call : calls) {
            int failures = 0;
            bool refused = true;
            for (int granted = 0; refused; ++granted) {
                CAPTURE(granted);
                auto const thrown = reshard::test::thrown_by(3, [&](reshard::ThreadCommunicator& comm) {
                    std::vector<std::byte> bytes(6);
                    auto& counter = reshard::test::allocation_counter();
                    counter.granted = granted;
                    counter.once = true;
                    counter.refused = 0;
                    counter.refused_from = comm.rank() == 1 ? 0 : SIZE_MAX;
                    call(comm, bytes);
                    counter.refused_from = SIZE_MAX;
                    if (comm.rank() == 1) refused = counter.refused != 0;
                    reshard::barrier(comm);
                });
                if (thrown[1].code == reshard::ErrorCode::none) continue;
                ++failures;
                CHECK(thrown[1].code == reshard::ErrorCode::out_of_memory);
                CHECK(thrown[1].message == reshard::detail::no_memory_text);
                for (std::size_t r : {0U, 2U}) {
                    CHECK(thrown[r].code == reshard::ErrorCode::peer_failed);
                    CHECK(thrown[r].message.find("rank 1 failed: reshard: out of memory") != std::string::npos);
                }
            }
            CHECK(failures > 0);
        }
    }

    TEST_CASE("a rank that cannot bind an exchange has OutOfMemory, and the others hear of it") {
        using reshard::test::FailsToBind;
        reshard::test::check_failing_bind([](FailsToBind& comm) {
            std::vector<std::byte> bytes(4);
            reshard::all_gather(comm, std::span(bytes).first(1), std::span(bytes).subspan(1));
        });
        reshard::test::check_failing_bind([](FailsToBind& comm) { comm.exchange({}, {}).wait(); });
        reshard::test::check_failing_bind([](FailsToBind& comm) {
            reshard::CommunicatorRef const ref = comm;
            ref.exchange({}, {}).wait();
        });
    }

    TEST_CASE("messages added in any order of peers arrive, several to one peer in the order they were added") {
        reshard::run_on_threads(3, [](reshard::ThreadCommunicator& comm) {
            reshard::detail::TransferLists lists;
            for (int round = 0; round < 2; ++round) {  // a delivery leaves nothing behind
                std::vector<int> out;
                std::vector<int> in(6, -1);
                for (int i = 0; i < 6; ++i) out.push_back(100 * comm.rank() + 10 * round + i);
                for (std::size_t i = 0; i < 6; ++i) {  // message i goes to rank 2 - i % 3
                    int const peer = 2 - static_cast<int>(i % 3);
                    lists.send(peer, std::span<int const>(out).subspan(i, 1));
                    lists.receive(static_cast<int>(i % 3), std::span<int>(in).subspan(i, 1));
                }
                lists.send(0, std::span<int const>());  // nothing is sent of nothing
                lists.deliver(comm);
                for (std::size_t i = 0; i < 6; ++i) {
                    // The k-th message of rank i % 3 for this rank is its message 2 - rank + 3 k.
                    int const nth = 2 - comm.rank() + 3 * static_cast<int>(i / 3);
                    CHECK(in[i] == 100 * static_cast<int>(i % 3) + 10 * round + nth);
                }
            }
        });
    }

    TEST_CASE("lists of any lengths are gathered in rank order on every rank") {
        auto const gather = [](reshard::CommunicatorRef comm, std::vector<int> const& mine) {
            reshard::detail::GatheredLists<int> lists;
            lists.make_room(comm.size());
            reshard::detail::PendingVerdict pending;
            lists.gather(comm, mine, pending);
            for (int r = 0; r < comm.size(); ++r)
                CHECK(lists.of(r).size() == static_cast<std::size_t>(lists.sizes[static_cast<std::size_t>(r)]));
            return lists.all;
        };
        for (int ranks : {1, 2, 5}) {
            std::vector<int> wanted;
            for (int r = 0; r < ranks; ++r) wanted.insert(wanted.end(), static_cast<std::size_t>(r * 2 % 5), 10 * r);
            reshard::run_on_threads(ranks, [&](reshard::ThreadCommunicator& comm) {
                std::vector<int> const mine(static_cast<std::size_t>(comm.rank() * 2 % 5), 10 * comm.rank());
                CHECK(gather(comm, mine) == wanted);
                CHECK(gather(comm, {}).empty());
            });
        }
        reshard::SelfCommunicator self;
        CHECK(gather(self, {1, 2}) == std::vector<int>{1, 2});
    }

    TEST_CASE("a rank that has failed before lists are gathered fails all, with its words") {
        reshard::run_on_threads(3, [](reshard::ThreadCommunicator& comm) {
            reshard::detail::GatheredLists<int> lists;
            lists.make_room(comm.size());
            reshard::detail::PendingVerdict pending;
            pending.attempt([&] {
                if (comm.rank() == 1)
                    reshard::errors::raise(reshard::ErrorCode::format, "this rank cannot. Fix: none.");
            });
            std::vector<int> const mine{1, 2, 3};
            CHECK_THROWS_WITH_AS(lists.gather(comm, mine, pending), doctest::Contains("rank 1 of 3: this rank cannot"),
                                 reshard::FormatError);
        });
    }
}
