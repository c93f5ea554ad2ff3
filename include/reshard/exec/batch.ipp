// SPDX-License-Identifier: Apache-2.0
// How exec/batch.hpp is done.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/exec/detail/batch_check.hpp>
#include <reshard/exec/detail/batch_job.hpp>
#include <reshard/plan/batch.hpp>

namespace reshard::inline v0_1 {

namespace detail {

[[nodiscard]] inline RankSteps rank_steps(BatchTensor const& tensor, int rank, bool on_device) {
    PlanValue const plan = tensor.plan.value();
    return RankSteps({plan, rank, tensor.source, tensor.destination}, plan.steps(plan),
                     chunked(tensor.options, on_device), host_memory().convert);
}
/// What becomes of a tensor's values.
[[nodiscard]] inline ValueChange change_of(BatchTensor const& tensor, int rank) {
    return rank_steps(tensor, rank, false).change;
}

/// "tensor 17 'model.norm.weight'"
[[nodiscard]] inline std::string label(Batch const& batch, std::size_t i) {
    std::string const& name = batch.tensors()[i].name;
    return name.empty() ? concat("tensor ", i) : concat("tensor ", i, " '", name, "'");
}

/// \pre the element type has whole bytes. Throws BufferError for a tensor beyond options.max_workspace_bytes.
[[nodiscard]] inline planning::RoundLoad round_load(RankSteps const& mine, BatchOptions const& options) {
    if (mine.steps.kind != TransitionKind::collective) return {};
    bool const folds = mine.steps.find(planning::StepKind::fold) != nullptr;
    DType const moved = folds ? mine.change.from : mine.change.wire();
    planning::RoundLoad load{true, round_bytes(mine.steps, moved),
                             padded_bytes(largest_scratch(mine.steps), mine.change.from), scratch_bytes(mine)};
    note_owner(load, mine.steps, moved);
    if (load.workspace > options.max_workspace_bytes) {
        raise(ErrorCode::buffer, "reshard::prepare: its fold needs ", load.workspace,
              " bytes of scratch memory, but a round may use ", options.max_workspace_bytes,
              ". Fix: raise BatchOptions::max_workspace_bytes to ", load.workspace,
              ", or move this tensor to fewer ranks at a time.");
    }
    return load;
}

/// The rounds of a batch, as one rank needs scratch memory for them: they follow each other in the same memory.
struct Rounds {
    std::vector<std::vector<std::size_t>> tensors;
    std::vector<std::size_t> offsets;  ///< of each tensor's scratch memory
    Index workspace = 0;               ///< bytes, of the round that needs most

    Rounds(std::vector<planning::RoundLoad> const& loads, BatchOptions const& options)
        : tensors(planning::cut_into_rounds(loads, options.bucket_bytes, options.max_workspace_bytes)),
          offsets(loads.size(), 0) {
        for (auto const& round : tensors) {
            Index sum = 0;
            for (std::size_t i : round) offsets[i] = as_size(std::exchange(sum, sum + loads[i].scratch));
            workspace = larger(workspace, sum);
        }
    }
};
[[nodiscard]] inline Rounds rounds_of(Batch const& batch, int rank, BatchOptions const& options, bool on_device) {
    std::vector<planning::RoundLoad> loads;
    for (BatchTensor const& tensor : batch.tensors()) {
        loads.push_back(round_load(rank_steps(tensor, rank, on_device), options));
    }
    return Rounds(loads, options);
}

inline void check_options(BatchOptions const& options) {
    if (options.bucket_bytes >= 0 && options.max_workspace_bytes >= 0) return;
    raise(ErrorCode::buffer, "reshard::prepare: BatchOptions::bucket_bytes is ", options.bucket_bytes,
          ", max_workspace_bytes ", options.max_workspace_bytes, ". Fix: no size is negative.");
}

/// Writer and reader, or two writers, of the same memory. `steps`: of each tensor.
inline void check_clashes(Batch const& batch, int rank, std::span<RankSteps const> steps) {
    std::vector<ViewUse> uses;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].gives() && !is_in_place(steps[i])) uses.push_back({steps[i].source, i, false});
        if (steps[i].takes()) uses.push_back({steps[i].destination, i, true});
    }
    Clash const clash = find_clash(uses);
    if (clash.writer == clash.other) return;
    raise(ErrorCode::buffer, "reshard::prepare: on rank ", rank, " the destination of ", label(batch, clash.writer),
          " overlaps the ", clash.reads ? "source" : "destination", " of ", label(batch, clash.other),
          ". Fix: give each its own memory; what one tensor writes and another reads goes into two batches.");
}

/// What this rank brings to the agreement.
[[nodiscard]] inline BatchDigest digest_of(Batch const& batch, int rank, BatchOptions const& options) {
    BatchDigest result;
    result.options = Digest{}.add_signed(options.bucket_bytes).add_signed(options.max_workspace_bytes).value();
    result.tensors.reserve(batch.size());
    for (BatchTensor const& tensor : batch.tensors()) {
        Digest words;
        digest(words, tensor.plan.value(), change_of(tensor, rank), tensor.options);
        result.tensors.push_back(words.add_text(tensor.name).value());
    }
    return result;
}

/// Completes "rank 3 ... , but rank 0 ...".
[[nodiscard]] inline std::string describe(Batch const& batch, Index place, int rank, BatchOptions const& options) {
    if (place < 0) {
        return concat("prepared a batch with bucket_bytes ", options.bucket_bytes, " and max_workspace_bytes ",
                      options.max_workspace_bytes);
    }
    auto const i = as_size(place);
    if (i >= batch.size()) return concat("prepared a batch of ", batch.size(), " tensors, without a tensor ", place);
    BatchTensor const& tensor = batch.tensors()[i];
    return concat("prepared ", label(batch, i), " as ",
                  move_text(tensor.plan.value(), change_of(tensor, rank), tensor.options, rank));
}

}  // namespace detail

RESHARD_INLINE std::vector<std::vector<std::size_t>> rounds(Batch const& batch, int rank, BatchOptions const& options) {
    return detail::rounds_of(batch, rank, options, false).tensors;
}
RESHARD_INLINE std::vector<std::vector<std::size_t>> rounds(Batch const& batch, CommunicatorRef comm,
                                                            BatchOptions const& options) {
    return detail::rounds_of(batch, comm.rank(), options, detail::is_on_device(comm)).tensors;
}
RESHARD_INLINE Index workspace_bytes(Batch const& batch, int rank, BatchOptions const& options) {
    return detail::rounds_of(batch, rank, options, false).workspace;
}
RESHARD_INLINE Index workspace_bytes(Batch const& batch, CommunicatorRef comm, BatchOptions const& options) {
    return detail::rounds_of(batch, comm.rank(), options, detail::is_on_device(comm)).workspace;
}

RESHARD_INLINE detail::BatchJob* detail::bind_batch(Batch const& batch, CommunicatorRef comm,
                                                    BatchOptions const& options, std::size_t& current) {
    Means const means = all_means(host_memory());
    MemoryPolicy const& memory = memory_of(comm, means.host);
    int const rank = comm.rank();
    check_options(options);
    std::vector<RankSteps> steps;
    std::vector<planning::RoundLoad> loads;
    for (current = 0; current < batch.size(); ++current) {
        BatchTensor const& tensor = batch.tensors()[current];
        RankSteps const& mine = steps.emplace_back(rank_steps(tensor, rank, is_on_device(comm)));
        check_fold(tensor.options);
        check_arguments(means, memory, mine, comm.size(), tensor.options.cast);
        check_memory(comm, memory, mine);
        loads.push_back(round_load(mine, options));
    }
    check_clashes(batch, rank, steps);
    Rounds const rounds(loads, options);
    Workspace own;
    std::span<std::byte> const workspace = workspace_for(comm, memory, options.workspace, rounds.workspace, own,
                                                         "batch", "workspace_bytes(batch, comm, options)");
    std::vector<Job> jobs;
    jobs.reserve(batch.size());
    for (current = 0; current < batch.size(); ++current) {
        if (rounds.workspace != 0) check_apart(options.workspace, steps[current]);
        auto const needed = detail::as_size(loads[current].scratch);
        auto const part = workspace.subspan(needed == 0 ? 0 : rounds.offsets[current], needed);
        jobs.emplace_back(steps[current], part, memory, bind_work);
    }
    return new BatchJob(comm, std::move(jobs), rounds.tensors, std::move(own));
}

RESHARD_INLINE PreparedPlan prepare(Batch const& batch, CommunicatorRef comm, BatchOptions const& options) {
    int const rank = comm.rank();
    std::size_t current = batch.size();
    PreparedPlan prepared;
    detail::BatchDigest digest;
    transport::Verdict verdict = detail::verdict_of([&] {
        digest = detail::digest_of(batch, rank, options);
        prepared = PreparedPlan(detail::bind_batch(batch, comm, options, current));
    });
    if (!verdict.ok() && current < batch.size()) {  // without memory for the label it goes without
        static_cast<void>(detail::verdict_of(
            [&] { verdict.reason = errors::concat(detail::label(batch, current), ": ", verdict.reason); }));
    }
    verdict.call = "prepare(Batch)";
    detail::agree_on_batch(comm, std::move(verdict), digest,
                           [&](Index place) { return detail::describe(batch, place, rank, options); });
    return prepared;
}

}  // namespace reshard::inline v0_1
