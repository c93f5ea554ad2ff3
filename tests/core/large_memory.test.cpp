// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/core/large_memory.hpp.
#include <reshard/core/large_memory.hpp>
#include <reshard/core/tensor.hpp>

#include <doctest/doctest.h>

#include <support/allocations.hpp>
#include <support/random.hpp>

#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace {
using namespace reshard;

struct Release {
    void (*release)(void*) noexcept = nullptr;
    void operator()(void* data) const noexcept { release(data); }
};
using Block = std::unique_ptr<void, Release>;
Block block_of(std::size_t bytes) {
    detail::HostBlock const block = detail::allocate_host(bytes);
    return {block.data, {block.release}};
}
std::uintptr_t place_of(Block const& block) { return reinterpret_cast<std::uintptr_t>(block.get()); }
/// Of one that is freed again.
std::uintptr_t place_of(std::size_t bytes) { return place_of(block_of(bytes)); }
constexpr std::size_t large = detail::large_block;

/// In a thread of its own, which has kept nothing so far. Whether blocks are kept at all is what the first two tell.
template <class Work>
void in_new_thread(Work work) {
    std::thread([&] {
        std::uintptr_t const first = place_of(large);
        if (place_of(large) == first) {
            work();
        } else {
            MESSAGE("skipped: this system, or this sanitizer, has every block freed");
        }
    }).join();
}
}  // namespace

TEST_SUITE("core/large_memory") {
    TEST_CASE("blocks have the bytes that were asked for, aligned, and belong to one at a time") {
        for (std::uint64_t seed : test::seeds(20)) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            std::vector<std::pair<Block, std::size_t>> blocks;
            auto const mark_of = [](Block const& block) { return static_cast<int>(place_of(block) >> 6U & 127U); };
            for (int step = 0; step < 40; ++step) {
                if (blocks.size() < 6 && random() % 2 == 0) {
                    std::size_t const bytes = random() % 4 == 0 ? random() % 100000 : large - 4096 + random() % large;
                    Block block = block_of(bytes);
                    REQUIRE(reinterpret_cast<std::uintptr_t>(block.get()) % 64 == 0);
                    if (bytes != 0) std::memset(block.get(), mark_of(block), bytes);
                    blocks.emplace_back(std::move(block), bytes);
                } else if (!blocks.empty()) {
                    std::swap(blocks[random() % blocks.size()], blocks.back());
                    auto const& [block, bytes] = blocks.back();
                    auto const* const data = static_cast<unsigned char const*>(block.get());
                    bool const kept =
                        bytes == 0 || (data[0] == mark_of(block) && std::memcmp(data, data + 1, bytes - 1) == 0);
                    REQUIRE(kept);
                    blocks.pop_back();
                }
            }
        }
    }

    TEST_CASE("a thread's next block of about the size is the one that it freed last") {
        in_new_thread([] {
            std::uintptr_t const first = place_of(2 * large);
            CHECK(place_of(2 * large) == first);
            CHECK(place_of(2 * large - 100) == first);
            CHECK(place_of(2 * large + 1) != first);  // too large
            CHECK(place_of(2 * large * 8 / 9 + 1) == first);
            CHECK(place_of(large + large / 2) != first);  // would waste a quarter
            Block const taken = block_of(2 * large);
            CHECK(place_of(2 * large) != place_of(taken));
        });
    }

    TEST_CASE("tensors are such blocks, also those that another thread frees") {
        in_new_thread([] {
            Shape const shape{Index{1} << 20, Index{2}};
            Tensor<float> first(shape);
            float* const data = first.data();
            first = Tensor<float>();
            Tensor<float> second(shape);
            CHECK(second.data() == data);
            std::thread([&] {
                Tensor<float> const other = std::move(second);
                second = Tensor<float>(shape);
                CHECK(second.data() != data);
            }).join();  // and frees what it kept
            CHECK(Tensor<float>(shape).data() != data);
        });
    }

    TEST_CASE("a tensor may outlive the variables of its thread") {
        std::thread([] {
            struct Late {
                Tensor<float> tensor;
                ~Late() { tensor = Tensor<float>(Shape{Index{1} << 21}); }
            };
            static thread_local Late late;  // ends behind what the thread keeps
            late.tensor = Tensor<float>(Shape{Index{1} << 20});
            static_cast<void>(block_of(large));
        }).join();
    }

    TEST_CASE("a thread keeps a few blocks, and gives all back when it ends or finds no memory") {
        in_new_thread([] {
            auto const free_several = [](int count) {
                std::vector<Block> blocks;
                blocks.reserve(20);
                for (int i = 0; i < count; ++i) blocks.push_back(block_of(large));
            };
            free_several(detail::most_kept_blocks);
            CHECK(test::allocations_in([&] { free_several(detail::most_kept_blocks); }) == 1);  // the list
            free_several(detail::most_kept_blocks + 3);
            CHECK(test::allocations_in([&] { free_several(detail::most_kept_blocks + 3); }) == 1 + 3);
            CHECK(test::allocations_in([] { static_cast<void>(block_of(detail::most_kept_bytes + 1)); }) == 1);
            CHECK(test::allocations_in([] { static_cast<void>(block_of(detail::most_kept_bytes + 1)); }) ==
                  1);  // larger than all

            free_several(4);
            test::AllocationCounter& counter = test::allocation_counter();
            counter.refused_from = large;
            CHECK_THROWS_AS(static_cast<void>(block_of(2 * large)), std::bad_alloc);
            CHECK_THROWS_AS(static_cast<void>(block_of(large)), std::bad_alloc);  // those are given back
            counter.refused_from = SIZE_MAX;
        });
    }
}
