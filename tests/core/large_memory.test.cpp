// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/core/large_memory.hpp.
#include <reshard/core/large_memory.hpp>
#include <reshard/core/tensor.hpp>

#include <doctest/doctest.h>

#include <support/allocations.hpp>
#include <support/random.hpp>

#include <sys/mman.h>      // msync
#include <sys/resource.h>  // setrlimit
#include <sys/wait.h>      // waitpid
#include <unistd.h>        // fork

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

void free_now(std::size_t bytes) {
    detail::HostBlock const block = detail::allocate_host(bytes, false);
    block.release(block.data);
}
/// So large that the system has it back when it is freed.
constexpr std::size_t huge = std::size_t{1} << 26;
std::uintptr_t page_of(Block const& block) { return place_of(block) / 4096 * 4096; }
bool is_mapped(std::uintptr_t page) {
    return ::msync(reinterpret_cast<void*>(page), 1, MS_ASYNC) == 0;  // NOLINT(performance-no-int-to-ptr)
}

/// Whether a block that is freed is the thread's next one.
bool keeps_blocks() {
    return test::allocations_in([] {
               place_of(large);
               place_of(large);
           }) == 1;
}
/// In a thread of its own, which has kept nothing so far. Whether it ran.
template <class Work>
bool in_new_thread(Work work) {
    bool ran = false;
    std::thread([&] {
        ran = keeps_blocks();
        if (ran) work();
    }).join();
    if (!ran) MESSAGE("skipped: this system, or a sanitizer, has every block freed");
    return ran;
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
            }).join();
            CHECK(test::allocations_in([&] { static_cast<void>(Tensor<float>(shape)); }) == 1);  // who freed has it
        });
    }

    TEST_CASE("a thread gives back what it kept when it ends, and what it frees later") {
        std::uintptr_t kept = 0;
        bool const ran = in_new_thread([&] {
            kept = page_of(block_of(huge));
            CHECK(is_mapped(kept));
        });
        if (!ran) return;
        CHECK_FALSE(is_mapped(kept));
        std::uintptr_t late[2] = {};
        std::thread([&] {
            struct Late {
                Block block;
                std::uintptr_t* pages = nullptr;
                ~Late() {
                    pages[1] = page_of(block_of(huge + 1));
                    block.reset();
                }
            };
            static thread_local Late last;  // ends behind what the thread keeps
            last.block = block_of(huge);
            last.pages = late;
            late[0] = page_of(last.block);
        }).join();
        CHECK_FALSE(is_mapped(late[0]));
        CHECK_FALSE(is_mapped(late[1]));
    }

    TEST_CASE("a thread keeps a few blocks, the last ones, and gives all back when it finds no memory") {
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
            auto const made = [](std::size_t bytes) { return test::allocations_in([&] { place_of(bytes); }); };
            CHECK(made(detail::most_kept_bytes + 1) == 1);
            CHECK(made(detail::most_kept_bytes + 1) == 1);  // larger than all
            CHECK(made(large) == 0);                        // and drives out none
            CHECK(test::allocations_in([&] { free_now(large); }) == 0);
            CHECK(test::allocations_in([&] { free_several(detail::most_kept_blocks); }) == 2);  // one was not kept

            std::vector<std::size_t> sizes{large};
            while (sizes.size() <= detail::most_kept_blocks) sizes.push_back(sizes.back() + sizes.back() / 5);
            for (std::size_t bytes : sizes) place_of(bytes);
            for (std::size_t i : {std::size_t{4}, std::size_t{1}, std::size_t{8}, std::size_t{5}})
                CHECK(made(sizes[i]) == 0);
            CHECK(made(sizes[0]) == 1);  // the longest ago
        });
        in_new_thread([&] {
            std::vector<Block> blocks;
            for (int i = 0; i < 4; ++i) blocks.push_back(block_of(large));
            blocks.clear();
            test::AllocationCounter& counter = test::allocation_counter();
            counter.refused_from = large;
            CHECK_THROWS_WITH_AS(static_cast<void>(block_of(2 * large)),
                                 doctest::Contains("out of memory. Fix: free some on this rank"), OutOfMemory);
            std::string const bytes = "(There were no " + std::to_string(large) + " bytes in one block.)";
            CHECK_THROWS_WITH_AS(static_cast<void>(block_of(large)), doctest::Contains(bytes.c_str()),
                                 OutOfMemory);  // those are given back
            bool wordless = false;
            counter.refused_from = 0;  // not for words either, nor for those of a check
            try {
                static_cast<void>(block_of(64));
            } catch (std::bad_alloc const&) {
                wordless = true;
            }
            counter.refused_from = SIZE_MAX;
            CHECK(wordless);
        });
    }

    TEST_CASE("nothing is kept where address space is limited, nor with sanitizers") {
#if defined(RESHARD_TEST_SANITIZED)
        CHECK_FALSE(keeps_blocks());
#else
        pid_t const child = ::fork();
        if (child == 0) {
            rlimit const space{rlim_t{1} << 45U, rlim_t{1} << 45U};
            bool keeps = ::setrlimit(RLIMIT_AS, &space) != 0;
            std::thread([&] { keeps = keeps || keeps_blocks(); }).join();
            ::_exit(keeps ? 1 : 0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
#endif
    }
}
