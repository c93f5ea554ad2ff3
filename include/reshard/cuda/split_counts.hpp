// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/split_counts.hpp
/// \brief  How many entries go to each rank, and nothing else: on the host, and the kernel body of split_counts.cuh.
/// \depends core, cuda/rules.hpp, cuda/detail. Compiles without CUDA.
///
///     SplitFaults faults = split_counts(entries, rule, counts);        // host; counts has one number per rank
///     split_counts(entries, rule, counts, faults, stream);             // device memory, split_counts.cuh
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/cuda/detail/tile.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// Entries whose rule answered neither a rank nor `not_sent`, and the first of them (UINT64_MAX: none).
using SplitFaults = detail::PartitionFaults;

namespace detail {

inline void check_split(Index entries, std::size_t destinations) {
    constexpr std::size_t most = 1U << 20U;
    if (entries >= 0 && destinations >= 1 && destinations <= most) return;
    raise(ErrorCode::shape, "reshard::split_counts: ", entries, " entries for ", destinations,
          " destinations. Fix: give 0 or more entries and 1 to ", most, " destinations.");
}

/// What a kernel counts into. Counts start at zero.
struct SplitPlan {
    Index entries = 0;
    int destinations = 0;
    unsigned long long* counts = nullptr;
    PartitionFaults* faults = nullptr;
};

/// As many copies of the counters as there is room for: warps of one bin do not wait for each other.
struct SplitShared {
    static constexpr int size = 2 * block_warps * (tile_destinations + 1);
    std::uint32_t counters[size];
};

inline constexpr int split_items = 8;
inline constexpr Index split_tile = Index{split_items} * block_threads;

/// One answer into its counter: in shared memory if all find room there, else that of the device.
template <class Block>
RESHARD_HOST_DEVICE inline void count_answer(Block& block, SplitPlan const& plan, std::uint32_t* counters, Index answer,
                                             Index entry) {
    std::uint32_t const bin = bin_of(answer, plan.destinations);
    if (counters != nullptr) {
        block.add(counters + bin, std::uint32_t{1});
    } else if (bin < static_cast<std::uint32_t>(plan.destinations)) {
        block.add(plan.counts + bin, 1ULL);
    }
    if (is_fault(answer, plan.destinations)) plan.faults->add(block, entry);
}

/// Tiles first, first + step, ... by one block. \pre a block sees less than 2^32 entries.
template <class Block, class Rule>
RESHARD_HOST_DEVICE inline void split_tiles(Block& block, SplitShared& shared, SplitPlan const& plan, Rule const& rule,
                                            Index first, Index step) {
    int const bins = plan.destinations + 1;
    int const copies = smaller(SplitShared::size / bins, block_warps);  // 0: more destinations than find room
    Index const tiles = ceil_div(plan.entries, split_tile);
    block.each([&](int thread, auto&) {
        for (int i = thread; i < copies * bins; i += block_threads) shared.counters[i] = 0;
    });
    block.each([&](int thread, auto&) {
        std::uint32_t* const counters = copies == 0 ? nullptr : shared.counters + warp_of(thread) % copies * bins;
        for (Index tile = first; tile < tiles; tile += step) {
            Index answers[split_items];
            if ((tile + 1) * split_tile <= plan.entries) {
                RESHARD_UNROLL
                for (int i = 0; i < split_items; ++i) {
                    answers[i] = static_cast<Index>(rule(entry_of<split_items>(tile, thread, i)));
                }
            } else {
                RESHARD_UNROLL
                for (int i = 0; i < split_items; ++i) {
                    Index const entry = entry_of<split_items>(tile, thread, i);
                    answers[i] = entry < plan.entries ? static_cast<Index>(rule(entry)) : not_sent;
                }
            }
            RESHARD_UNROLL
            for (int i = 0; i < split_items; ++i) {
                count_answer(block, plan, counters, answers[i], entry_of<split_items>(tile, thread, i));
            }
        }
    });
    block.each([&](int thread, auto&) {
        for (int d = thread; copies != 0 && d < plan.destinations; d += block_threads) {
            unsigned long long sum = 0;
            for (int copy = 0; copy < copies; ++copy) sum += shared.counters[copy * bins + d];
            if (sum != 0) block.add(plan.counts + d, sum);
        }
    });
}

}  // namespace detail

/// counts[d] = entries whose rule answers d, for d in [0, counts.size()). On the host, one thread. Throws ShapeError
/// for negative entries, no destination or more than 2^20.
template <class Rule>
SplitFaults split_counts(Index entries, Rule const& rule, std::span<Index> counts) {
    detail::check_split(entries, counts.size());
    for (Index& count : counts) count = 0;
    SplitFaults faults;
    auto const destinations = static_cast<int>(counts.size());
    for (Index entry = 0; entry < entries; ++entry) {
        auto const answer = static_cast<Index>(rule(entry));
        std::uint32_t const bin = detail::bin_of(answer, destinations);
        if (bin < counts.size()) {
            ++counts[bin];
        } else if (detail::is_fault(answer, destinations)) {
            faults.first = detail::smaller(faults.first, static_cast<unsigned long long>(entry));
            ++faults.out_of_range;
        }
    }
    return faults;
}

}  // namespace reshard::inline v0_1
