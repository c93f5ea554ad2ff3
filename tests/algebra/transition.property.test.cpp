// SPDX-License-Identifier: Apache-2.0
//
// The rule says "view" or "copy" without looking at numbers. Here every rank tries to live up to it: it builds what
// it needs from what it holds, alone, and the result must mean the same tensor.
#include <reshard/algebra/transition.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

using namespace reshard;

namespace {

template <class T>
T identity(Reduce op) {
    switch (op) {
        case Reduce::product: return T{1};
        case Reduce::min:
            return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                        : std::numeric_limits<T>::max();
        case Reduce::max:
            return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                        : std::numeric_limits<T>::lowest();
        case Reduce::band: return static_cast<T>(-1);
        case Reduce::avg: throw std::logic_error("an average has no identity");
        default: return T{0};
    }
}

/// What one rank can do alone.
template <class T>
std::vector<T> build_locally(DynamicDistribution const& from, DynamicDistribution const& to, Index rank,
                             std::vector<T> const& source) {
    oracle::Coordinates const position = oracle::coordinates(from, rank);
    bool keeps = true;   // false where another rank already brings the values in
    bool fills = false;  // whether what is not held may be the identity
    T factor{1};
    T divisor{1};
    Reduce op = Reduce::sum;
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        Placement const& a = from.placement(axis);
        Placement const& b = to.placement(axis);
        if (!b.is_partial()) continue;
        op = b.op();
        bool const idempotent =
            op == Reduce::avg || op == Reduce::min || op == Reduce::max || op == Reduce::band || op == Reduce::bor;
        if (a.is_shard()) fills = true;
        if (a.is_replicate() && !idempotent && position[oracle::at(axis)] != 0) keeps = false;
        if (a.is_partial() && a.op() != b.op()) {
            (b.op() == Reduce::avg ? factor : divisor) *= static_cast<T>(from.mesh().extent(axis));
        }
    }
    oracle::Elements const held = oracle::elements(from, rank);
    std::vector<std::optional<T>> at_hand(oracle::at(from.shape().size()));
    for (std::size_t i = 0; i != held.size(); ++i) at_hand[oracle::at(held[i])] = source[i];
    std::vector<T> result;
    for (Index i : oracle::elements(to, rank)) {
        if (!keeps) {
            result.push_back(identity<T>(op));
        } else if (at_hand[oracle::at(i)]) {
            result.push_back(static_cast<T>(*at_hand[oracle::at(i)] * factor / divisor));
        } else if (fills) {
            result.push_back(identity<T>(op));
        } else {
            throw std::runtime_error(errors::concat("rank ", rank, " needs element ", i, ", which it does not hold"));
        }
    }
    return result;
}

/// A view is a window: along every dimension the needed elements sit next to each other in local memory.
bool is_window(DynamicDistribution const& from, DynamicDistribution const& to, Index rank) {
    auto const held = oracle::held_indices(from, rank);
    auto const needed = oracle::held_indices(to, rank);
    for (std::size_t dim = 0; dim != held.size(); ++dim) {
        if (needed[dim].empty()) return true;
        auto const first = std::find(held[dim].begin(), held[dim].end(), needed[dim].front());
        if (held[dim].end() - first < static_cast<std::ptrdiff_t>(needed[dim].size())) return false;
        if (!std::equal(needed[dim].begin(), needed[dim].end(), first)) return false;
    }
    return true;
}

/// A random neighbour of `from`: some axes change, and often only in ways that need no communication.
DynamicDistribution neighbour(DynamicDistribution const& from, test::Random& random, std::vector<Reduce> const& ops) {
    for (;;) {
        Placements placements = from.placements();
        Reduce op = random.pick(ops);
        for (auto const& placement : placements)
            if (placement.is_partial() && !random.chance(10)) op = placement.op();
        if (is_linear(op) && random.chance(25)) op = op == Reduce::sum ? Reduce::avg : Reduce::sum;
        AxisList order;
        for (int dim = 0; dim < from.shape().rank(); ++dim)
            for (std::int8_t axis : from.cuts(dim)) order.push_back(axis);
        for (int axis = 0; axis < placements.size(); ++axis) {
            Placement& placement = placements[axis];
            if (placement.is_partial()) placement = Placement::partial(op);
            if (random.chance(45)) continue;
            Index const dice = random.between(0, 9);
            if (dice == 0) {
                placement = Placement::replicate();
            } else if (dice < 5) {
                placement = Placement::partial(op);
            } else if (from.shape().rank() > 0 && placement.is_replicate()) {
                SplitRule rule;
                if (random.chance(30)) rule.kind = SplitKind::balanced;
                if (random.chance(20)) rule = {SplitKind::cyclic, random.between(1, 3), {}};
                placement = Placement::shard(static_cast<int>(random.between(0, from.shape().rank() - 1)), rule);
            }
        }
        for (int axis = 0; axis < placements.size(); ++axis) {  // axes that are new cut last
            bool listed = false;
            for (int known : order) listed = listed || known == axis;
            if (!listed) order.push_back(static_cast<std::int8_t>(axis));
        }
        try {
            return DynamicDistribution(from.mesh(), from.shape(), placements, order);
        } catch (PlacementError const&) {  // boundaries or blocks that no longer fit: try another one
        }
    }
}

struct Counts {
    int views = 0;
    int locals = 0;
    int collectives = 0;
};

template <class T>
Counts check_soundness(std::vector<Reduce> const& ops, int cases) {
    Counts counts;
    test::Limits limits;
    limits.max_elements = 400;
    limits.max_dims = 3;
    limits.ops = ops;
    for (std::uint64_t seed : test::seeds(cases)) {
        test::Random random(seed, limits);
        DynamicDistribution const from = random.distribution();
        DynamicDistribution const to =
            random.chance(85) ? neighbour(from, random, ops) : random.distribution(from.mesh(), from.shape());
        INFO(test::reproduction(seed, from, to));
        if (fills_average(from.signature(), to.signature())) continue;
        TransitionKind const kind = kind_of(from, to);
        CAPTURE(name(kind));
        if (kind == TransitionKind::collective) {
            ++counts.collectives;
            continue;
        }
        (kind == TransitionKind::view ? counts.views : counts.locals) += 1;

        std::vector<T> global = random.values<T>(from.shape().size());
        for (T& value : global) value = static_cast<T>(value * 60);  // divisible by most mesh axes
        oracle::Locals<T> const source = oracle::scatter(global, from, random.engine());
        oracle::Locals<T> built(source.size());
        for (Index rank : oracle::ranks(from)) {
            REQUIRE_NOTHROW(built[oracle::at(rank)] = build_locally(from, to, rank, source[oracle::at(rank)]));
            if (kind == TransitionKind::view) {
                CHECK(built[oracle::at(rank)].size() <= source[oracle::at(rank)].size());
                CHECK(is_window(from, to, rank));
            }
        }
        std::vector<T> const result = oracle::gather(built, to);
        for (std::size_t i = 0; i != global.size(); ++i) {
            CHECK(static_cast<double>(result[i]) == doctest::Approx(static_cast<double>(global[i])));
        }
    }
    return counts;
}

}  // namespace

TEST_CASE("what is called a view or local really is, for arithmetic reductions") {
    Counts const counts =
        check_soundness<double>({Reduce::sum, Reduce::avg, Reduce::min, Reduce::max, Reduce::product}, 6000);
    CHECK(counts.views > test::of_seeds(500));
    CHECK(counts.locals > test::of_seeds(500));
    CHECK(counts.collectives > test::of_seeds(500));
}

TEST_CASE("what is called a view or local really is, for reductions on bits") {
    Counts const counts = check_soundness<std::int32_t>({Reduce::band, Reduce::bor, Reduce::bxor}, 3000);
    CHECK(counts.views > test::of_seeds(300));
    CHECK(counts.locals > test::of_seeds(200));
}

TEST_CASE("where sizes are generic, the rule is exact: collective if and only if some rank misses something") {
    // Chunk cuts of large primes by axes of at least two ranks: no coincidence hides a move.
    int silent = 0;
    int moving = 0;
    for (std::uint64_t seed : test::seeds(3000)) {
        test::Random random(seed);
        Indices extents;
        Index size = 1;
        for (Index axes = random.between(1, 3); axes > 0; --axes) {
            extents.push_back(random.between(2, axes == 1 && size < 6 ? 4 : 3));
            size *= extents.back();
        }
        DynamicMesh const mesh(extents);
        DynamicShape const shape = Shape{97, 101};
        auto const draw = [&] {
            Placements placements;
            AxisList order;
            for (int axis = 0; axis < mesh.axes(); ++axis) {
                Index const dice = random.between(0, 2);
                placements.push_back(dice == 2 ? Placement::replicate() : Placement::shard(static_cast<int>(dice)));
                order.push_back(static_cast<std::int8_t>(axis));
            }
            std::shuffle(order.begin(), order.end(), random.engine());
            return DynamicDistribution(mesh, shape, placements, order);
        };
        DynamicDistribution const from = draw();
        DynamicDistribution const to = draw();
        INFO(test::reproduction(seed, from, to));
        Index missing = 0;
        for (Index rank : oracle::ranks(from)) missing += oracle::missing(from, to, rank);
        CHECK((kind_of(from, to) == TransitionKind::collective) == (missing > 0));
        (missing > 0 ? moving : silent) += 1;
    }
    CHECK(silent > test::of_seeds(200));
    CHECK(moving > test::of_seeds(200));
}

TEST_CASE("doing nothing is a view, and a view after a view is a view") {
    test::Limits limits;
    limits.ops = {Reduce::max};
    int chains = 0;
    for (std::uint64_t seed : test::seeds(3000)) {
        test::Random random(seed, limits);
        DynamicDistribution const a = random.distribution();
        DynamicDistribution const b = neighbour(a, random, limits.ops);
        DynamicDistribution const c = neighbour(b, random, limits.ops);
        INFO(test::reproduction(seed, a, c));
        CHECK(kind_of(a, a) == TransitionKind::view);
        if (kind_of(a, b) == TransitionKind::view && kind_of(b, c) == TransitionKind::view) {
            INFO("by way of ", to_string(b));
            CHECK(kind_of(a, c) == TransitionKind::view);
            ++chains;
        }
    }
    CHECK(chains > test::of_seeds(100));
}
