// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/detail/tally.hpp: against counting one by one and against visiting everything.
#include <reshard/plan/detail/tally.hpp>

#include <reshard/plan/detail/intersections.hpp>
#include <reshard/plan/detail/nodes.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <set>
#include <vector>

namespace {
using namespace reshard;
using detail::Grid;

test::Limits limits_of(std::uint64_t seed) {
    test::Limits limits;
    limits.max_elements = 600;
    limits.max_extent = 40;
    limits.mostly_cyclic = seed % 4 == 0;
    limits.partial = false;
    return limits;
}

/// Whether two ordinals agree on those of the axes by which a grid cuts `dim`.
bool agree(Grid const& grid, Index a, Index b, int dim, unsigned axes) {
    for (auto const& cut : grid.cuts(dim)) {
        for (int axis = 0; axis < grid.mesh->axes(); ++axis) {
            if (((grid.axes_of(cut) & axes) >> axis & 1U) == 0) continue;
            Index const stride = grid.mesh->stride(axis);
            Index const extent = grid.mesh->extent(axis);
            if (a / stride % extent != b / stride % extent) return false;
        }
    }
    return true;
}

/// Compares with the destination of every single index. Returns how many indices were counted.
Index check_counts(Grid const& from, Grid const& to, Index piece, Index reference, unsigned axes) {
    auto const sets = detail::index_sets(from, piece);
    detail::Tally const tally(to, sets, detail::forms_of(from, to), reference, axes);
    Index counted = 0;
    Index product = 1;
    for (int dim = 0; dim < to.dims.size(); ++dim) {
        CAPTURE(dim);
        Index expected = 0;
        bool const listed = tally.is_listed(dim);
        for (Index i = 0; i < to.dims[dim].extent; ++i) {
            if (!listed) REQUIRE(tally.before(dim, i) == expected);
            if (!sets[dim].contains(i)) continue;
            to.for_each_part(dim, IndexSet(Interval{i, i + 1}), [&](IndexSet const& part, Index destination) {
                if (!part.contains(i)) return;
                bool const agrees = agree(to, destination, reference, dim, axes);
                REQUIRE(tally.agrees(destination, dim) == agrees);
                expected += agrees ? 1 : 0;
            });
        }
        REQUIRE(tally.before(dim, to.dims[dim].extent) == expected);
        counted += expected;
        product *= expected;
    }
    REQUIRE(tally.elements() == product);
    return counted;
}

using Key = std::pair<Index, std::vector<Index>>;
Key key_of(planning::Message const& message, Index destination) {
    Key key{destination, {}};
    for (Interval interval : message.box) {
        key.second.push_back(interval.begin);
        key.second.push_back(interval.end);
    }
    for (auto const& repeat : message.repeats) key.second.push_back(repeat.count);
    return key;
}

/// All messages that touch a stretch of the line are visited, whole and once. Returns how many were left out.
Index check_narrowed(Grid const& from, Grid const& to, Index piece, unsigned axes, test::Random& random) {
    auto const sets = detail::index_sets(from, piece);
    auto const forms = detail::forms_of(from, to);
    detail::Tally const home(to, sets, forms, piece, axes);
    detail::Tally const all(to, sets, forms);
    Index const length = all.elements() - home.elements();
    Index const begin = random.between(-1, detail::larger<Index>(length - 1, 0));
    Interval const stretch{begin, begin + random.between(1, detail::larger<Index>(length / 3, 1))};
    std::set<Key> wanted;
    std::set<Key> whole;
    detail::Intersections(to, sets, forms).for_each([&](planning::Message const& message, Index destination) {
        whole.insert(key_of(message, destination));
        bool away = false;
        for (int dim = 0; dim < to.dims.size(); ++dim) away = away || !agree(to, destination, piece, dim, axes);
        Index const place = all.place(message, destination) - home.place(message, destination);
        bool const touches = place < stretch.end && place + message.elements() > stretch.begin;
        if (away && touches) wanted.insert(key_of(message, destination));
    });
    std::set<Key> visited;
    detail::Narrowed(to, forms, all, &home, stretch).for_each([&](planning::Message const& message, Index destination) {
        bool const is_new = visited.insert(key_of(message, destination)).second;
        REQUIRE(is_new);
        REQUIRE(whole.count(key_of(message, destination)) == 1);
    });
    for (Key const& key : wanted) REQUIRE(visited.count(key) == 1);
    return static_cast<Index>(whole.size() - visited.size());
}

}  // namespace

TEST_SUITE("plan/detail/tally") {
    TEST_CASE("elements that agree on some axes are as many as when counted one by one") {
        Index counted = 0;
        for (std::uint64_t seed : test::seeds(1500)) {
            CAPTURE(seed);
            test::Random random(seed, limits_of(seed));
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            auto const axes = static_cast<unsigned>(random.between(0, (1 << mesh.axes()) - 1));
            Grid const source(from);
            counted += check_counts(source, Grid(to), source.cutting_ordinal(random.between(0, mesh.size() - 1)),
                                    random.between(0, mesh.size() - 1), axes);
        }
        CHECK(counted > test::of_seeds(1000));
    }

    TEST_CASE("the same where a cut is by two axes of a finer mesh") {
        for (std::uint64_t seed : test::seeds(500)) {
            CAPTURE(seed);
            test::Random random(seed, limits_of(seed));
            DynamicMesh const mesh = Mesh{4, 6};
            DynamicMesh const finer = Mesh{2, 2, 3, 2};
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            Grid source(from);
            Grid target(to);
            source.lay_on(finer);
            target.lay_on(finer);
            check_counts(source, target, source.cutting_ordinal(random.between(0, 23)), random.between(0, 23),
                         static_cast<unsigned>(random.between(0, 15)));
        }
    }

    TEST_CASE("going on to another piece is counting anew, whether or not a dimension is listed") {
        for (std::uint64_t seed : test::seeds(500)) {
            CAPTURE(seed);
            test::Limits limits = limits_of(1);
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            Grid const source(from);
            Grid const target(to);
            auto const forms = detail::forms_of(source, target);
            auto const axes = static_cast<unsigned>(random.between(0, (1 << mesh.axes()) - 1));
            Index piece = source.cutting_ordinal(random.between(0, mesh.size() - 1));
            detail::Tally tally(target, detail::index_sets(source, piece), forms, piece, axes);
            for (int i = 0; i < 5; ++i) {
                piece = source.cutting_ordinal(random.between(0, mesh.size() - 1));
                auto const sets = detail::index_sets(source, piece);
                tally.follow(sets, forms, piece);
                detail::Tally const anew(target, sets, forms, piece, axes);
                REQUIRE(tally.elements() == anew.elements());
                for (int dim = 0; dim < sets.size(); ++dim) {
                    Index const position = random.between(0, target.dims[dim].extent);
                    REQUIRE(tally.before(dim, position) == anew.before(dim, position));
                    REQUIRE(tally.inner(dim) == anew.inner(dim));
                }
            }
        }
    }

    TEST_CASE("what lies on a stretch of the line is visited, whole and once") {
        Index left_out = 0;
        for (std::uint64_t seed : test::seeds(1500)) {
            CAPTURE(seed);
            test::Random random(seed, limits_of(seed));
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            Grid const source(from);
            left_out += check_narrowed(source, Grid(to), source.cutting_ordinal(random.between(0, mesh.size() - 1)),
                                       source.cutting, random);
        }
        CHECK(left_out > test::of_seeds(1000));
    }
}
