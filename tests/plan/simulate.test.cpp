// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/simulate.hpp: worlds known by hand, large ones, and what is said when they are too
// large. Random worlds against every rank planned: simulate.property.test.cpp.
#include <reshard/plan/simulate.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

namespace {
using namespace reshard;

Topology nodes_of_8() { return Topology({{"node", 8, 2e-6, 400e9, 200e9}, {"cluster", 0, 5e-6, 50e9, 0}}); }

Plan<> move(Indices const& mesh, DynamicShape const& shape, char const* from, char const* to) {
    return plan(distribution(DynamicMesh(mesh), shape, from), distribution(DynamicMesh(mesh), shape, to));
}

}  // namespace

TEST_SUITE("plan/simulate") {
    TEST_CASE("rows to columns over two nodes, by hand") {
        Index const n = 64;
        Simulation const world =
            simulate(move(Indices{16}, DynamicShape(Indices{n, n}), "S0", "S1"), nodes_of_8(), DType::u8);
        Index const box = n * n / 256;
        REQUIRE(world.phases.size() == 1);
        CHECK(world.exact);
        CHECK(world.ranks == 16);
        CHECK(world.evaluated == 1);
        TierSum const& node = world.phases[0].tiers[0];
        TierSum const& cluster = world.phases[0].tiers[1];
        CHECK(node == TierSum{16 * 7, 16 * 7 * box, 7, 7 * box, 7 * box, 64 * box, 64 * box});
        CHECK(cluster == TierSum{16 * 8, 16 * 8 * box, 8, 8 * box, 8 * box, 0, 0});
        CHECK(world.most_sent == 15 * box);
        CHECK(world.most_received == 15 * box);
        CHECK(world.most_memory == 2 * n * n / 16);
        CHECK(world.bound == 15 * box);
        CHECK(world.over_bound() == 1);
        CHECK(world.busiest == 0);
        CHECK(world.seconds == doctest::Approx(8 * 5e-6 + 8 * static_cast<double>(box) / 50e9));
    }

    TEST_CASE("a node's uplink is shared by its ranks") {
        DynamicShape const shape(Indices{1 << 14, 1 << 14});
        Simulation const world = simulate(move(Indices{16}, shape, "S0", "S1"), nodes_of_8(), DType::f32);
        Index const box = 4 * (Index{1} << 20);
        // Eight ranks at 50 GB/s want 400; the node has 200.
        CHECK(world.seconds == doctest::Approx(64 * static_cast<double>(box) / 200e9));
    }

    TEST_CASE("tables of boxes load what a plan between the same boxes loads") {
        DynamicShape const shape(Indices{60, 64});
        for (char const* to : {"S1", "S0[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,14,60]"}) {
            Plan<> const p = move(Indices{16}, shape, "S0", to);
            Simulation expected = simulate(p, nodes_of_8(), DType::f32);
            Simulation const boxes = simulate(BoxTable(p.from()), BoxTable(p.to()), nodes_of_8(), DType::f32);
            CHECK_FALSE(boxes.bound_known);
            expected.bound_known = false;
            expected.bound = boxes.bound;
            expected.evaluated = boxes.evaluated;
            CHECK(boxes == expected);
        }
    }

    TEST_CASE("a halo over two nodes, by hand") {
        DynamicShape const shape(Indices{160, 8});
        BoxTable const rows(distribution(Mesh{16}, shape, "S0"));
        std::vector<HeldBox> ghosts;
        for (int rank = 0; rank < 16; ++rank) {  // the last row of the rank before, and a row of it twice
            Index const first = rows.boxes_of(rank)[0].box.begin(0);
            if (rank == 0) continue;
            ghosts.push_back({rank, Box{{first - 1, first}, {0, 8}}});
            ghosts.push_back({rank, Box{{first - 1, first}, {0, 4}}});
        }
        Simulation const world = simulate(rows, BoxTable(shape, ghosts), nodes_of_8(), DType::f64);
        REQUIRE(world.phases.size() == 1);
        CHECK(world.phases[0].tiers[0] == TierSum{14, 14 * 96, 1, 96, 96, 96, 96});
        CHECK(world.phases[0].tiers[1] == TierSum{1, 96, 1, 96, 96, 0, 0});
        CHECK(world.most_received == 96);
        CHECK(world.most_memory == 80 * 8 + 96);
        CHECK(world.ranks == 16);
        CHECK_THROWS_AS(static_cast<void>(simulate(rows, rows, Topology({{"node", 8, 1e-6, 1e9, 0}}), DType::f64)),
                        MeshError);
        CHECK_THROWS_AS(static_cast<void>(simulate(BoxTable(shape, ghosts), rows, nodes_of_8(), DType::f64)),
                        PlacementError);
    }

    TEST_CASE("boxes that are folded, by hand: what arrives, and the addends side by side, take memory") {
        DynamicShape const shape(Indices{4, 2});
        BoxTable const from(shape, {{0, Box{{0, 2}, {0, 2}}}, {0, Box{{2, 3}, {0, 2}}}, {1, Box{{2, 4}, {0, 2}}}});
        BoxTable const to(shape, {{0, Box{{0, 2}, {0, 2}}}, {1, Box{{2, 4}, {0, 2}}}});
        Simulation const world = simulate(from, to, nodes_of_8(), DType::f32, Reduce::sum);
        CHECK(world.phases[0].tiers[0] == TierSum{1, 8, 1, 8, 8, 0, 0});
        CHECK(world.most_memory == 16 + 16 + 8 + 16);
        CHECK_THROWS_AS(static_cast<void>(simulate(from, to, nodes_of_8(), DType::f32)), PlacementError);
        CHECK_THROWS_WITH_AS(static_cast<void>(simulate(from, to, nodes_of_8(), DType::f32, Reduce::band)),
                             "reshard::simulate: band is not defined for F32. Fix: use an op that it has (avg, sum, "
                             "min, max, product).",
                             DTypeError);
    }

    TEST_CASE("what prepare() refuses has no price") {
        DynamicShape const shape(Indices{64, 64});
        auto const refused = [&](char const* from, char const* to, DType dtype) {
            try {
                static_cast<void>(simulate(move(Indices{16}, shape, from, to), nodes_of_8(), dtype));
            } catch (DTypeError const& error) {
                return error.message().substr(0, error.message().find(". Fix: "));
            }
            return std::string();
        };
        CHECK(refused("P+", "R", DType::boolean) == "reshard::simulate: sum is not defined for BOOL");
        CHECK(refused("S0", "P+", DType::boolean) == "reshard::simulate: sum has no identity for BOOL");
        CHECK(refused("P+", "Pavg", DType::i32) == "reshard::simulate: an average of I32 would be rounded");
        CHECK(refused("P+", "R", DType::i32).empty());
    }

    TEST_CASE("views move nothing and take no time") {
        Simulation const world =
            simulate(move(Indices{4, 4}, DynamicShape(Indices{64}), "R,R", "R,S0"), nodes_of_8(), DType::f32);
        CHECK(world.phases.empty());
        CHECK(world.seconds == 0);
        CHECK(world.bound == 0);
        CHECK(world.over_bound() == 1);
        CHECK(world.most_memory == 256);
    }

    TEST_CASE("from one rank to owed parts: some rank must receive, so no bound of 0 is claimed") {
        DynamicShape const shape(Indices{64, 64});
        Plan<> const owed = plan_across(parse("(1):(R)", shape), parse("(2,2):(P+,S0)", shape));
        CHECK_FALSE(simulate(owed, nodes_of_8(), DType::f32).bound_known);
    }

    TEST_CASE("a fold in chunks: a host's many messages and little scratch memory, or a device's few and all addends") {
        // 2^20 elements a rank, in four addends: 32 chunks of 2^15 elements.
        Plan<> const fold = move(Indices{4}, DynamicShape(Indices{4096, 1024}), "P+", "S0");
        Topology const one({{"all", 0, 1e-5, 1e9, 0}});
        for (bool const classes : {true, false}) {
            SimulateOptions options;
            options.classes = classes;
            Simulation const host = simulate(fold, one, DType::f32, options);
            options.fold_elements = INT64_MAX;
            Simulation const device = simulate(fold, one, DType::f32, options);
            Index const held = (Index{1} << 22) + (Index{1} << 20);
            CHECK(host.most_memory == 4 * (held + 4 * (Index{1} << 15)));
            CHECK(device.most_memory == 4 * (held + 4 * (Index{1} << 20)));
            CHECK(host.phases[0].tiers[0].messages == 4 * 3 * 32);
            CHECK(device.phases[0].tiers[0].messages == 4 * 3);
            CHECK(host.phases[0].tiers[0].bytes == device.phases[0].tiers[0].bytes);
            CHECK(host.seconds == doctest::Approx(device.seconds + 3 * 31 * 1e-5));
        }
    }

    TEST_CASE("a million ranks by a handful of classes, exactly") {
        Index const side = 1 << 20;
        Simulation const world = simulate(
            move(Indices{1024, 1024}, DynamicShape(Indices{side, side}), "S0,S1", "S1,S0"), nodes_of_8(), DType::u8);
        CHECK(world.exact);
        CHECK(world.ranks == 1 << 20);
        CHECK(world.evaluated <= 8);
        // Everybody but the diagonal trades its tile with one rank, in another row of the mesh.
        Index const tile = Index{1} << 20;
        Index const traders = (1 << 20) - 1024;
        CHECK(world.phases[0].tiers[0].messages == 0);
        CHECK(world.phases[0].tiers[1].messages == traders);
        CHECK(world.phases[0].tiers[1].bytes == traders * tile);
        CHECK(world.phases[0].tiers[0].most_out == 8 * tile);
        CHECK(world.busiest == 1);
    }

    TEST_CASE("a million ranks with short and empty parts are exact too") {
        DynamicShape const shape(Indices{1000003, 999983});
        Plan<> const uneven = move(Indices{1024, 1024}, shape, "S0,S1", "S1,S0");
        Simulation const world = simulate(uneven, nodes_of_8(), DType::u8);
        CHECK(world.exact);
        CHECK(world.evaluated < 32);
        Index keep = 0;  // on the diagonal
        for (Index i = 0; i < 1024; ++i) keep += uneven.from().box(i * 1025).size();
        CHECK(world.phases[0].tiers[0].bytes == 0);
        CHECK(world.phases[0].tiers[1].bytes == shape.size() - keep);
    }

    TEST_CASE("cuts that drift past each other make every rank a class of its own: a sample") {
        DynamicShape const shape(Indices{1000003, 999983});
        SimulateOptions options;
        if (test::fewer_seeds()) options.budget /= 8;
        Simulation const world =
            simulate(move(Indices{1024, 1024}, shape, "S0,S1", "S0:bal,S1:bal"), nodes_of_8(), DType::u8, options);
        CHECK(!world.exact);
        CHECK(world.evaluated > 1000);
    }

    TEST_CASE("what is too much to plan is a sample, and says so") {
        DynamicShape const shape(Indices{1 << 12, 1 << 12});
        Plan<> const copies = move(Indices{64, 64}, shape, "R,S0", "S0,R");
        SimulateOptions options;
        options.budget = 5000;
        Simulation const sample = simulate(copies, nodes_of_8(), DType::u8, options);
        Simulation const all = simulate(copies, nodes_of_8(), DType::u8);
        CHECK(!sample.exact);
        CHECK(sample.ranks == 4096);
        CHECK(sample.evaluated < 4096);
        CHECK(sample.evaluated > 16);
        CHECK(all.exact);
        CHECK(all.evaluated == 4096);
        double const ratio =
            static_cast<double>(sample.phases[0].tiers[1].bytes) / static_cast<double>(all.phases[0].tiers[1].bytes);
        CHECK(ratio > 0.8);
        CHECK(ratio < 1.25);
        CHECK(sample.most_received <= all.most_received);
        CHECK(simulate(copies, nodes_of_8(), DType::u8, options) == sample);  // the sample is always the same
    }

    TEST_CASE("no classes where units are no boxes of the mesh, and the same sums") {
        DynamicShape const shape(Indices{60, 60});
        Plan<> const square = move(Indices{6, 6}, shape, "S0,S1", "S1,S0");
        Simulation const boxes = simulate(square, Topology({{"row", 6, 0, 1e9, 0}, {"all", 0, 0, 1e9, 0}}), DType::u8);
        Simulation const across =
            simulate(square, Topology({{"five", 5, 0, 1e9, 0}, {"all", 0, 0, 1e9, 0}}), DType::u8);
        CHECK(boxes.evaluated < 36);
        CHECK(across.evaluated == 36);
        CHECK(across.exact);
        CHECK(across.most_received == boxes.most_received);
    }

    TEST_CASE("ranks outside the topology, elements that cannot be cut and sums beyond 64 bits are errors") {
        DynamicShape const shape(Indices{64, 64});
        Plan<> const rows = move(Indices{16}, shape, "S0", "S1");
        Topology const node({{"node", 8, 0, 1e9, 0}});
        CHECK_THROWS_AS(static_cast<void>(simulate(rows, node, DType::u8)), MeshError);
        CHECK_THROWS_AS(static_cast<void>(simulate(rows, nodes_of_8(), DType::f4)), DTypeError);
        Plan<> const huge = move(Indices{1024}, DynamicShape(Indices{1 << 30, 1 << 30}), "S0", "R");
        CHECK_THROWS_AS(static_cast<void>(simulate(huge, nodes_of_8(), DType::f32)), ShapeError);
    }
}
