// SPDX-License-Identifier: Apache-2.0
// How checkpoint/verify_replicas.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/replica_check.hpp>
#include <reshard/checkpoint/detail/replica_repair.hpp>
#include <reshard/checkpoint/read_options.hpp>
#include <reshard/checkpoint/verify_replicas.hpp>
#include <reshard/exec/agree_tensors.hpp>

#include <optional>  // optional

namespace reshard::inline v0_1 {

namespace detail {

[[nodiscard]] constexpr std::string_view name(VerifyMode mode) noexcept {
    return mode == VerifyMode::error ? "error" : mode == VerifyMode::report ? "report" : "repair";
}

inline void check_options(VerifyReplicasOptions const& options, int ranks) {
    if (options.root < -1 || options.root >= ranks) {
        raise(ErrorCode::mesh, "reshard::verify_replicas: root ", options.root, " of ", ranks,
              " ranks. Fix: name a rank of the communicator, or -1 for none.");
    }
    check_option("VerifyReplicasOptions", "block_bytes", options.block_bytes, 1, "megabytes are fast.");
}

[[nodiscard]] inline TensorTask task_of(VerifyReplicasOptions const& options) {
    return {"verify_replicas", "verifies",
            options_text({{"mode", name(options.mode)},
                          {"canonicalise", options.canonicalise},
                          {"root", options.root},
                          {"block_bytes", options.block_bytes}})};
}

}  // namespace detail

RESHARD_INLINE ReplicaReport verify_replicas(std::span<LocalTensor const> tensors, CommunicatorRef comm,
                                             VerifyReplicasOptions const& options) {
    std::optional<detail::ReplicaCheck> check;
    auto const task = [&] { return detail::task_of(options); };
    agree_on_tensors(comm, tensors, task, [&] {
        detail::check_options(options, comm.size());
        for (std::size_t i = 0; options.mode == VerifyMode::repair && i < tensors.size(); ++i)
            detail::check_written(tensors[i], comm.rank(), "verify_replicas");
        check.emplace(comm, tensors, options.canonicalise, options.block_bytes);
    });
    ReplicaReport report = check->run();
    if (report.equal() || options.mode == VerifyMode::report) return report;
    if (options.mode == VerifyMode::error) {
        errors::raise(ErrorCode::mismatch, "reshard::verify_replicas: ", explain(report),
                      "\nFix: load these tensors again, sync() them from a rank that is right, or pass "
                      "VerifyMode::repair.");
    }
    std::string undecided;
    agree_on_errors(comm, [&] {
        std::string const found = explain(report);
        undecided = detail::choose_sources(report.differences, tensors, options.root);
        if (!undecided.empty()) undecided = errors::concat("reshard::verify_replicas: ", undecided, "\n", found);
    });
    if (!undecided.empty()) errors::raise(ErrorCode::mismatch, std::move(undecided));
    detail::repair(comm, tensors, report.differences);
    return report;
}

}  // namespace reshard::inline v0_1
