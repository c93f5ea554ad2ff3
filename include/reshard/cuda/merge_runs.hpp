// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/merge_runs.hpp
/// \brief  Sorted runs of 64-bit keys with 32-bit values, merged by pairs: stable, and when that beats a sort.
/// \depends core, cuda/work. Compiles without CUDA.
///
/// Each tile of a round writes 2048 merged entries: it finds where its piece begins and ends in both runs (merge path:
/// Green, McColl, Bader, ICS 2012), loads the two pieces, and each thread merges 8 entries of its own. 24 bytes an
/// entry and round, as a pass of a radix sort has: what counts is how many there are.
#pragma once

#include <reshard/cuda/work.hpp>

#include <utility>  // exchange, move, swap

namespace reshard::inline v0 {

/// How a receiver puts ids in order: whichever takes fewer rounds; a radix sort of the bits that vary; or a merge of
/// the runs that blocks consist of (a sort, should there be more than a thousand). The result is the same.
enum class ReceiveOrder : std::uint8_t { automatic, sort, merge };

namespace detail {

inline constexpr int merge_items = 8;
inline constexpr Index merge_tile = Index{merge_items} * block_threads;
/// Runs that begin inside a block are listed up to so many.
inline constexpr Index most_descents = 1024;

[[nodiscard]] constexpr int merge_rounds(Index runs) noexcept {
    return runs <= 1 ? 0 : bits_for(static_cast<std::uint64_t>(runs));
}
/// `bits`: that a sort would look at, 8 a pass.
[[nodiscard]] constexpr bool prefers_merge(ReceiveOrder order, Index runs, int bits) noexcept {
    if (order != ReceiveOrder::automatic) return order == ReceiveOrder::merge;
    return merge_rounds(runs) < ceil_div(bits, 8);
}

/// How many of the first `diagonal` entries of the merge of a and b come from a, which comes first where keys are
/// equal. `a` and `b`: what has an operator[].
template <class Keys>
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Index merge_path(Keys a, Index a_count, Keys b, Index b_count,
                                                             Index diagonal) noexcept {
    Index low = larger<Index>(0, diagonal - b_count);
    Index high = smaller(diagonal, a_count);
    while (low < high) {
        Index const middle = low + (high - low) / 2;
        if (a[middle] <= b[diagonal - 1 - middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct MergeState {
    Index keys[merge_items];
    std::uint32_t values[merge_items];
};
/// A list in shared memory with a gap behind every 128 bytes: threads that each write eight neighbours would otherwise
/// meet in two of its banks.
template <class T>
struct SpacedList {
    static constexpr Index row = 128 / static_cast<Index>(sizeof(T));
    T words[merge_tile + merge_tile / row];
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T& operator[](Index i) noexcept { return words[i + i / row]; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T operator[](Index i) const noexcept { return words[i + i / row]; }

    struct From {
        SpacedList const* list;
        Index begin;
        [[nodiscard]] RESHARD_HOST_DEVICE constexpr T operator[](Index i) const noexcept { return (*list)[begin + i]; }
    };
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr From from(Index begin) const noexcept { return {this, begin}; }
};
struct MergeShared {
    SpacedList<Index> keys;
    SpacedList<std::uint32_t> values;
    Index begin;    ///< of the tile among all entries
    Index count;    ///< of the tile
    Index a_begin;  ///< its piece of the first run, among all entries
    Index a_end;
    Index b_begin;  ///< and of the second
};

/// Neighbouring runs become one each, the last by itself if their number is odd.
struct MergeRound {
    Index const* begins = nullptr;  ///< [runs + 1]
    Index const* tiles = nullptr;   ///< [pairs + 1]: tiles before each pair
    Index runs = 0;
    Index const* keys = nullptr;
    std::uint32_t const* values = nullptr;  ///< null: each entry's own place
    Index* to_keys = nullptr;
    std::uint32_t* to_values = nullptr;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, MergeShared& shared, Index tile) const {
        block.each([&](int thread, auto&) {
            if (thread == 0) find_piece(shared, tile, false);
            if (thread == warp_threads) find_piece(shared, tile, true);  // while the other warp searches
        });
        block.each([&](int thread, auto&) {
            Index const a_count = shared.a_end - shared.a_begin;
            for (Index i = thread; i < shared.count; i += block_threads) {
                Index const from = i < a_count ? shared.a_begin + i : shared.b_begin + i - a_count;
                shared.keys[i] = keys[from];
                shared.values[i] = values != nullptr ? values[from] : static_cast<std::uint32_t>(from);
            }
        });
        block.each([&](int thread, auto& state) {
            Index const first = smaller<Index>(Index{thread} * merge_items, shared.count);
            Index const a_count = shared.a_end - shared.a_begin;
            Index const b_count = shared.count - a_count;
            Index i = merge_path(shared.keys.from(0), a_count, shared.keys.from(a_count), b_count, first);
            Index j = first - i;
            // The next of each: a key is read once.
            Index a_key = i < a_count ? shared.keys[i] : 0;
            Index b_key = j < b_count ? shared.keys[a_count + j] : 0;
            RESHARD_UNROLL
            for (int k = 0; k < merge_items; ++k) {
                if (first + k >= shared.count) continue;
                bool const from_a = j >= b_count || (i < a_count && a_key <= b_key);
                state.keys[k] = from_a ? a_key : b_key;
                state.values[k] = shared.values[from_a ? i : a_count + j];
                i += from_a ? 1 : 0;
                j += from_a ? 0 : 1;
                Index const next = from_a ? i : a_count + j;  // one load of all threads, whichever they took
                if (next < (from_a ? a_count : shared.count)) (from_a ? a_key : b_key) = shared.keys[next];
            }
        });
        block.each([&](int thread, auto& state) {
            RESHARD_UNROLL
            for (int k = 0; k < merge_items; ++k) {
                Index const at = Index{thread} * merge_items + k;
                if (at >= shared.count) continue;
                shared.keys[at] = state.keys[k];
                shared.values[at] = state.values[k];
            }
        });
        block.each([&](int thread, auto&) {
            for (Index i = thread; i < shared.count; i += block_threads) {
                to_keys[shared.begin + i] = shared.keys[i];
                to_values[shared.begin + i] = shared.values[i];
            }
        });
    }

private:
    /// Where the tile's pieces begin, or where the first run's ends.
    RESHARD_HOST_DEVICE void find_piece(MergeShared& shared, Index tile, bool ends) const {
        Index const low = part_at(tiles, (runs + 1) / 2, tile);
        Index const begin = begins[2 * low];
        Index const middle = begins[smaller(2 * low + 1, runs)];
        Index const end = begins[smaller(2 * low + 2, runs)];
        Index const first = (tile - tiles[low]) * merge_tile;
        Index const last = smaller(first + merge_tile, end - begin);
        Index const of_a = merge_path(keys + begin, middle - begin, keys + middle, end - middle, ends ? last : first);
        if (ends) {
            shared.a_end = begin + of_a;
            return;
        }
        shared.begin = begin + first;
        shared.count = last - first;
        shared.a_begin = begin + of_a;
        shared.b_begin = middle + first - of_a;
    }
};

/// Keys and values, and as much room again.
struct MergeBuffers {
    Index* keys = nullptr;
    std::uint32_t* values = nullptr;
};
/// Merges the runs that begin at begins[0] = 0 < begins[1] < ..., and end at the last; returns whether the result lies
/// in `other`. Memory: what lists of runs take. With `places`, values are the places that keys have at first: nobody
/// has to write them down (unless there is but one run).
template <class Work>
[[nodiscard]] bool merge_runs(Work& work, std::vector<Index> begins, MergeBuffers here, MergeBuffers other,
                              bool places = false) {
    bool in_other = false;
    while (begins.size() > 2) {
        auto const runs = static_cast<Index>(begins.size()) - 1;
        std::vector<Index> merged;
        std::vector<Index> tiles{0};
        for (Index run = 0; run < runs; run += 2) {
            Index const begin = begins[static_cast<std::size_t>(run)];
            Index const end = begins[static_cast<std::size_t>(smaller(run + 2, runs))];
            merged.push_back(begin);
            tiles.push_back(tiles.back() + ceil_div(end - begin, merge_tile));
        }
        merged.push_back(begins.back());
        Index const count = tiles.back();
        begins.insert(begins.end(), tiles.begin(), tiles.end());
        WorkList<Index, Work> lists(work, std::span<Index const>(begins));
        work.template tiles<MergeState, MergeShared>(
            "merge", count,
            MergeRound{lists.data(), lists.data() + runs + 1, runs, here.keys,
                       std::exchange(places, false) ? nullptr : here.values, other.keys, other.values});
        begins = std::move(merged);
        std::swap(here, other);
        in_other = !in_other;
    }
    return in_other;
}

}  // namespace detail
}  // namespace reshard::inline v0
