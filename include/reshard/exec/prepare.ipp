// SPDX-License-Identifier: Apache-2.0
// How exec/prepare.hpp is done.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/exec/detail/batch_job.hpp>
#include <reshard/exec/detail/prepare_check.hpp>
#include <reshard/exec/prepare.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE Index workspace_bytes(Plan<> const& plan, Index rank, DType dtype, PrepareOptions const& options) {
    bool const changes = options.cast || options.factor != 1.0;
    Index const elements =
        detail::workspace_of(detail::changed_steps(detail::steps_of(plan.value()), changes), plan.from(), rank);
    return detail::padded_bytes(elements, dtype);
}

namespace detail {

/// A rank's own work. If it fails, the others must not wait for what would have followed.
template <class Body>
void step(CommunicatorRef comm, Body&& body) {
    watched(body, [&](ErrorCode code, std::string_view why) noexcept { comm.abort(code, why); });
}

}  // namespace detail

RESHARD_INLINE RunRequest::RunRequest(CommunicatorRef comm, detail::BatchJob const& job) : comm_(comm), job_(&job) {
    detail::step(comm, [&] { job.begin(); });
    start_phase(job);
}
RESHARD_INLINE RunRequest::RunRequest(RunRequest&& other) noexcept
    : comm_(other.comm_),
      job_(std::exchange(other.job_, nullptr)),
      request_(std::move(other.request_)),
      phase_(other.phase_) {}
RESHARD_INLINE RunRequest::~RunRequest() {
    detail::quietly([&] { wait(); });
}
RESHARD_INLINE void RunRequest::wait() {
    if (job_ == nullptr) return;
    detail::BatchJob const& job = *std::exchange(job_, nullptr);  // a failed wait is not repeated
    while (phase_ < job.phases()) {
        request_.wait();
        detail::step(comm_, [&] { job.after(phase_); });
        ++phase_;
        start_phase(job);
    }
}
RESHARD_INLINE void RunRequest::start_phase(detail::BatchJob const& job) {
    if (phase_ >= job.phases()) return;
    // The cast is for nvcc 13, to which an assignment alone drops a request.
    static_cast<void>(request_ = comm_.exchange(job.exchange(phase_).sends, job.exchange(phase_).receives));
}

RESHARD_INLINE PreparedPlan::~PreparedPlan() { delete job_; }
RESHARD_INLINE void PreparedPlan::run() { RunRequest(comm_, *job_).wait(); }
RESHARD_INLINE RunRequest PreparedPlan::start() & { return {comm_, *job_}; }

RESHARD_INLINE PreparedPlan detail::prepare_with(HostMemory const& host, PlanValue const& plan, CommunicatorRef comm,
                                                 ConstDynamicView const& source, DynamicView const& destination,
                                                 PrepareOptions const& options, Verdict const& found) {
    int const rank = comm.rank();
    ValueChange change;
    BatchJob* made = nullptr;
    Verdict verdict = verdict_of([&] {
        Steps const planned = steps_of(plan);
        change = value_change(plan, planned, rank, source, destination, options, host.convert);
        check_arguments(plan, planned, rank, comm.size(), source, destination, change, options.cast);
        if (!found.ok()) raise(found.code, found.reason);
        MemoryPolicy const& memory = memory_of(comm, host);
        check_memory(comm, memory, plan, source, destination);
        Steps const steps = changed_steps(planned, change.is_active());
        check_work(memory, plan, steps, change);
        Index const needed = padded_bytes(workspace_of(steps, plan.from, rank), change.from);
        Workspace own;
        std::span<std::byte> const workspace = workspace_for(
            comm, memory, options.workspace, needed, own, "plan",
            change.is_active() ? "workspace_bytes(plan, rank, dtype, options)" : "workspace_bytes(plan, rank, dtype)");
        std::vector<Job> jobs;
        jobs.emplace_back(plan, steps, rank, source, destination, workspace, change, memory);
        BatchJob::Rounds rounds;
        if (steps.kind == Kind::collective) rounds.push_back({0});
        made = new BatchJob(std::move(jobs), rounds, std::move(own));
    });
    PreparedPlan prepared(comm, made);
    Digest digest;
    digest.add(hash_of(plan)).add(static_cast<std::uint64_t>(change.from));
    if (change.is_active()) {
        digest.add(static_cast<std::uint64_t>(change.to)).add(__builtin_bit_cast(std::uint64_t, options.factor));
    }
    verdict.digest = digest.value();
    if (verdict.ok()) {  // what the others show should this rank be the one that differs
        verdict.reason =
            concat("prepared ", to_string(plan.from), " -> ", to_string(plan.to), " of ", to_string(plan.from.shape()),
                   " ", name(change.from), change_text(change, options.factor));
    }
    agree_or_raise(comm, std::move(verdict));
    return prepared;
}

RESHARD_INLINE PreparedPlan prepare(Plan<> const& plan, CommunicatorRef comm, ConstDynamicView const& source,
                                    DynamicView const& destination, PrepareOptions const& options) {
    return detail::prepare_with(host_memory(), plan.value(), comm, source, destination, options);
}

}  // namespace reshard::inline v0
