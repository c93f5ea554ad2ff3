// SPDX-License-Identifier: Apache-2.0
// A broken kernel of each kind is found, and a sound one is not: what cuda/watch/watch.hpp promises.
#include "cuda/watch/blocks.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;
using watch::Blocks;

struct Words {
    std::uint32_t at[1024];
};
using detail::NoState;

/// What is found in a launch of this body over device memory that `fill` made.
template <class Body>
std::vector<std::string> found_in(Index blocks, Body const& body, HostDevice const* device = nullptr) {
    watch::forget();
    Blocks run;
    run.kernel = "kernel";
    run.device = device;
    run.tiles<NoState, Words>(blocks, body);
    return watch::faults();
}
/// One fault of a kind, in words that name what, who and when.
void check_one(std::vector<std::string> const& faults, std::string const& text) {
    CAPTURE(text);
    REQUIRE(faults.size() == 1);
    CAPTURE(faults[0]);
    CHECK(faults[0].find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("watch: threads that meet between barriers race, those that meet across one do not") {
    auto const kernel = [](bool barrier) {
        return [barrier](auto& block, Words& shared, Index) {
            auto const write = [&](int thread) { shared.at[thread] = static_cast<std::uint32_t>(thread); };
            auto const read = [&](int thread) {
                volatile std::uint32_t const seen = shared.at[(thread + 1) % detail::block_threads];
                static_cast<void>(seen);
            };
            block.each([&](int thread, auto&) { write(thread); });
            if (barrier) {
                block.each([&](int thread, auto&) { read(thread); });
            } else {
                block.each([&](int thread, auto&) {
                    read(thread);
                    shared.at[thread] = 1;
                });
            }
        };
    };
    CHECK(found_in(2, kernel(true)).empty());
    auto const faults = found_in(2, kernel(false));
    REQUIRE_FALSE(faults.empty());
    CHECK(faults[0].find("kernel: race: 4 bytes at ") == 0);
    CHECK(faults[0].find(" of shared memory by thread ") != std::string::npos);
    CHECK(faults[0].find(" in phase 1, and by thread ") != std::string::npos);
}

TEST_CASE("watch: writes of one address race, of the same value too; atomics do not, unless somebody just reads") {
    check_one(found_in(1,
                       [](auto& block, Words& shared, Index) {
                           block.each([&](int thread, auto&) {
                               if (thread < 2) shared.at[7] = 5;
                           });
                       }),
              "race: 4 bytes at 28 of shared memory");
    auto const adds = [](bool looks) {
        return [looks](auto& block, Words& shared, Index) {
            block.each([&](int thread, auto&) {
                if (thread == 0) shared.at[0] = 0;
            });
            block.each([&](int thread, auto&) {
                block.add(&shared.at[0], std::uint32_t{1});
                if (looks && thread == 9) {
                    volatile std::uint32_t const seen = shared.at[0];
                    static_cast<void>(seen);
                }
            });
        };
    };
    CHECK(found_in(1, adds(false)).empty());
    CHECK(watch::traffic_of("kernel").contention == detail::block_threads);
    CHECK(watch::traffic_of("kernel").shared_atomics == detail::block_threads);
    CHECK_FALSE(found_in(1, adds(true)).empty());
}

TEST_CASE("watch: warps have barriers of their own in match()") {
    auto const kernel = [](bool apart) {
        return [apart](auto& block, Words& shared, Index) {
            block.each([&](int thread, auto&) { shared.at[thread] = 0; });
            auto const at = [apart](int thread) { return apart ? detail::warp_of(thread) : 0; };
            for (int turn = 0; turn < 2; ++turn) {
                block.match(
                    1, [](auto const&) { return 0U; },
                    [&](int thread, auto&, std::uint32_t) {
                        volatile std::uint32_t const seen = shared.at[at(thread)];
                        static_cast<void>(seen);
                    },
                    [&](int thread, auto&, std::uint32_t) {
                        if (detail::lane_of(thread) == 0) shared.at[at(thread)] = 1;
                    });
            }
        };
    };
    CHECK(found_in(1, kernel(true)).empty());
    CHECK_FALSE(found_in(1, kernel(false)).empty());  // warps do not wait for each other
}

TEST_CASE("watch: blocks of a launch race over global memory, whatever their barriers") {
    std::vector<std::uint32_t> global(512, 0);
    auto const kernel = [&](Index step) {
        return [&, step](auto& block, Words&, Index tile) {
            block.each([&](int thread, auto&) {
                if (thread < 64) global[static_cast<std::size_t>(tile * step + thread)] = 1;
            });
            block.sync();
        };
    };
    CHECK(found_in(4, kernel(64)).empty());
    check_one(found_in(2, kernel(63)), "race: 4 bytes of global memory by thread ");
}

TEST_CASE("watch: what a block, or a warp, does first hides nothing of what another did before it") {
    std::vector<std::uint32_t> global(1, 0);
    auto const seen = [](std::uint32_t const& word) {
        volatile std::uint32_t const value = word;
        static_cast<void>(value);
    };
    for (Index const looking : {0, 1}) {  // blocks of a launch come in one order or the other
        for (int const readers : {0, 1, 2}) {
            CAPTURE(looking);
            CAPTURE(readers);
            check_one(found_in(2,
                               [&](auto& block, Words&, Index tile) {
                                   int const mine = tile == looking ? 1 : readers;
                                   block.each([&](int thread, auto&) {
                                       if (thread < mine) seen(global[0]);
                                   });
                                   block.each([&](int thread, auto&) {
                                       if (tile != looking && thread == 0) global[0] = 1;
                                   });
                               }),
                      "race: 4 bytes of global memory by thread 0 of block ");
            check_one(found_in(2,
                               [&](auto& block, Words&, Index tile) {
                                   int const mine = tile == looking ? 1 : readers;
                                   block.each([&](int thread, auto&) {
                                       if (thread < mine) block.add(global.data(), std::uint32_t{1});
                                   });
                                   block.each([&](int thread, auto&) {
                                       if (tile != looking && thread == 0) seen(global[0]);
                                   });
                               }),
                      "race: 4 bytes of global memory by thread 0 of block ");
        }
    }
    for (int const first : {0, 1}) {  // the warp that reads before the other does and writes
        CAPTURE(first);
        watch::forget();
        alignas(64) static std::uint32_t shared[16];
        watch::Launch launch("kernel", nullptr);
        launch.begin_block(0, shared, sizeof(shared));
        auto const touch = [&](int thread, watch::Kind kind, int stage) {
            watch::Thread const watched(thread, nullptr, 0, stage);
            watch::touched(shared, 4, kind, shared + static_cast<int>(kind));
        };
        touch(40, watch::Kind::write, 0);
        launch.barrier();
        int const other = detail::warp_threads * (1 - first);
        touch(detail::warp_threads * first + 8, watch::Kind::read, 0);
        touch(other, watch::Kind::read, 0);
        touch(other + 1, watch::Kind::read, 0);
        touch(other, watch::Kind::write, 1);
        launch.end_block();
        check_one(watch::faults(), "race: 4 bytes at 0 of shared memory by thread ");
    }
}

TEST_CASE("watch: nothing lies behind shared memory, nor behind what a device claims; what CUB reads is written") {
    auto const writes = [](std::uint32_t* at) {
        return [at](auto& block, Words& shared, Index) {
            block.each([&](int thread, auto&) {
                if (thread == 5) (at == nullptr ? shared.at + 1024 : at)[0] = 1;
            });
        };
    };
    check_one(found_in(1, writes(nullptr)), "outside: 4 bytes at 4096 of shared memory by thread 5 ");
    HostDevice device;
    std::vector<std::uint32_t> list(5);
    device.claim_unwritten(list.data(), 16);
    CHECK(found_in(1, writes(list.data() + 3), &device).empty());
    check_one(found_in(1, writes(list.data() + 4), &device), "outside: 4 bytes of global memory by thread 5 ");

    watch::Work work(device);
    watch::Work::Memory const counts = work.allocate(64);
    watch::Work::Memory const sums = work.allocate(128);
    auto const sum = [&] {
        work.sum(reinterpret_cast<std::uint32_t const*>(counts.data()), reinterpret_cast<Index*>(sums.data()), 16);
    };
    watch::forget();
    work.fill(counts.data(), 0, 60);
    sum();
    check_one(watch::faults(), "sum: never written: among 64 bytes of global memory");
    watch::forget();
    work.fill(counts.data(), 0, 64);
    sum();
    CHECK(watch::faults().empty());
}

TEST_CASE("watch: what nobody wrote is not to be read: shared memory of each block, memory of the device") {
    check_one(found_in(2,
                       [](auto& block, Words& shared, Index) {
                           block.each([&](int thread, auto&) {
                               if (thread == 3) block.add(&shared.at[1], std::uint32_t{1});
                           });
                       }),
              "never written: 4 bytes at 4 of shared memory by thread 3 ");

    HostDevice device;
    watch::Work work(device);
    watch::Work::Memory const memory = work.allocate(64);
    watch::Work::Memory const result = work.allocate(64);
    auto const copy = [&](auto&, Index i) {
        reinterpret_cast<std::uint32_t*>(result.data())[i] = reinterpret_cast<std::uint32_t const*>(memory.data())[i];
    };
    watch::forget();
    work.fill(memory.data(), 0, 60);
    detail::for_each_index(work, "copy", 16, copy);
    check_one(watch::faults(), "copy: never written: 4 bytes of global memory by thread 15 of block 0 in phase 0");
    watch::forget();
    work.fill(memory.data(), 0, 64);
    detail::for_each_index(work, "copy", 16, copy);
    detail::for_each_index(work, "copy", 16, [&](auto&, Index i) {  // what a kernel wrote, another may read
        reinterpret_cast<std::uint32_t*>(memory.data())[i] = reinterpret_cast<std::uint32_t const*>(result.data())[i];
    });
    CHECK(watch::faults().empty());
    watch::forget();
    detail::for_each_index(work, "copy", 17, copy);
    auto const outside = watch::faults();
    REQUIRE(outside.size() == 2);  // reads and writes
    CHECK(outside[0].find("copy: outside: 4 bytes of global memory by thread 16 ") == 0);
}

TEST_CASE("watch: an access lies at a multiple of its size") {
    std::vector<std::uint64_t> words(2);
    auto* const memory = reinterpret_cast<std::byte*>(words.data());
    auto const write_at = [&](Index place) {
        return found_in(1, [&](auto& block, Words&, Index) {
            block.each([&](int thread, auto&) {
                if (thread == 3) detail::store_as<std::uint32_t>(memory + place, 1);
            });
        });
    };
    CHECK(write_at(4).empty());
    check_one(write_at(6), "misaligned: 4 bytes of global memory by thread 3 ");
}

TEST_CASE("watch: sectors and bytes of global memory are those that lanes of a warp ask for at once") {
    std::vector<std::uint64_t> memory(4096, 1);
    std::uint64_t const* global = memory.data();
    while (reinterpret_cast<std::uintptr_t>(global) % 32 != 0) ++global;
    auto const used = [&](auto const& place) {
        static_cast<void>(found_in(1, [&](auto& block, Words&, Index) {
            block.each([&](int thread, auto&) {
                volatile std::uint64_t const seen = global[place(thread)];
                static_cast<void>(seen);
            });
        }));
        return watch::traffic_of("kernel");
    };
    watch::Traffic const dense = used([](int thread) { return thread; });
    CHECK(dense.read == 8 * detail::block_threads);
    CHECK(dense.sectors_used() == 1);
    CHECK(used([](int thread) { return 4 * thread; }).sectors_used() == 0.25);
    watch::Traffic const same = used([](int) { return 5; });
    CHECK(same.read == 8 * detail::block_warps);
    CHECK(same.sectors == detail::block_warps);
}

TEST_CASE("watch: banks of shared memory: a stride of 2 words costs a cycle, one address for all none") {
    auto const conflicts = [](int stride) {
        static_cast<void>(found_in(1, [stride](auto& block, Words& shared, Index) {
            block.each([&](int thread, auto&) {
                if (thread < 32) shared.at[stride * thread] = 1;
            });
        }));
        return watch::traffic_of("kernel").conflicts_per_request();
    };
    CHECK(conflicts(1) == 0);
    CHECK(conflicts(2) == 1);
    CHECK(conflicts(8) == 7);
    CHECK(conflicts(31) == 0);
    CHECK(conflicts(32) == 31);
    static_cast<void>(found_in(1, [](auto& block, Words& shared, Index) {
        block.each([&](int thread, auto&) {
            auto* const wide = reinterpret_cast<std::uint64_t*>(shared.at);
            if (thread < 32) wide[thread] = 1;
        });
    }));
    CHECK(watch::traffic_of("kernel").shared == 2);  // 256 bytes, 128 at a time
    CHECK(watch::traffic_of("kernel").conflicts == 0);
}
