// SPDX-License-Identifier: Apache-2.0
// How mch/merge.hpp is done.
#pragma once

#include <reshard/mch/detail/loser_tree.hpp>
#include <reshard/mch/merge.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0 {

RESHARD_INLINE Merge::Merge(std::span<SortedRun const> runs, int parts) : runs_(runs), parts_(parts) {
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

RESHARD_INLINE Index Merge::workspace_bytes() const { return Merge(*this).carve(nullptr) + detail::part_alignment; }

RESHARD_INLINE void Merge::drop(Index position) {
    check_ordered("reshard::Merge::drop");
    if (position < 0 || position >= entries_) {
        raise(ErrorCode::shape, concat("reshard::Merge::drop: position ", position, " of ", entries_,
                                       " entries. Fix: give a position in the merged order."));
    }
    order_[position] |= dropped_bit;
    settled_ = false;
}

RESHARD_INLINE void Merge::settle() {
    check_ordered("reshard::Merge::settle");
    kept_ = 0;
    for (int part = 0; part < parts_; ++part) {
        tallies_[part].kept_before = kept_;
        Index const end = detail::part_begin(entries_, parts_, part + 1);
        for (Index i = detail::part_begin(entries_, parts_, part); i < end; ++i) kept_ += order_[i] < dropped_bit;
    }
    settled_ = true;
}

RESHARD_INLINE Index Merge::row_bytes() const noexcept { return detail::rounded_to_part(run_count() * 8); }

RESHARD_INLINE Index Merge::tree_bytes() const noexcept {
    return detail::rounded_to_part(run_count() * static_cast<Index>(sizeof(detail::Contender)));
}

RESHARD_INLINE int Merge::pieces() const noexcept { return parts_ * detail::merge_lanes; }

RESHARD_INLINE Index Merge::piece_begin(int piece) const noexcept {
    int const part = piece / detail::merge_lanes;
    if (part == parts_) return entries_;
    Index const begin = detail::part_begin(entries_, parts_, part);
    Index const end = detail::part_begin(entries_, parts_, part + 1);
    return begin + detail::part_begin(end - begin, detail::merge_lanes, piece % detail::merge_lanes);
}

RESHARD_INLINE Index* Merge::cut(int piece) const noexcept { return cuts_ + piece * (row_bytes() / 8); }

RESHARD_INLINE Merge::Scratch Merge::scratch(int piece) const noexcept {
    detail::Carver carver(scratch_ + piece * (row_bytes() + tree_bytes()));
    Scratch result{};
    result.rows = carver.take<Index>(run_count());
    result.tree = carver.take<detail::Contender>(run_count());
    return result;
}

RESHARD_INLINE Index Merge::carve(std::byte* memory) noexcept {
    detail::Carver carver(memory);
    order_ = carver.take<std::uint16_t>(entries_);
    tallies_ = carver.take<Tally>(parts_);
    cuts_ = carver.take<Index>((pieces() + 1) * row_bytes() / 8);
    scratch_ = carver.take<std::byte>(pieces() * (row_bytes() + tree_bytes()));
    return carver.bytes();
}

RESHARD_INLINE void Merge::cut_part(int part) const noexcept {
    int const last = part + 1 < parts_ ? detail::merge_lanes : detail::merge_lanes + 1;
    for (int piece = detail::merge_lanes * part; piece < detail::merge_lanes * part + last; ++piece) {
        detail::merge_cut(runs_.data(), run_count(), piece_begin(piece), cut(piece));
    }
}

RESHARD_INLINE detail::RepeatCounter Merge::repeats_from(int piece) const noexcept {
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

RESHARD_INLINE void Merge::order_part(int part) const noexcept {
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
                       order_ + piece_begin(piece), piece_begin(piece + 1) - piece_begin(piece), repeats_from(piece)};
    }
    detail::merge_many(lanes);
    for (detail::MergePiece const& piece : lanes) tallies_[part].repeats += piece.repeats.repeats();
}

RESHARD_INLINE void Merge::order(std::span<std::byte> workspace, TeamRef team) {
    detail::check_workspace("reshard::Merge::order", workspace, workspace_bytes());
    carve(workspace.data());
    team(parts_, [&, this](int part) { cut_part(part); });
    team(parts_, [&, this](int part) { order_part(part); });
    duplicates_ = 0;
    for (int part = 0; part < parts_; ++part) duplicates_ += tallies_[part].repeats;
    settle();
}

RESHARD_INLINE Index Merge::stretch_of(std::uint16_t code, Index begin, Index end) const noexcept {
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

template <Index Width>
void Merge::gather_part_of(Index width, std::byte const* const* columns, std::byte* to, int part) const noexcept {
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

RESHARD_INLINE void Merge::gather_part(Index width, std::byte const* const* columns, std::byte* to,
                                       int part) const noexcept {
    switch (width) {
        case 1: return gather_part_of<1>(width, columns, to, part);
        case 2: return gather_part_of<2>(width, columns, to, part);
        case 4: return gather_part_of<4>(width, columns, to, part);
        case 8: return gather_part_of<8>(width, columns, to, part);
        case 16: return gather_part_of<16>(width, columns, to, part);
        default: return gather_part_of<0>(width, columns, to, part);
    }
}

RESHARD_INLINE void Merge::gather(Index width, std::span<std::byte const* const> columns, std::byte* to,
                                  TeamRef team) const {
    check_gather(width, columns, to);
    team(parts_, [&, this](int part) { gather_part(width, columns.data(), to, part); });
}

RESHARD_INLINE void Merge::check_ordered(char const* who) const {
    if (order_ != nullptr) return;
    raise(ErrorCode::transition, concat(who, ": there is no order yet. Fix: call order() first."));
}

RESHARD_INLINE void Merge::check_gather(Index width, std::span<std::byte const* const> columns,
                                        std::byte const* to) const {
    check_ordered("reshard::Merge::gather");
    if (!settled_) {
        raise(ErrorCode::transition,
              "reshard::Merge::gather: entries were dropped and what is kept has not been "
              "counted. Fix: call settle() after the last drop().");
    }
    Index bytes = 0;
    if (columns.size() != runs_.size() || width < 1 || !multiply_fits(entries_, width, bytes)) {
        raise(ErrorCode::shape,
              concat("reshard::Merge::gather: ", columns.size(), " addresses for ", runs_.size(), " runs, elements of ",
                     width, " bytes. Fix: give an address per run and a width of 1 or more."));
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

}  // namespace reshard::inline v0
