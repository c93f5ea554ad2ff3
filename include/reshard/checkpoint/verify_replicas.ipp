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

inline void check_options(VerifyReplicasOptions const& options, int ranks, bool may_write) {
    if (options.mode == VerifyMode::repair && !may_write) {
        raise(ErrorCode::buffer,
              "reshard::verify_replicas: VerifyMode::repair writes, and the tensors are const. Fix: ",
              "list them as LocalTensor, or pass VerifyMode::report.");
    }
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

inline ReplicaReport verify_replicas(std::span<LocalTensor const> tensors, CommunicatorRef comm,
                                     VerifyReplicasOptions const& options, bool may_write) {
    std::optional<ReplicaCheck> check;
    auto const task = [&] { return task_of(options); };
    agree_on_tensors(comm, tensors, task, [&] {
        check_options(options, comm.size(), may_write);
        for (std::size_t i = 0; options.mode == VerifyMode::repair && i < tensors.size(); ++i)
            check_written(tensors[i], comm.rank(), "verify_replicas");
        check.emplace(comm, tensors, options.canonicalise, options.block_bytes);
    });
    ReplicaReport report = check->run();
    if (report.equal() || options.mode == VerifyMode::report) return report;
    if (options.mode == VerifyMode::error) {
        raise_agreed(ErrorCode::mismatch,
                     concat("reshard::verify_replicas: ", explain(report),
                            "\nFix: load these tensors again, sync() them from a rank that is right, or pass "
                            "VerifyMode::repair."));
    }
    std::string undecided;
    agree_on_errors(
        comm,
        [&] {
            std::string const found = explain(report);
            undecided = choose_sources(report.differences, tensors, options.root);
            if (!undecided.empty()) undecided = concat("reshard::verify_replicas: ", undecided, "\n", found);
        },
        "verify_replicas");
    if (!undecided.empty()) raise_agreed(ErrorCode::mismatch, std::move(undecided));
    repair(comm, tensors, report.differences);
    return report;
}

}  // namespace detail

RESHARD_INLINE ReplicaReport verify_replicas(std::span<LocalTensor const> tensors, CommunicatorRef comm,
                                             VerifyReplicasOptions const& options) {
    return detail::verify_replicas(tensors, comm, options, true);
}
RESHARD_INLINE ReplicaReport verify_replicas(std::span<ConstLocalTensor const> tensors, CommunicatorRef comm,
                                             VerifyReplicasOptions const& options) {
    std::vector<LocalTensor> list;
    detail::attempt_before_agreement(comm, [&] { list = detail::only_read(tensors); });
    return detail::verify_replicas(list, comm, options, false);
}

}  // namespace reshard::inline v0_1
