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

/// The bytes of a view as addresses, the simple way; false when one comes up twice.
bool bytes_of(ConstDynamicView const& tensor, std::set<std::byte const*>& result) {
    bool apart = true;
    for (Index k = 0; k < tensor.size(); ++k) {
        Index rest = k;
        Index position = 0;
        for (int dim = tensor.rank() - 1; dim >= 0; --dim) {
            position += rest % tensor.extent(dim) * tensor.stride(dim);
            rest /= tensor.extent(dim);
        }
        for (Index byte = 0; byte < bytes(tensor.dtype()); ++byte)
            apart = result.insert(tensor.data() + position * bytes(tensor.dtype()) + byte).second && apart;
    }
    return apart;
}
bool apart(ConstDynamicView const& a, ConstDynamicView const& b) {
    return !detail::overlap(a, b) && !detail::overlap(b, a);
}
}  // namespace

TEST_SUITE("exec/check") {
    TEST_CASE("windows of one matrix that share no element do not overlap") {
        std::vector<float> memory(400);
        float const* const m = memory.data();
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

    TEST_CASE("windows of one array may step backwards, be turned, or leave dimensions out") {
        std::vector<float> memory(400);
        float const* const m = memory.data();  // 8 levels of [5, 10]
        auto const window = view(m + 23, {8, 3, 4}, {50, 10, 1});
        CHECK(apart(window, view(m + 13, {8, 2, 4}, {50, -10, 1})));    // the rows before it, upside down
        CHECK(apart(window, view(m + 363, {8, 1, 4}, {-50, -10, 1})));  // and the levels; one row steps nowhere
        CHECK(apart(window, view(m + 22, {8, 2, 3}, {50, -1, 10})));    // the columns before it, turned
        CHECK(apart(view(m + 100, {5, 4, 2}, {1, 10, 50}), view(m, {3, 2, 5, 10}, {100, 50, 10, 1})) == false);
        CHECK(apart(view(m + 100, {5, 4, 2}, {10, 1, 50}), view(m, {2, 2, 5, 10}, {200, 50, 10, 1})));
        CHECK(apart(view(m + 20, {8, 30}, {50, 1}), view(m + 10, {10}, {1})));         // merged dimensions, and one row
        CHECK(apart(view(m + 1, {5, 10, 6}, {70, 7, 1}), view(m, {5, 10}, {70, 7})));  // levels fastest, and a surface
        CHECK(apart(view(m, {4, 5}, {0, 2}), view(m + 1, {5}, {2})));                  // a source that repeats itself
        CHECK_FALSE(apart(window, view(m + 23, {8, 2, 4}, {50, -10, 1})));
        CHECK_FALSE(apart(window, view(m + 24, {8, 2, 3}, {50, -1, 10})));
        CHECK_FALSE(apart(view(m, {4, 5}, {0, 2}), view(m + 2, {5}, {1})));
    }

    TEST_CASE("members of an array of structs are separate memory") {
        struct Cell {
            double t;
            float q;
            std::uint8_t flags[2];
        };
        std::vector<Cell> cells(24);
        auto const member = [&](void const* first, DType dtype) {
            return ConstDynamicView(first, dtype, Shape{4, 6}, list({96 / bytes(dtype), 16 / bytes(dtype)}));
        };
        ConstDynamicView const t = member(&cells[0].t, DType::f64);
        ConstDynamicView const q = member(&cells[0].q, DType::f32);
        ConstDynamicView const flags(&cells[0].flags, DType::u8, Shape{24, 2}, list({16, 1}));
        CHECK(apart(t, q));
        CHECK(apart(q, flags));
        CHECK(apart(flags, t));
        CHECK_FALSE(apart(t, member(&cells[3].t, DType::u8)));
        CHECK_FALSE(apart(q, member(reinterpret_cast<std::byte const*>(&cells[0].q) + 2, DType::f32)));
    }

    TEST_CASE("views that reach further than 64 bits together are taken to overlap") {
        std::vector<float> memory(8);
        Index const far = Index{1} << 60;
        CHECK(detail::overlap(view(memory.data(), {2}, {far}), view(memory.data() + 1, {2}, {far})));
        CHECK_FALSE(detail::overlap(view(memory.data(), {2}, {far / 2}), view(memory.data() + 1, {2}, {far / 2})));
    }

    TEST_CASE("random views: no overlap is ever missed, and windows of an array of structs are told apart exactly") {
        std::vector<std::byte> const memory(40000);
        std::byte const* const base = memory.data() + 20000;
        int disjoint = 0;
        for (std::uint64_t seed : test::seeds(20000)) {
            CAPTURE(seed);
            test::Random random(seed);
            int const rank = static_cast<int>(random.between(0, 4));
            bool const dense = random.chance(50);
            Index const width = Index{8} << random.between(0, 1);  // of a struct
            Indices parent;
            for (int dim = 0; dim < rank; ++dim) parent.push_back(random.between(1, 4));
            auto const window = [&] {
                DType const dtypes[] = {DType::u8, DType::i16, DType::f32, DType::f64};
                DType const dtype = dtypes[random.between(0, 3)];
                Index const element = bytes(dtype);
                std::byte const* first = base + random.between(0, width / element - 1) * element;
                std::vector<detail::StridedDim> dims;
                for (Index dim = rank - 1, step = width / element; dim >= 0; --dim) {
                    Index const whole = parent[static_cast<int>(dim)];
                    Index const begin = random.between(0, whole - 1);
                    Index extent = random.between(1, whole - begin);
                    first += begin * step * element;
                    Index stride = step;
                    if (!dense) {
                        extent = random.between(0, whole);
                        stride = random.between(-9, 9) * random.between(1, 3);
                    } else if (random.chance(30)) {
                        first += (extent - 1) * step * element;
                        stride = -step;
                    }
                    if (extent != 1 || random.chance(50)) dims.push_back({extent, stride});  // or left out
                    step *= whole;
                }
                for (std::size_t i = dims.size(); i > 1 && random.chance(70); --i)
                    std::swap(dims[i - 1], dims[detail::as_size(random.between(0, detail::as_index(i) - 1))]);
                Indices extents;
                Indices strides;
                for (detail::StridedDim const& dim : dims) {
                    extents.push_back(dim.extent);
                    strides.push_back(dim.stride);
                }
                return ConstDynamicView(first, dtype, DynamicShape(extents), strides);
            };
            ConstDynamicView const a = window();
            ConstDynamicView const b = window();
            CAPTURE(to_string(a.shape()) + to_string(a.strides()) + to_string(b.shape()) + to_string(b.strides()));
            std::set<std::byte const*> first;
            std::set<std::byte const*> second;
            bool const a_is_injective = bytes_of(a, first);
            bytes_of(b, second);
            if (detail::is_injective(a)) REQUIRE(a_is_injective);
            if (dense) REQUIRE(detail::is_injective(a));
            bool meet = false;
            for (std::byte const* byte : second) meet = meet || first.count(byte) != 0;
            if (meet) REQUIRE(detail::overlap(a, b));
            if (meet) REQUIRE(detail::overlap(b, a));
            if (dense && !meet) {
                REQUIRE(apart(a, b));
                disjoint += detail::byte_range(a).end > detail::byte_range(b).begin ? 1 : 0;
            }
        }
        CHECK(disjoint > test::of_seeds(1000));
    }
}
