// SPDX-License-Identifier: Apache-2.0
// law.chain: a chain of two plans that moves fewer bytes than the plan, in total or on the busiest rank, moves more by
// the other count. Of all pairs of R, S0, S1 and P+ per axis, where cuts come out even. A chain that folds addends
// which the plan leaves alone is no way to the same tensors.
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {
using namespace reshard;

struct Bytes {
    Index busiest = 0;  ///< of any rank, sent or received
    Index total = 0;
    int folds = 0;
};

struct Pairs {
    int beaten = 0;
    double worst = 1;  ///< times as many as the best chain
};

/// Whether a chain folds along an axis that owes at both ends: a plan leaves its addends where they are.
bool folds_kept(DynamicDistribution const& from, DynamicDistribution const& middle, DynamicDistribution const& to) {
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        bool const keeps = from.signature()[axis].is_partial() && to.signature()[axis].is_partial();
        if (keeps && !middle.signature()[axis].is_partial()) return true;
    }
    return false;
}

Pairs beaten_on(DynamicMesh const& mesh) {
    constexpr char const* placements[] = {"R", "S0", "S1", "P+"};
    std::size_t count = 1;
    for (int axis = 0; axis < mesh.axes(); ++axis) count *= 4;
    std::vector<DynamicDistribution> all;
    for (std::size_t i = 0; i < count; ++i) {
        std::string text;
        std::size_t digits = i;
        for (int axis = 0; axis < mesh.axes(); ++axis, digits /= 4) {
            text += concat(axis == 0 ? "" : ",", placements[digits % 4]);
        }
        all.push_back(distribution(mesh, Shape{64, 64}, text));
    }
    auto const ranks = static_cast<std::size_t>(mesh.size());
    std::vector<Index> sent(count * count * ranks);
    std::vector<Index> received(sent.size());
    std::vector<int> folds(count * count);
    for (std::size_t pair = 0; pair < count * count; ++pair) {
        Plan<> const one = plan(all[pair / count], all[pair % count]);
        folds[pair] = one.steps().find(planning::StepKind::fold) != nullptr ? 1 : 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            Cost const cost = one.cost(static_cast<Index>(rank));
            sent[pair * ranks + rank] = cost.sent;
            received[pair * ranks + rank] = cost.received;
        }
    }
    auto const moved = [&](std::size_t first, std::size_t second, bool both) {
        Bytes bytes;
        bytes.folds = folds[first] + (both ? folds[second] : 0);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            Index const out = sent[first * ranks + rank] + (both ? sent[second * ranks + rank] : 0);
            Index const in = received[first * ranks + rank] + (both ? received[second * ranks + rank] : 0);
            bytes.busiest = std::max({bytes.busiest, out, in});
            bytes.total += in;
        }
        return bytes;
    };
    Pairs result;
    for (std::size_t from = 0; from < count; ++from) {
        for (std::size_t to = 0; to < count; ++to) {
            Bytes const direct = moved(from * count + to, 0, false);
            double worst = 1;
            for (std::size_t middle = 0; middle < count; ++middle) {
                Bytes const chain = moved(from * count + middle, middle * count + to, true);
                if (chain.folds > direct.folds) continue;  // it rounds where the plan does not
                if (folds_kept(all[from], all[middle], all[to])) continue;
                auto const ratio = [](Index a, Index b) {
                    return static_cast<double>(a) / static_cast<double>(std::max<Index>(b, 1));
                };
                if (chain.busiest > direct.busiest || chain.total > direct.total) continue;
                worst = std::max({worst, ratio(direct.busiest, chain.busiest), ratio(direct.total, chain.total)});
            }
            result.beaten += worst > 1 ? 1 : 0;
            result.worst = std::max(result.worst, worst);
        }
    }
    return result;
}

}  // namespace

TEST_CASE("no chain of two plans moves fewer bytes, in total or on the busiest rank, without more by the other count") {
    for (DynamicMesh const& mesh :
         {DynamicMesh(Mesh{2, 2}), DynamicMesh(Mesh{2, 4}), DynamicMesh(Mesh{4, 4}), DynamicMesh(Mesh{2, 2, 2})}) {
        if (test::fewer_seeds() && mesh.axes() == 3) continue;  // most of the plans
        Pairs const pairs = beaten_on(mesh);
        CAPTURE(pairs.worst);
        CAPTURE(mesh.axes());
        CHECK(pairs.beaten == 0);
    }
}
