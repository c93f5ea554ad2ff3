// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/merge.hpp
/// \brief  Sorted runs merged by key: stable, threaded; other columns follow, each when it is wanted.
/// \depends core, mch/detail/parts.
///
///     Merge merge(runs, workers.threads());
///     std::vector<std::byte> workspace(merge.workspace_bytes());
///     merge.order(workspace, workers);                  // duplicates() is known, nothing of the caller's is touched
///     merge.gather(8, slots_of_runs, slots, workers);   // one column: slots[i] is that of the i-th smallest key
///
/// The order is kept as the run of each entry in turn, 2 bytes an entry: as each run is read from front to back, that
/// is enough to replay the merge for any column, and what is looked at before anything is committed costs little
/// memory.
#pragma once

#include <reshard/mch/detail/parts.hpp>

#include <cstdint>  // uint16_t

namespace reshard::inline v0 {

namespace detail {
struct Contender;  // mch/detail/loser_tree.hpp, as the next
class RepeatCounter;
}  // namespace detail

/// Calls f(begin, end) for each longest run of keys that do not descend, in order; returns how many there are.
/// What one rank sends from several sorted slices is that many runs, or fewer.
template <class F>
Index for_each_sorted_run(std::span<Index const> keys, F&& f) {
    auto const count = static_cast<Index>(keys.size());
    Index runs = 0;
    for (Index begin = 0; begin < count; ++runs) {
        Index end = begin + 1;
        while (end < count && keys[static_cast<std::size_t>(end - 1)] <= keys[static_cast<std::size_t>(end)]) ++end;
        f(begin, end);
        begin = end;
    }
    return runs;
}

/// A merge of runs, worked on in `parts` pieces. Equal keys come in the order of the runs. The list of runs and their
/// keys must stay. The result is the same, bit for bit, for any number of parts.
class Merge {
public:
    static constexpr Index max_runs = 32767;

    /// Throws ShapeError for too many runs, negative or too large counts and parts out of range; BufferError for a run
    /// of null keys.
    explicit Merge(std::span<SortedRun const> runs, int parts = 1);

    [[nodiscard]] Index entries() const noexcept { return entries_; }
    [[nodiscard]] int parts() const noexcept { return parts_; }

    /// Bytes that order() asks for: 2 an entry, and about 128 a run and part.
    [[nodiscard]] Index workspace_bytes() const;

    /// Works out the order; reads keys only. The workspace must stay as long as the order is used. Throws BufferError
    /// when it is too small.
    void order(std::span<std::byte> workspace, TeamRef team = InOrder{});

    /// How many keys repeat the one before them in the merge. 0 before order().
    [[nodiscard]] Index duplicates() const noexcept { return duplicates_; }
    static constexpr std::uint16_t dropped_bit = 0x8000;

    /// Calls f(position, run, row) for every entry in merged order, dropped ones included. One thread.
    template <class F>
    void for_each(F&& f) const {
        check_ordered("reshard::Merge::for_each");
        Index* const rows = scratch(0).rows;
        for (Index r = 0; r < run_count(); ++r) rows[r] = 0;
        for (Index i = 0; i < entries_; ++i) {
            Index const run = order_[i] & (max_runs);
            f(i, run, rows[run]++);
        }
    }
    /// Calls f(position, key, run, row) for every entry whose key is that of the entry before it.
    template <class F>
    void for_each_duplicate(F&& f) const {
        Index previous = 0;
        for_each([&](Index position, Index run, Index row) {
            Index const key = runs_[static_cast<std::size_t>(run)].keys[row];
            if (position > 0 && key == previous) f(position, key, run, row);
            previous = key;
        });
    }

    /// Leaves the entry at this merged position out of gather(); settle() must follow. Throws ShapeError outside
    /// [0, entries).
    void drop(Index position);
    /// Counts what is kept, after the last drop().
    void settle();
    /// Entries that gather() writes.
    [[nodiscard]] Index kept() const noexcept { return kept_; }

    /// Writes the kept entries of one column in merged order: `width` bytes each, kept() of them. `columns` has an
    /// address per run, that of the column's element for the run's first key. Neither need be aligned; they must not
    /// overlap. Throws ShapeError for another number of addresses or a width below 1, BufferError for null memory,
    /// TransitionError before order() or between drop() and settle(); then nothing is written.
    void gather(Index width, std::span<std::byte const* const> columns, std::byte* to, TeamRef team = InOrder{}) const;

private:
    struct Tally {
        Index repeats;
        Index kept_before;
    };
    struct Scratch {
        Index* rows;              ///< next row of each run, or its address
        detail::Contender* tree;  ///< of the merge
    };

    [[nodiscard]] Index run_count() const noexcept { return static_cast<Index>(runs_.size()); }
    [[nodiscard]] int pieces() const noexcept;
    /// An index for each run.
    [[nodiscard]] Index row_bytes() const noexcept;
    [[nodiscard]] Index tree_bytes() const noexcept;
    /// The merged position where a piece of a part begins.
    [[nodiscard]] Index piece_begin(int piece) const noexcept;
    /// Where a piece begins in each run.
    [[nodiscard]] Index* cut(int piece) const noexcept;
    [[nodiscard]] Scratch scratch(int piece) const noexcept;
    /// Takes the memory, if there is any; returns how much of it.
    Index carve(std::byte* memory) noexcept;
    /// Works out where the pieces of a part begin in each run.
    void cut_part(int part) const noexcept;

    /// The key before a piece, and whether there is one.
    [[nodiscard]] detail::RepeatCounter repeats_from(int piece) const noexcept;

    void order_part(int part) const noexcept;

    void gather_part(Index width, std::byte const* const* columns, std::byte* to, int part) const noexcept;
    template <Index Width>
    void gather_part_of(Index width, std::byte const* const* columns, std::byte* to, int part) const noexcept;

    /// How many kept entries of one run come next, in fours; 0 where it is less.
    [[nodiscard]] Index stretch_of(std::uint16_t code, Index begin, Index end) const noexcept;

    void check_ordered(char const* who) const;
    void check_gather(Index width, std::span<std::byte const* const> columns, std::byte const* to) const;

    std::span<SortedRun const> runs_;
    int parts_;
    Index entries_ = 0;
    Index duplicates_ = 0;
    Index kept_ = 0;
    bool settled_ = true;
    std::uint16_t* order_ = nullptr;
    Tally* tallies_ = nullptr;
    Index* cuts_ = nullptr;
    std::byte* scratch_ = nullptr;
};

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/merge.ipp>
#endif
