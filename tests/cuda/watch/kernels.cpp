// SPDX-License-Identifier: Apache-2.0
// The kernels of cuda/ and mch/, watched: no race, nothing read that nobody wrote, nothing outside; and their traffic
// within a budget. Traffic is exact, not a timing: it changes when a kernel does, and docs/cuda.md has the table.
#include "cuda/support/traffic_case.hpp"
#include "cuda/watch/blocks.hpp"
#include "cuda/watch/check.hpp"

#include "mch/support/on_device.hpp"

#include <doctest/doctest.h>

#include <reshard/cuda/merge_runs.hpp>
#include <reshard/cuda/split_counts.hpp>
#include <reshard/mch/detail/device_row_moves.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;

/// Bytes to and from memory of these kernels, over `entries`.
template <class... Names>
double bytes_per_entry(Index entries, Names... names) {
    return static_cast<double>((watch::traffic_of(names).memory + ...)) / static_cast<double>(entries);
}
/// A line as scripts/bench prints, and whether the value is within the budget, which is what was reached.
void goal(char const* name, double value, double target, bool at_least, double budget) {
    bool const met = at_least ? value >= target : value <= target;
    std::cout << "goal " << name << ' ' << value << ' ' << target << (met ? " ok\n" : " short\n");
    CAPTURE(name);
    if (at_least) {
        CHECK(value >= budget);
    } else {
        CHECK(value <= budget);
    }
}

struct Merged {
    std::vector<Index> keys;
    std::vector<Index> expected;
};
Merged merge(SortedRuns const& runs) {
    Merged result;
    std::vector<Index> const& keys = runs.keys;
    std::vector<std::uint32_t> values(keys.size());
    std::iota(values.begin(), values.end(), 0U);
    HostDevice device;
    watch::Work work(device);
    detail::WorkList<Index, watch::Work> here(work, std::span<Index const>(keys));
    detail::WorkList<Index, watch::Work> there(work, here.size());
    detail::WorkList<std::uint32_t, watch::Work> here_values(work, std::span<std::uint32_t const>(values));
    detail::WorkList<std::uint32_t, watch::Work> there_values(work, here_values.size());
    detail::MergeRuns<watch::Work> merges;
    bool const in_other =
        merges.add(runs.begins, {here.data(), here_values.data()}, {there.data(), there_values.data()});
    merges.run(work);
    result.keys = (in_other ? there : here).host(work);
    result.expected = keys;
    std::sort(result.expected.begin(), result.expected.end());
    return result;
}

void partition_words(PartitionCase const& given) {
    WordColumns columns;
    std::vector<DeviceList<std::byte>> memory_of_columns;
    for (Bytes const& column : given.columns) {
        memory_of_columns.emplace_back(column.begin(), column.end());
        columns.data.push_back(reinterpret_cast<Index const*>(memory_of_columns.back().data()));
    }
    ByTwoWords const rule{columns.data[0], columns.data[1], given.world};
    watch::Blocks run;
    EmulatedPartition memory(given.entries, static_cast<int>(given.world), 8 * detail::block_threads);
    for (auto const& column : memory_of_columns) memory.claim(column);
    auto const packed = emulate_tiles<8>(run, memory, rule, columns);
    CHECK(static_cast<Index>(packed.size()) == 8 * columns_of_table * given.entries);
}

/// Returns how many entries go nowhere.
Index count_splits(PartitionCase const& given, char const* name) {
    std::vector<unsigned long long> sums(static_cast<std::size_t>(given.world), 0);
    std::vector<SplitFaults> found(1);  // not on the stack, which stands for registers
    detail::SplitPlan const plan{given.entries, static_cast<int>(given.world), sums.data(), found.data()};
    DeviceList<Index> const destinations(given.destinations.begin(), given.destinations.end());
    ByList const rule{destinations.data()};
    HostDevice device;
    device.claim(sums.data(), 8 * given.world);
    device.claim(found.data(), sizeof(SplitFaults));
    device.claim(destinations.data(), 8 * given.entries);
    watch::Blocks run;
    run.kernel = name;
    run.device = &device;
    constexpr Index grid = 3;
    run.tiles<detail::CountState, detail::SplitShared>(grid, [&](auto& block, auto& shared, Index number) {
        detail::split_tiles(block, shared, plan, rule, number, grid);
    });
    for (std::size_t d = 0; d != sums.size(); ++d) {
        CHECK(sums[d] == static_cast<unsigned long long>(
                             std::count(given.destinations.begin(), given.destinations.end(), static_cast<Index>(d))));
    }
    return static_cast<Index>(found[0].out_of_range);
}

/// What compare_traffic.py compares with a profiler's counts on a GPU: a line for each kernel.
std::string predictions() {
    constexpr std::array<std::array<char const*, 2>, 6> kernels{{{"CountState", "CountTile"},
                                                                 {"LayoutState", "LayOutBlocks"},
                                                                 {"ScatterState<8>", "ScatterTile"},
                                                                 {"split counts", "split_kernel<"},
                                                                 {"merge search", "MergeSearch"},
                                                                 {"merge", "MergeRound"}}};
    std::string text = "# kernel bytes sectors shared conflicts\n";
    for (auto const& [name, launched] : kernels) {
        watch::Traffic const one = watch::traffic_of(name);
        text += errors::concat(launched, " ", one.bytes(), " ", one.sectors, " ", one.shared, " ", one.conflicts, "\n");
    }
    return text;
}
void check_predictions() {
    std::ostringstream known;
    known << std::ifstream(RESHARD_PREDICTED_TRAFFIC).rdbuf();
    INFO("what tests/cuda/device/predicted.txt must say:\n", predictions());
    CHECK(known.str() == predictions());
}

/// A table carried to other ranks, against the oracle.
void carry_table(reshard::test::reference::Setup const& setup, reshard::test::reference::Mode mode, Random& random) {
    auto const scene = reshard::test::reference::draw_scene(setup, random);
    INFO(to_string(setup));
    CHECK(reshard::test::reference::check_on_device<watch::Work>(scene, mode, ThreadOrder::shuffled) == "");
}

}  // namespace

TEST_CASE("watched: the partition, by tiles and by a sort") {
    watch::forget();
    for (std::uint64_t seed : seeds(4)) {
        Random random(seed);
        CAPTURE(seed);
        for (Index world : {1, 8, 255}) {
            auto const given = random_partition(random, random.between(0, 5000), world, {8, 8, 4, 12, 1}, Skew::even);
            CHECK((EmulatedKernels<8, ThreadOrder::shuffled, watch::Blocks>::partition(given) ==
                   partition_oracle(given)));
        }
        auto const longer = random_partition(random, 9000, 8, {8, 4}, Skew::even);
        CHECK(
            (EmulatedKernels<16, ThreadOrder::shuffled, watch::Blocks>::partition(longer) == partition_oracle(longer)));
        auto const many = random_partition(random, 3000, 1024, {8, 4}, Skew::even);
        CHECK((EmulatedKernels<0, ThreadOrder::shuffled, watch::Blocks>::partition(many) == partition_oracle(many)));
    }
    watch::check_no_faults();
}

TEST_CASE("watched: split counts, in shared memory and for more ranks than fit there") {
    watch::forget();
    Random random(2);
    for (Index world : {1, 8, 256, 3000, 5000})
        count_splits(random_partition(random, 20'000, world, {}, Skew::even), "split counts");
    watch::check_no_faults();
}

TEST_CASE("watched: merges of runs of all lengths") {
    watch::forget();
    for (std::uint64_t seed : seeds(4)) {
        Random random(seed);
        CAPTURE(seed);
        Merged const merged = merge(sorted_runs(random, random.between(2, 9), random.between(1, 3000)));
        CHECK((merged.keys == merged.expected));
    }
    watch::check_no_faults();
}

TEST_CASE("watched: tables of managed collisions, in all modes") {
    using namespace reshard::test::reference;
    watch::forget();
    int number = 0;
    for (std::uint64_t seed : seeds(12)) {
        Random random(seed);
        Setup setup;
        setup.from = random.between(1, 4);
        setup.to = random.between(1, 4);
        setup.slots = random.between(1, 1500);
        setup.fill = seed % 2 == 0 ? Fill::all : Fill::half;
        setup.kind = IdKind::any;
        setup.columns = static_cast<int>(random.between(0, 3));
        CAPTURE(seed);
        carry_table(setup, modes[number % 3], random);
        ++number;
    }
    watch::check_no_faults();
}

TEST_CASE("traffic: bytes per entry, sectors used and bank conflicts are within their budgets") {
    using namespace reshard::test::reference;
    watch::forget();
    TrafficCase const given;
    Index const entries = given.partition.entries;
    partition_words(given.partition);
    count_splits(given.partition, "split counts");
    static_cast<void>(merge(given.runs));
    check_predictions();
    Random random(1);
    Index const dropped =
        count_splits(random_partition(random, entries, 3000, {}, Skew::even), "split counts, 3000 ranks");
    std::cout << "partition of 32768 entries of 4 words for 8 ranks; split counts; merge of 8 runs of 3000:\n";
    watch::print_traffic(std::cout);
    double const partition = bytes_per_entry(entries, "CountState", "LayoutState", "ScatterState<8>");
    double const merged = bytes_per_entry(given.runs.begins.back(), "merge search", "merge");
    double used = 1;
    Index requests = 0;
    Index conflicts = 0;
    for (char const* name : {"CountState", "ScatterState<8>", "split counts", "merge"}) {
        watch::Traffic const one = watch::traffic_of(name);
        used = reshard::detail::smaller(used, one.sectors_used());
        requests += one.shared;
        conflicts += one.conflicts;
    }

    // Cycles of shared memory. The gather has no conflicts (merge_runs.property.test.cpp): these are the searches'.
    watch::Traffic const rounds = watch::traffic_of("merge");
    CHECK(rounds.shared + rounds.conflicts <= 40'100);
    Index const atomics_of_many = watch::traffic_of("split counts, 3000 ranks").atomics;
    watch::forget();
    Setup setup;
    setup.from = 8;
    setup.to = 1;
    setup.slots = 20'000;
    setup.fill = Fill::all_but_one;
    setup.kind = IdKind::any;
    setup.columns = 2;
    Scene scene = draw_scene(setup, random);
    for (std::uint64_t seed = 2; scene.table.columns[0].bytes != 8 || scene.table.columns[1].bytes != 8; ++seed) {
        Random other(seed);
        scene = draw_scene(setup, other);
    }
    CHECK(check_on_device<watch::Work>(scene, Mode::route, ThreadOrder::shuffled) == "");
    std::cout << "8 shards of 2500 slots to one rank, two columns of metadata:\n";
    watch::print_traffic(std::cout);
    double const receive = bytes_per_entry(setup.slots, "inspect", "merge search", "merge", "repeats", "slots",
                                           "free slots", "ids", "columns");

    std::cout << "merge: " << merged << " bytes an entry in 3 rounds\n";
    CHECK(merged <= 69);
    CHECK(atomics_of_many <= 3 * 3000 + 2 * dropped);  // one a block and rank, not one an entry
    goal("device_partition_bytes", partition, 80, false, 84.1);
    goal("device_receive_bytes", receive, 200, false, 198);
    goal("device_sectors", used, 0.85, true, 0.92);
    goal("device_conflicts", static_cast<double>(conflicts) / static_cast<double>(requests), 0.25, false, 0.25);
    watch::check_no_faults();
}
