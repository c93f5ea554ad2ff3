// SPDX-License-Identifier: Apache-2.0
// law.chain: no chain of two plans moves fewer bytes than the plan, in total or on the busiest rank, whatever it moves
// by the other count. Of all pairs of R, S0, S1 and P+ per axis, where cuts come out even. A chain that folds more
// often, or addends which the plan leaves alone, is no way to the same tensors.
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

/// With a chain that moves fewer bytes.
struct Pairs {
    int in_total = 0;
    int on_busiest = 0;
    std::string last;
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
            text += errors::concat(axis == 0 ? "" : ",", placements[digits % 4]);
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
            Bytes best = direct;
            for (std::size_t middle = 0; middle < count; ++middle) {
                Bytes const chain = moved(from * count + middle, middle * count + to, true);
                if (chain.folds > direct.folds) continue;  // it rounds where the plan does not
                if (folds_kept(all[from], all[middle], all[to])) continue;
                best.total = std::min(best.total, chain.total);
                best.busiest = std::min(best.busiest, chain.busiest);
            }
            result.in_total += best.total < direct.total ? 1 : 0;
            result.on_busiest += best.busiest < direct.busiest ? 1 : 0;
            if (best.total < direct.total || best.busiest < direct.busiest) {
                result.last = errors::concat(to_string(all[from]), " -> ", to_string(all[to]));
            }
        }
    }
    return result;
}

}  // namespace

TEST_CASE("no chain of two plans moves fewer bytes than the plan, in total or on the busiest rank") {
    for (DynamicMesh const& mesh :
         {DynamicMesh(Mesh{2, 2}), DynamicMesh(Mesh{2, 4}), DynamicMesh(Mesh{4, 4}), DynamicMesh(Mesh{2, 2, 2})}) {
        if (test::fewer_seeds() && mesh.axes() == 3) continue;  // most of the plans
        Pairs const pairs = beaten_on(mesh);
        CAPTURE(pairs.last);
        CHECK(pairs.in_total == 0);
        CHECK(pairs.on_busiest == 0);
    }
}

TEST_CASE("what is cut twice and needed by the second cut alone stays where it is") {
    auto const moved = [](Plan<> const& plan) {
        Bytes bytes;
        for (Index rank = 0; rank < plan.from().mesh().size(); ++rank) {
            Cost const cost = plan.cost(rank);
            bytes.busiest = std::max({bytes.busiest, cost.sent, cost.received});
            bytes.total += cost.received;
        }
        return bytes;
    };
    DynamicMesh const mesh(Mesh{2, 2, 2});
    auto const at = [&](char const* text) { return distribution(mesh, Shape{64, 64}, text); };
    // Every half of the ranks has half of the tensor, and gets the other: 2 * 2048 elements, an eighth on each.
    Bytes const spread = moved(plan(at("S0,S0,R"), at("R,P+,P+")));
    CHECK(spread.total == 4096);
    CHECK(spread.busiest == 512);
    // An axis is folded on the way: each rank brings together 512 pairs of addends, and gets 1536 elements of others.
    Bytes const folded = moved(plan(at("P+,S0,S0"), at("R,R,P+")));
    CHECK(folded.total == 8 * (512 + 1536));
    CHECK(folded.busiest == 512 + 1536);
    // Where rows do not come out even nothing is cut in pieces.
    Plan<> const odd = plan(distribution(mesh, Shape{63, 64}, "S0,S0,R"), distribution(mesh, Shape{63, 64}, "R,R,P+"));
    for (planning::Layout const& layout : odd.steps().layouts) {
        CHECK(to_string(layout.distribution).find("str") == std::string::npos);
    }
}
