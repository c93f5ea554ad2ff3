// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/element_range.hpp.
#include <reshard/checkpoint/detail/element_range.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/random.hpp"

namespace {
using namespace reshard;

TEST_CASE("the boxes of a run are its elements in order, and few") {
    for (std::uint64_t seed : test::seeds(300)) {
        CAPTURE(seed);
        test::Limits limits;
        limits.max_elements = 300;
        test::Random random(seed, limits);
        DynamicShape const shape = random.shape();
        Index const begin = random.between(0, shape.size());
        Index const end = random.between(begin, shape.size());
        Index next = begin;
        int boxes = 0;
        detail::for_each_box(shape, begin, end, [&](Box const& box) {
            ++boxes;
            REQUIRE(box.rank() == shape.rank());
            REQUIRE(box.size() > 0);
            DynamicShape const extents = box.shape();
            for (Index i = 0; i < box.size(); ++i) {
                Indices const inside = detail::unravel(extents, i);
                Index position = 0;
                for (int d = 0; d < shape.rank(); ++d) {
                    position = position * shape.extent(d) + box.begin(d) + inside[d];
                }
                REQUIRE(position == next++);
            }
        });
        CHECK(next == end);
        CHECK(boxes <= detail::larger(2 * shape.rank() - 1, 1));
    }
}

TEST_CASE("any run of any strided view gathers to dense bytes, in pieces of any size") {
    for (std::uint64_t seed : test::seeds(300)) {
        CAPTURE(seed);
        test::Limits limits;
        limits.max_elements = 400;
        limits.max_dims = 4;
        test::Random random(seed, limits);
        DynamicShape const shape = random.shape();
        // Dimensions in any order in memory, gaps between them, some backwards.
        std::vector<int> dims(static_cast<std::size_t>(shape.rank()));
        std::iota(dims.begin(), dims.end(), 0);
        if (random.chance(60)) std::shuffle(dims.begin(), dims.end(), random.engine());
        Indices strides = shape.extents();
        Index size = 1;
        Index first = 0;
        for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
            strides[*dim] = size;
            Index const reach = (detail::larger<Index>(shape.extent(*dim), 1) - 1) * size;
            size += reach + (random.chance(20) ? random.between(0, 3) : 0);
            if (random.chance(15)) {
                first += reach;
                strides[*dim] = -strides[*dim];
            }
        }
        auto const memory = random.values<std::int32_t>(first + size + 1);
        ConstDynamicView const view(memory.data() + first, DType::i32, shape, strides);
        std::vector<std::int32_t> all;
        for (Index i = 0; i < shape.size(); ++i) {
            Indices const index = detail::unravel(shape, i);
            Index position = first;
            for (int d = 0; d < shape.rank(); ++d) position += index[d] * strides[d];
            all.push_back(memory[static_cast<std::size_t>(position)]);
        }
        if (detail::is_dense(view)) CHECK(std::equal(all.begin(), all.end(), memory.begin() + first));
        Index const begin = random.between(0, shape.size());
        Index const end = random.between(begin, shape.size());
        std::vector<std::byte> got(static_cast<std::size_t>(end - begin) * 4);
        Index const most = random.between(1, 50);
        for (Index at = begin; at < end; at += most)
            detail::gather(view, at, detail::smaller(at + most, end), got.data() + (at - begin) * 4);
        CHECK((got.empty() || std::memcmp(got.data(), all.data() + begin, got.size()) == 0));
    }
}

}  // namespace
