// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/copy.hpp.
#include <reshard/memory/copy.hpp>

#include <reshard/memory/loop_nest.hpp>

#include "boxes.hpp"
#include "support/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;

/// What copy() must leave behind: element by element, in the order of the dimensions.
std::vector<std::byte> expected(Placed& from, Placed& to) {
    auto result = to.memory;
    auto const reads = offsets_of(from.box);
    auto const writes = offsets_of(to.box);
    for (std::size_t i = 0; i != writes.size(); ++i) {
        for (Index b = 0; b < to.box.element_bytes; ++b) {
            result[static_cast<std::size_t>(to.first + writes[i] + b)] =
                from.memory[static_cast<std::size_t>(from.first + reads[i] + b)];
        }
    }
    return result;
}

void check_copy(std::mt19937& rng, std::vector<Index> const& extents, Index element_bytes, CopyHint hint) {
    Placed from = place(rng, extents, element_bytes, true);
    Placed to = place(rng, extents, element_bytes, false);
    scramble(rng, from.memory);
    auto const want = expected(from, to);
    auto const before = from.memory;
    transport::copy(from.base(), from.box, to.base(), to.box, hint);
    REQUIRE(to.memory == want);  // guards included
    REQUIRE(from.memory == before);
}
}  // namespace

TEST_SUITE("memory/copy") {
    TEST_CASE("copy: equals an element loop for random boxes of rank 0 to 9") {
        auto const seed = 20250411U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        Index const sizes[] = {1, 2, 4, 8, 16, 3};
        int const tries = test::tries(3000);
        for (int trial = 0; trial != tries; ++trial) {
            CAPTURE(trial);
            std::vector<Index> extents(rng() % 10);
            Index elements = 1;
            for (auto& extent : extents) {
                extent = static_cast<Index>(rng() % 5);
                if (extent == 0 && rng() % 4 != 0) extent = 1;
                if (elements * extent > 2000) extent = 1;
                elements *= extent;
            }
            check_copy(rng, extents, sizes[rng() % 6], rng() % 2 != 0 ? CopyHint::streaming : CopyHint::cached);
        }
    }

    TEST_CASE("copy: the streaming hint changes nothing but the way, for long rows at any alignment") {
        auto const seed = 77U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (int trial = 0; trial != 200; ++trial) {
            CAPTURE(trial);
            Index const rows = static_cast<Index>(rng() % 11);
            Index const run = 400 + static_cast<Index>(rng() % 2000);
            check_copy(rng, {rows, run}, 1, CopyHint::streaming);
            check_copy(rng, {2, rows, run / 8}, 8, CopyHint::streaming);
        }
    }

    TEST_CASE("copy: short rows of whole cache lines, streamed, and rows just beside them") {
        // Rows of `run` bytes, every second stretch of the destination: what a block-cyclic message looks like.
        alignas(64) static std::byte to[8192];
        static std::byte from[8192];
        for (std::size_t i = 0; i != sizeof from; ++i) from[i] = static_cast<std::byte>((i * 37 + i / 251) & 0xffU);
        for (Index run : {64, 128, 192, 448, 96}) {
            for (Index shift : {0, 8, 64}) {
                for (Index pitch : {2 * run, 2 * run + 8, 1024L}) {
                    CAPTURE(run);
                    CAPTURE(shift);
                    CAPTURE(pitch);
                    Index const rows = (8192 - shift - run) / pitch + 1;
                    transport::StridedBox source;
                    transport::StridedBox target;
                    source.element_bytes = target.element_bytes = 8;
                    source.dims = {transport::StridedDim{rows, run}, transport::StridedDim{run / 8, 8}};
                    target.dims = {transport::StridedDim{rows, pitch}, transport::StridedDim{run / 8, 8}};
                    std::fill(std::begin(to), std::end(to), guard);
                    std::vector<std::byte> want(std::begin(to), std::end(to));
                    for (Index r = 0; r < rows; ++r)
                        for (Index b = 0; b < run; ++b) {
                            want[static_cast<std::size_t>(shift + r * pitch + b)] = from[r * run + b];
                        }
                    transport::copy(from, source, to + shift, target, CopyHint::streaming);
                    bool const same = std::equal(want.begin(), want.end(), std::begin(to));
                    CHECK(same);
                }
            }
        }
    }

    TEST_CASE("copy: one huge run, streamed, with every byte in place and none beyond") {
        for (Index bytes : {Index{511}, Index{512}, Index{65536}, Index{65536 * 3 + 777}, Index{1 << 20}}) {
            for (Index shift : {Index{0}, Index{1}, Index{63}}) {
                CAPTURE(bytes);
                CAPTURE(shift);
                std::vector<std::byte> from(static_cast<std::size_t>(bytes + 64));
                for (std::size_t i = 0; i != from.size(); ++i)
                    from[i] = static_cast<std::byte>((i * 31 + i / 251) & 0xffU);
                std::vector<std::byte> to(from.size() + 64, guard);
                auto want = to;
                std::copy(from.begin(), from.begin() + bytes, want.begin() + shift);
                transport::StridedBox box;
                box.dims.push_back({bytes, 1});
                transport::copy(from.data(), box, to.data() + shift, box, CopyHint::streaming);
                CHECK(to == want);
            }
        }
    }

    TEST_CASE("copy: transposes of sides larger than a tile") {
        auto const seed = 5U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (int trial = 0; trial != 60; ++trial) {
            CAPTURE(trial);
            Index const n = 1 + static_cast<Index>(rng() % 90);
            Index const m = 1 + static_cast<Index>(rng() % 90);
            check_copy(rng, {n, m}, Index{1} << (rng() % 5), CopyHint::cached);
            check_copy(rng, {3, n, 2, m}, Index{1} << (rng() % 5), CopyHint::cached);
        }
    }

    TEST_CASE("copy: dense matrices of every size around a tile, transposed between guards") {
        auto const seed = 99U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (Index bytes : {1, 2, 4, 8}) {
            Index const side = 64 / bytes;
            for (Index n : {side - 1, side, side + 1, 2 * side, 3 * side - 1, Index{300}}) {
                for (Index m : {side - 1, side, 2 * side + 1, Index{130}}) {
                    CAPTURE(bytes);
                    CAPTURE(n);
                    CAPTURE(m);
                    Index const batch = 1 + static_cast<Index>(rng() % 2);
                    Index const pitch = n + static_cast<Index>(rng() % 3);  // of the destination's rows
                    Placed from;
                    from.box.element_bytes = bytes;
                    for (transport::StridedDim dim :
                         {transport::StridedDim{batch, n * m * bytes}, {n, m * bytes}, {m, bytes}}) {
                        from.box.dims.push_back(dim);
                    }
                    from.memory.resize(static_cast<std::size_t>(batch * n * m * bytes));
                    scramble(rng, from.memory);
                    Placed to;
                    to.box.element_bytes = bytes;
                    for (transport::StridedDim dim :
                         {transport::StridedDim{batch, m * pitch * bytes}, {n, bytes}, {m, pitch * bytes}}) {
                        to.box.dims.push_back(dim);
                    }
                    to.first = 1 + static_cast<Index>(rng() % 64);
                    to.memory.assign(static_cast<std::size_t>(to.first + batch * m * pitch * bytes + 64), guard);
                    auto const want = expected(from, to);
                    transport::copy(from.base(), from.box, to.base(), to.box);
                    REQUIRE(to.memory == want);
                }
            }
        }
    }

    TEST_CASE("copy: a box reversed on both sides is one run") {
        int from[6] = {1, 2, 3, 4, 5, 6};
        int to[6] = {};
        transport::StridedBox box;
        box.element_bytes = 4;
        box.dims.push_back({6, -4});
        transport::copy(reinterpret_cast<std::byte const*>(from + 5), box, reinterpret_cast<std::byte*>(to + 5), box);
        for (int i = 0; i != 6; ++i) CHECK(to[i] == from[i]);
        auto const nest = detail::loop_nest(box, box);
        CHECK(nest.dims.size() == 1);
        CHECK(nest.dims[0].to == 4);
    }

    TEST_CASE("copy: boxes without elements touch no memory, not even null") {
        transport::StridedBox box;
        box.dims.push_back({3, 8});
        box.dims.push_back({0, 1});
        transport::copy(nullptr, box, nullptr, box);
        transport::copy(nullptr, box, nullptr, box, CopyHint::streaming);
    }
}

TEST_SUITE("memory/loop_nest") {
    TEST_CASE("loop_nest: dimensions that continue each other on both sides become one") {
        transport::StridedBox dense;
        dense.element_bytes = 4;
        dense.dims.push_back({2, 48});
        dense.dims.push_back({1, 999});
        dense.dims.push_back({3, 16});
        dense.dims.push_back({4, 4});
        auto const both = detail::loop_nest(dense, dense);
        CHECK(both.dims.size() == 1);
        CHECK(both.dims[0].extent == 24);
        transport::StridedBox padded = dense;
        padded.dims[0].stride = 64;
        auto const one = detail::loop_nest(dense, padded);
        CHECK(one.dims.size() == 2);
        CHECK(one.dims[1].extent == 12);
    }

    TEST_CASE("loop_nest: two column-major boxes are as dense as two row-major ones") {
        transport::StridedBox box;
        box.element_bytes = 8;
        box.dims.push_back({5, 8});
        box.dims.push_back({7, 40});
        CHECK(detail::loop_nest(box, box).dims.size() == 1);
    }
}
