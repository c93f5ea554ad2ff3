// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/replica_mail.hpp.
#include <reshard/checkpoint/detail/replica_mail.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include <vector>

namespace {
using namespace reshard;
using detail::ReplicaMail;

TEST_CASE("messages added in any order of peers arrive, several to one peer in the order they were added") {
    run_on_threads(3, [](ThreadCommunicator& comm) {
        ReplicaMail mail;
        for (int round = 0; round < 2; ++round) {  // a delivery leaves nothing behind
            std::vector<int> out;
            std::vector<int> in(6, -1);
            for (int i = 0; i < 6; ++i) out.push_back(100 * comm.rank() + 10 * round + i);
            for (std::size_t i = 0; i < 6; ++i) {  // message i goes to rank 2 - i % 3
                int const peer = 2 - static_cast<int>(i % 3);
                mail.send(peer, std::span<int const>(out).subspan(i, 1));
                mail.receive(static_cast<int>(i % 3), std::span<int>(in).subspan(i, 1));
            }
            mail.send(0, std::span<int const>());  // nothing is sent of nothing
            mail.deliver(comm);
            for (std::size_t i = 0; i < 6; ++i) {
                // The k-th message of rank i % 3 for this rank is its message 2 - rank + 3 k.
                int const nth = 2 - comm.rank() + 3 * static_cast<int>(i / 3);
                CHECK(in[i] == 100 * static_cast<int>(i % 3) + 10 * round + nth);
            }
        }
    });
}

namespace {
std::vector<Index> join_lists(CommunicatorRef comm, std::vector<Index> const& mine) {
    detail::ListJoin join;
    join.make_room(comm);
    detail::PendingVerdict pending;
    return join.run(comm, mine, pending);
}
}  // namespace

TEST_CASE("lists of any lengths are joined in rank order on every rank") {
    for (int ranks : {1, 2, 5}) {
        std::vector<Index> wanted;
        for (int r = 0; r < ranks; ++r) wanted.insert(wanted.end(), static_cast<std::size_t>(r * 2 % 5), 10 * r);
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            std::vector<Index> const mine(static_cast<std::size_t>(comm.rank() * 2 % 5), 10 * comm.rank());
            CHECK(join_lists(comm, mine) == wanted);
            CHECK(join_lists(comm, {}).empty());
        });
    }
    SelfCommunicator self;
    CHECK(join_lists(self, {1, 2}) == std::vector<Index>{1, 2});
}

TEST_CASE("what is so on one rank is known to all, and harms nobody") {
    run_on_threads(3, [](ThreadCommunicator& comm) {
        CHECK_FALSE(detail::is_anywhere(comm, false));
        for (int r = 0; r < 3; ++r) CHECK(detail::is_anywhere(comm, comm.rank() == r));
        CHECK(detail::is_anywhere(comm, true));
        CHECK_FALSE(detail::is_anywhere(comm, false));
    });
}

}  // namespace
