// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_choice.hpp
/// \brief  What reading directly and reading together would take, by the model: how CooperativeRead chooses.
/// \depends checkpoint/detail/load_staged.hpp. No I/O, no communication.
#pragma once

#include <reshard/checkpoint/detail/load_staged.hpp>

namespace reshard::inline v0::detail {

/// Throw MeshError and BufferError for what no load can be asked.
inline void check_source(int source, int ranks) {
    if (source >= 0 && source < ranks) return;
    raise(ErrorCode::mesh,
          concat("reshard::load: source rank ", source, " of ", ranks, " ranks. Fix: ranks count from 0."));
}
inline void check_window(Index window_bytes) {
    if (window_bytes >= 0) return;
    raise(ErrorCode::buffer, concat("reshard::load: windows of ", window_bytes, " bytes. Fix: use 0 or more."));
}

[[nodiscard]] inline Spread spread_of(OneReader const& strategy) noexcept {
    return strategy.scatters ? Spread::scatter : Spread::broadcast;
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
        WantedExtent const& extent = wanted[piece.wanted];
        share.span_bytes += piece.bytes;
        share.received_bytes -= needed_bytes(piece.box, extent, targets[extent.target].distribution, rank, scratch);
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

}  // namespace reshard::inline v0::detail
