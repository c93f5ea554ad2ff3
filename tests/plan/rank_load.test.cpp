// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/rank_load.hpp.
#include <reshard/plan/rank_load.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <string>

namespace {
using namespace reshard;

Topology two_tiers() { return Topology({{"node", 4, 1e-6, 100e9, 0}, {"cluster", 0, 10e-6, 10e9, 0}}); }

}  // namespace

TEST_SUITE("plan/rank_load") {
    TEST_CASE("a rank's messages are counted where it meets the peer") {
        DynamicShape const shape(Indices{64, 64});
        DynamicMesh const mesh(Indices{8});
        auto const move = plan(distribution(mesh, shape, "S0"), distribution(mesh, shape, "S1"));
        RankLoad const load = load_of(move, two_tiers(), 5, DType::f32);  // boxes of 8 x 8: 256 bytes
        REQUIRE(load.phases.size() == 1);
        CHECK(load.phases[0][0] == TierLoad{3, 3, 3 * 256, 3 * 256});
        CHECK(load.phases[0][1] == TierLoad{4, 4, 4 * 256, 4 * 256});
        CHECK(load.memory == 2 * 8 * 64 * 4);
        // The slower tier decides: both links work at the same time.
        CHECK(seconds_of(load, two_tiers()) == doctest::Approx(4 * 10e-6 + 4 * 256 / 10e9));
    }

    TEST_CASE("sends and receives pass each other, messages of one direction do not") {
        Tier const tier{"node", 8, 1e-6, 1e9, 0};
        CHECK(seconds_of(TierLoad{2, 1, 1000, 500}, tier) == doctest::Approx(2e-6 + 1e-6));
        CHECK(seconds_of(TierLoad{1, 2, 500, 1000}, tier) == doctest::Approx(2e-6 + 1e-6));
        CHECK(seconds_of(TierLoad{}, tier) == 0);
    }

    TEST_CASE("phases follow each other and scratch is counted") {
        DynamicShape const shape(Indices{64});
        DynamicMesh const mesh(Indices{4});
        auto const move = plan(distribution(mesh, shape, "P+"), distribution(mesh, shape, "R"));
        RankLoad const load = load_of(move, two_tiers(), 2, DType::f32);
        REQUIRE(load.phases.size() == 2);
        CHECK(load.phases[0][0] == TierLoad{3, 3, 192, 192});
        CHECK(load.phases[1][0] == TierLoad{3, 3, 192, 192});
        CHECK(load.memory == 4 * (64 + 64 + move.cost(2).workspace));
        CHECK(seconds_of(load, two_tiers()) ==
              doctest::Approx(seconds_of(load.phases[0], two_tiers()) + seconds_of(load.phases[1], two_tiers())));
    }

    TEST_CASE("a fold in chunks has a message per peer and chunk, and the scratch memory of a chunk") {
        DynamicShape const shape(Indices{4096, 1024});
        DynamicMesh const mesh(Indices{4});
        auto const move = plan(distribution(mesh, shape, "P+"), distribution(mesh, shape, "S0"));
        RankLoad const host = load_of(move, two_tiers(), 2, DType::f32);
        RankLoad const device = load_of(move, two_tiers(), 2, DType::f32, INT64_MAX);
        CHECK(host.phases[0][0] == TierLoad{96, 96, 12 << 20, 12 << 20});
        CHECK(device.phases[0][0] == TierLoad{3, 3, 12 << 20, 12 << 20});
        CHECK(device.memory - host.memory == 31 * 4 * 4 * (1 << 15));
        std::string const in_chunks = explain(move, two_tiers(), 2, DType::f32);
        CHECK(in_chunks.find(" in 32 chunks; sends 12.0 MiB in 96 messages to 3 peers") != std::string::npos);
        CHECK(in_chunks.find("tier node: sends 12.0 MiB in 96 messages") != std::string::npos);
        std::string const at_once = explain(move, two_tiers(), 2, DType::f32, INT64_MAX);
        CHECK(at_once.find("chunks") == std::string::npos);
        CHECK(at_once.find("tier node: sends 12.0 MiB in 3 messages") != std::string::npos);
    }

    TEST_CASE("what is folded on its way to another mesh is passed on chunk by chunk") {
        DynamicShape const shape(Indices{4096, 1024});
        auto const move = plan_across(parse("(4):(P+)", shape), parse("(4)+4:(S0)", shape));
        RankLoad const host = load_of(move, two_tiers(), 0, DType::f32);
        RankLoad const device = load_of(move, two_tiers(), 0, DType::f32, INT64_MAX);
        CHECK(host.phases[1][1] == TierLoad{32, 0, 4 << 20, 0});
        CHECK(device.phases[1][1] == TierLoad{1, 0, 4 << 20, 0});
        CHECK(device.memory - host.memory == 31 * 5 * 4 * (1 << 15));  // four addends, and the result
        std::string const text = explain(move, two_tiers(), 0, DType::f32);
        CHECK(text.find("  phase 2: exchange in 32 chunks; sends 4.0 MiB in 32 messages") != std::string::npos);
    }

    TEST_CASE("loads of random plans are the plan's own cost, tier by tier") {
        for (std::uint64_t seed : test::seeds(300)) {
            test::Random random(seed);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            if (fills_average(from.signature(), to.signature())) continue;
            INFO(test::reproduction(seed, from, to));
            Plan<> const move = plan(from, to);
            for (Index rank : oracle::ranks(from)) {
                RankLoad const load = load_of(move, two_tiers(), rank, DType::u8);
                Cost const cost = move.cost(rank);
                REQUIRE(static_cast<int>(load.phases.size()) == cost.phases);
                TierLoad sum;
                for (PhaseLoad const& phase : load.phases) {
                    for (TierLoad const& tier : phase) {
                        sum.messages_sent += tier.messages_sent;
                        sum.messages_received += tier.messages_received;
                        sum.bytes_sent += tier.bytes_sent;
                        sum.bytes_received += tier.bytes_received;
                    }
                }
                REQUIRE(sum == TierLoad{cost.messages_sent, cost.messages_received, cost.sent, cost.received});
                Index const held = from.local_shape(rank).size();
                Index const after = move.kind() == TransitionKind::view ? 0 : to.local_shape(rank).size();
                REQUIRE(load.memory == held + after + cost.workspace);
            }
        }
    }

    TEST_CASE("explain shows the tiers below the plan") {
        DynamicShape const shape(Indices{64, 64});
        DynamicMesh const mesh(Indices{8});
        auto const move = plan(distribution(mesh, shape, "S0"), distribution(mesh, shape, "S1"));
        CHECK(
            explain(move, two_tiers(), 5, DType::f32) ==
            explain(move, 5, DType::f32) +
                "  phase 1, tier node: sends 768 B in 3 messages; receives 768 B in 3 messages; about 3.0 us\n"
                "  phase 1, tier cluster: sends 1.0 KiB in 4 messages; receives 1.0 KiB in 4 messages; about 40.1 us\n"
                "  about 40.1 us by its own links\n");
        auto const gather = plan(distribution(mesh, shape, "S0"), distribution(mesh, shape, "R"));
        std::string const direct = explain(gather, two_tiers(), 5, DType::f32);
        std::string const relayed = explain(gather.relayed(4), two_tiers(), 5, DType::f32);
        CHECK(direct.find("  about 40.8 us by its own links\n  relayed(4): about") != std::string::npos);
        CHECK(relayed.find("by its own links\n  directly: about 40.8 us\n") != std::string::npos);
        auto const view = plan(distribution(mesh, shape, "R"), distribution(mesh, shape, "S0"));
        CHECK(explain(view, two_tiers(), 5, DType::f32) == explain(view, 5, DType::f32));
        CHECK(load_of(view, two_tiers(), 5, DType::f32).memory == 64 * 64 * 4);
    }

    TEST_CASE("ranks outside the topology, and elements that cannot be cut, are errors") {
        DynamicShape const shape(Indices{64, 64});
        DynamicMesh const mesh(Indices{8});
        auto const move = plan(distribution(mesh, shape, "S0"), distribution(mesh, shape, "S1"));
        Topology const small({{"node", 4, 0, 1e9, 0}});
        CHECK_THROWS_AS(static_cast<void>(load_of(move, small, 0, DType::f32)), MeshError);
        CHECK_THROWS_AS(static_cast<void>(load_of(move, two_tiers(), 0, DType::f4)), DTypeError);
        DynamicShape const huge(Indices{Index{1} << 31, Index{1} << 31});
        auto const whole = plan(distribution(mesh, huge, "S0"), distribution(mesh, huge, "R"));
        CHECK_THROWS_AS(static_cast<void>(load_of(whole, two_tiers(), 0, DType::f64)), ShapeError);
    }
}
