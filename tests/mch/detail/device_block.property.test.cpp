// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/cuda/detail/device_block.cuh: the bodies of kernels by 256 threads at once, two blocks at a
// time, against the oracles of the tests that run them phase by phase. It lies here, where the thread sanitiser runs,
// and where most of these bodies are used.
#include "cuda/support/cuda_on_threads.hpp"

#include "mch/support/on_device.hpp"
#include "memory/boxes.hpp"

#include <reshard/cuda/merge_runs.hpp>
#include <reshard/cuda/split_counts.hpp>
#include <reshard/mch/detail/device_row_moves.hpp>
#include <reshard/memory/detail/value_kernels.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;
using ThreadedWork = BasicHostWork<ThreadedBlocks>;

/// What a launch of this body ends with.
template <class Body>
std::string error_of(Body const& body) {
    ThreadedBlocks run;
    try {
        run.tiles<detail::NoState, detail::NoShared>(3, body);
    } catch (std::runtime_error const& error) {
        return error.what();
    }
    return {};
}

/// body(tile, thread) by all threads of `units` units in tiles of boxes.
template <class Body>
void for_box_threads(Index units, Body const& body) {
    ThreadedBlocks run;
    run.tiles<detail::NoState, detail::NoShared>(
        reshard::detail::ceil_div(units, detail::box_tile),
        [&](auto& block, auto&, Index tile) { block.each([&](int thread, auto&) { body(tile, thread); }); });
}

}  // namespace

TEST_CASE("device block: threads that do not meet are an error that says where they are, and nobody hangs") {
    CHECK(error_of([](auto& block, auto&, Index) { block.sync(); }).empty());
    std::string error = error_of([](auto& block, auto&, Index) {
        if (on_threads::me() != 7) block.sync();
    });
    CAPTURE(error);
    CHECK(error.find("threads 7 have returned; threads 0 1 2 ") != std::string::npos);
    CHECK(error.find(" wait at a barrier of the block;") != std::string::npos);
    error = error_of([](auto& block, auto&, Index tile) {  // a loop of another length for one warp
        for (int i = 0; i < (on_threads::me() < 32 && tile == 1 ? 2 : 1); ++i) block.sync();
    });
    CHECK(error.find("threads 0 1 2 ") != std::string::npos);
    constexpr auto nothing = [](auto&&...) {};
    error = error_of([=](auto& block, auto&, Index) {  // a vote without some of the warp
        if (on_threads::me() % 32 < 20)
            block.match(
                1, [](auto const&) { return 0U; }, nothing, nothing);
    });
    CHECK(error.find("wait at a vote of their warp;") != std::string::npos);
    error = error_of([=](auto& block, auto&, Index) {  // half a warp waits for a vote, the other for the block
        if (on_threads::me() % 2 == 0)
            block.match(
                1, [](auto const&) { return 0U; }, nothing, nothing);
        block.sync();
    });
    CHECK(error.find("wait at a vote of their warp;") != std::string::npos);
    error = error_of([=](auto& block, auto&, Index) {  // as many barriers for all, but not the same ones
        on_threads::me() < 32 ? block.sync() : block.each(nothing);
    });
    CHECK(error == "DeviceBlock: threads of a block meet at different barriers");
}

TEST_CASE("device block: a vote per bit finds who has the same key, a scan what came before, atomics lose nothing") {
    struct State {
        std::uint32_t key = 0;
        Index value = 0;
    };
    struct Shared {
        std::uint32_t peers[detail::block_threads];
        Index before[detail::block_threads];
        Index total;
        unsigned sum;
    };
    std::vector<Shared> found(4);
    auto const key_of = [](Index tile, int thread) { return static_cast<std::uint32_t>((thread * 7 + tile) % 11); };
    ThreadedBlocks run;
    run.tiles<State, Shared>(4, [&](auto& block, Shared& shared, Index tile) {
        block.each([&](int thread, State& state) {
            state.key = key_of(tile, thread);
            state.value = thread * tile;
            if (thread == 0) shared.sum = 0;
        });
        block.match(
            4, [](State const& state) { return state.key; },
            [&](int thread, State&, std::uint32_t peers) { shared.peers[thread] = peers; }, [](auto&&...) {});
        for (int i = 0; i < 2; ++i) {
            block.scan([](State const& state) { return state.value; },
                       [&](int thread, State&, Index before, Index total) {
                           shared.before[thread] = before;
                           if (thread == 255) shared.total = total;
                       });
        }
        block.each([&](int thread, State&) { block.add(&shared.sum, static_cast<unsigned>(thread)); });
        block.each([&](int thread, State&) {
            if (thread == 9) found[static_cast<std::size_t>(tile)] = shared;
        });
    });
    for (Index tile = 0; tile < 4; ++tile) {
        Shared const& shared = found[static_cast<std::size_t>(tile)];
        CHECK(shared.sum == 255 * 128);
        CHECK(shared.total == 255 * 128 * tile);
        for (int thread = 0; thread < detail::block_threads; ++thread) {
            CAPTURE(thread);
            CHECK(shared.before[thread] == Index{thread} * (thread - 1) / 2 * tile);
            std::uint32_t peers = 0;
            for (int lane = 0; lane < 32; ++lane) {
                bool const same = key_of(tile, thread / 32 * 32 + lane) == key_of(tile, thread);
                peers |= same ? std::uint32_t{1} << static_cast<unsigned>(lane) : 0U;
            }
            CHECK(shared.peers[thread] == peers);
        }
    }
}

TEST_CASE_TEMPLATE("device block: entries partitioned by threads that run at once equal the oracle", Implementation,
                   EmulatedKernels<8, ThreadOrder::shuffled, ThreadedBlocks>,
                   EmulatedKernels<16, ThreadOrder::down, ThreadedBlocks>,
                   EmulatedKernels<0, ThreadOrder::shuffled, ThreadedBlocks>) {
    std::vector<Index> const worlds{3, 256, 33};
    std::vector<Skew> const skews{Skew::even, Skew::blocks, Skew::few};
    for (std::uint64_t seed : seeds(1)) {
        Random random(seed);
        auto const given = random_partition(random, 4097, worlds[seed % 3], {8, 12, 1}, skews[seed / 3 % 3]);
        CAPTURE(seed);
        CHECK((Implementation::partition(given) == partition_oracle(given)));
    }
}

TEST_CASE("device block: a rule's table is in shared memory before anybody searches it") {
    Random random(1);
    std::vector<Index> const offsets{0, 10, 10, 500, 1000};
    std::vector<Index> slots(5000);
    for (Index& slot : slots) slot = random.between(-3, 1003);
    BySlot<SlotsAtOffsets> const rule{slots.data(), SlotsAtOffsets(offsets.data(), 4)};
    WordColumns columns;
    columns.data.push_back(slots.data());
    EmulatedPartition one_by_one(5000, 4, 2048);
    EmulatedPartition at_once(5000, 4, 2048);
    HostBlocks by_phase;
    ThreadedBlocks threads;
    CHECK((emulate_tiles<8>(threads, at_once, rule, columns) == emulate_tiles<8>(by_phase, one_by_one, rule, columns)));
    CHECK(at_once.faults.out_of_range == one_by_one.faults.out_of_range);
    CHECK(at_once.faults.first == one_by_one.faults.first);
    CHECK(at_once.faults.out_of_range > 0);
}

TEST_CASE("device block: entries counted per rank, in shared memory and in the device's") {
    for (Index world : {Index{5}, Index{300}}) {
        Random random(3);
        auto const given = random_partition(random, 9000, world, {}, Skew::even);
        ByList const rule{given.destinations.data()};
        std::vector<Index> expected(static_cast<std::size_t>(world));
        SplitFaults const wrong = split_counts(9000, rule, expected);
        std::vector<unsigned long long> sums(expected.size(), 0);
        SplitFaults found;
        detail::SplitPlan const plan{9000, static_cast<int>(world), sums.data(), &found};
        ThreadedBlocks run;
        run.tiles<detail::CountState, detail::SplitShared>(
            3, [&](auto& block, auto& shared, Index tile) { detail::split_tiles(block, shared, plan, rule, tile, 3); });
        CHECK((std::vector<Index>(sums.begin(), sums.end()) == expected));
        CHECK(found.out_of_range == wrong.out_of_range);
        CHECK(found.first == wrong.first);
    }
}

TEST_CASE("device block: runs are merged into what a stable sort makes of them") {
    Random random(5);
    std::vector<Index> begins{0};
    std::vector<Index> keys;
    for (Index longest : {Index{3000}, Index{1}, Index{2500}, Index{700}, Index{40}}) {
        for (Index i = longest; i > 0; --i) keys.push_back(random.between(0, 900));
        std::sort(keys.begin() + begins.back(), keys.end());
        begins.push_back(static_cast<Index>(keys.size()));
    }
    std::vector<std::uint32_t> values(keys.size());
    std::iota(values.begin(), values.end(), 0U);
    auto expected = values;
    std::stable_sort(expected.begin(), expected.end(), [&](auto a, auto b) { return keys[a] < keys[b]; });
    HostDevice device;
    ThreadedWork work(device);
    detail::WorkList<Index, ThreadedWork> here(work, std::span<Index const>(keys));
    detail::WorkList<Index, ThreadedWork> there(work, here.size());
    detail::WorkList<std::uint32_t, ThreadedWork> here_values(work, std::span<std::uint32_t const>(values));
    detail::WorkList<std::uint32_t, ThreadedWork> there_values(work, here_values.size());
    detail::MergeRuns<ThreadedWork> merges;
    bool const in_other = merges.add(begins, {here.data(), here_values.data()}, {there.data(), there_values.data()});
    merges.run(work);
    CHECK(((in_other ? there_values : here_values).host(work) == expected));
}

TEST_CASE("device block: MCH tables in all modes, with ids evicted and slots given anew") {
    using namespace reshard::test::reference;
    int number = 0;
    for (std::uint64_t seed : seeds(3)) {
        Random random(seed);
        Setup setup;
        setup.from = 3;
        setup.to = 1;
        setup.slots = 400;
        setup.fill = Fill::all;
        setup.kind = IdKind::any;
        setup.columns = 2;
        Scene const scene = draw_scene(setup, random);
        Mode const mode = modes[number++ % 3];
        CAPTURE(seed);
        INFO(to_string(setup));
        CHECK(check_on_device<ThreadedWork>(scene, mode, ThreadOrder::shuffled) == "");
    }
}

TEST_CASE("device block: rows are moved by list") {
    Index const rows = 900;
    std::vector<float> data(static_cast<std::size_t>(3 * rows));
    std::iota(data.begin(), data.end(), 0.0F);
    std::vector<Index> numbers(static_cast<std::size_t>(rows));
    std::iota(numbers.begin(), numbers.end(), Index{0});
    Random random(4);
    std::shuffle(numbers.begin(), numbers.end(), random.engine());
    std::vector<float> records(data.size(), -1.0F);
    HostDevice device;
    ThreadedWork work(device);
    auto* const memory = reinterpret_cast<std::byte*>(data.data());
    detail::MchRowViews const views{{memory}, {12}, 12};
    detail::copy_rows(work, views, 0, numbers.data(), 1, rows, reinterpret_cast<std::byte*>(records.data()), true);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        REQUIRE(records[3 * i + 2] == static_cast<float>(3 * numbers[i] + 2));
    }
    auto const before = data;
    std::fill(data.begin(), data.end(), 0.0F);
    detail::copy_rows(work, views, 0, numbers.data(), 1, rows, reinterpret_cast<std::byte*>(records.data()), false);
    CHECK(data == before);
}

TEST_CASE("device block: boxes are copied, cast, folded, filled and scaled, each element by one thread") {
    std::mt19937 rng(11);
    for (int round = 0; round < 2; ++round) {
        std::vector<Index> const extents{3, 1 + static_cast<Index>(rng() % 9), 400};
        Placed from = place(rng, extents, 4, true);
        Placed to = place(rng, extents, 4, false);
        Placed halves = place(rng, extents, 2, false);
        auto const from_offsets = offsets_of(from.box);
        auto const to_offsets = offsets_of(to.box);
        for (Index offset : from_offsets) {
            float const value = static_cast<float>(rng() % 1000);
            std::memcpy(from.base() + offset, &value, 4);
        }
        auto const at = [](std::byte const* memory) {
            float value = 0;
            std::memcpy(&value, memory, 4);
            return value;
        };
        auto const holds = [&](float factor) {
            std::vector<std::byte> expected(to.memory.size(), guard);
            for (std::size_t i = 0; i < to_offsets.size(); ++i) {
                float const value = at(from.base() + from_offsets[i]) * factor;
                std::memcpy(expected.data() + to.first + to_offsets[i], &value, 4);
            }
            return expected == to.memory;
        };
        detail::CopyBox const copy = detail::copy_box(from.base(), from.box, to.base(), to.box);
        for_box_threads(copy.loops.units, [&](Index tile, int t) { detail::copy_thread(copy, tile, t); });
        CHECK(holds(1));
        detail::FoldBox const fold =
            detail::fold_box(Reduce::sum, DType::f32, from.base(), from.box, 0, 2, to.base(), to.box, 1);
        for_box_threads(fold.loops.units, [&](Index tile, int t) { detail::fold_thread<float>(fold, tile, t); });
        CHECK(holds(2));
        detail::ScaleBox const scale = detail::scale_box(DType::f32, to.base(), to.box, 3, 2);
        for_box_threads(scale.loops.units, [&](Index tile, int t) { detail::scale_thread(scale, tile, t); });
        CHECK(holds(3));
        detail::CastBox const cast =
            detail::cast_box(from.base(), from.box, DType::f32, halves.base(), halves.box, DType::bf16, 1.0);
        for_box_threads(cast.loops.units, [&](Index tile, int t) { detail::copy_thread(cast, tile, t); });
        auto const half_offsets = offsets_of(halves.box);
        bool same = true;
        for (std::size_t i = 0; i < half_offsets.size(); ++i) {
            BFloat16 const value(at(from.base() + from_offsets[i]));
            same = same && std::memcmp(halves.base() + half_offsets[i], &value, 2) == 0;
        }
        CHECK(same);
        detail::FillBox const fill = detail::identity_box(Reduce::product, DType::f32, to.base(), to.box);
        for_box_threads(fill.loops.units, [&](Index tile, int t) { detail::fill_thread(fill, tile, t); });
        for (Index offset : to_offsets) REQUIRE(at(to.base() + offset) == 1.0F);
    }
}
