// SPDX-License-Identifier: Apache-2.0
// Worlds before they exist: the tables of docs/simulate.md. No communicator, no threads, no memory to speak of.
//
//     reshard_simulate simulate chains       a collective per mesh axis after the other, beside one exchange
//     reshard_simulate simulate transfers    trainer to inference, beside what was published
//     reshard_simulate simulate worlds       2^10, 2^15, 2^20 ranks
//     reshard_simulate simulate relabel      who should take which shard
//     reshard_simulate time                  how long the simulations of `worlds` take here
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/simulate.hpp>

#include "support/launcher.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {
using namespace reshard;

// ---- A cluster of the day, as an example: take numbers of your own, or calibrate(comm, tiers) ---------------------

/// Nodes of 8 with 450 GB/s a way between their ranks, and a 400 Gb/s card per rank to leave by.
Topology cluster() { return Topology({{"node", 8, 3e-6, 450e9, 400e9}, {"cluster", 0, 10e-6, 50e9, 0}}); }

// ---- Chains ------------------------------------------------------------------------------------------------------

/// Replicate (-1) or the dimension it cuts, per mesh axis.
using Kinds = std::vector<int>;

/// Elements that each rank receives when a transition is carried out axis by axis, as PyTorch's default planner does
/// (torch/distributed/tensor/_redistribute.py): from the inner axis to the outer one, an axis whose target cuts a
/// dimension that the axes before it cut otherwise than in the end is first gathered; then, from the outer axis to
/// the inner one, what is left is done. All cuts are even. All-gathers and all-to-alls are charged what they must
/// bring, not what an implementation might.
double chain_received(Indices const& mesh, Kinds now, Kinds const& target, double elements) {
    double received = 0;
    auto const step = [&](int axis, int to) {
        auto const at = static_cast<std::size_t>(axis);
        double local = elements;
        for (int a = 0; a < mesh.size(); ++a) {
            if (now[static_cast<std::size_t>(a)] >= 0) local /= static_cast<double>(mesh[a]);
        }
        auto const parts = static_cast<double>(mesh[axis]);
        if (now[at] >= 0 && to < 0) received += (parts - 1) * local;
        if (now[at] >= 0 && to >= 0 && now[at] != to) received += (parts - 1) / parts * local;
        now[at] = to;
    };
    for (int axis = mesh.size() - 1; axis >= 0; --axis) {
        int to = target[static_cast<std::size_t>(axis)];
        for (std::size_t before = 0; before < static_cast<std::size_t>(axis) && to >= 0; ++before) {
            if ((now[before] == to) != (target[before] == to)) to = -1;
        }
        step(axis, to);
    }
    for (int axis = 0; axis < mesh.size(); ++axis) step(axis, target[static_cast<std::size_t>(axis)]);
    return received;
}

std::vector<Kinds> all_kinds(int axes) {
    std::vector<Kinds> result{{}};
    for (int axis = 0; axis < axes; ++axis) {
        std::vector<Kinds> longer;
        for (Kinds const& kinds : result) {
            for (int kind = -1; kind <= 1; ++kind) {
                longer.push_back(kinds);
                longer.back().push_back(kind);
            }
        }
        result.swap(longer);
    }
    return result;
}

DynamicDistribution placed(DynamicMesh const& mesh, DynamicShape const& shape, Kinds const& kinds) {
    Placements placements;
    for (int kind : kinds) placements.push_back(kind < 0 ? Placement::replicate() : Placement::shard(kind));
    return DynamicDistribution(mesh, shape, placements);
}

void chains() {
    std::printf("mesh   pairs that move   chain / one exchange, geometric mean   largest   above 1.01\n");
    Topology const flat({{"all", 0, 0, 1, 0}});
    for (Indices const& extents : {Indices{2, 2}, Indices{2, 4}, Indices{2, 8}, Indices{8, 8}, Indices{2, 4, 8}}) {
        DynamicMesh const mesh(extents);
        DynamicShape const shape(Indices{mesh.size(), mesh.size()});
        double logs = 0;
        double largest = 0;
        int pairs = 0;
        int above = 0;
        for (Kinds const& from : all_kinds(mesh.axes())) {
            for (Kinds const& to : all_kinds(mesh.axes())) {
                Simulation const direct =
                    simulate(plan(placed(mesh, shape, from), placed(mesh, shape, to)), flat, DType::u8);
                double const chain = chain_received(extents, from, to, static_cast<double>(shape.size()));
                if (direct.most_received == 0) continue;  // then the chain moves nothing either
                double const ratio = chain / static_cast<double>(direct.most_received);
                ++pairs;
                above += ratio > 1.01 ? 1 : 0;
                logs += std::log(ratio);
                largest = larger(largest, ratio);
            }
        }
        std::string name;
        for (Index extent : extents) name += concat(name.empty() ? "" : "x", extent);
        std::printf("%-6s %15d   %37.2f   %7.1f   %9.0f%%\n", name.c_str(), pairs, std::exp(logs / pairs), largest,
                    100.0 * above / pairs);
    }
}

// ---- From trainers to inference ----------------------------------------------------------------------------------

struct Published {
    char const* what;
    char const* measured;
    Plan<> plan;
};

/// One matrix of bytes stands for all the weights.
std::vector<Published> published() {
    DynamicShape const qwen(Indices{472'000, 1'000'000});    // Qwen3-235B, bf16
    DynamicShape const kimi(Indices{1'024'000, 1'000'000});  // Kimi-K2, about one byte a weight
    DynamicMesh const eight(Indices{8});
    DynamicMesh const next_eight(Indices{8}, first_rank(8));
    DynamicMesh const engines(Indices{16, 16});
    DynamicMesh const trainers(Indices{256});
    DynamicMesh const servers(Indices{128}, first_rank(256));
    return {
        {"Qwen3-235B, 8 -> 8 ranks, each its slices", "3.3 s, of it 1.28 s at 43 GiB/s a worker",
         plan_across(distribution(eight, qwen, "S0"), distribution(next_eight, qwen, "S1"))},
        {"Qwen3-235B, 8 -> 8 ranks, all to each", "-",
         plan_across(distribution(eight, qwen, "S0"), distribution(next_eight, qwen, "R"))},
        {"Kimi-K2, 256 ranks, all to each", "16.04 s",
         plan(distribution(engines, kimi, "S0,S0"), distribution(engines, kimi, "R,R"))},
        {"Kimi-K2, the same, relayed inside nodes", "16.04 s",
         plan(distribution(engines, kimi, "S0,S0"), distribution(engines, kimi, "R,R")).relayed(8)},
        {"Kimi-K2, 256 ranks, 16 engines of 16", "-",
         plan(distribution(engines, kimi, "S0,S0"), distribution(engines, kimi, "R,S0"))},
        {"Kimi-K2, 256 -> 128 ranks", "1.3 s",
         plan_across(distribution(trainers, kimi, "S0"), distribution(servers, kimi, "S1"))},
    };
}

void transfers() {
    std::printf("%-42s %12s %12s %9s   %s\n", "", "received by", "leaving the", "", "");
    std::printf("%-42s %12s %12s %9s   %s\n", "", "one rank", "busiest node", "model", "published");
    for (Published const& transfer : published()) {
        Simulation const world = simulate(transfer.plan, cluster(), DType::u8);
        Index out = 0;
        for (PhaseSum const& phase : world.phases) out += phase.tiers[0].most_out;
        std::printf("%-42s %12s %12s %9s   %s\n", transfer.what, detail::bytes_text(world.most_received).c_str(),
                    detail::bytes_text(out).c_str(), detail::seconds_text(world.seconds).c_str(), transfer.measured);
    }
}

// ---- Large worlds ------------------------------------------------------------------------------------------------

struct World {
    std::string name;
    Plan<> plan;
};

std::vector<World> large_worlds() {
    std::vector<World> result;
    DynamicShape const shape(Indices{1 << 20, 1 << 20});
    for (Indices const& extents : {Indices{32, 32}, Indices{256, 128}, Indices{1024, 1024}}) {
        DynamicMesh const mesh(extents);
        struct Pair {
            char const* from;
            char const* to;
        };
        for (Pair const& pair : {Pair{"S0,S1", "S1,S0"}, Pair{"S0,S1", "S0,R"}, Pair{"P+,S0", "R,S0"}}) {
            result.push_back({concat(mesh.size(), " ranks ", pair.from, " -> ", pair.to),
                              plan(distribution(mesh, shape, pair.from), distribution(mesh, shape, pair.to))});
        }
    }
    return result;
}

void worlds() {
    std::printf("bf16 [%d,%d], 2 TiB\n", 1 << 20, 1 << 20);
    std::printf("%-30s %10s %12s %12s %12s %10s %8s\n", "", "in nodes", "across nodes", "messages", "per rank", "time",
                "classes");
    for (World const& world : large_worlds()) {
        Simulation const result = simulate(world.plan, cluster(), DType::bf16);
        Index inside = 0;
        Index across = 0;
        Index messages = 0;
        for (PhaseSum const& phase : result.phases) {
            inside += phase.tiers[0].bytes;
            across += phase.tiers[1].bytes;
            messages += phase.tiers[0].messages + phase.tiers[1].messages;
        }
        std::printf("%-30s %10s %12s %12lld %12s %10s %8lld%s\n", world.name.c_str(),
                    detail::bytes_text(inside).c_str(), detail::bytes_text(across).c_str(),
                    static_cast<long long>(messages), detail::bytes_text(result.most_received).c_str(),
                    detail::seconds_text(result.seconds).c_str(), static_cast<long long>(result.evaluated),
                    result.exact ? "" : " (sample)");
    }
}

void time_worlds() {
    for (World const& world : large_worlds()) {
        auto const start = std::chrono::steady_clock::now();
        Simulation const result = simulate(world.plan, cluster(), DType::bf16);
        std::chrono::duration<double, std::milli> const taken = std::chrono::steady_clock::now() - start;
        std::printf("%-30s %8.1f ms%s\n", world.name.c_str(), taken.count(), result.exact ? "" : " (sample)");
    }
}

// ---- Relabelling -------------------------------------------------------------------------------------------------

void relabelled() {
    DynamicShape const shape(Indices{8192, 8192});
    struct Case {
        char const* what;
        char const* from;
        char const* to;
    };
    std::printf("%-36s %10s %10s   who takes which place\n", "bf16 [8192,8192]", "moved", "relabelled");
    for (Case const& c : {Case{"the owners of 4 blocks in a cycle", "(4):(S0)", "(4)[1,2,3,0]:(S0)"},
                          Case{"the same cuts, axes in another order", "(2,4):(S0,S1)", "(4,2):(S1,S0)"},
                          Case{"8 row blocks to 2 x 4 tiles", "(8):(S0)", "(4,2):(S1,S0)"},
                          Case{"balanced 6 to 6 of 8 ranks", "(8):(S0:bal)", "(6):(S0:bal)"}}) {
        DynamicDistribution const from = parse(c.from, shape);
        DynamicDistribution const to = parse(c.to, shape);
        std::vector<Index> candidates;
        for (Index rank = 0; rank < from.mesh().size(); ++rank) candidates.push_back(rank);
        Relabelling const result = relabel({{from, to, DType::bf16}}, candidates);
        std::string ranks;
        for (Index rank : result.ranks) ranks += concat(ranks.empty() ? "" : ",", rank);
        std::printf("%-36s %10s %10s   %s\n", c.what, detail::bytes_text(result.bytes_before).c_str(),
                    detail::bytes_text(result.bytes_after).c_str(), ranks.c_str());
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (!demo::is_first_process()) return 0;  // no ranks here: under mpirun one answer is enough
    std::string_view const command = argc > 1 ? argv[1] : "";
    std::string_view const table = argc > 2 ? argv[2] : "";
    if (command == "time") {
        time_worlds();
    } else if (command == "simulate" && table == "chains") {
        chains();
    } else if (command == "simulate" && table == "transfers") {
        transfers();
    } else if (command == "simulate" && table == "worlds") {
        worlds();
    } else if (command == "simulate" && table == "relabel") {
        relabelled();
    } else if (command == "simulate" && table == "cluster") {
        std::fputs(to_string(cluster()).c_str(), stdout);
    } else {
        std::fputs(
            "usage: reshard_simulate simulate chains|transfers|worlds|relabel|cluster\n"
            "       reshard_simulate time\n",
            stderr);
        return 2;
    }
    return 0;
}
