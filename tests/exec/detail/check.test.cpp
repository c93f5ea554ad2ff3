// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/detail/check.hpp: what counts as overlapping memory.
#include <reshard/exec/detail/check.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <set>
#include <vector>

namespace {
using namespace reshard;

Indices list(std::initializer_list<Index> values) {
    Indices result;
    for (Index value : values) result.push_back(value);
    return result;
}
TensorView<float const> view(float const* base, std::initializer_list<Index> extents,
                             std::initializer_list<Index> strides) {
    return {base, DynamicShape(list(extents)), list(strides)};
}

/// Every element's position relative to `base`, the simple way; false when an element comes up twice.
template <class T>
bool positions(TensorView<T const> const& tensor, T const* base, std::set<Index>& result) {
    for (Index k = 0; k < tensor.size(); ++k) {
        Index rest = k;
        Index position = tensor.data() - base;
        for (int dim = tensor.rank() - 1; dim >= 0; --dim) {
            position += rest % tensor.extent(dim) * tensor.stride(dim);
            rest /= tensor.extent(dim);
        }
        if (!result.insert(position).second) return false;
    }
    return true;
}
}  // namespace

TEST_SUITE("exec/check") {
    TEST_CASE("windows of one matrix that share no element do not overlap") {
        std::vector<float> memory(400);
        float const* const m = memory.data();
        auto const apart = [&](TensorView<float const> const& a, TensorView<float const> const& b) {
            return !detail::overlap(a, b) && !detail::overlap(b, a);
        };
        CHECK(apart(view(m, {8, 4}, {8, 1}), view(m + 4, {8, 4}, {8, 1})));          // columns beside columns
        CHECK(apart(view(m, {4, 8}, {8, 1}), view(m + 32, {4, 8}, {8, 1})));         // rows below rows
        CHECK(apart(view(m + 4, {4, 4}, {8, 1}), view(m + 16, {4, 4}, {8, 1})));     // shifted both ways
        CHECK(apart(view(m + 3, {4, 4}, {8, 1}), view(m + 33, {4, 4}, {8, 1})));     // below, starting further left
        CHECK(apart(view(m, {5}, {2}), view(m + 1, {5}, {2})));                      // every other element
        CHECK(apart(view(m, {4, 8}, {1, 8}), view(m + 4, {4, 8}, {1, 8})));          // rows of a transposed matrix
        CHECK(apart(view(m + 56, {8, 3}, {-8, 1}), view(m + 59, {8, 5}, {-8, 1})));  // columns, upside down
        CHECK(apart(view(m + 56, {3, 8}, {-8, 1}), view(m + 32, {5, 8}, {-8, 1})));  // rows
        CHECK(apart(view(m, {2, 3, 4}, {64, 8, 1}), view(m + 24, {2, 3, 4}, {64, 8, 1})));
        CHECK(apart(view(m, {4}, {1}), view(m + 4, {4}, {1})));
        CHECK(apart(view(m, {0, 4}, {4, 1}), view(m, {2, 4}, {4, 1})));
        CHECK_FALSE(apart(view(m, {8, 5}, {8, 1}), view(m + 4, {8, 4}, {8, 1})));
        CHECK_FALSE(apart(view(m, {5, 8}, {8, 1}), view(m + 32, {4, 8}, {8, 1})));
        CHECK_FALSE(apart(view(m, {4}, {1}), view(m, {4}, {1})));
        CHECK_FALSE(apart(view(m, {}, {}), view(m, {}, {})));
        CHECK(apart(view(m, {}, {}), view(m + 1, {}, {})));
    }

    TEST_CASE("a source whose rows overlap each other reaches further than its first rows") {
        std::vector<float> memory(64);
        CHECK(detail::overlap(view(memory.data(), {2, 20}, {8, 1}), view(memory.data() + 16, {2, 5}, {8, 1})));
    }

    TEST_CASE("a window that wraps into the next row is not kept apart by its first row") {
        std::vector<float> memory(1000);
        CHECK(detail::overlap(view(memory.data(), {5, 5, 10}, {100, 10, 1}),
                              view(memory.data() + 53, {5, 5, 10}, {100, 10, 1})));
    }

    TEST_CASE("different element types in one piece of memory overlap") {
        std::vector<float> memory(8);
        ConstDynamicView const floats(memory.data(), DType::f32, Shape{4});
        ConstDynamicView const bytes(memory.data() + 3, DType::u8, Shape{4});
        CHECK(detail::overlap(floats, bytes));
        CHECK_FALSE(detail::overlap(floats, ConstDynamicView(memory.data() + 4, DType::u8, Shape{4})));
    }

    TEST_CASE("random views: no overlap is ever missed, and dense windows are told apart exactly") {
        std::vector<float> const memory(2000);
        float const* const base = memory.data() + 500;
        int disjoint = 0;
        for (std::uint64_t seed : test::seeds(20000)) {
            CAPTURE(seed);
            test::Random random(seed);
            int const rank = static_cast<int>(random.between(1, 3));
            bool const dense = random.chance(50);
            Indices strides;
            Indices parent;
            for (int dim = 0; dim < rank; ++dim) {
                parent.push_back(random.between(2, 5));
                strides.push_back(1);
            }
            std::vector<int> order{2, 1, 0};  // of the parent in memory, fastest first: any transpose
            for (int i = 2; i > 0; --i)
                std::swap(order[detail::as_size(i)], order[detail::as_size(random.between(0, i))]);
            Index step = 1;
            for (int dim : order) {
                if (dim >= rank) continue;
                strides[dim] = dense ? (random.chance(30) ? -step : step) : random.between(-9, 9);
                step *= parent[dim];
            }
            auto const window = [&] {
                Indices extents;
                Index offset = 0;
                for (int dim = 0; dim < rank; ++dim) {
                    Index const begin = random.between(0, parent[dim] - 1);
                    extents.push_back(random.between(1, parent[dim] - (dense ? begin : 0)));
                    offset += begin * strides[dim];
                }
                return TensorView<float const>(base + offset, DynamicShape(extents), strides);
            };
            auto const a = window();
            auto const b = window();
            std::set<Index> first;
            std::set<Index> second;
            bool const a_is_injective = positions(a, base, first);
            positions(b, base, second);
            if (detail::is_injective(a)) REQUIRE(a_is_injective);
            if (dense) REQUIRE(detail::is_injective(a));
            if (!a_is_injective) continue;
            bool meet = false;
            for (Index position : second) meet = meet || first.count(position) != 0;
            if (meet) REQUIRE(detail::overlap(a, b));
            if (meet) REQUIRE(detail::overlap(b, a));
            if (dense && !meet) {
                REQUIRE_FALSE(detail::overlap(a, b));
                ++disjoint;
            }
        }
        CHECK(disjoint > test::of_seeds(1000));
    }
}
