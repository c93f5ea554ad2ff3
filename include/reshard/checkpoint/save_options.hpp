// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/save_options.hpp
/// \brief  How a checkpoint is saved: which rank writes which copy, how many writes at once, how durable; and what a
///         save did.
/// \depends checkpoint/{load_strategy,tensor_info}. No I/O.
#pragma once

#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/checkpoint/tensor_info.hpp>

#include <functional>  // function
#include <vector>      // vector

namespace reshard::inline v0_1 {

namespace enums {
/// Which of the ranks that hold the same bytes writes them.
enum class SaveDedup : std::uint8_t {
    lowest_rank,  ///< the lowest one: fewest files; ranks of one replica write everything
    balanced,     ///< whole shards, largest first, each by the rank that has least to write
    shared,       ///< the shards of a replica group laid end to end, cut into a share for each of its ranks
};
}  // namespace enums
using enums::SaveDedup;

namespace enums {
[[nodiscard]] constexpr std::string_view name(SaveDedup dedup) noexcept {
    return dedup == SaveDedup::lowest_rank ? "lowest_rank" : dedup == SaveDedup::balanced ? "balanced" : "shared";
}
}  // namespace enums

/// Those of the first group must be the same on every rank.
struct SaveOptions {
    SaveDedup dedup = SaveDedup::balanced;
    /// A rank's part of a tensor that is smaller than this is written by the lowest rank that holds it. Spread out,
    /// scalars and biases would make every rank open every file to load (pytorch/pytorch#125740), and balance nothing.
    Index small_bytes = Index{64} << 10;
    /// `shared` cuts no smaller slices. A slice costs an entry in a header and in the manifest, and a read: from 64 KiB
    /// on the read of a slice is worth its own call (ReadOptions::gap_bytes).
    Index min_slice_bytes = Index{64} << 10;
    /// Mesh axes along which copies are kept apart: each copy is saved, under the tensor's name and
    /// `.__tp_replica_{r}`, r being the flat coordinate along those of these axes that the tensor is replicated on. For
    /// copies that are not equal, or that must be read without going to other ranks' files. A tensor that is not
    /// replicated along them is saved once.
    std::vector<int> replica_axes{};
    Metadata metadata{};          ///< the caller's own, for the manifest; `mch.table.NAME` with tensors `NAME.*` only
    bool verify_replicas = true;  ///< copies are compared (128-bit hashes) before all but one are dropped
    bool durable = true;          ///< files and folder are synced; without, a power cut may leave files without bytes
    /// Ranks vote each time the one that writes most has written so many bytes: all hear then who has failed, and
    /// nobody waits longer than these bytes take. The deadline of the communicator has to allow for so many, not for
    /// the whole save.
    Index vote_bytes = Index{256} << 20;

    // What follows is each rank's own matter.
    /// Writes at once: threads of this call, its own among them (1: no others). A rank writes one file, and file
    /// systems of one machine let one write at a time into a file: more threads wait for its lock, busily. File systems
    /// over a network may want several.
    int in_flight = 1;
    /// Memory of all of them together for what does not lie in one run of memory, and for runs too short to be written
    /// alone.
    Index window_bytes = Index{4} << 20;
    /// start_save() only: memory that the bytes wait in until they are written. 0: enough for all of this rank's.
    Index snapshot_bytes = 0;
    /// Called with the bytes that this rank has written, and all that it writes, from the threads that write (one at a
    /// time, ascending). What it throws fails the save.
    std::function<void(Index done, Index total)> progress{};
};

/// What a save did, on one rank and on all.
struct SaveReport {
    std::string save_id;           ///< the id, in the names of the files
    Index tensors = 0;             ///< entries of the list: boxes of one larger tensor count each
    Index extents = 0;             ///< that this rank wrote
    Index bytes_written = 0;       ///< by this rank, header included
    Index files_opened = 0;        ///< by this rank: one for its data, and rank 0 one for the manifest
    Index bytes_saved = 0;         ///< of tensors, by all ranks together
    Index bytes_deduplicated = 0;  ///< that ranks hold and nobody had to write, because others hold them too
    Collectives collectives;
    Traffic traffic;
    Index extra_bytes = 0;       ///< memory of this rank beyond the tensors: buffers, or the snapshot
    double seconds = 0;          ///< from the call to the end of the save
    double seconds_blocked = 0;  ///< of these, in save(), start_save() and wait()
};
/// A line for each thing that it counts.
[[nodiscard]] std::string explain(SaveReport const& report);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/save_options.ipp>
#endif
