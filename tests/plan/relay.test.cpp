// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/relay.hpp: relayed plans by example, their texts whole. Laws are in relay.property.
#include <reshard/plan/relay.hpp>

#include <doctest/doctest.h>

#include <reshard/algebra/bound.hpp>
#include <reshard/plan/explain.hpp>

#include <string>

namespace {
using namespace reshard;

Plan<> within(char const* from, char const* to, DynamicShape const& shape) {
    return plan(parse(from, shape), parse(to, shape));
}
Plan<> between(char const* from, char const* to, DynamicShape const& shape) {
    return plan_across(parse(from, shape), parse(to, shape));
}

/// Elements that a rank receives from other nodes.
Index foreign(Plan<> const& plan, Index rank, Index ranks_per_node) {
    Index elements = 0;
    for (int phase = 0; phase < plan.cost(rank).phases; ++phase) {
        for (planning::Message const& message : plan.exchange(rank, phase).receives) {
            if (message.peer / ranks_per_node != rank / ranks_per_node) elements += message.elements();
        }
    }
    return elements;
}
}  // namespace

TEST_SUITE("plan/relay") {
    TEST_CASE("a gather over nodes: ranks at one place of their nodes exchange, then each node by itself") {
        Plan<> const p = within("(16):(S0)", "(16):(R)", Shape{1024, 1024}).relayed(8);
        CHECK(explain(p, 3, DType::f32) ==
              "(16):(S0) -> (16):(R)  shape [1024,1024] F32, rank 3: collective\n"
              "  because: axis 0 S0->R is gathered\n"
              "  relayed, nodes of 8 ranks: what several ranks of a node need from elsewhere enters it once, and they "
              "pass it on\n"
              "  phase 1: exchange to relays as (2,8):(R,S0:cyc64); sends 256.0 KiB in 1 message to 1 peer; receives "
              "256.0 KiB in 1 message from 1 peer\n"
              "  phase 2: exchange among relays; sends 3.5 MiB in 7 messages to 7 peers; receives 3.5 MiB in 7 "
              "messages from 7 peers\n"
              "  receives 3.7 MiB (256.0 KiB from other nodes), lower bound 3.7 MiB\n");
        for (Index rank = 0; rank < 16; ++rank) CHECK(foreign(p, rank, 8) == 64 * 1024);  // all ranks alike
    }

    TEST_CASE("the shares follow the source's cuts, wherever they lie") {
        for (char const* from : {"(2,8):(S0,S0)", "(2,8):(S0,S0)@1,0", "(2,8):(S0,S1)", "(2,8):(S1,S0)", "(2,8):(S0,R)",
                                 "(2,8):(S0:bal,S0:bal)"}) {
            CAPTURE(from);
            Plan<> const p = within(from, "(2,8):(R,R)", Shape{64, 64}).relayed(8);
            for (Index rank = 0; rank < 16; ++rank) CHECK(foreign(p, rank, 8) == 64 * 64 / 16);
        }
    }

    TEST_CASE("fold, relay, spread: folded shares cross once; without relays every rank fetches them itself") {
        Plan<> const direct = within("(16):(P+)", "(16):(R)", Shape{4096});
        Plan<> const relayed = direct.relayed(8);
        CHECK(direct.cost(5).phases == 2);
        CHECK(relayed.cost(5).phases == 3);
        CHECK(relayed.cost(5).received == direct.cost(5).received);
        CHECK(foreign(direct, 5, 8) == 8 * 256 + 8 * 256);  // addends, then folded shares
        CHECK(foreign(relayed, 5, 8) == 8 * 256 + 256);
    }

    TEST_CASE("copies in other nodes fold for themselves") {
        Plan<> const p = within("(2,8):(R,P+)", "(2,8):(R,R)", Shape{4096}).relayed(8);
        CHECK(p.cost(0).phases == 2);
        for (Index rank = 0; rank < 16; ++rank) CHECK(foreign(p, rank, 8) == 0);
    }

    TEST_CASE("who has a copy in its node is served by it") {
        Plan<> const direct = within("(2,8):(R,S0)", "(2,8):(S0,R)", Shape{64, 64});
        Index crossed = 0;
        for (Index rank = 0; rank < 16; ++rank) {
            crossed += foreign(direct, rank, 8);
            CHECK(foreign(direct.relayed(8), rank, 8) == 0);
        }
        CHECK(crossed > 0);
    }

    TEST_CASE("nodes that are no blocks of the mesh are said so; where blocks of them are, these share") {
        std::string const some = explain(within("(12):(S0)", "(12):(R)", Shape{96}).relayed(8), 3, DType::f32);
        CHECK(some.find("a byte enters once for every 4 neighbours that need it\n") != std::string::npos);
        std::string const none = explain(within("(7):(S0)", "(7):(R)", Shape{96}).relayed(4), 3, DType::f32);
        CHECK(none.find("a byte enters once for every rank that need it\n") == std::string::npos);
        CHECK(none.find("a byte enters once for every rank that needs it\n") != std::string::npos);
        CHECK(within("(7):(S0)", "(7):(R)", Shape{96}).relayed(4).cost(3).phases == 1);
    }

    TEST_CASE("an axis of one rank changes nothing, wherever nodes begin") {
        std::string const text = explain(within("(1,4):(R,S0)", "(1,4):(R,R)", Shape{96}).relayed(2), 0, DType::f32);
        CHECK(text.find("from elsewhere enters it once, and they pass it on\n") != std::string::npos);
        CHECK(within("(1,2,8):(S0,R,S1)", "(1,2,8):(R,R,R)", Shape{64, 64}).relayed(8).cost(0).phases == 1);
    }

    TEST_CASE("axes that cannot be told apart by node, as a mesh has at most 8, are said so") {
        DynamicShape const shape = Shape{4096};
        char const* const from = "(2,2,2,2,2,2,2,16):(R,R,R,R,R,R,R,S0)";
        char const* const to = "(2,2,2,2,2,2,2,16):(R,R,R,R,R,R,R,R)";
        std::string const why =
            "a mesh has at most 8 axes, so along some of (2,2,2,2,2,2,2,16) ranks are not told "
            "apart by node, and a byte may enter more than once; merge axes\n";
        CHECK(explain(within(from, to, shape).relayed(8), 0, DType::f32).find(why) != std::string::npos);
        CHECK(explain(between(from, to, shape).relayed(8), 0, DType::f32).find(why) != std::string::npos);
        CHECK(explain(within("(128,16):(R,S0)", "(128,16):(R,R)", shape).relayed(8), 0, DType::f32).find(why) ==
              std::string::npos);
    }

    TEST_CASE("one node, one rank per node, and nothing to share: one exchange") {
        CHECK(within("(8):(S0)", "(8):(R)", Shape{96}).relayed(8).cost(3).phases == 1);
        CHECK(within("(8):(S0)", "(8):(R)", Shape{96}).relayed(all_ranks).cost(3).phases == 1);
        CHECK(within("(16):(S0)", "(16):(S1)", Shape{96, 96}).relayed(8).cost(3).phases == 1);
        CHECK(between("(4):(S0)", "(4)+4:(R)", Shape{96}).relayed(8).cost(3).phases == 1);
        CHECK(between("(4):(S0)", "(4)+4:(R)", Shape{96}).relayed(4).cost(3).phases == 2);
        Plan<> const direct = within("(8):(S0)", "(8):(R)", Shape{96});
        CHECK(direct.relayed(1) == direct);
        CHECK(direct.relayed(4).ranks_per_node() == 4);
        CHECK_FALSE(direct.relayed(4) == direct);
        CHECK_FALSE(direct.relayed(4).hash() == direct.hash());
        CHECK(direct.relayed(4).adjoint().ranks_per_node() == 4);
        CHECK_THROWS_AS(static_cast<void>(direct.relayed(-1)), MeshError);
    }

    TEST_CASE("typed plans are relayed too, as constants") {
        static constexpr auto from = distribution<Shard<0>>(Mesh<16>{}, Shape<64>{});
        static constexpr auto to = distribution<Replicate>(Mesh<16>{}, Shape<64>{});
        static constexpr auto p = plan(from, to).relayed(8);
        static_assert(p.ranks_per_node() == 8 && p.kind() == TransitionKind::collective);
        CHECK(Plan<>(p).cost(0).phases == 2);
    }

    TEST_CASE("between meshes every byte leaves the source once; overlapping ranks keep what they have") {
        Plan<> const apart = between("(2,4):(S0,S1)", "(4)+8:(R)", Shape{40, 40});
        Plan<> const shared = between("(2,4):(S0,S1)", "(4)+4:(R)", Shape{40, 40});
        Index direct = 0;
        Index once = 0;
        Index fetched = 0;
        for (Index rank = 0; rank < 8; ++rank) {
            direct += apart.cost(rank).sent;
            once += apart.relayed(all_ranks).cost(rank).sent;
            for (planning::Message const& message : shared.relayed(all_ranks).exchange(rank, 0).receives) {
                fetched += message.elements();
            }
        }
        CHECK(direct == 4 * 1600);
        CHECK(once == 1600);
        CHECK(fetched == 1600 - 4 * 50);  // of each relay's 400 elements, 50 are its own
    }

    TEST_CASE("2^20 ranks: 127 + 7 peers instead of 1023, and received is the bound") {
        DynamicMesh const million = Mesh{1024, 1024};
        DynamicShape const shape = Shape{1 << 14, 1 << 14};
        Plan<> const direct = plan(distribution(million, shape, "S0,S1"), distribution(million, shape, "S0,R"));
        Plan<> const p = direct.relayed(8);
        for (Index rank : {Index{0}, Index{12345}, Index{777777}, (Index{1} << 20) - 1}) {
            CAPTURE(rank);
            Cost const cost = p.cost(rank);
            CHECK(cost.phases == 2);
            CHECK(cost.messages_received == 127 + 7);
            CHECK(cost.messages_sent == 127 + 7);
            CHECK(cost.received == receive_bound(p.from(), p.to(), rank).elements);
            CHECK(direct.cost(rank).messages_received == 1023);
        }
    }
}
