// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/random.hpp
/// \brief  Random meshes, shapes and distributions, each from one seed that reproduces it.
///
///     for (std::uint64_t seed : test::seeds(1000)) {
///         test::Random random(seed);
///         auto const d = random.distribution();
///         INFO(test::reproduction(seed, d));
///
/// RESHARD_TEST_SEED=n in the environment starts at n instead of 1. With sanitizers a case takes ten times as long: one
/// in twenty is tried there, and RESHARD_TEST_SEEDS=all in the environment asks for all of them, as "few" asks
/// for as many anywhere; scripts/test --all runs the same programs without.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/algebra/notation.hpp>

#include <algorithm>  // shuffle, sort
#include <cstdlib>    // getenv, strtoull
#include <random>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RESHARD_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RESHARD_TEST_SANITIZED 1
#endif
#endif

namespace reshard::test {

/// Whether only one random case in twenty is tried.
inline bool fewer_seeds() {
    char const* const asked = std::getenv("RESHARD_TEST_SEEDS");
    if (asked != nullptr) return std::string_view(asked) == "few";
#if defined(RESHARD_TEST_SANITIZED)
    return true;
#else
    return false;
#endif
}

/// How many of `count` random cases are tried.
inline int tries(int count) { return fewer_seeds() ? std::min(count, std::max(10, count / 20)) : count; }

/// How far it is from a case to the next where all of them are tried in order: all bits, all calls. Odd, so that each
/// bit of a byte has its turn.
inline std::size_t step() { return fewer_seeds() ? 31 : 1; }

/// tries(count) consecutive seeds.
inline std::vector<std::uint64_t> seeds(int count) {
    count = tries(count);
    char const* text = std::getenv("RESHARD_TEST_SEED");
    std::uint64_t const first = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
    std::vector<std::uint64_t> result;
    for (int i = 0; i < count; ++i) result.push_back(first + static_cast<std::uint64_t>(i));
    return result;
}

/// What a test asks of a count over all seeds ("enough cases were worth it"), where fewer seeds are tried: half of what
/// they make of it.
inline int of_seeds(int count) { return fewer_seeds() ? count / 40 : count; }

/// What a failing test prints: enough to make the case again.
inline std::string reproduction(std::uint64_t seed, DynamicDistribution const& d) {
    return errors::concat("seed ", seed, ": ", to_string(d), " of ", to_string(d.shape()));
}
inline std::string reproduction(std::uint64_t seed, DynamicDistribution const& from, DynamicDistribution const& to) {
    return errors::concat("seed ", seed, ": ", to_string(from), " -> ", to_string(to), " of ", to_string(from.shape()));
}

/// What may occur in a random case.
struct Limits {
    int max_axes = 4;
    Index max_ranks = 24;
    int max_dims = 5;
    Index max_extent = 40;
    Index max_elements = 20'000;
    bool plain_ranks = false;  ///< only ranks 0, 1, 2, ...
    bool partial = true;
    bool cyclic = true;
    bool strided = true;         ///< in place of some of those that are cyclic
    bool mostly_cyclic = false;  ///< where a cut can be block-cyclic, with blocks of any size
    bool orders = true;          ///< cutting orders other than ascending
    std::vector<Reduce> ops{Reduce::sum,     Reduce::avg,  Reduce::min, Reduce::max,
                            Reduce::product, Reduce::band, Reduce::bor, Reduce::bxor};
};

class Random {
public:
    explicit Random(std::uint64_t seed, Limits limits = {}) : rng_(seed), limits_(std::move(limits)) {}

    [[nodiscard]] std::mt19937_64& engine() noexcept { return rng_; }
    /// A whole number, both ends included.
    [[nodiscard]] Index between(Index low, Index high) {
        std::uint64_t const first = static_cast<std::uint64_t>(low);
        std::uint64_t const count = static_cast<std::uint64_t>(high) - first + 1;  // 0: all there are
        return static_cast<Index>(first + (count == 0 ? rng_() : rng_() % count));
    }
    [[nodiscard]] bool chance(int percent) { return between(1, 100) <= percent; }
    template <class T>
    [[nodiscard]] T const& pick(std::vector<T> const& list) {
        return list[static_cast<std::size_t>(between(0, static_cast<Index>(list.size()) - 1))];
    }

    /// 1 to max_axes axes; sometimes shifted, sometimes with its ranks in any order and with gaps.
    [[nodiscard]] DynamicMesh mesh() {
        int const axes = static_cast<int>(between(1, limits_.max_axes));
        std::vector<Index> extents(static_cast<std::size_t>(axes), 1);
        Index size = 1;
        for (Index& extent : extents) {
            extent = between(1, std::min<Index>(limits_.max_ranks / size, axes == 1 ? limits_.max_ranks : 5));
            size *= extent;
        }
        std::shuffle(extents.begin(), extents.end(), rng_);
        Indices list;
        for (Index extent : extents) list.push_back(extent);
        if (limits_.plain_ranks || chance(60)) return DynamicMesh(list);
        if (chance(50)) return DynamicMesh(list, first_rank(between(1, 7)));
        std::vector<Index> ranks;
        for (Index r = 0; r < size + 4; ++r) ranks.push_back(r);
        std::shuffle(ranks.begin(), ranks.end(), rng_);
        return DynamicMesh(list, RankList{0, IndexList(ranks.data(), size)});
    }

    /// 0 to max_dims dimensions; primes often, zeros and ones now and then.
    [[nodiscard]] DynamicShape shape() { return shape(static_cast<int>(between(0, limits_.max_dims))); }
    [[nodiscard]] DynamicShape shape(int dims) {
        Indices extents;
        Index size = 1;
        for (int d = 0; d < dims; ++d) {
            Index const most = std::max<Index>(1, std::min(limits_.max_extent, limits_.max_elements / size));
            Index extent = between(chance(10) ? 0 : 1, most);
            if (chance(50))
                extent = std::min(most, pick(std::vector<Index>{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}));
            extents.push_back(extent);
            size *= std::max<Index>(extent, 1);
        }
        for (int d = dims - 1; d > 0; --d) {  // small extents come last until they are mixed
            std::swap(extents[d], extents[static_cast<int>(between(0, d))]);
        }
        return DynamicShape(extents);
    }

    /// Any legal placements for the mesh and shape.
    [[nodiscard]] DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape) {
        std::vector<int> axes;
        for (int a = 0; a < mesh.axes(); ++a) axes.push_back(a);
        bool const reordered = limits_.orders && chance(50);
        if (reordered) std::shuffle(axes.begin(), axes.end(), rng_);
        Reduce const op = pick(limits_.ops);
        std::vector<int> dim_of(axes.size(), -1);
        for (int axis : axes) {
            if (shape.rank() > 0 && chance(65)) {
                dim_of[static_cast<std::size_t>(axis)] = static_cast<int>(between(0, std::min(shape.rank(), 3) - 1));
            }
        }
        std::vector<Placement> placements(axes.size());
        for (int dim = 0; dim < shape.rank(); ++dim) {
            Index extent = shape.extent(dim);  // -1 once pieces differ: boundaries need one size
            std::vector<int> cutters;
            for (int axis : axes)
                if (dim_of[static_cast<std::size_t>(axis)] == dim) cutters.push_back(axis);
            for (std::size_t i = 0; i != cutters.size(); ++i) {
                Index const parts = mesh.extent(cutters[i]);
                SplitRule const rule = split_rule(extent, parts, i + 1 == cutters.size());
                placements[static_cast<std::size_t>(cutters[i])] = Placement::shard(dim, rule);
                if (extent < 0) continue;
                if (rule.kind == SplitKind::boundaries) {
                    bool even = true;
                    for (Index p = 0; p < parts; ++p) {
                        even = even && rule.boundaries[p + 1] - rule.boundaries[p] == rule.boundaries[1];
                    }
                    extent = even ? rule.boundaries[1] : -1;
                } else {
                    extent = extent % parts == 0 ? extent / parts : -1;
                }
            }
        }
        Placements list;
        for (std::size_t axis = 0; axis != placements.size(); ++axis) {
            bool const free = dim_of[axis] < 0;
            list.push_back(free && limits_.partial && chance(40) ? Placement::partial(op) : placements[axis]);
        }
        AxisList order;
        if (reordered) {
            for (int axis : axes) order.push_back(static_cast<std::int8_t>(axis));
        }
        return DynamicDistribution(mesh, shape, list, order);
    }
    [[nodiscard]] DynamicDistribution distribution() {
        DynamicMesh const grid = mesh();
        return distribution(grid, shape());
    }

    /// Small whole numbers, exact in every element type.
    template <class T>
    [[nodiscard]] std::vector<T> values(Index count) {
        std::vector<T> result;
        for (Index i = 0; i < count; ++i) {
            if constexpr (std::is_integral_v<T>) {
                result.push_back(static_cast<T>(between(0, 100)));
            } else {
                result.push_back(static_cast<T>(static_cast<float>(between(-60, 60))));
            }
        }
        return result;
    }

private:
    [[nodiscard]] SplitKind interleaved() {
        return limits_.strided && chance(40) ? SplitKind::strided : SplitKind::cyclic;
    }
    [[nodiscard]] SplitRule split_rule(Index extent, Index parts, bool last) {
        if (limits_.mostly_cyclic && last && chance(75)) {
            return {interleaved(), between(1, pick(std::vector<Index>{2, 4, 9, 50})), {}};
        }
        Index const dice = between(0, 9);
        if (dice >= 8 && last && limits_.cyclic) return {interleaved(), between(1, 5), {}};
        if (dice >= 6 && extent >= 0) {
            std::vector<Index> positions{0, extent};
            while (static_cast<Index>(positions.size()) < parts + 1) positions.push_back(between(0, extent));
            std::sort(positions.begin(), positions.end());
            return {SplitKind::boundaries, 0, IndexList(positions.data(), static_cast<Index>(positions.size()))};
        }
        if (dice >= 3) return {SplitKind::balanced, 0, {}};
        return {};
    }

    std::mt19937_64 rng_;
    Limits limits_;
};

/// Cuts `whole` into boxes by cuts that go right through, each of any part along any dimension.
inline std::vector<Box> guillotine(Random& random, Box const& whole, int cuts) {
    std::vector<Box> boxes{whole};
    for (; cuts > 0; --cuts) {
        auto const which = static_cast<std::size_t>(random.between(0, static_cast<Index>(boxes.size()) - 1));
        Box const box = boxes[which];
        if (box.rank() == 0) break;
        int const dim = static_cast<int>(random.between(0, box.rank() - 1));
        if (box.extent(dim) < 2) continue;
        Index const at = random.between(box.begin(dim) + 1, box.end(dim) - 1);
        boxes[which].set(dim, {box.begin(dim), at});
        boxes.push_back(box);
        boxes.back().set(dim, {at, box.end(dim)});
    }
    return boxes;
}

}  // namespace reshard::test
