// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/own_entries.hpp
/// \brief  Entries that stay on their rank, moved to their places within the columns they lie in.
/// \depends core, <cstring>, <vector>.
///
/// Entries keep their order, so where they go ascends with where they are. Then those that go down (or stay) can be
/// moved from the first to the last, and those that go up from the last to the first: what an entry overwrites has
/// been moved already. For if entry j lies where i goes, i down, and j has still to be moved, then either j goes down
/// and comes after i, and lies above where i goes, or j goes up, and two entries change their order.
#pragma once

#include <reshard/core/detail/access.hpp>

#include <cstring>  // memmove
#include <span>     // span
#include <vector>   // vector

namespace reshard::inline v0_1::detail {

/// Where an entry goes: a part of the mesh.
using MchDestination = std::uint16_t;

/// Whether ids are all negative or all from 0 on, and each is above the one before it. Without branches, so that
/// several are looked at at once: of two numbers of one sign, that of their difference says which is larger.
[[nodiscard]] inline bool ascend_with_one_sign(Index const* ids, Index count) noexcept {
    auto const number = [ids](Index i) { return static_cast<std::uint64_t>(ids[i]); };
    std::uint64_t signs = 0;
    for (Index i = 1; i < count; ++i) signs |= (number(i) ^ number(i - 1)) | (number(i) - number(i - 1) - 1);
    return as_index(signs) >= 0;
}

/// Positions [begin, end) of a shard; `count` of the entries there stay, and their ids ascend.
struct MchOwnRun {
    Index begin = 0;
    Index end = 0;
    Index count = 0;
    Index to = 0;      ///< where the first goes; the others follow
    Index turn = 0;    ///< entries before it go up, the others down or nowhere
    Index before = 0;  ///< how many of those that stay lie before it

    [[nodiscard]] bool is_dense() const noexcept { return count == end - begin; }
};

/// The entries of a shard that stay on its rank.
struct MchOwnEntries {
    MchDestination const* parts = nullptr;  ///< of every position: where its entry goes
    MchDestination part = 0;                ///< the rank's own
    Index count = 0;
    bool in_runs = true;  ///< whether they lie in runs that are worth listing
    std::vector<MchOwnRun> runs;

    [[nodiscard]] Index stays(Index position) const noexcept { return static_cast<Index>(parts[position] == part); }
    /// Gives a run its place.
    void place(MchOwnRun& run, Index to) const noexcept {
        run.to = to;
        run.turn = run.begin;
        run.before = 0;
        if (run.is_dense()) {
            if (to > run.begin) run.turn = run.end;
            run.before = run.turn - run.begin;
            return;
        }
        while (run.turn < run.end && to + run.before > run.turn) {
            run.before += stays(run.turn++);
        }
    }
    /// Moves one column's entries, of `width` bytes. \pre every run has a place; places follow the runs.
    void move(std::byte* column, Index width) const noexcept {
        auto const bytes = as_size(width);
        move_each([=](Index to, Index from) { std::memmove(column + to * width, column + from * width, bytes); },
                  [=](Index to, Index from, Index entries) {
                      std::memmove(column + to * width, column + from * width, as_size(entries) * bytes);
                  });
    }
    static constexpr std::size_t most_words = 4;
    /// The same for up to `most_words` columns of words at once.
    void move_words(std::span<std::byte* const> columns) const noexcept {
        switch (columns.size()) {
            case 1: return move_words<1>(columns.data());
            case 2: return move_words<2>(columns.data());
            case 3: return move_words<3>(columns.data());
            case 4: return move_words<4>(columns.data());
            default: return;
        }
    }

private:
    template <std::size_t Columns>
    void move_words(std::byte* const* list) const noexcept {
        std::byte* columns[Columns];
        for (std::size_t c = 0; c < Columns; ++c) columns[c] = list[c];
        move_each(
            [&columns](Index to, Index from) {
                for (std::size_t c = 0; c < Columns; ++c) {
                    store_as(columns[c] + to * 8, load_as<Index>(columns[c] + from * 8));
                }
            },
            [&columns](Index to, Index from, Index entries) {
                for (std::byte* column : columns) {
                    std::memmove(column + to * 8, column + from * 8, as_size(entries) * 8);
                }
            });
    }
    template <class One, class All>
    void move_each(One const& move_one, All const& move_all) const noexcept {
        for (MchOwnRun const& one : runs) {
            if (one.is_dense()) {
                if (one.turn == one.begin && one.to != one.begin) move_all(one.to, one.begin, one.count);
                continue;
            }
            Index to = one.to + one.before;
            for (Index i = one.turn; i < one.end; ++i) {  // what does not stay is overwritten by the next
                move_one(to, i);
                to += stays(i);
            }
        }
        for (std::size_t s = runs.size(); s-- != 0;) {
            MchOwnRun const& one = runs[s];
            if (one.is_dense()) {
                if (one.turn == one.end) move_all(one.to, one.begin, one.count);
                continue;
            }
            Index to = one.to + one.before;
            for (Index i = one.turn; to > one.to;) {
                --i;
                move_one(to - 1, i);
                to -= stays(i);
            }
        }
    }
};

}  // namespace reshard::inline v0_1::detail
