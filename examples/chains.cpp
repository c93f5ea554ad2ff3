// SPDX-License-Identifier: Apache-2.0
// A collective per mesh axis after the other, beside one exchange: the table of docs/simulate.md. `reshard simulate`
// adds up any transition; this goes through all pairs of placements of some meshes.
#include <reshard/plan/simulate.hpp>

#include "support/launcher.hpp"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {
using namespace reshard;

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

void print_table() {
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
                largest = detail::larger(largest, ratio);
            }
        }
        std::string name;
        for (Index extent : extents) name += errors::concat(name.empty() ? "" : "x", extent);
        std::printf("%-6s %15d   %37.2f   %7.1f   %9.0f%%\n", name.c_str(), pairs, std::exp(logs / pairs), largest,
                    100.0 * above / pairs);
    }
}

}  // namespace

int main() {
    if (demo::is_first_process()) print_table();  // no ranks: under mpirun one answer is enough
    return 0;
}
