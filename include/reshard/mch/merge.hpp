// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/merge.hpp
/// \brief  Sorted runs merged by key: stable, threaded; other columns follow, each when it is wanted.
/// \depends core, mch/detail.
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

#include <reshard/mch/detail/loser_tree.hpp>
#include <reshard/mch/detail/parts.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0 {

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
    explicit Merge(std::span<SortedRun const> runs, int parts = 1) : runs_(runs), parts_(parts) {
        detail::check_parts("reshard::Merge", parts);
        if (static_cast<Index>(runs.size()) > max_runs) {
            raise(ErrorCode::shape, concat("reshard::Merge: ", runs.size(), " sorted runs, at most ", max_runs,
                                           " can be merged. Fix: sort the blocks that they came in, or merge twice."));
        }
        for (std::size_t r = 0; r != runs.size(); ++r) {
            if (runs[r].count < 0 || runs[r].count > INT64_MAX / 8 - entries_) {
                raise(ErrorCode::shape,
                      concat("reshard::Merge: run ", r, " has ", runs[r].count, " entries after ", entries_,
                             " of others. Fix: give counts of 0 or more whose bytes fit 64 bits."));
            }
            if (runs[r].keys == nullptr && runs[r].count != 0) {
                raise(ErrorCode::buffer, concat("reshard::Merge: the keys of run ", r,
                                                " are null. Fix: give every run the address of its keys."));
            }
            entries_ += runs[r].count;
        }
    }

    [[nodiscard]] Index entries() const noexcept { return entries_; }
    [[nodiscard]] int parts() const noexcept { return parts_; }

    /// Bytes that order() asks for: 2 an entry, and about 128 a run and part.
    [[nodiscard]] Index workspace_bytes() const {
        detail::CarvedBytes part;
        part.add(run_count(), 8).add(run_count(), sizeof(detail::Contender)).repeat(pieces());
        detail::CarvedBytes cuts;
        cuts.add(run_count(), 8).repeat(pieces()).add(run_count(), 8);
        detail::CarvedBytes all;
        all.add(entries_, 2).add(parts_, sizeof(Tally)).add(part).add(cuts);
        if (all.value() < 0) {
            raise(ErrorCode::shape, concat("reshard::Merge: the workspace of ", parts_, " parts for ", runs_.size(),
                                           " runs has more bytes than 64 bits count. Fix: use fewer parts."));
        }
        return all.value();
    }

    /// Works out the order; reads keys only. The workspace must stay as long as the order is used. Throws BufferError
    /// when it is too small.
    template <class Team = InOrder>
    void order(std::span<std::byte> workspace, Team&& team = {}) {
        detail::check_workspace("reshard::Merge::order", workspace, workspace_bytes());
        carve(workspace.data());
        team(parts_, [&](int part) {
            int const last = part + 1 < parts_ ? detail::merge_lanes : detail::merge_lanes + 1;
            for (int piece = detail::merge_lanes * part; piece < detail::merge_lanes * part + last; ++piece) {
                detail::merge_cut(runs_.data(), run_count(), piece_begin(piece), cut(piece));
            }
        });
        team(parts_, [&](int part) { order_part(part); });
        duplicates_ = 0;
        for (int part = 0; part < parts_; ++part) duplicates_ += tallies_[part].repeats;
        settle();
    }

    /// How many keys repeat the one before them in the merge. 0 before order().
    [[nodiscard]] Index duplicates() const noexcept { return duplicates_; }
    /// The run of each entry, in merged order; dropped ones have `dropped_bit` set. Empty before order().
    [[nodiscard]] std::span<std::uint16_t const> runs_in_order() const noexcept {
        return {order_, order_ != nullptr ? static_cast<std::size_t>(entries_) : 0};
    }
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
    void drop(Index position) {
        check_ordered("reshard::Merge::drop");
        if (position < 0 || position >= entries_) {
            raise(ErrorCode::shape, concat("reshard::Merge::drop: position ", position, " of ", entries_,
                                           " entries. Fix: give a position in the merged order."));
        }
        order_[position] |= dropped_bit;
        settled_ = false;
    }
    /// Counts what is kept, after the last drop().
    void settle() {
        check_ordered("reshard::Merge::settle");
        kept_ = 0;
        for (int part = 0; part < parts_; ++part) {
            tallies_[part].kept_before = kept_;
            Index const end = detail::part_begin(entries_, parts_, part + 1);
            for (Index i = detail::part_begin(entries_, parts_, part); i < end; ++i) kept_ += order_[i] < dropped_bit;
        }
        settled_ = true;
    }
    /// Entries that gather() writes.
    [[nodiscard]] Index kept() const noexcept { return kept_; }

    /// Writes the kept entries of one column in merged order: `width` bytes each, kept() of them. `columns` has an
    /// address per run, that of the column's element for the run's first key. Neither need be aligned; they must not
    /// overlap. Throws ShapeError for another number of addresses or a width below 1, BufferError for null memory,
    /// TransitionError before order() or between drop() and settle(); then nothing is written.
    template <class Team = InOrder>
    void gather(Index width, std::span<std::byte const* const> columns, std::byte* to, Team&& team = {}) const {
        check_gather(width, columns, to);
        team(parts_, [&](int part) {
            switch (width) {
                case 1: return gather_part<1>(width, columns.data(), to, part);
                case 2: return gather_part<2>(width, columns.data(), to, part);
                case 4: return gather_part<4>(width, columns.data(), to, part);
                case 8: return gather_part<8>(width, columns.data(), to, part);
                case 16: return gather_part<16>(width, columns.data(), to, part);
                default: return gather_part<0>(width, columns.data(), to, part);
            }
        });
    }

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
    [[nodiscard]] int pieces() const noexcept { return parts_ * detail::merge_lanes; }
    /// The merged position where a piece of a part begins.
    [[nodiscard]] Index piece_begin(int piece) const noexcept {
        int const part = piece / detail::merge_lanes;
        if (part == parts_) return entries_;
        Index const begin = detail::part_begin(entries_, parts_, part);
        Index const end = detail::part_begin(entries_, parts_, part + 1);
        return begin + detail::part_begin(end - begin, detail::merge_lanes, piece % detail::merge_lanes);
    }
    /// Where a piece begins in each run.
    [[nodiscard]] Index* cut(int piece) const noexcept {
        return cuts_ + piece * (detail::rounded_to_part(run_count() * 8) / 8);
    }
    [[nodiscard]] Scratch scratch(int piece) const noexcept {
        Index const bytes = detail::rounded_to_part(run_count() * 8) +
                            detail::rounded_to_part(run_count() * static_cast<Index>(sizeof(detail::Contender)));
        detail::Carver carver(scratch_ + piece * bytes);
        Scratch result{};
        result.rows = carver.take<Index>(run_count());
        result.tree = carver.take<detail::Contender>(run_count());
        return result;
    }
    void carve(std::byte* workspace) noexcept {
        detail::Carver carver(workspace);
        order_ = carver.take<std::uint16_t>(entries_);
        tallies_ = carver.take<Tally>(parts_);
        cuts_ = carver.take<Index>(0);
        for (int piece = 0; piece <= pieces(); ++piece) static_cast<void>(carver.take<Index>(run_count()));
        scratch_ = carver.take<std::byte>(0);
    }

    /// The key before a piece, and whether there is one.
    [[nodiscard]] detail::RepeatCounter repeats_from(int piece) const noexcept {
        bool has_previous = false;
        Index previous = INT64_MIN;
        Index const* const begin = cut(piece);
        for (Index r = 0; r < run_count(); ++r) {
            if (begin[r] == 0) continue;
            has_previous = true;
            previous = larger(previous, runs_[static_cast<std::size_t>(r)].keys[begin[r] - 1]);
        }
        return {has_previous, previous};
    }

    void order_part(int part) const noexcept {
        Index const count = run_count();
        int const first = part * detail::merge_lanes;
        tallies_[part].repeats = 0;
        if (count == 0) return;
        for (int piece = first; piece < first + detail::merge_lanes; ++piece) {
            for (Index r = 0; r < count; ++r) scratch(piece).rows[r] = cut(piece)[r];
        }
        if (count == 2) {
            auto repeats = repeats_from(first);
            Index const* const end = cut(first + detail::merge_lanes);
            detail::merge_two(runs_.data(), scratch(first).rows, end, order_ + piece_begin(first), repeats);
            tallies_[part].repeats = repeats.repeats();
            return;
        }
        detail::MergePiece lanes[detail::merge_lanes];
        for (int lane = 0; lane < detail::merge_lanes; ++lane) {
            int const piece = first + lane;
            Scratch const own = scratch(piece);
            lanes[lane] = {detail::LoserTree(runs_.data(), count, own.rows, cut(piece + 1), own.tree),
                           order_ + piece_begin(piece), piece_begin(piece + 1) - piece_begin(piece),
                           repeats_from(piece)};
        }
        detail::merge_many(lanes);
        for (detail::MergePiece const& piece : lanes) tallies_[part].repeats += piece.repeats.repeats();
    }

    template <Index Width>
    void gather_part(Index width, std::byte const* const* columns, std::byte* to, int part) const noexcept {
        Index const bytes = Width != 0 ? Width : width;
        Index const begin = detail::part_begin(entries_, parts_, part);
        Index const end = detail::part_begin(entries_, parts_, part + 1);
        Index const* const rows = cut(part * detail::merge_lanes);
        auto* const next = reinterpret_cast<std::byte const**>(scratch(part * detail::merge_lanes).tree);
        for (Index r = 0; r < run_count(); ++r) {
            next[r] = columns[r] != nullptr ? columns[r] + rows[r] * bytes : nullptr;
        }
        to += tallies_[part].kept_before * bytes;
        for (Index i = begin; i < end; ++i) {
            std::uint16_t const code = order_[i];
            std::byte const*& from = next[code & max_runs];
            if (Index const stretch = stretch_of(code, i, end); stretch != 0) {  // runs that hardly overlap
                std::memcpy(to, from, static_cast<std::size_t>(stretch * bytes));
                to += stretch * bytes;
                from += stretch * bytes;
                i += stretch - 1;
                continue;
            }
            if (code < dropped_bit) {
                std::memcpy(to, from, static_cast<std::size_t>(bytes));
                to += bytes;
            }
            from += bytes;
        }
    }

    /// How many kept entries of one run come next, in fours; 0 where it is less.
    [[nodiscard]] Index stretch_of(std::uint16_t code, Index begin, Index end) const noexcept {
        std::uint64_t const same = code * std::uint64_t{0x0001000100010001};
        auto const four_at = [&](Index i) {
            std::uint64_t four = 0;
            std::memcpy(&four, order_ + i, sizeof(four));
            return four;
        };
        Index i = begin;
        while (code < dropped_bit && i + 4 <= end && four_at(i) == same) i += 4;
        return i - begin;
    }

    void check_ordered(char const* who) const {
        if (order_ != nullptr) return;
        raise(ErrorCode::transition, concat(who, ": there is no order yet. Fix: call order() first."));
    }
    void check_gather(Index width, std::span<std::byte const* const> columns, std::byte const* to) const {
        check_ordered("reshard::Merge::gather");
        if (!settled_) {
            raise(ErrorCode::transition,
                  "reshard::Merge::gather: entries were dropped and what is kept has not been "
                  "counted. Fix: call settle() after the last drop().");
        }
        Index bytes = 0;
        if (columns.size() != runs_.size() || width < 1 || !multiply_fits(entries_, width, bytes)) {
            raise(ErrorCode::shape, concat("reshard::Merge::gather: ", columns.size(), " addresses for ", runs_.size(),
                                           " runs, elements of ", width,
                                           " bytes. Fix: give an address per run and a width of 1 or more."));
        }
        bool null = to == nullptr && kept_ != 0;
        for (std::size_t r = 0; r != columns.size(); ++r) {
            null = null || (columns[r] == nullptr && runs_[r].count != 0);
        }
        if (null) {
            raise(ErrorCode::buffer,
                  "reshard::Merge::gather: the destination or the column of a run is null. Fix: "
                  "give the address of memory for kept() elements, and one per run.");
        }
    }

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
