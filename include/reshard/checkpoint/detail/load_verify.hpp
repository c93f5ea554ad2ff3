// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_verify.hpp
/// \brief  Which extents a load sums up, and how ranks put together what several of them have read of one.
/// \depends checkpoint/detail/{extent_sums,load_match}, comm/collectives.
#pragma once

#include <reshard/checkpoint/detail/extent_sums.hpp>
#include <reshard/checkpoint/detail/load_match.hpp>
#include <reshard/checkpoint/detail/stored_order.hpp>
#include <reshard/comm/collectives.hpp>

#include <array>  // array

namespace reshard::inline v0::detail {

/// Places of the extents that somebody reads whole: all that are wanted, by way of staging memory ...
[[nodiscard]] inline std::vector<std::size_t> read_whole(std::span<WantedExtent const> wanted,
                                                         LoadOptions const& options) {
    std::vector<std::size_t> places;
    if (!options.verify_checksums) return places;
    places.reserve(wanted.size());
    for (WantedExtent const& extent : wanted) places.push_back(extent.extent);
    sort_unless_sorted(places, [](std::size_t a, std::size_t b) { return a < b; });
    return places;
}
/// ... and those of which a rank that reads directly needs all.
[[nodiscard]] inline std::vector<std::size_t> read_whole(std::span<WantedExtent const> wanted,
                                                         std::span<LocalTensor const> targets, Index rank,
                                                         LoadOptions const& options) {
    std::vector<std::size_t> places;
    if (!options.verify_checksums) return places;
    Needs scratch;
    for (WantedExtent const& extent : wanted) {
        Index const needed = needed_bytes(extent.box, extent, targets[extent.target].distribution, rank, scratch);
        if (needed == extent.bytes()) places.push_back(extent.extent);
    }
    std::sort(places.begin(), places.end());
    return places;
}

/// Whether two ranks read parts of an extent that has a checksum: then its parts have to meet.
[[nodiscard]] inline bool is_cut(Catalogue const& catalogue, ReadSchedule const& schedule,
                                 std::span<WantedExtent const> wanted, LoadOptions const& options) {
    if (!options.verify_checksums) return false;
    std::vector<int> reader(wanted.size(), -1);
    for (Piece const& piece : schedule.pieces) {
        int& first = reader[piece.wanted];
        bool const again = first >= 0 && first != piece.reader;
        if (again && catalogue.extents()[wanted[piece.wanted].extent].has_checksum) return true;
        first = piece.reader;
    }
    return false;
}

/// Runs that one rank tells the others: a span of the files has a part of an extent at each of its ends. (Two more for
/// a tensor that is listed twice.)
using ExtentParts = std::array<ExtentRun, 4>;

/// The parts of all ranks; `all` has room for them. Collective; allocates nothing.
inline void gather_parts(CommunicatorRef comm, SumVerdict const& mine, std::span<ExtentParts> all,
                         TransferLists& lists) {
    ExtentParts parts{};
    for (std::size_t i = 0; i < parts.size() && i < mine.parts.size(); ++i) parts[i] = mine.parts[i];
    all_gather(comm, std::as_bytes(std::span(&parts, 1)), std::as_writable_bytes(all), lists);
}
/// Puts together the parts of extents that several ranks have read. All find the same.
inline void join_parts(Catalogue const& catalogue, int rank, std::span<ExtentParts const> all, SumVerdict& mine) {
    std::vector<ExtentRun> runs;
    for (ExtentParts const& of_rank : all)
        for (ExtentRun const& run : of_rank)
            if (run.extent >= 0) runs.push_back(run);
    SumVerdict const together = sum_up(catalogue, std::move(runs));
    for (ExtentRun const& part : all[static_cast<std::size_t>(rank)]) {
        auto const left = std::find_if(together.parts.begin(), together.parts.end(),
                                       [&](ExtentRun const& run) { return run.extent == part.extent; });
        if (part.extent >= 0 && left == together.parts.end()) mine.bytes += part.end - part.begin;
    }
    mine.wrong.insert(mine.wrong.end(), together.wrong.begin(), together.wrong.end());
}

/// Words that every message has once the first byte may have been written.
[[noreturn]] inline void raise_partly_filled(Error const& error) {
    raise(error.code(), concat(error.message(), " The tensors are partly filled: load them again."));
}

}  // namespace reshard::inline v0::detail
