// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/verify_replicas.hpp
/// \brief  verify_replicas(): do all ranks that should hold the same bytes hold the same bytes? If not: who, where, and
/// by how much; and, if asked, make it so.
/// \depends exec/agree_tensors, checkpoint/detail/replica_*; links xxHash (reshard::verify).
///
/// Which ranks should agree follows from the placements: those that differ along Replicate axes only, whatever the
/// mesh. Ranks along Shard and Partial axes are never compared with each other. In the happy path every rank reads its
/// tensors once and sends 16 bytes per replica group it belongs to.
///
///     ReplicaReport const report = verify_replicas(tensors, comm, {.mode = VerifyMode::warn});
///     if (!report.equal() && comm.rank() == 0) std::puts(to_string(report).c_str());
#pragma once

#include <reshard/checkpoint/detail/replica_locate.hpp>
#include <reshard/checkpoint/detail/replica_repair.hpp>
#include <reshard/exec/agree_tensors.hpp>

namespace reshard::inline v0 {

/// What becomes of a difference.
enum class VerifyMode : std::uint8_t {
    error,   ///< MismatchError on every rank, with the report's text
    warn,    ///< the report is returned
    repair,  ///< the most common contents overwrite the others; the report says what was repaired
};

/// The same on every rank.
struct VerifyOptions {
    VerifyMode mode = VerifyMode::error;
    /// -0.0 and 0.0 are equal, and so are all NaNs. A repair leaves those bits alone where nothing else in a rank's
    /// part of a tensor differs.
    bool canonicalise = false;
    /// Repairs only, and only where no contents are the most common: the rank that is right. Where a tensor is cut as
    /// well, the shards of its replica are. -1: none.
    int source = -1;
    /// To find the first difference, tensors are hashed in blocks of so many bytes, and one block is sent.
    Index block_bytes = Index{1} << 20;
    /// Repairs move at most so many bytes of a rank's part of a tensor in one exchange.
    Index bucket_bytes = Index{16} << 20;
};

namespace detail {

[[nodiscard]] constexpr std::string_view name(VerifyMode mode) noexcept {
    return mode == VerifyMode::error ? "error" : mode == VerifyMode::warn ? "warn" : "repair";
}

inline void check_options(VerifyOptions const& options, int ranks) {
    if (options.source < -1 || options.source >= ranks) {
        raise(ErrorCode::mesh, concat("reshard::verify_replicas: source ", options.source, " of ", ranks,
                                      " ranks. Fix: name a rank of the communicator, or -1 for none."));
    }
    if (options.block_bytes < 1 || options.bucket_bytes < 1) {
        raise(ErrorCode::buffer,
              concat("reshard::verify_replicas: blocks of ", options.block_bytes, " bytes, buckets of ",
                     options.bucket_bytes, ". Fix: give both at least one byte."));
    }
}

[[nodiscard]] inline TensorTask task_of(VerifyOptions const& options) {
    Digest digest;
    digest.add(static_cast<std::uint64_t>(options.mode)).add(options.canonicalise ? 1U : 0U);
    digest.add_signed(options.source).add_signed(options.block_bytes).add_signed(options.bucket_bytes);
    return {"verify_replicas", "verifies", digest.value(),
            concat("with mode ", name(options.mode), ", canonicalise ", options.canonicalise ? "true" : "false",
                   ", source ", options.source, ", block_bytes ", options.block_bytes, ", bucket_bytes ",
                   options.bucket_bytes)};
}

}  // namespace detail

/// Collective over `comm`. Compares every tensor over exactly the ranks that should hold the same bytes of it; all
/// ranks get the same report. Ranks outside a tensor's mesh list it too: what they have of it is not looked at.
///
/// All ranks list the same tensors in the same order; this is agreed before anything is read. Nobody writes to them
/// until it returns. The contents that most ranks of a group hold are taken to be right and the other ranks are odd;
/// where two contents are equally common nobody is. Only VerifyMode::repair writes. Tensors may share memory (tied
/// weights) if they do on all ranks.
///
/// Throws, the same on every rank: MismatchError for differences under VerifyMode::error, for a tie that
/// VerifyOptions::source does not decide under VerifyMode::repair (nothing has been written then), and when ranks list
/// different tensors or options, naming the first; BufferError, naming tensor and rank, for a view that does not fit;
/// MeshError for ranks that do not exist; DTypeError for elements smaller than a byte. Also what the communicator
/// throws; a repair that was under way then leaves unspecified what it was to overwrite.
inline ReplicaReport verify_replicas(std::span<LocalTensor const> tensors, CommunicatorRef comm,
                                     VerifyOptions const& options = {}) {
    std::vector<detail::ReplicaHasher> hasher;
    agree_on_tensors(comm, tensors, detail::task_of(options), [&] {
        detail::check_options(options, comm.size());
        hasher.emplace_back(options.canonicalise);
    });

    ReplicaReport report;
    report.tensors = tensors.size();
    for (LocalTensor const& tensor : tensors) report.compared += detail::has_replicas(tensor.distribution) ? 1U : 0U;
    report.differences = detail::compare(comm, tensors, hasher.front());
    if (report.equal()) return report;
    detail::locate(comm, tensors, report.differences, hasher.front(), options.block_bytes);
    if (options.mode == VerifyMode::error) {
        raise(ErrorCode::mismatch, concat("reshard::verify_replicas: ", to_string(report),
                                          "\nFix: load or broadcast these tensors again, or pass VerifyMode::repair."));
    }
    if (options.mode == VerifyMode::repair) {
        ReplicaReport const found = report;
        std::string const undecided = detail::choose_sources(report.differences, tensors, options.source);
        if (!undecided.empty()) {
            raise(ErrorCode::mismatch, concat("reshard::verify_replicas: ", undecided, "\n", to_string(found)));
        }
        detail::repair(comm, tensors, std::span<ReplicaDifference const>(report.differences), options.bucket_bytes);
    }
    return report;
}

}  // namespace reshard::inline v0
