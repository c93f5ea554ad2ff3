// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_choice.hpp
/// \brief  How CooperativeRead chooses: which rank reads which span, the one that wrote it, or else one that needs
///         it; and what reading directly and reading together would take, by the model.
/// \depends checkpoint/detail/load_staged.hpp. No I/O, no communication.
///
/// Spans are equal, so that any permutation of them among the ranks is as balanced as another. A rank has what it wrote
/// in its caches and on its disks, and what it needs itself need not be sent.
#pragma once

#include <reshard/checkpoint/detail/load_staged.hpp>
#include <reshard/core/sorting.hpp>

#include <map>  // map

namespace reshard::inline v0_1::detail {

/// Throw MeshError and BufferError for what no load can be asked.
inline void check_root(int root, int ranks) {
    if (root >= 0 && root < ranks) return;
    raise(ErrorCode::mesh, "reshard::load: root ", root, " of ", ranks, " ranks. Fix: ranks count from 0.");
}
inline void check_window(Index window_bytes) {
    if (window_bytes >= 0) return;
    raise(ErrorCode::buffer, "reshard::load: windows of ", window_bytes, " bytes. Fix: use 0 or more.");
}

/// Bytes of a span that speak for a rank.
struct SpanAffinity {
    Index bytes = 0;
    int span = 0;
    int rank = 0;
};

/// Gives each span that has a wish the best rank that is left, largest first; ties go to the lower span, then the lower
/// rank. Spans and ranks that are left over stay together where they can, and meet in their order otherwise.
[[nodiscard]] inline std::vector<int> assign_spans(std::vector<SpanAffinity> wishes, int ranks) {
    sort_list(wishes, [](SpanAffinity const& a, SpanAffinity const& b) {
        return std::tie(b.bytes, a.span, a.rank) < std::tie(a.bytes, b.span, b.rank);
    });
    std::vector<int> rank_of(as_size(ranks), -1);
    std::vector<bool> taken(as_size(ranks), false);
    auto const give = [&](int span, int rank) {
        if (rank_of[as_size(span)] >= 0 || taken[as_size(rank)]) return;
        rank_of[as_size(span)] = rank;
        taken[as_size(rank)] = true;
    };
    for (SpanAffinity const& wish : wishes) give(wish.span, wish.rank);
    for (int r = 0; r < ranks; ++r) give(r, r);
    int next = 0;
    for (int& rank : rank_of) {
        if (rank >= 0) continue;
        while (taken[as_size(next)]) ++next;
        rank = next++;
    }
    return rank_of;
}

/// For each span the rank that reads it. \pre schedule.pieces name spans as readers
[[nodiscard]] inline std::vector<int> readers_of_spans(ReadSchedule const& schedule, Catalogue const& catalogue,
                                                       std::span<WantedExtent const> wanted,
                                                       std::span<LocalTensor const> targets, int ranks) {
    constexpr int most_holders = 8;  // of the middle of a piece: enough to find one that is free
    // Rank numbers of a save of another size say nothing.
    bool const same_world = catalogue.manifest().world_size == ranks;
    using ByPlace = std::map<std::pair<int, int>, Index>;  // of a span and a rank
    ByPlace written;
    ByPlace needed;
    Needs scratch;
    for (Piece const& piece : schedule.pieces) {
        WantedExtent const& extent = wanted[piece.wanted];
        int const writer = catalogue.files()[as_size(extent.file)].writer;
        if (same_world && writer >= 0 && writer < ranks) {
            written[{piece.reader, writer}] += piece.bytes;
            continue;
        }
        Box middle;
        for (int dim = 0; dim < piece.box.rank(); ++dim) {
            Index const at = piece.box.begin(dim) + piece.box.extent(dim) / 2;
            middle.push_back({at, at + 1});
        }
        int holders = 0;
        for_each_wanting(wanted, piece, [&](WantedExtent const& one) {
            LocalTensor const& target = targets[one.target];
            if (holders == most_holders) return;
            for_each_needing(one, middle, target, [&](Index rank) {
                needed[{piece.reader, static_cast<int>(rank)}] += needed_bytes(piece.box, one, target, rank, scratch);
                return ++holders < most_holders;
            });
        });
    }
    std::vector<SpanAffinity> wishes;
    Index most_needed = 0;
    for (auto const& [place, bytes] : needed) {
        wishes.push_back({bytes, place.first, place.second});
        most_needed = larger(most_needed, bytes);
    }
    // What was written counts before what is needed, whatever its size.
    for (auto const& [place, bytes] : written) wishes.push_back({bytes + most_needed, place.first, place.second});
    return assign_spans(std::move(wishes), ranks);
}

/// What readers read who pass it on: the root all of it; or all ranks equal spans, each by the rank that has most to do
/// with it.
/// \pre `wanted` is sorted by (file, begin)
[[nodiscard]] inline ReadSchedule schedule_of(Catalogue const& catalogue, std::span<WantedExtent const> wanted,
                                              std::span<LocalTensor const> targets, int ranks, LoadTerms const& terms) {
    if (terms.spread != Spread::exchange) return spans_read(wanted, 1, terms.window_bytes, terms.root);
    if (terms.chooser == nullptr) return {};  // each rank reads for itself
    ReadSchedule schedule = spans_read(wanted, ranks, terms.window_bytes);
    std::vector<int> const rank_of = readers_of_spans(schedule, catalogue, wanted, targets, ranks);
    for (Piece& piece : schedule.pieces) piece.reader = rank_of[as_size(piece.reader)];
    sort_by_window(schedule);
    return schedule;
}

/// One rank's share of a load, read directly and read together.
struct LoadShare {
    Index direct_bytes = 0;  ///< read
    Index direct_reads = 0;
    Index span_bytes = 0;      ///< read of its part of a schedule
    Index received_bytes = 0;  ///< from other ranks
};

/// The share of one rank. `direct` is what it would read by itself.
[[nodiscard]] inline LoadShare share_of(ReadTotals const& direct, ReadSchedule const& schedule,
                                        std::span<WantedExtent const> wanted, std::span<LocalTensor const> targets,
                                        int rank) {
    LoadShare share{direct.bytes_read, direct.reads, 0, direct.bytes_wanted};
    Needs scratch;
    for (Piece const& piece : schedule.pieces) {
        if (piece.reader != rank) continue;
        share.span_bytes += piece.bytes;
        for_each_wanting(wanted, piece, [&](WantedExtent const& one) {
            share.received_bytes -= needed_bytes(piece.box, one, targets[one.target], rank, scratch);
        });
    }
    return share;
}

/// Seconds of reading: the storage serves all ranks together, and each only so fast.
[[nodiscard]] inline double reading_seconds(Index all, Index most, LoadModel const& model) noexcept {
    return larger(static_cast<double>(all) / model.storage_bandwidth, static_cast<double>(most) / model.rank_bandwidth);
}
[[nodiscard]] inline double direct_seconds(Index all, Index most, Index most_reads, int in_flight,
                                           LoadModel const& model) noexcept {
    return reading_seconds(all, most, model) + static_cast<double>(most_reads) * model.read_latency / in_flight;
}
/// `passed` is what the busiest rank sends or receives.
[[nodiscard]] inline double staged_seconds(Index all, Index most, Index windows, Index passed,
                                           LoadModel const& model) noexcept {
    return reading_seconds(all, most, model) +
           static_cast<double>(windows) * (model.read_latency + model.exchange_latency) +
           static_cast<double>(passed) / model.exchange_bandwidth + static_cast<double>(most) / model.copy_bandwidth;
}

/// Whether reading together is faster than reading directly.
[[nodiscard]] inline bool exchange_pays(std::span<LoadShare const> shares, Index windows, int in_flight,
                                        LoadModel const& model) noexcept {
    LoadShare sum;
    LoadShare most;
    for (LoadShare const& share : shares) {
        sum.direct_bytes += share.direct_bytes;
        sum.span_bytes += share.span_bytes;
        most.direct_bytes = larger(most.direct_bytes, share.direct_bytes);
        most.direct_reads = larger(most.direct_reads, share.direct_reads);
        most.span_bytes = larger(most.span_bytes, share.span_bytes);
        most.received_bytes = larger(most.received_bytes, share.received_bytes);
    }
    return staged_seconds(sum.span_bytes, most.span_bytes, windows, most.received_bytes, model) <
           direct_seconds(sum.direct_bytes, most.direct_bytes, most.direct_reads, in_flight, model);
}

}  // namespace reshard::inline v0_1::detail
