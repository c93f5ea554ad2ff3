// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/consolidate_options.hpp
/// \brief  How files are rewritten: element types, sizes of files, memory, checksums; and what came of it.
/// \depends algebra/distribution, checkpoint/{load_strategy,manifest,safetensors_layout,save_options}. No I/O.
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/checkpoint/save_options.hpp>

#include <functional>  // function

namespace reshard::inline v0_1 {

/// What all ways of rewriting files have in common. Those of the first group must be the same on every rank.
struct RewriteOptions {
    /// The element type that a tensor is written with; none: its own. Values are rounded once, to nearest, ties to even
    /// (memory/convert.hpp). See floats_as().
    std::function<DType(StoredTensor const&)> dtype{};
    /// (name, other name): tensors that are written under another name, and so named in all other options. `layers.*`
    /// to `blocks.*` is about all names that begin so; of several that fit the first counts, and each must fit one
    /// tensor. A managed-collision table goes by another name where all of its tensors do; some alone are refused.
    std::vector<std::pair<std::string, std::string>> rename{};
    /// Texts for the `__metadata__` of each file; those of the save that is read come along where no name is twice. As
    /// it is here, whole files that all have another format than pt are consolidated into files of that format.
    Metadata metadata = default_metadata();
    /// Which copy is taken of a tensor whose copies were saved apart. -1: any, if they are cut alike and their
    /// checksums do not tell them apart, or there are none; 0 and up: that one, or its remainder where there are fewer.
    int replica = -1;
    bool verify_checksums = true;  ///< what is read is compared with the sums that the manifest has
    bool checksums = true;         ///< what is written is summed up (CRC-32C)
    bool durable = true;           ///< files and folder are synced; without, a power cut may leave files without bytes
    /// Bytes that each rank writes between two votes: who fails is heard by all after so many. (Ranks wait for each
    /// other only there, so a deadline must leave time for this much.)
    Index vote_bytes = Index{256} << 20;

    // What follows is each rank's own matter.
    Index window_bytes = Index{32} << 20;  ///< memory for bytes in flight, of all threads of this rank together
    /// Pieces at once: threads of this call, its own among them (1: no others). File systems of one machine let one
    /// write at a time into a file, and who waits spins: there, more ranks are better than more threads of one. File
    /// systems over a network may want several.
    int in_flight = 1;
    /// Called with the bytes that this rank has written, and all that it writes, from the threads that write (one at a
    /// time, ascending). What it throws fails the call, on all ranks.
    std::function<void(Index done, Index total)> progress{};
};

namespace detail {
/// Whether that is the name, where each `*` of the pattern stands for any text.
[[nodiscard]] inline bool fits_name(std::string_view pattern, std::string_view name) noexcept {
    std::size_t at = 0;  // in the pattern
    std::size_t star = pattern.npos;
    std::size_t taken = 0;  // how far the name is behind what the last star stands for
    for (std::size_t i = 0; i < name.size();) {
        if (at < pattern.size() && pattern[at] == '*') {
            star = at++;
            taken = i;
        } else if (at < pattern.size() && pattern[at] == name[i]) {
            ++at;
            ++i;
        } else if (star != pattern.npos) {  // it stands for one letter more; those before it need not
            at = star + 1;
            i = ++taken;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', at) == pattern.npos;
}
}  // namespace detail

/// Casts tensors of F16, BF16, F32 and F64 and leaves all others, and those that `kept` names: scales of quantised
/// weights, by "*.weight_scale_inv" (`*` stands for any text). For RewriteOptions::dtype.
[[nodiscard]] inline std::function<DType(StoredTensor const&)> floats_as(DType dtype,
                                                                         std::vector<std::string> kept = {}) {
    return [dtype, kept = std::move(kept)](StoredTensor const& tensor) {
        for (std::string const& pattern : kept)
            if (detail::fits_name(pattern, tensor.name)) return tensor.dtype;
        return is_floating(tensor.dtype) ? dtype : tensor.dtype;
    };
}

struct ConsolidateOptions : RewriteOptions {
    /// A file takes tensors until the next one would exceed this; a larger tensor has a file of its own. 0: one file.
    Index max_file_bytes = default_max_file_bytes;
    /// (tensor, file): where each tensor goes, as the weight_map of an index says; empty: by max_file_bytes. See
    /// read_weight_map().
    std::vector<std::pair<std::string, std::string>> weight_map{};
    /// Leaves the checksums of what is written beside it, in `reshard.manifest.json`, as save() does: this library then
    /// opens the folder by it, and loads, verify_checkpoint() and later rewrites compare. Others do not look at it.
    bool manifest = false;
};

/// How the files that ranks of a mesh would save are written.
struct ShardOptions : RewriteOptions {
    SaveDedup dedup = SaveDedup::balanced;  ///< which of the ranks that hold the same bytes has them in its file
    std::vector<int> replica_axes{};        ///< mesh axes along which copies are written apart: see SaveOptions
};

/// How a tensor of a checkpoint is to be distributed; mesh and placements must fit its shape.
using PlaceTensor = std::function<DynamicDistribution(StoredTensor const&)>;

/// What one rank will do. Reads and runs are exact: read_boxes() and the writer do just these.
struct RewriteShare {
    Index begin = 0;  ///< of all bytes that are written, in the order of the files
    Index end = 0;
    Index reads = 0;
    Index bytes_read = 0;
    Index runs = 0;  ///< runs of files that are written
    Index files_read = 0;
    Index files_written = 0;
    [[nodiscard]] Index bytes() const noexcept { return end - begin; }
    friend bool operator==(RewriteShare const&, RewriteShare const&) = default;
};

/// What rewriting files came to.
struct RewriteReport {
    CheckpointKind kind = CheckpointKind::file;  ///< of what was read
    Manifest written;         ///< the files that are there now, with a checksum for each extent (the same on all ranks)
    Index bytes_total = 0;    ///< of tensors, written by all ranks together
    Index bytes_written = 0;  ///< of tensors, by this rank
    Index writes = 0;         ///< by this rank
    Index reads = 0;          ///< by this rank
    Index bytes_read = 0;     ///< by this rank
    Index bytes_verified = 0;  ///< by all ranks: as they were saved. What two of them read counts twice
    Index files_opened = 0;    ///< by this rank: to read from and to write to
    /// Files that made room (the same on all ranks): of a run that was killed while it gave files their names.
    std::vector<std::string> left_over{};
    /// Files that were read, with tensors that their index does not name: these are not written; or with metadata that
    /// contradict those of a file before, which are (the same on all ranks).
    std::vector<CheckpointFile> unlisted{};
    Collectives collectives;
    Index extra_bytes = 0;  ///< memory of this rank for bytes in flight
    double seconds = 0;
};

}  // namespace reshard::inline v0_1
