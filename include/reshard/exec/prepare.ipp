// SPDX-License-Identifier: Apache-2.0
// How exec/prepare.hpp is done.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/exec/detail/batch_job.hpp>
#include <reshard/exec/detail/job_work.hpp>
#include <reshard/exec/detail/prepare_check.hpp>
#include <reshard/exec/prepare.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE Index workspace_bytes(Plan<> const& plan, Index rank, DType dtype, PrepareOptions const& options) {
    planning::Steps steps = plan.steps().folding(options.fold_elements);
    if (options.cast || options.factor != 1.0) steps.convert();
    return detail::padded_bytes(scratch_elements(steps, rank), dtype);
}

RESHARD_INLINE Index workspace_bytes(Plan<> const& plan, CommunicatorRef comm, DType dtype,
                                     PrepareOptions const& options) {
    return workspace_bytes(plan, comm.rank(), dtype, detail::chunked(options, detail::is_on_device(comm)));
}

RESHARD_INLINE bool detail::BatchJob::start() {
    if (runs_) {
        raise(ErrorCode::transport,
              "reshard::PreparedPlan: it is running. Fix: wait() for its request before it runs again.");
    }
    guarded([&, this] { detail::or_abort(over_, [&, this] { begin(); }); });
    if (phases() == 0) return false;
    phase_ = 0;
    guarded([&, this] { exchange(0).start(); });
    runs_over_it().add(*this);
    hold();
    return runs_ = true;
}
RESHARD_INLINE void detail::BatchJob::fail() noexcept {
    std::exception_ptr const failure = std::current_exception();
    failure_ = failure;
    phase_ = phases();
    for (Run* run = runs_over_it().first(); run != nullptr; run = run->later) {
        static_cast<BatchJob*>(run)->failure_ = failure;
    }
}
RESHARD_INLINE bool detail::BatchJob::test() {
    bool complete = false;
    watched([&, this] { guarded([&, this] { complete = exchange(phase_).test(); }); },
            [this](ErrorCode, std::string_view) noexcept {
                runs_over_it().remove(*this);
                fail();
                runs_ = false;
                failure_ = nullptr;  // who asks is told
            });
    return complete;
}
RESHARD_INLINE void detail::BatchJob::finish() noexcept {
    runs_over_it().remove(*this);
    auto const go_on = [&, this] {
        for (;;) {
            exchange(phase_).wait();
            detail::or_abort(over_, [&, this] { after(phase_); });
            if (++phase_ == phases()) return;
            exchange(phase_).start();
        }
    };
#if defined(__cpp_exceptions)
    if (failure_ != nullptr) {  // the others do not start what would follow
        failed_ = true;
        quietly([&, this] { exchange(phase_).wait(); });
        phase_ = phases();
        return;
    }
    try {
        guarded(go_on);
    } catch (...) {
        fail();
    }
#else
    guarded(go_on);
#endif
}
RESHARD_INLINE void detail::BatchJob::wait() {
    while (is_under_way()) static_cast<BatchJob*>(runs_over_it().first())->finish();
    runs_ = false;
    std::exception_ptr const failure = std::exchange(failure_, nullptr);
    release();
    if (failure != nullptr) std::rethrow_exception(failure);
}

RESHARD_INLINE RunRequest::RunRequest(detail::BatchJob& job) : job_(job.start() ? &job : nullptr) {}
RESHARD_INLINE RunRequest::~RunRequest() {
    detail::quietly([&] { wait(); });
}
RESHARD_INLINE void RunRequest::wait() {
    if (job_ != nullptr) std::exchange(job_, nullptr)->wait();
}
RESHARD_INLINE bool RunRequest::test() {
    if (job_ == nullptr || !job_->is_under_way()) return true;
    RunRequest run(std::move(*this));  // one that fails is over, and goes
    bool const complete = run.job_->test();
    std::swap(job_, run.job_);
    return complete;
}

RESHARD_INLINE PreparedPlan::~PreparedPlan() {
    if (job_ != nullptr) job_->release();
}
RESHARD_INLINE PreparedPlan PreparedPlan::shared() const noexcept {
    if (job_ != nullptr) job_->hold();
    return PreparedPlan(job_);
}
RESHARD_INLINE void PreparedPlan::run() { start().wait(); }
RESHARD_INLINE RunRequest PreparedPlan::start() & {
    if (job_ == nullptr) {
        errors::raise(
            ErrorCode::transport,
            "reshard::PreparedPlan: nothing was prepared, or it was moved from. Fix: start what prepare() has "
            "returned, or what that was moved to.");
    }
    return RunRequest(*job_);
}

RESHARD_INLINE void detail::bind_work(JobWork& work, RankSteps const& mine, planning::Step const& step,
                                      std::span<std::byte> scratch) {
    work.carry_out = carry_out;
    if (step.kind == planning::StepKind::fold) return;  // behind the exchange of its addends
    if (step.kind == planning::StepKind::exchange) {    // and so is the one that takes the result from there
        if (mine.steps.to(step).addends != 0) bind_fold(work, mine, step, aligned(scratch.data()));
        return;
    }
    work.steps.push_back({step.kind, work.phases(), 0, step.op, mine.change.to, step.multiply, step.divide});
    if (!mine.takes()) return;
    work.whole = box_transfer(mine.destination.data(), mine.change.to, mine.destination.strides(),
                              Box(mine.destination.shape()));
}

RESHARD_INLINE void detail::check_work(MemoryPolicy const& memory, RankSteps const& mine) {
    using planning::StepKind;
    bool const fills = mine.steps.find(StepKind::fill) != nullptr;
    bool const folds = mine.steps.find(StepKind::fold) != nullptr;
    check_ops("prepare", mine.steps, mine.change.from, mine.change.to, mine.change.averages);
    if (mine.change.is_active()) check_change(mine.plan, mine.change);
    bool const scales = mine.steps.find(StepKind::scale) != nullptr;
    bool const converts = mine.steps.converts && mine.steps.kind != TransitionKind::collective;
    if (memory.copies_only().empty() || (!fills && !folds && !scales && !converts)) return;
    raise(ErrorCode::transition, "reshard::prepare: ", brief(mine.plan.from), " -> ", brief(mine.plan.to), " ",
          folds   ? "folds addends"
          : fills ? "fills in identities"
                  : "changes values in place",
          ", and this communicator only copies memory of a device. Fix: ", memory.copies_only());
}

RESHARD_INLINE detail::BatchJob* detail::bind_plan(Means const& means, RankMove const& move, CommunicatorRef comm,
                                                   PrepareOptions const& options, ValueChange* change) {
    RankSteps const mine(move, move.plan.steps(move.plan), chunked(options, is_on_device(comm)), means.host.convert);
    if (change != nullptr) *change = mine.change;
    MemoryPolicy const& memory = memory_of(comm, means.host);
    check_fold(options);
    check_arguments(means, memory, mine, comm.size(), options.cast);
    check_memory(comm, memory, mine);
    Workspace own;
    Index const needed = scratch_bytes(mine);
    if (needed != 0) check_apart(options.workspace, mine);
    std::span<std::byte> const workspace = workspace_for(
        comm, memory, options.workspace, needed, own, "plan",
        mine.change.is_active() ? "workspace_bytes(plan, comm, dtype, options)" : "workspace_bytes(plan, comm, dtype)");
    return new BatchJob(comm, Job(mine, workspace, memory, means.work), std::move(own));
}

RESHARD_INLINE PreparedPlan detail::prepare_with(Means const& means, PlanValue const& plan, CommunicatorRef comm,
                                                 ConstDynamicView const& source, DynamicView const& destination,
                                                 PrepareOptions const& options, Verdict found) {
    ValueChange change;
    PreparedPlan prepared;
    auto const bind = [&] {
        prepared = PreparedPlan(bind_plan(means, {plan, comm.rank(), source, destination}, comm, options, &change));
    };
    Verdict verdict = found.ok() ? verdict_of(bind) : std::move(found);
    detail::Digest words;
    digest(words, plan, change, options);
    verdict.digest = words.value();
    verdict.call = "prepare";
    // What the others show should this rank be the one that differs.
    auto const text = [&] { return concat("prepared ", move_text(plan, change, options, comm.rank())); };
    if (verdict.ok()) {
        verdict.about = &text;
        verdict.words = [](void const* about) { return (*static_cast<decltype(text)*>(about))(); };
    }
    agree_or_raise(comm, std::move(verdict));
    return prepared;
}

}  // namespace reshard::inline v0_1
