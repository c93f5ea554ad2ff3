// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/save_stream.hpp: all bytes arrive in their places, summed, whatever memory
// they come from, whatever the units, threads and buffers are.
#include <reshard/checkpoint/detail/save_stream.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <deque>
#include <vector>

#include "support/random.hpp"

using namespace reshard;
using detail::SaveSpan;
using detail::SaveStream;

namespace {

/// Tensors in memory of their own, dense or with gaps, and the bytes that their file should have.
struct Sources {
    std::deque<std::vector<std::byte>> memory;
    std::vector<SaveSpan> spans;
    std::vector<std::byte> expected;

    void add(test::Random& random, DType dtype, DynamicShape const& shape, bool gaps) {
        Index const width = bytes(dtype);
        Indices strides = row_major_strides(shape);
        if (gaps) {
            Index step = 2;
            for (int dim = shape.rank() - 1; dim >= 0; --dim) {
                strides[dim] = step;
                step *= detail::larger<Index>(shape.extent(dim), 1) + 1;
            }
        }
        Index reach = 1;
        for (int dim = 0; dim < shape.rank(); ++dim)
            reach += detail::larger<Index>(shape.extent(dim) - 1, 0) * strides[dim];
        memory.emplace_back();
        for (Index i = 0; i < reach * width; ++i)
            memory.back().push_back(static_cast<std::byte>(random.between(0, 255)));
        DynamicView const view(memory.back().data(), dtype, shape, strides);
        spans.push_back({view, static_cast<Index>(expected.size()), shape.size() * width});
        for (Index i = 0; i < shape.size(); ++i) {
            Index offset = 0;
            Index rest = i;
            for (int dim = shape.rank() - 1; dim >= 0; --dim) {
                offset += rest % shape.extent(dim) * strides[dim];
                rest /= shape.extent(dim);
            }
            auto const* const at = view.data() + offset * width;
            expected.insert(expected.end(), at, at + width);
        }
    }
    [[nodiscard]] std::vector<std::uint32_t> sums() const {
        std::vector<std::uint32_t> result;
        for (SaveSpan const& span : spans) {
            auto bytes =
                std::span(expected).subspan(static_cast<std::size_t>(span.begin), static_cast<std::size_t>(span.bytes));
            result.push_back(crc32c(bytes));
            for (bool const several = bytes.size() > 1U << 20U; several && !bytes.empty();) {
                auto const block = bytes.first(detail::smaller(bytes.size(), std::size_t{1} << 20U));
                result.push_back(crc32c(block));
                bytes = bytes.subspan(block.size());
            }
        }
        return result;
    }
};

Sources random_sources(test::Random& random) {
    Sources sources;
    Index const count = random.between(0, 8);
    for (DType dtype : {DType::i64, DType::f32, DType::bf16, DType::u8}) {  // widest first, as in a file
        for (Index i = 0; i < count; ++i) {
            if (!random.chance(50)) continue;
            DynamicShape const shape =
                random.chance(10)   ? Shape{random.between(20'000, test::fewer_seeds() ? 50'000 : 300'000)}
                : random.chance(20) ? DynamicShape(Shape{})
                                    : DynamicShape(Shape{random.between(0, 20), random.between(1, 90)});
            sources.add(random, dtype, shape, random.chance(30));
        }
    }
    return sources;
}

}  // namespace

TEST_SUITE("checkpoint/detail/save_stream") {
    TEST_CASE("every byte is written once, in its place, and summed, from memory and from a copy") {
        for (std::uint64_t seed : test::seeds(20)) {
            CAPTURE(seed);
            test::Random random(seed);
            Sources const sources = random_sources(random);
            Index const unit_bytes = random.chance(50) ? random.between(1, 5000) : Index{8} << 20;
            auto const buffer_bytes = static_cast<std::size_t>(random.between(64, 100'000));
            int const threads = static_cast<int>(random.between(1, 4));
            for (bool const copied : {false, true}) {
                SaveStream stream(sources.spans, unit_bytes);
                CHECK(stream.bytes() == static_cast<Index>(sources.expected.size()));
                std::vector<std::byte> file(sources.expected.size());
                std::vector<std::atomic<int>> writes(file.size());
                auto const sink = [&](Index at, std::span<std::byte const> piece) {
                    for (std::size_t i = 0; i < piece.size(); ++i) {
                        file[static_cast<std::size_t>(at) + i] = piece[i];
                        ++writes[static_cast<std::size_t>(at) + i];
                    }
                };
                detail::run_on_workers(stream.units(), threads, [&](std::size_t unit, int worker) {
                    CHECK(worker < threads);
                    if (copied) {
                        std::vector<std::byte> copy(static_cast<std::size_t>(stream.unit_size(unit)));
                        stream.copy(unit, copy.data());
                        stream.write_copy(unit, copy.data(), sink);
                    } else {
                        std::vector<std::byte> buffer(buffer_bytes);
                        stream.write(unit, buffer, sink);
                    }
                });
                CHECK(file == sources.expected);
                bool once = true;
                for (auto const& count : writes) once = once && count == 1;
                CHECK(once);
                CHECK(stream.sums() == sources.sums());
            }
        }
    }

    TEST_CASE("long runs are written where they lie, short ones together") {
        test::Random random(1);
        Sources sources;
        for (int i = 0; i < 50; ++i) sources.add(random, DType::f32, Shape{100}, false);
        sources.add(random, DType::u8, Shape{300'000}, false);
        SaveStream stream(sources.spans);
        REQUIRE(stream.units() == 1);
        std::vector<std::pair<Index, std::size_t>> writes;
        std::vector<std::byte> buffer(64 << 10);
        std::byte const* direct = nullptr;
        stream.write(0, buffer, [&](Index at, std::span<std::byte const> piece) {
            writes.emplace_back(at, piece.size());
            direct = piece.data();
        });
        CHECK(writes == std::vector<std::pair<Index, std::size_t>>{{0, 20'000}, {20'000, 300'000}});
        CHECK(direct == sources.memory.back().data());
    }

    TEST_CASE("nothing to write is no unit") {
        CHECK(SaveStream().units() == 0);
        CHECK(SaveStream(std::vector<SaveSpan>{}).units() == 0);
        test::Random random(1);
        Sources sources;
        sources.add(random, DType::f32, Shape{0, 3}, false);
        SaveStream const stream(sources.spans);
        CHECK(stream.units() == 0);
        CHECK(stream.sums() == std::vector<std::uint32_t>{0});
    }

    TEST_CASE("what a worker throws first stops the others and is thrown") {
        for (int threads : {1, 3}) {
            std::atomic<int> done{0};
            CHECK_THROWS_AS(detail::run_on_workers(100'000, threads,
                                                   [&](std::size_t i, int) {
                                                       if (i == 5)
                                                           errors::raise(ErrorCode::io, "IoError: five. Fix: none.");
                                                       ++done;
                                                   }),
                            IoError);
            CHECK(done < 100'000 - 1);
        }
    }
}
