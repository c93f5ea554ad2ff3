// SPDX-License-Identifier: Apache-2.0
#include <reshard/cuda/detail/chunks.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

using namespace reshard;

namespace {

struct Counts {
    int allocations = 0;
    int live = 0;
    int refused_from = 1 << 30;
};

/// Memory of the host, counted.
struct Counted {
    Counts* counts;
    [[nodiscard]] void* allocate(std::size_t bytes) const noexcept {
        if (counts->allocations >= counts->refused_from) return nullptr;
        ++counts->allocations;
        ++counts->live;
        return std::aligned_alloc(256, bytes);
    }
    void release(void* memory, std::size_t) const noexcept {
        --counts->live;
        std::free(memory);
    }
};
using Chunks = detail::Chunks<Counted>;

}  // namespace

TEST_CASE("chunks: pieces are aligned, do not overlap, and are taken again when all of a chunk are given back") {
    Counts counts;
    {
        Chunks chunks(Counted{&counts});
        std::vector<std::byte*> pieces;
        std::vector<std::size_t> sizes;
        for (std::size_t i = 0; i < 2000; ++i) {
            sizes.push_back(i * 7919 % 5000);
            pieces.push_back(chunks.take(sizes.back()));
            CHECK(reinterpret_cast<std::uintptr_t>(pieces.back()) % 256 == 0);
            std::memset(pieces.back(), static_cast<int>(i % 251), sizes.back());
        }
        CHECK(counts.allocations == 2);  // 5 MB
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            for (std::size_t b = 0; b < sizes[i]; ++b)
                if (pieces[i][b] != static_cast<std::byte>(i % 251)) FAIL("piece ", i, " was overwritten");
        }
        for (std::byte const* piece : pieces) chunks.give_back(piece);
        for (int round = 0; round < 100; ++round) chunks.give_back(chunks.take(Chunks::most_bytes));
        for (int i = 0; i < 14; ++i) CHECK(chunks.take(Chunks::most_bytes) != nullptr);  // 7 to a chunk
        CHECK(counts.allocations == 2);
        CHECK(chunks.take(Chunks::most_bytes) != nullptr);
        CHECK(counts.allocations == 3);
    }
    CHECK(counts.live == 0);
}

TEST_CASE("chunks: null when the source has none left, and the next call may succeed") {
    Counts counts;
    counts.refused_from = 0;
    Chunks chunks(Counted{&counts});
    CHECK(chunks.take(10) == nullptr);
    counts.refused_from = 1;
    std::byte* const piece = chunks.take(10);
    CHECK(piece != nullptr);
    CHECK(chunks.take(Chunks::most_bytes) != nullptr);
    CHECK(counts.live == 1);
}

TEST_CASE("chunks: pieces are given back by any thread") {
    Counts counts;
    Chunks chunks(Counted{&counts});
    std::vector<std::byte*> pieces;
    for (int i = 0; i < 4000; ++i) pieces.push_back(chunks.take(1000));
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (std::size_t i = t; i < pieces.size(); i += 4) chunks.give_back(pieces[i]);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < 4000; ++i) static_cast<void>(chunks.take(1000));
    CHECK(counts.allocations == 1);
}
