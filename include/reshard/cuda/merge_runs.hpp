// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/merge_runs.hpp
/// \brief  Sorted runs of 64-bit keys with 32-bit values, merged by pairs: stable.
/// \depends core, cuda/work. Compiles without CUDA.
///
/// Each tile of a round writes 2048 merged entries: where its pieces begin and end in both runs has been searched
/// (merge path: Green, McColl, Bader, ICS 2012), it loads the two, and each thread merges 8 entries of its own. 24
/// bytes an entry and round, as a pass of a radix sort has, which makes eight of them whatever the runs.
#pragma once

#include <reshard/cuda/work.hpp>

namespace reshard::inline v0_1::detail {

inline constexpr int merge_items = 8;
inline constexpr Index merge_tile = Index{merge_items} * block_threads;
/// One thread in so many, half a warp of them, finds its share by a search in all of a tile. The others have theirs
/// between two of these.
inline constexpr int merge_group = 16;

/// How many of the first `diagonal` entries of the merge of a and b come from a, which comes first where keys are
/// equal. comes_first(i): whether a[i] comes before b[diagonal - 1 - i].
template <class Number, class ComesFirst>
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Number merge_path(Number a_count, Number b_count, Number diagonal,
                                                              ComesFirst const& comes_first) noexcept {
    return first_where(larger<Number>(0, diagonal - b_count), smaller(diagonal, a_count),
                       [&](Number i) { return !comes_first(i); });
}

/// What a tile merges: pieces of neighbouring runs. Places are those among all entries.
struct MergeTile {
    Index begin;  ///< of the result
    Index a;      ///< of its piece of the first run
    Index b;
    std::int32_t a_count;
    std::int32_t b_count;
};
/// Finds the pieces of all tiles of a round, a thread for each: no block of the merge waits for a search.
struct MergeSearch {
    Index const* begins = nullptr;  ///< [runs + 1]
    Index const* tiles = nullptr;   ///< [pairs + 1]: tiles before each pair
    Index runs = 0;
    Index const* keys = nullptr;
    MergeTile* pieces = nullptr;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index tile) const {
        Index const pair = part_at(tiles, (runs + 1) / 2, tile);
        Index const begin = begins[2 * pair];
        Index const middle = begins[smaller(2 * pair + 1, runs)];
        Index const end = begins[smaller(2 * pair + 2, runs)];
        Index const first = (tile - tiles[pair]) * merge_tile;
        Index const last = smaller(first + merge_tile, end - begin);
        auto const of_a = [&, this](Index diagonal) {
            return merge_path(middle - begin, end - middle, diagonal,
                              [&, this](Index i) { return keys[begin + i] <= keys[middle + diagonal - 1 - i]; });
        };
        Index const a = of_a(first);
        Index const a_count = of_a(last) - a;
        pieces[tile] = {begin + first, begin + a, middle + first - a, static_cast<std::int32_t>(a_count),
                        static_cast<std::int32_t>(last - first - a_count)};
    }
};

struct MergeState {
    std::int32_t a_count;  ///< of the tile
    std::int32_t count;
    Index keys[merge_items];
    std::uint32_t values[merge_items];
};
/// A list in shared memory, turned within each 128 bytes by which of them they are: threads meet in no bank where each
/// has a place of its own among 16 (of 8 bytes) or 32 that are eight apart, round the list. \pre merge_items is 8.
template <class T>
struct MergeList {
    static constexpr std::uint32_t row = 128 / sizeof(T);
    T words[merge_tile];
    [[nodiscard]] RESHARD_HOST_DEVICE static constexpr std::uint32_t place(int i) noexcept {
        auto const at = static_cast<std::uint32_t>(i);
        return at ^ (at / row % merge_items);
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T& operator[](int i) noexcept { return words[place(i)]; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T operator[](int i) const noexcept { return words[place(i)]; }
};
/// The second run's piece lies in it from the end on.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr int place_of_b(int i) noexcept {
    return static_cast<int>(merge_tile) - 1 - i;
}
/// What a thread merges: a_count entries of the first run's piece from a on, b_count of the second's from b on.
struct MergeShare {
    int a;
    int a_count;
    int b;
    int b_count;

    /// The place of the one that lies at k modulo 8; -1 if there is none. \pre a + b is a multiple of 8, and the counts
    /// make 8 but at the end.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int place(int k) const noexcept {
        int const i = static_cast<int>(static_cast<unsigned>(k - a) % merge_items);
        int const from_b = merge_items - 1 - i;
        if (i < a_count) return a + i;
        return from_b < b_count ? place_of_b(b + from_b) : -1;
    }
};
struct MergeShared {
    MergeList<Index> keys;
    MergeList<std::uint32_t> values;
    std::int32_t of_a[block_threads + 1];  ///< entries of the first run before those of each thread

    /// Whether the first run's entry i comes before the second's that ends the first `diagonal` with it.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr bool comes_first(int i, int diagonal) const noexcept {
        return keys[i] <= keys[place_of_b(diagonal - 1 - i)];
    }
};

/// Neighbouring runs become one each, the last by itself if their number is odd. A thread's eight entries, some of a
/// ascending and the rest of b descending, lie in places that differ modulo 8, whichever they are: it takes them in
/// that order, which is nobody else's bank, and a bitonic merge in registers puts them right. (Conflict-free gather:
/// Berney, Sitchinava: Eliminating bank conflicts in GPU mergesort.)
struct MergeRound {
    MergeTile const* pieces = nullptr;  ///< of each tile
    Index const* keys = nullptr;
    std::uint32_t const* values = nullptr;  ///< null: each entry's own place
    Index* to_keys = nullptr;
    std::uint32_t* to_values = nullptr;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, MergeShared& shared, Index tile) const {
        block.each([&](int thread, auto& state) {
            MergeTile const piece = pieces[tile];
            state.a_count = piece.a_count;
            state.count = piece.a_count + piece.b_count;
            for (int i = thread; i < piece.a_count; i += block_threads) load(shared, i, piece.a + i);
            for (int i = thread; i < piece.b_count; i += block_threads) load(shared, place_of_b(i), piece.b + i);
        });
        block.each([&](int thread, auto& state) {
            if (thread == 0) shared.of_a[block_threads] = state.a_count;
            if (thread >= block_threads / merge_group) return;
            int const group = thread * merge_group;
            int const first = smaller(group * merge_items, state.count);
            shared.of_a[group] = merge_path(state.a_count, state.count - state.a_count, first,
                                            [&](int i) { return shared.comes_first(i, first); });
        });
        block.each([&](int thread, auto& state) {
            int const group = thread / merge_group * merge_group;
            if (thread != group) shared.of_a[thread] = search_in_group(shared, state.count, group, thread);
        });
        block.each([&](int thread, auto& state) {
            int const first = smaller(thread * merge_items, state.count);
            int const a = shared.of_a[thread];
            int const a_count = shared.of_a[thread + 1] - a;
            MergeShare const mine{a, a_count, first - a, smaller(merge_items, state.count - first) - a_count};
            RESHARD_UNROLL
            for (int k = 0; k < merge_items; ++k) {
                int const at = mine.place(k);
                state.keys[k] = INT64_MAX;  // behind all
                state.values[k] = UINT32_MAX;
                if (at < 0) continue;
                state.keys[k] = shared.keys[at];
                state.values[k] = shared.values[at];
            }
            RESHARD_UNROLL
            for (int distance = merge_items / 2; distance != 0; distance /= 2) {
                RESHARD_UNROLL
                for (int k = 0; k < merge_items; ++k) {
                    if ((k & distance) == 0) put_in_order(state, k, k + distance);
                }
            }
        });
        block.each([&](int thread, auto& state) {
            RESHARD_UNROLL
            for (int k = 0; k < merge_items; ++k) {
                int const at = thread * merge_items + k;
                if (at >= state.count) continue;
                shared.keys[at] = state.keys[k];
                shared.values[at] = state.values[k];
            }
        });
        block.each([&](int thread, auto& state) {
            Index const begin = pieces[tile].begin;
            for (int i = thread; i < state.count; i += block_threads) {
                to_keys[begin + i] = shared.keys[i];
                to_values[begin + i] = shared.values[i];
            }
        });
    }

private:
    /// All threads try multiples of 64, then of 32, and so on. Down to 8 those that half a warp tries at once are one
    /// word or lie in different banks; what lies halfway between each thread's own bounds would lie anywhere.
    [[nodiscard]] RESHARD_HOST_DEVICE static int search_in_group(MergeShared const& shared, int count, int group,
                                                                 int thread) {
        int const begin = smaller(group * merge_items, count);
        int const first = smaller(thread * merge_items, count);
        int const end = smaller((group + merge_group) * merge_items, count);
        int const a = shared.of_a[group];
        int const a_end = shared.of_a[group + merge_group];
        int const low = larger(a, first - (end - a_end));
        int const high = smaller(a_end, a + first - begin);
        constexpr int most = merge_group * merge_items / 2;  // high - low is not above it
        int found = low / most * most;
        RESHARD_UNROLL
        for (int step = most; step != 0; step /= 2) {
            int const next = found + step;
            if (next <= low || (next <= high && shared.comes_first(next - 1, first))) found = next;
        }
        return found;
    }
    RESHARD_HOST_DEVICE void load(MergeShared& shared, int to, Index from) const {
        shared.keys[to] = keys[from];
        shared.values[to] = values != nullptr ? values[from] : static_cast<std::uint32_t>(from);
    }
    /// Values are places, so among equal keys theirs is the order.
    RESHARD_HOST_DEVICE static void put_in_order(MergeState& state, int first, int second) {
        Index const key = state.keys[first];
        std::uint32_t const value = state.values[first];
        bool const swaps = state.keys[second] < key || (state.keys[second] == key && state.values[second] < value);
        state.keys[first] = swaps ? state.keys[second] : key;
        state.values[first] = swaps ? state.values[second] : value;
        if (!swaps) return;
        state.keys[second] = key;
        state.values[second] = value;
    }
};

/// Keys and values, and as much room again.
struct MergeBuffers {
    Index* keys = nullptr;
    std::uint32_t* values = nullptr;
};
/// Merges lists of runs, all of them at once: a round is two launches. Memory: lists of runs, and 32 bytes a tile.
template <class Work>
class MergeRuns {
public:
    /// Nothing is done before run(). Runs that begin at begins[0] = 0 < begins[1] < ..., and end at the last; returns
    /// whether the result will lie in `other`. Values are the places that keys have at first: nobody writes them down,
    /// not even where there is but one run.
    [[nodiscard]] bool add(std::vector<Index> begins, MergeBuffers here, MergeBuffers other) {
        bool const in_other = begins.size() > 2 && bits_for(begins.size() - 1) % 2 != 0;
        list_.push_back({std::move(begins), here, other, nullptr});
        return in_other;
    }
    void run(Work& work) {
        for (;;) {
            std::erase_if(list_, [](List const& one) { return one.begins.size() <= 2; });
            if (list_.empty()) return;
            round(work);
        }
    }

private:
    struct List {
        std::vector<Index> begins;
        MergeBuffers here;
        MergeBuffers other;
        std::uint32_t const* values;
    };

    void round(Work& work) {
        std::vector<Index> words;  // of each list: begins, and tiles before each pair
        Index tiles = 0;
        for (List const& one : list_) {
            auto const runs = as_index(one.begins.size()) - 1;
            words.insert(words.end(), one.begins.begin(), one.begins.end());
            words.push_back(0);
            for (Index run = 0; run < runs; run += 2) {
                Index const begin = one.begins[as_size(run)];
                Index const end = one.begins[as_size(smaller(run + 2, runs))];
                words.push_back(words.back() + ceil_div(end - begin, merge_tile));
            }
            tiles += words.back();
        }
        WorkList<Index, Work> const lists(work, std::span<Index const>(words));
        WorkList<MergeTile, Work> const pieces(work, tiles);
        EachTogether<Work, MergeSearch> searches("merge search");
        Together<Work, MergeRound, MergeState, MergeShared> rounds("merge");
        Index at = 0;
        MergeTile* piece = pieces.data();
        for (List& one : list_) {
            auto const runs = as_index(one.begins.size()) - 1;
            Index const* const begins = lists.data() + at;
            at += runs + 1 + (runs + 1) / 2;
            Index const count = words[as_size(at++)];
            searches.add(count, {begins, begins + runs + 1, runs, one.here.keys, piece});
            rounds.add(count, {piece, one.here.keys, one.values, one.other.keys, one.other.values});
            piece += count;
            one.values = one.other.values;
            std::swap(one.here, one.other);
            std::vector<Index> merged;
            for (std::size_t run = 0; run + 1 < one.begins.size(); run += 2) merged.push_back(one.begins[run]);
            merged.push_back(one.begins.back());
            one.begins = std::move(merged);
        }
        searches.run(work);
        rounds.run(work);
    }

    std::vector<List> list_;
};

}  // namespace reshard::inline v0_1::detail
