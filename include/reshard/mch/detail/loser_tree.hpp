// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/loser_tree.hpp
/// \brief  The inner loops of the merge: two runs without a branch, many through a tree of losers.
/// \depends mch/detail/parts. Source: D. E. Knuth, The Art of Computer Programming, volume 3, section 5.4.1 (selection
/// trees).
#pragma once

#include <reshard/mch/detail/parts.hpp>

#include <cstdint>  // uint16_t

namespace reshard::inline v0 {

namespace detail {

/// A run that takes part in a match: its next key, and its number to settle ties; exhausted ones number higher.
struct Contender {
    Index key;
    Index run;
};
inline constexpr Index exhausted = Index{1} << 32;

[[nodiscard]] inline bool comes_first(Contender const& a, Contender const& b) noexcept {
    return (a.key < b.key) | ((a.key == b.key) & (a.run < b.run));  // no branch: which run is next is anyone's guess
}

[[nodiscard]] inline Contender contender(SortedRun const* runs, Index run, Index at, Index end) noexcept {
    return at < end ? Contender{runs[run].keys[at], run} : Contender{INT64_MAX, run + exhausted};
}

/// Counts how often a key repeats the one before it.
class RepeatCounter {
public:
    RepeatCounter(bool has_previous, Index previous) noexcept : previous_(previous), has_previous_(has_previous) {}
    void add(Index key) noexcept {
        repeats_ += static_cast<Index>((key == previous_) & has_previous_);
        previous_ = key;
        has_previous_ = true;
    }
    [[nodiscard]] Index repeats() const noexcept { return repeats_; }

private:
    Index previous_;
    Index repeats_ = 0;
    bool has_previous_;
};

/// A part of a merge is cut into this many pieces that take turns, entry by entry: each entry waits for the one before
/// it through the whole tree, and the pieces do not wait for each other.
inline constexpr int merge_lanes = 4;

/// Merges positions [at[r], end[r]) of every run, one entry a step; moves `at` to `end`. `tree` has room for `count`
/// contenders.
class LoserTree {
public:
    LoserTree() = default;
    LoserTree(SortedRun const* runs, Index count, Index* at, Index const* end, Contender* tree) noexcept
        : runs_(runs), at_(at), end_(end), tree_(tree), count_(count) {
        // Leaf r hangs below node (r + count) / 2; node 0 gets the winner. Runs enter one after the other: the first
        // to come to an empty node waits there for the one it has to play.
        for (Index node = 0; node < count; ++node) tree[node] = {0, -1};
        for (Index run = 0; run < count; ++run) {
            Contender winner = contender(runs, run, at[run], end[run]);
            Index node = (run + count) / 2;
            for (; node > 0 && tree[node].run >= 0; node /= 2) {
                if (!comes_first(tree[node], winner)) continue;
                Contender const loser = winner;
                winner = tree[node];
                tree[node] = loser;
            }
            tree[node] = winner;
        }
        winner_ = tree[0];
    }

    [[nodiscard]] Contender const& winner() const noexcept { return winner_; }

    /// Moves past the winner. \pre there are entries left.
    void step() noexcept {
        Index const run = winner_.run;
        Index const next = ++at_[run];
        prefetch<false>(runs_[run].keys + next + 16);
        Contender winner = contender(runs_, run, next, end_[run]);
        for (Index node = (run + count_) / 2; node > 0; node /= 2) {
            Contender const other = tree_[node];
            auto const swap = static_cast<Index>(comes_first(other, winner));
            Index const key = (winner.key ^ other.key) & -swap;
            Index const number = (winner.run ^ other.run) & -swap;
            tree_[node] = {other.key ^ key, other.run ^ number};
            winner = {winner.key ^ key, winner.run ^ number};
        }
        winner_ = winner;
    }

private:
    SortedRun const* runs_ = nullptr;
    Index* at_ = nullptr;
    Index const* end_ = nullptr;
    Contender* tree_ = nullptr;
    Index count_ = 0;
    Contender winner_{};
};

/// A piece of a merge: where its order goes, how long it is, and what precedes it.
struct MergePiece {
    LoserTree tree;
    std::uint16_t* order = nullptr;
    Index entries = 0;
    RepeatCounter repeats{false, 0};

    void step(Index i) noexcept {
        order[i] = static_cast<std::uint16_t>(tree.winner().run);
        repeats.add(tree.winner().key);
        tree.step();
    }
};

inline void merge_many(MergePiece (&pieces)[merge_lanes]) noexcept {
    Index together = pieces[0].entries;
    for (MergePiece const& piece : pieces) together = smaller(together, piece.entries);
    MergePiece a = pieces[0];
    MergePiece b = pieces[1];
    MergePiece c = pieces[2];
    MergePiece d = pieces[3];
    for (Index i = 0; i < together; ++i) {
        a.step(i);
        b.step(i);
        c.step(i);
        d.step(i);
    }
    pieces[0] = a;
    pieces[1] = b;
    pieces[2] = c;
    pieces[3] = d;
    for (MergePiece& piece : pieces) {
        for (Index i = together; i < piece.entries; ++i) piece.step(i);
    }
}

/// Merges two runs, positions [at[r], end[r]) of each. Equal keys: run 0 first.
inline void merge_two(SortedRun const* runs, Index* at, Index const* end, std::uint16_t* order,
                      RepeatCounter& repeats) noexcept {
    Index const* const a = runs[0].keys;
    Index const* const b = runs[1].keys;
    Index i = at[0];
    Index j = at[1];
    while (i < end[0] && j < end[1]) {
        Index const left = a[i];
        Index const right = b[j];
        bool const second = right < left;
        *order++ = static_cast<std::uint16_t>(second);
        repeats.add(second ? right : left);
        i += static_cast<Index>(!second);
        j += static_cast<Index>(second);
    }
    for (; i < end[0]; ++i) {
        *order++ = 0;
        repeats.add(a[i]);
    }
    for (; j < end[1]; ++j) {
        *order++ = 1;
        repeats.add(b[j]);
    }
    at[0] = end[0];
    at[1] = end[1];
}

/// The first position in [0, count) whose key is not below `key` (or, with `past_equal`, is above it).
[[nodiscard]] inline Index key_bound(SortedRun const& run, Index key, bool past_equal) noexcept {
    Index low = 0;
    Index high = run.count;
    while (low < high) {
        Index const middle = low + (high - low) / 2;
        bool const below = past_equal ? run.keys[middle] <= key : run.keys[middle] < key;
        if (below) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/// Where each run stands once the first `target` entries of the merge are taken: the cut is found among the 2^64 keys
/// by halving, equal keys are then taken in the order of the runs. \pre 0 <= target <= entries of all runs.
inline void merge_cut(SortedRun const* runs, Index count, Index target, Index* cut) noexcept {
    auto const not_above = [&](Index key) {
        Index sum = 0;
        for (Index r = 0; r < count; ++r) sum += key_bound(runs[r], key, true);
        return sum;
    };
    // The least key with at least `target` entries not above it. Halved as unsigned numbers with the sign bit turned.
    constexpr std::uint64_t sign = std::uint64_t{1} << 63;
    std::uint64_t low = 0;
    std::uint64_t high = ~std::uint64_t{0};
    while (low < high) {
        std::uint64_t const middle = low + (high - low) / 2;
        if (not_above(static_cast<Index>(middle ^ sign)) >= target) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    auto const key = static_cast<Index>(low ^ sign);
    Index left = target;
    for (Index r = 0; r < count; ++r) {
        cut[r] = key_bound(runs[r], key, false);
        left -= cut[r];
    }
    for (Index r = 0; r < count; ++r) {
        Index const equal = smaller(left, key_bound(runs[r], key, true) - cut[r]);
        cut[r] += equal;
        left -= equal;
    }
}

}  // namespace detail
}  // namespace reshard::inline v0
