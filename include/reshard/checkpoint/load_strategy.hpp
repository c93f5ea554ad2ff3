// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/load_strategy.hpp
/// \brief  The ways to load a checkpoint, as types that say what they need, and what a load reports,
///         or a dry run of one.
/// \depends checkpoint/{read_options,tensor_info}.hpp, comm/communicator.hpp. No I/O.
#pragma once

#include <reshard/checkpoint/read_options.hpp>
#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/comm/communicator.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// Bytes that a reader holds at once. Large enough for messages that pay, small enough for any host.
inline constexpr Index default_window_bytes = Index{32} << 20;

/// What a load compares with the checksums that extents were saved with: one of each block (1 MiB; all of a smaller
/// extent).
enum class Checksums : int {
    none,            ///< nothing
    whole_blocks,    ///< blocks that lie whole in what is read anyway: on more ranks than saved perhaps none
    touched_blocks,  ///< every block that has something of what is loaded: what else is in it is read, and not kept
};

/// What all strategies do alike.
struct LoadOptions {
    /// Of a tensor that was saved in k replicas a rank reads replica (c mod k), where c is its place along those of
    /// these axes of the target mesh that the target is R on, row-major: name the axes along which copies were saved
    /// apart (SaveOptions::replica_axes). So another number of ranks loads as well. Empty: the axis of more than one
    /// rank that it is R on; MismatchError where there are several. Ranks of targets without such an axis read
    /// replica 0.
    std::vector<int> replica_axes{};
    /// What is compared as it is read. Tensors that are read in staging memory are in any case compared whole; who
    /// reads directly, or asks for boxes of larger tensors, has parts of blocks. LoadReport::bytes_verified says how
    /// many bytes were compared. (An extent of more than a block that has one sum is compared where all of it is
    /// loaded.)
    Checksums verify_checksums = Checksums::whole_blocks;
    /// (name in the checkpoint, name in the list): tensors that the program calls otherwise. `model.layers.*` to
    /// `blocks.*` is about all that begin so; the first that fits counts, and a name that none fits is that of the
    /// file; what fits no name of the list is ignored. FormatError (DuplicateKey) for two tensors that are renamed
    /// to it by whole names.
    std::vector<std::pair<std::string, std::string>> rename{};
};

/// Every rank has the file and reads its own part of it. Nothing is sent, so there is no communicator to pass, and a
/// scatter of what every rank has already cannot be written. It cannot agree either: a rank that fails throws alone
/// (agree_loaded() tells the others). Memory beyond the local tensors: the scratch of the reads.
struct EveryRankReads {
    static constexpr std::string_view name = "every rank reads";
    static constexpr bool communicates = false;
    ReadOptions reads{};
    LoadOptions options{};
};

/// How the rank that reads passes on what it has read.
struct Scatter {
    static constexpr std::string_view name = "one rank reads, scatter";
};
struct Broadcast {
    static constexpr std::string_view name = "one rank reads, broadcast";
};

/// One rank has the files. It goes through them in windows and passes each on: with Scatter every rank gets what it
/// needs of it, with Broadcast all of it, and keeps its part. Memory beyond the local tensors: one window, on the
/// root (Scatter) or on every rank (Broadcast).
template <class How = Scatter>
struct OneRankReads {
    static constexpr std::string_view name = How::name;
    static constexpr bool communicates = true;
    int root = 0;  ///< a rank of the communicator
    /// Tensors share a window while they fit, up to 512; a larger one is read in slices of at most this, or of one
    /// element. 0: every tensor has windows of its own, as if it were loaded alone, and is not cut.
    Index window_bytes = default_window_bytes;
    ReadOptions reads{};
    LoadOptions options{};
};

/// Every rank has the files and reads what it needs, and what it compares, in few large reads, several in flight. Like
/// EveryRankReads, but the ranks agree: an error of one is the error of all. Memory beyond the local tensors: the
/// scratch of the reads.
struct EachRankReadsItsBoxes {
    static constexpr std::string_view name = "each rank reads its boxes";
    static constexpr bool communicates = true;
    ReadOptions reads{};
    LoadOptions options{};
};

/// What reads and exchanges cost, for the choice that CooperativeRead makes. Measure yours; these are a file system
/// that ranks share over a network.
struct LoadModel {
    double storage_bandwidth = 4e9;   ///< bytes a second that the storage gives to all ranks together
    double rank_bandwidth = 2e9;      ///< bytes a second that one rank gets from it
    double read_latency = 1e-4;       ///< seconds of one read; several are in flight
    double exchange_bandwidth = 8e9;  ///< bytes a second that one rank receives
    double exchange_latency = 5e-5;   ///< seconds of one exchange
    double copy_bandwidth = 5e9;      ///< bytes a second that one rank copies: what is staged is copied once more
};
/// Whether CooperativeRead exchanges: as the model says, always, or never.
enum class Cooperation : int { by_model, always, never };

/// Together, every wanted byte is read once: each rank reads one contiguous span of the files, in windows, and the
/// ranks exchange what they have read. Spans are equal but for 5%; a rank reads the span of which it wrote, or else
/// needs, most. Falls back to reading directly when the model says that this is faster. Every rank has the files.
/// Memory beyond the local tensors: one window.
struct CooperativeRead {
    static constexpr std::string_view name = "cooperative read";
    static constexpr bool communicates = true;
    Index window_bytes = default_window_bytes;  ///< as in OneRankReads
    ReadOptions reads{};
    Cooperation cooperation = Cooperation::by_model;
    LoadModel model{};
    LoadOptions options{};
};

/// Collective calls, by kind. The payload of a scatter, a broadcast or an exchange is what Traffic counts.
struct Collectives {
    Index scatters = 0;
    Index broadcasts = 0;
    Index exchanges = 0;
    Index agreements = 0;
    friend constexpr bool operator==(Collectives const&, Collectives const&) = default;
};
/// `3 scatters, 2 broadcasts, 6 agreements`; `none`.
[[nodiscard]] std::string to_string(Collectives const& collectives);
/// What a load comes to: on one rank that has loaded, or of all ranks, as forecast_load() says.
struct LoadFigures {
    std::string_view strategy;
    Index tensors = 0;
    Index bytes_loaded = 0;  ///< of the local tensors, without identities
    Index bytes_read = 0;    ///< from files, gaps and the rest of blocks that are read along included
    Index reads = 0;
    Index files_opened = 0;      ///< for their data: once for each rank that does
    Index lists_opened = 0;      ///< manifest, index, and files whose headers are read for the list of tensors
    Index bytes_verified = 0;    ///< of bytes_read, compared with a checksum; the rest is taken as it is
    Collectives collectives;     ///< the same on every rank
    Index extra_bytes = 0;       ///< largest memory of a rank beyond its local tensors: staging, scratch
    bool read_directly = false;  ///< no tensor crosses ranks
    /// Tensors of the checkpoint that the list does not name, sorted, those of tables included: a model that should
    /// have all of them has forgotten these.
    std::vector<std::string> not_listed;
    double seconds = 0;  ///< of a forecast by the LoadModel
};

/// What one rank did to load its tensors.
struct LoadReport : LoadFigures {
    Traffic traffic;                 ///< catalogue included
    std::uint64_t files_digest = 0;  ///< a digest of what is where: Catalogue::digest()
    /// The id of the save; empty: of others' files. MchCheckpoint::open(folder, comm, save_id) has tables of the same.
    std::string save_id;
    Metadata metadata;  ///< SaveOptions::metadata of that save, sorted by key; of others' files what the first has
};
/// A line for each thing that it counts, in the order of explain(LoadForecast).
[[nodiscard]] std::string explain(LoadReport const& report);

/// What all ranks together would do, as forecast_load() says. Bytes, unless it says otherwise.
struct LoadForecast : LoadFigures {
    int ranks = 0;
    Index bytes_passed = 0;   ///< of tensors that collectives deliver to ranks, the rank that sends them included
    Index bytes_on_wire = 0;  ///< of these, what crosses ranks
    Index messages = 0;       ///< that carry them: one from a rank to another for each window that has something for it
    Index bytes_of_lists = 0;   ///< cross ranks besides: lists of tensors, figures for a choice, sums of parts
    Index bytes_in_files = 0;   ///< of the rows, or touched blocks, that somebody reads, each counted once
    Index most_bytes_read = 0;  ///< by one rank
    Index most_reads = 0;       ///< of one rank
};

namespace detail {

/// Whether it is (name, other name), or `prefix*` to `other*`, which is about all that begin so. Of several the first
/// that fits counts.
[[nodiscard]] inline bool is_rename(std::pair<std::string, std::string> const& rename) noexcept {
    auto const& [name, other] = rename;
    if (name.empty() || other.empty() || name.ends_with('*') != other.ends_with('*')) return false;
    return name.find('*') >= name.size() - 1 && other.find('*') >= other.size() - 1;  // nowhere, or behind
}
inline constexpr std::string_view rename_fix =
    ". Fix: name two tensors, or two beginnings of names with '*' behind each.";

/// The other name; false where `name` is not what the rename is about. \pre is_rename()
[[nodiscard]] inline bool rename_to(std::string_view from, std::string_view other, std::string_view name,
                                    std::string& to) {
    if (from == name) {
        to = other;
        return true;
    }
    if (!from.ends_with('*') || !name.starts_with(from.substr(0, from.size() - 1))) return false;
    to = other.substr(0, other.size() - 1);
    to += name.substr(from.size() - 1);
    return true;
}

/// How a window reaches who needs it.
enum class Spread : int { scatter, broadcast, exchange };

/// A strategy as values. \pre it outlives them.
struct LoadTerms {
    std::string_view strategy;
    bool communicates;
    ReadOptions const& reads;
    LoadOptions const& options;
    Cooperation cooperation = Cooperation::never;  ///< whether readers pass on what they read
    int root = 0;                                  ///< who looks at the path
    Index window_bytes = 0;
    Spread spread = Spread::exchange;
    CooperativeRead const* chooser = nullptr;  ///< what the choice depends on, where there is one
};
template <class Strategy>
[[nodiscard]] LoadTerms terms_of(Strategy const& strategy) noexcept {
    return {Strategy::name, Strategy::communicates, strategy.reads, strategy.options};
}
template <class How>
[[nodiscard]] LoadTerms terms_of(OneRankReads<How> const& one) noexcept {
    Spread const spread = std::is_same_v<How, Scatter> ? Spread::scatter : Spread::broadcast;
    return {How::name, true, one.reads, one.options, Cooperation::always, one.root, one.window_bytes, spread};
}
[[nodiscard]] inline LoadTerms terms_of(CooperativeRead const& all) noexcept {
    return {all.name, true, all.reads, all.options, all.cooperation, 0, all.window_bytes, Spread::exchange, &all};
}

/// A line of a report: what is read, what else is `behind` it, how much of it is compared; and a line about tensors
/// that are not listed, where there are any.
[[nodiscard]] std::string reads_text(LoadFigures const& figures, std::string_view behind);
/// Two lines of a report.
[[nodiscard]] std::string traffic_text(Collectives const& collectives, Traffic const& traffic);

}  // namespace detail
}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/load_strategy.ipp>
#endif
