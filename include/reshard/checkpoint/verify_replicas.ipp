// SPDX-License-Identifier: Apache-2.0
// How checkpoint/verify_replicas.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/replica_repair.hpp>
#include <reshard/checkpoint/verify_replicas.hpp>
#include <reshard/exec/agree_tensors.hpp>

namespace reshard::inline v0 {

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

RESHARD_INLINE ReplicaReport verify_replicas(std::span<LocalTensor const> tensors, CommunicatorRef comm,
                                             VerifyOptions const& options) {
    std::vector<detail::ReplicaHasher> hasher;
    detail::ReplicaComparison comparison;
    auto const task = [&] { return detail::task_of(options); };
    agree_on_tensors(comm, tensors, task, [&] {
        detail::check_options(options, comm.size());
        hasher.emplace_back(options.canonicalise, comm.memory());
        comparison = detail::ReplicaComparison(comm, tensors);
    });

    ReplicaReport report;
    report.tensors = tensors.size();
    for (LocalTensor const& tensor : tensors) report.compared += detail::has_replicas(tensor.distribution) ? 1U : 0U;
    report.differences = detail::compare(comm, tensors, hasher.front(), comparison);
    if (report.equal()) return report;
    detail::locate(comm, tensors, report.differences, hasher.front(), options.block_bytes);
    if (options.mode == VerifyMode::error) {
        raise(ErrorCode::mismatch, concat("reshard::verify_replicas: ", to_string(report),
                                          "\nFix: load or broadcast these tensors again, or pass VerifyMode::repair."));
    }
    if (options.mode == VerifyMode::repair) {
        std::string undecided;
        detail::TransferLists mail;
        detail::agree_or_raise(
            comm, detail::verdict_of([&] {
                ReplicaReport const found = report;
                undecided = detail::choose_sources(report.differences, tensors, options.source);
                if (!undecided.empty()) {
                    undecided = concat("reshard::verify_replicas: ", undecided, "\n", to_string(found));
                    return;
                }
                mail = detail::room_for_repair(comm.rank(), tensors, report.differences, options.bucket_bytes);
            }));
        if (!undecided.empty()) raise(ErrorCode::mismatch, std::move(undecided));
        detail::repair(comm, tensors, report.differences, options.bucket_bytes, mail);
    }
    return report;
}

}  // namespace reshard::inline v0
