// SPDX-License-Identifier: Apache-2.0
// The instrument beside a GPU: what it counts of kernels for which NVIDIA has published what hardware counted. These
// are the samples uncoalescedGlobalAccesses and sharedBankConflicts of Nsight Compute 2024.1, whose reports were made
// on an RTX A4500: their bodies here, and the reports' counters by block (all blocks of a launch do the same).
#include "cuda/watch/blocks.hpp"
#include "cuda/watch/check.hpp"

#include <doctest/doctest.h>

namespace {
using namespace reshard;
using namespace reshard::test;

/// Counters of a report, of all blocks of the launch.
struct Report {
    Index blocks;          ///< launch__grid_size
    Index sectors_loaded;  ///< l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    Index sectors_stored;  ///< l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
    Index wavefronts;      ///< of shared memory, memory_l1_wavefronts_shared: requests, and what conflicts add
    Index conflicts;       ///< l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
    Index ideal_sectors;   ///< memory_l2_theoretical_sectors_global_ideal
};
constexpr Index blocks = 4;

void compare(Report const& report) {
    watch::check_no_faults();
    watch::Traffic const counted = watch::traffic_of("sample");
    Index const times = report.blocks / blocks;
    CHECK(counted.blocks == blocks);
    CHECK(counted.sectors * times == report.sectors_loaded + report.sectors_stored);
    CHECK((counted.shared + counted.conflicts) * times == report.wavefronts);
    CHECK(counted.conflicts * times == report.conflicts);
    CHECK(counted.bytes() * times == 32 * report.ideal_sectors);
}

struct Nothing {};
/// Adds to `per_thread` doubles of each thread, which lie side by side.
void add_constant(int per_thread) {
    watch::forget();
    DeviceList<double> const in(static_cast<std::size_t>(blocks * detail::block_threads * per_thread), 1.0);
    DeviceList<double> out(in.size());
    watch::Blocks run;
    run.kernel = "sample";
    run.tiles<detail::NoState, Nothing>(blocks, [&](auto& block, auto&, Index number) {
        block.each([&](int thread, auto&) {
            Index const first = (number * detail::block_threads + thread) * per_thread;
            for (Index i = first; i < first + per_thread; ++i) out.data()[i] = in.data()[i] + 2.0;
        });
    });
}

template <int Stride>
struct Tile {
    float values[32 * Stride];
};
/// Tiles of 32 x 32 floats, turned in shared memory, where their rows are `Stride` apart; 32 x 8 threads a block.
template <int Stride>
void transpose() {
    watch::forget();
    constexpr int edge = 64;
    DeviceList<float> const in(edge * edge, 1.0F);
    DeviceList<float> out(in.size());
    watch::Blocks run;
    run.kernel = "sample";
    run.tiles<detail::NoState, Tile<Stride>>(blocks, [&](auto& block, auto& tile, Index number) {
        Index const row = number / 2 * 32;
        Index const column = number % 2 * 32;
        block.each([&](int thread, auto&) {
            int const x = thread % 32;
            for (int y = thread / 32; y < 32; y += 8)
                tile.values[y * Stride + x] = in.data()[(row + y) * edge + column + x];
        });
        block.each([&](int thread, auto&) {
            int const x = thread % 32;
            for (int y = thread / 32; y < 32; y += 8)
                out.data()[(column + y) * edge + row + x] = tile.values[x * Stride + y];
        });
    });
}

}  // namespace

TEST_CASE("watch: sectors of doubles that lie side by side, and of three a thread, are those that a GPU counted") {
    add_constant(1);
    compare({12'288, 786'432, 786'432, 0, 0, 1'572'864});
    add_constant(3);
    compare({4'096, 2'359'296, 2'359'296, 0, 0, 1'572'864});
}

TEST_CASE("watch: bank conflicts of a transposed tile, and of one with a column more, are those that a GPU counted") {
    transpose<32>();
    compare({65'536, 8'388'608, 8'388'608, 69'206'016, 65'011'712, 16'777'216});
    transpose<33>();
    compare({65'536, 8'388'608, 8'388'608, 4'194'304, 0, 16'777'216});
}
