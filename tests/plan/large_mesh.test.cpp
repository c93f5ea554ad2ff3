// SPDX-License-Identifier: Apache-2.0
// A million ranks: the plan of one rank costs what that rank moves, whatever the size of the mesh. There is no table
// over ranks, so nothing here can be slow; the laws are checked for a sample of ranks.
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include <reshard/algebra/bound.hpp>

#include "support/messages.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace {
using namespace reshard;

/// Corners, neighbours, and ranks all over. Where fewer cases are tried, only one of the last.
std::vector<Index> sample(DynamicMesh const& mesh, Index count) {
    if (test::fewer_seeds()) count = detail::smaller<Index>(count, 6);
    std::set<Index> ordinals{0, 1, mesh.extent(mesh.axes() - 1), mesh.size() / 2, mesh.size() - 1};
    Index ordinal = 12345;
    while (static_cast<Index>(ordinals.size()) < count) {
        ordinal = (ordinal * 48271 + 11) % mesh.size();
        ordinals.insert(ordinal);
    }
    std::vector<Index> ranks;
    for (Index i : ordinals) ranks.push_back(mesh.rank_at(i));
    return ranks;
}

/// Up to `count` of the peers in a list of messages, first and last included.
std::vector<Index> some_peers(std::vector<planning::Message> const& messages, std::size_t count) {
    std::vector<Index> peers;
    for (planning::Message const& message : messages)
        if (peers.empty() || peers.back() != message.peer) peers.push_back(message.peer);
    if (test::fewer_seeds()) count = detail::smaller<std::size_t>(count, 3);
    if (peers.size() <= count) return peers;
    std::vector<Index> some;
    for (std::size_t i = 0; i < count; ++i) some.push_back(peers[i * (peers.size() - 1) / (count - 1)]);
    return some;
}

std::vector<planning::Message> messages_with(std::vector<planning::Message> const& messages, Index peer) {
    std::vector<planning::Message> result;
    for (planning::Message const& message : messages) {
        if (message.peer != peer) continue;
        result.push_back(message);
        result.back().peer = 0;
    }
    return result;
}

/// What ranks exchange by one plan, planned once for each: those who send and those who receive are often the same.
template <class F>
struct Exchanges {
    F plan;
    std::map<Index, planning::Exchange> kept{};
    planning::Exchange const& operator()(Index rank) {
        auto const found = kept.find(rank);
        return found != kept.end() ? found->second : kept.emplace(rank, plan(rank)).first->second;
    }
};
template <class F>
Exchanges(F) -> Exchanges<F>;

/// Without Partial: partners agree, what arrives is what is missing, and nothing arrives twice.
void check_rank(Plan<> const& plan, Index rank, std::size_t peers) {
    CAPTURE(rank);
    planning::Steps const steps = plan.steps();
    Exchanges exchange_of{[&](Index r) { return planning::exchange_of(steps, steps.exchange(0), r); }};
    planning::Exchange const& own = exchange_of(rank);
    for (Index peer : some_peers(own.sends, peers)) {
        bool const meets = messages_with(own.sends, peer) == messages_with(exchange_of(peer).receives, rank);
        CAPTURE(peer);
        CHECK(meets);
    }
    for (Index peer : some_peers(own.receives, peers)) {
        bool const meets = messages_with(own.receives, peer) == messages_with(exchange_of(peer).sends, rank);
        CAPTURE(peer);
        CHECK(meets);
    }
    Index received = 0;
    for (planning::Message const& message : own.receives) received += message.elements();
    CHECK(received == receive_bound(plan.from(), plan.to(), rank, plan.is_across()).elements);

    if (!plan.to().contains(rank)) return;
    Index kept = 0;
    for (planning::Message const& message : own.kept) kept += message.elements();
    CHECK(received + kept == plan.to().local_shape(rank).size());
    std::vector<planning::Message> all = own.receives;
    all.insert(all.end(), own.kept.begin(), own.kept.end());
    if (all.size() > 200) return;
    bool disjoint = true;
    for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) disjoint = disjoint && !test::overlap(all[i], all[j]);
    CHECK(disjoint);
}

void check_sample(Plan<> const& plan, Index ranks, std::size_t peers) {
    REQUIRE(plan.kind() == TransitionKind::collective);
    for (Index rank : sample(plan.from().mesh(), ranks)) check_rank(plan, rank, peers);
    if (plan.is_across())
        for (Index rank : sample(plan.to().mesh(), ranks)) check_rank(plan, rank, peers);
}

DynamicMesh const million = Mesh{1024, 1024};

Plan<> of(char const* from, char const* to, DynamicShape const& shape) {
    return plan(distribution(million, shape, from), distribution(million, shape, to));
}

}  // namespace

TEST_SUITE("plan/large mesh") {
    TEST_CASE("2^20 ranks: (S0,S1) -> (S1,S0) is one message for most") {
        auto const even = of("S0,S1", "S1,S0", Shape{4096, 8192});
        check_sample(even, 60, 8);
        Cost const cost = even.cost(1023);
        CHECK(cost.messages_sent == 1);
        CHECK(cost.received == 32);
        CHECK(even.cost(0) == Cost{1, 0, 0, 0, 0, 0});                 // the diagonal keeps its tile
        check_sample(of("S0,S1", "S1,S0", Shape{4099, 5003}), 60, 8);  // primes
    }

    TEST_CASE("2^20 ranks: two axes cut one prime dimension, in the other order") {
        check_sample(of("S0,S0@0,1", "S0,S0@1,0", Shape{15485863}), 60, 8);
        check_sample(of("S0,S0@1,0", "S0,S0@0,1", Shape{1048573, 3}), 60, 8);  // a few ranks hold nothing
    }

    TEST_CASE("2^20 ranks: chunk -> balanced concerns neighbours only") {
        auto const resplit = of("S0,S0", "S0:bal,S0:bal", Shape{15485863});
        check_sample(resplit, 60, 8);
        Index most = 0;
        for (Index rank : sample(million, 200)) most = detail::larger(most, resplit.cost(rank).messages_received);
        CHECK(most <= 3);
        check_sample(of("S0,S0:cyc3", "S0:bal,S0", Shape{15485863}), 30, 8);
    }

    TEST_CASE("2^20 ranks -> 1000 x 1000 ranks, shifted") {
        DynamicShape const shape = Shape{15485863};
        DynamicMesh const thousand = Mesh{1000, 1000}.on(first_rank(77));
        check_sample(plan_across(distribution(million, shape, "S0,S0"), distribution(thousand, shape, "S0,S0")), 60, 8);
        DynamicShape const matrix = Shape{10007, 20011};
        check_sample(plan_across(distribution(million, matrix, "S0,S1"), distribution(thousand, matrix, "S1:bal,S0")),
                     60, 8);
    }

    TEST_CASE("2^20 ranks: copies share what they send") {
        check_sample(of("R,S0", "S0,R", Shape{1 << 20}), 4, 3);
        check_sample(of("R,S0", "S1,R", Shape{2048, 4096}), 4, 3);
        check_sample(of("S0,R", "R,S0", Shape{1000003}), 4, 3);
        // Each of the 1024 copies of a piece serves one 1024th of its 1023 other receivers.
        Plan<> const p = of("R,S0", "S0,R", Shape{1 << 20});
        for (Index rank : sample(million, 20)) CHECK(p.cost(rank).sent <= 2 * 1024);
    }

    TEST_CASE("between meshes that share ranks, copies share what they send: 1,024 ranks, in order and in any order") {
        // Every rank needs everything, and of each of 32 pieces it asks one of 32 copies.
        DynamicShape const shape = Shape{1024, 64};
        std::vector<Index> mixed;
        for (Index i = 0; i < 1024; ++i) mixed.push_back((i * 333 + 5) % 1024);
        IndexList const list(mixed.data(), 1024);
        for (DynamicMesh const& to : {DynamicMesh(Mesh{16, 64}), DynamicMesh(Mesh{16, 64}.on(RankList{0, list}))}) {
            Plan<> const everything =
                plan_across(distribution(Mesh{32, 32}, shape, "R,S0"), distribution(to, shape, "R,R"));
            check_sample(everything, 12, 6);
            for (Index rank : sample(to, 12)) {
                Cost const cost = everything.cost(rank);
                CHECK(cost.received == 31 * 32 * 64);
                CHECK(cost.messages_received >= 31);
                CHECK(cost.messages_received <= 33);
                CHECK(cost.sent <= 2 * 31 * 32 * 64);
            }
        }
        check_sample(plan_across(distribution(Mesh{32, 32}, shape, "S0:cyc3,R"),
                                 distribution(Mesh{64, 16}.on(first_rank(100)), shape, "R,S0")),
                     12, 6);
    }

    TEST_CASE("2^20 ranks to 1,000 x 1,000 of them, with copies: a rank looks at its own pieces' copies only") {
        DynamicShape const shape = Shape{1 << 20, 8};
        DynamicMesh const thousand = Mesh{1000, 1000}.on(first_rank(77));
        check_sample(plan_across(distribution(million, shape, "S0,R"), distribution(thousand, shape, "S0,R")), 10, 4);
    }

    TEST_CASE("2^20 ranks: copies share what one axis cuts on both sides, and a second axis cuts further") {
        check_sample(of("R,S0", "S0,S0", Shape{15485863}), 12, 8);
        check_sample(of("R,S0", "S1,S1", Shape{4099, 15485863}), 12, 8);
        check_sample(of("R,S0", "S1,S1@1,0", Shape{4099, 15485863}), 12, 8);
        check_sample(of("S1,R", "S0,S0", Shape{15485863, 5003}), 12, 8);
        check_sample(of("R,S1", "S0:bal,S0:bal@1,0", Shape{15485863, 5003}), 12, 8);
    }

    TEST_CASE("2^20 ranks: copies of addends share what they send") {
        DynamicShape const shape = Shape{15485863, 10007};
        int turn = 0;
        for (char const* to : {"S0,S0", "S0,S0@1,0", "S1,S1", "R,R", "R,S0", "S0,S1"}) {
            ++turn;
            for (char const* from : {"P+,R", "R,P+"}) {
                if (test::fewer_seeds() && ++turn % 2 == 0) continue;  // each `to` once, each `from` three times
                CAPTURE(from);
                CAPTURE(to);
                Plan<> const fold = of(from, to, shape);
                Exchanges exchange_of{[&](Index r) { return fold.exchange(r); }};
                for (Index rank : sample(million, 8)) {
                    CAPTURE(rank);
                    planning::Exchange const& own = exchange_of(rank);
                    Index brought = 0;
                    for (auto const* list : {&own.receives, &own.kept})
                        for (planning::Message const& message : *list) brought += message.elements();
                    planning::Steps const steps = fold.steps();
                    planning::Layout const& slots = steps.from(*steps.find(planning::StepKind::fold));
                    CHECK(brought == slots.addends * slots.distribution.local_shape(rank).size());
                    for (Index peer : some_peers(own.receives, 3)) {
                        bool const meets =
                            messages_with(own.receives, peer) == messages_with(exchange_of(peer).sends, rank);
                        CHECK(meets);
                    }
                    for (Index peer : some_peers(own.sends, 3)) {
                        bool const meets =
                            messages_with(own.sends, peer) == messages_with(exchange_of(peer).receives, rank);
                        CHECK(meets);
                    }
                }
            }
        }
    }

    TEST_CASE("2^20 ranks: views and fills need no peers") {
        DynamicShape const shape = Shape{15485863};
        auto const view = of("R,R", "S0,S0", shape);
        CHECK(view.kind() == TransitionKind::view);
        CHECK(of("S0,S0", "P+,P+", shape).kind() == TransitionKind::copy);
        std::vector<std::uint8_t> memory(static_cast<std::size_t>(shape.size()));
        TensorView<std::uint8_t> const full(memory.data(), shape);
        Index next = 0;
        for (Index rank = 0; rank < 3000; ++rank) {  // the first ranks' parts lie side by side
            auto const window = view.view(full, rank);
            if (window.size() == 0) continue;
            CHECK(window.data() - full.data() == next);
            next += window.size();
        }
        CHECK(next == 2 * 15123 + 952 * 15);  // two whole rows of the mesh and 952 ranks of the third
        CHECK(view.cost(77777) == Cost{});
    }

    TEST_CASE("2^20 ranks: a fold over one axis meets the ranks of that axis") {
        auto const fold = of("P+,S0", "S0,S0@1,0", Shape{1 << 21});
        for (Index rank : sample(million, 8)) {
            CAPTURE(rank);
            Cost const cost = fold.cost(rank);
            CHECK(cost.phases == 1);
            CHECK(cost.received == 2 * 1023);
            CHECK(cost.messages_received == 1023);
            CHECK(cost.workspace == 2 * 1024);
        }
    }
}
