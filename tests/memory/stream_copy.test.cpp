// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/stream_copy.hpp.
#include <reshard/memory/stream_copy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace {
using namespace reshard;
constexpr std::byte guard{0x5A};

std::vector<std::byte> pattern(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i != size; ++i) bytes[i] = static_cast<std::byte>((i * 7 + i / 253) & 0xffU);
    return bytes;
}
}  // namespace

TEST_SUITE("memory/stream_copy") {
    TEST_CASE("stream_copy_rows: every row count, length and alignment, and nothing between the rows") {
        for (Index rows = 0; rows != 11; ++rows) {
            for (Index bytes :
                 {Index{0}, Index{1}, Index{63}, Index{64}, Index{65}, Index{127}, Index{512}, Index{1000}}) {
                for (Index shift : {Index{0}, Index{1}, Index{17}, Index{48}}) {
                    CAPTURE(rows);
                    CAPTURE(bytes);
                    CAPTURE(shift);
                    Index const from_stride = bytes + 5;
                    Index const to_stride = bytes + 3;
                    auto const from = pattern(static_cast<std::size_t>(rows * from_stride + 64));
                    std::vector<std::byte> to(static_cast<std::size_t>(rows * to_stride + 128), guard);
                    auto want = to;
                    for (Index r = 0; r < rows; ++r) {
                        for (Index b = 0; b < bytes; ++b) {
                            want[static_cast<std::size_t>(shift + r * to_stride + b)] =
                                from[static_cast<std::size_t>(r * from_stride + b)];
                        }
                    }
                    detail::stream_copy_rows(from.data(), from_stride, to.data() + shift, to_stride, rows, bytes);
                    REQUIRE(to == want);
                }
            }
        }
    }

    TEST_CASE("stream_copy_rows: wherever in their pages rows begin, all of them arrives") {
        for (Index bytes : {Index{700}, Index{2048}, Index{3100}, Index{4096}, Index{5000}, Index{8192}}) {
            for (Index from_stride : {Index{8192}, Index{8192 + 1024}, Index{8192 + 40}, Index{12288 - 64}}) {
                CAPTURE(bytes);
                CAPTURE(from_stride);
                constexpr Index rows = 9;
                auto const from = pattern(static_cast<std::size_t>(rows * from_stride + 64));
                std::vector<std::byte> to(static_cast<std::size_t>(rows * bytes + 128), guard);
                auto want = to;
                for (Index r = 0; r < rows; ++r) {
                    auto const row = from.begin() + 9 + r * from_stride;
                    std::copy(row, row + bytes, want.begin() + 31 + r * bytes);
                }
                detail::stream_copy_rows(from.data() + 9, from_stride, to.data() + 31, bytes, rows, bytes);
                REQUIRE(to == want);
            }
        }
    }

    TEST_CASE("stream_copy: a run of any length arrives whole") {
        for (Index bytes :
             {Index{0}, Index{1}, Index{16383}, Index{65535}, Index{65536}, Index{65537}, Index{200001}}) {
            CAPTURE(bytes);
            auto const from = pattern(static_cast<std::size_t>(bytes) + 1);
            std::vector<std::byte> to(static_cast<std::size_t>(bytes) + 64, guard);
            detail::stream_copy(from.data(), to.data() + 3, bytes);
            bool same = true;
            for (Index b = 0; b < bytes; ++b) {
                same = same && to[static_cast<std::size_t>(b + 3)] == from[static_cast<std::size_t>(b)];
            }
            CHECK(same);
            CHECK(to[2] == guard);
            CHECK(to[static_cast<std::size_t>(bytes + 3)] == guard);
        }
    }
}
