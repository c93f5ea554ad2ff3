// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/job.hpp
/// \brief  What one rank does for a plan: its exchanges, bound to memory, and its own work before, between and after.
/// \depends plan, comm/communicator.hpp, exec/detail/{bind,means,value_change}.hpp, memory/memory_policy.hpp.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/exec/detail/bind.hpp>
#include <reshard/exec/detail/means.hpp>
#include <reshard/exec/detail/value_change.hpp>
#include <reshard/memory/memory_policy.hpp>
#include <reshard/plan/fold_chunks.hpp>

namespace reshard::inline v0_1::detail {

/// The transfers of one exchange, in memory.
struct JobTransfers {
    std::vector<Send> sends;
    std::vector<Receive> receives;

    void bind(Exchange const& exchange, BoundMemory<std::byte const> const& source,
              BoundMemory<std::byte> const& target, bool keep, ValueChange const& change = {}) {
        std::span<Message const> kept;
        if (keep) kept = exchange.kept;
        sends = source.transfers(exchange.sends, kept, change.send());
        receives = target.transfers(exchange.receives, kept, change.receive());
    }
};

/// Where a rank writes what it takes; empty where it takes nothing.
[[nodiscard]] inline BoundMemory<std::byte> bind_destination(RankSteps const& mine) {
    if (!mine.takes()) return {};
    return {mine.destination.data(), {mine.change.to, mine.destination.strides(), mine.plan.to, mine.rank}};
}
/// Where it reads what lies in a layout. \pre the source or the destination; scratch memory is bound chunk by chunk
/// (exec/detail/job_work.hpp).
[[nodiscard]] inline BoundMemory<std::byte const> bind_layout(RankSteps const& mine, planning::Layout const& layout) {
    if (layout.place != planning::Place::source) {
        BoundMemory<std::byte> const written = bind_destination(mine);
        return {written.base, written.binding};
    }
    if (!mine.gives()) return {};
    return {mine.source.data(), {mine.change.from, mine.source.strides(), mine.plan.from, mine.rank}};
}

/// What a rank does itself, when so many exchanges are done.
struct JobStep {
    planning::StepKind kind;
    int after;
    Index chunk = 0;          ///< fold
    Reduce op = Reduce::sum;  ///< fill
    DType dtype = DType::u8;  ///< fill, scale
    Index multiply = 1;       ///< scale
    Index divide = 1;
    JobTransfers copy{};
};

/// A plan's exchanges, bound to one rank's memory, and what the rank does itself. What it does to values besides moving
/// them, exec/detail/job_work.hpp binds and carries out.
struct JobWork {
    std::vector<JobTransfers> exchanges;
    std::vector<JobStep> steps;
    planning::FoldChunks chunks;
    FoldWork fold;                ///< of all chunks; no addends where this rank folds nothing
    std::vector<FoldWork> cells;  ///< of boxes that overlap (exec/detail/box_folds.hpp)
    Receive whole{};              ///< fill, scale: the destination; without address where there is none
    void (*carry_out)(JobWork const& work, MemoryPolicy const& memory, JobStep const& step) = nullptr;

    [[nodiscard]] int phases() const noexcept { return static_cast<int>(exchanges.size()); }
};

/// A plan's steps, bound to one rank's memory: everything about a prepared plan that does not depend on the transport.
class Job {
public:
    Job() = default;  ///< nothing to do
    /// \pre `memory` outlives this; without `bind_work` values are only moved.
    Job(RankSteps const& mine, std::span<std::byte> scratch, MemoryPolicy const& memory, BindWork bind_work = nullptr)
        : memory_(&memory) {
        for (Step const& step : mine.steps.list) {
            if (step.kind == StepKind::copy) {
                JobStep& copy = work_.steps.emplace_back(JobStep{step.kind, phases()});
                bind(copy.copy, mine, step);
            } else if (step.kind == StepKind::exchange && !mine.steps.in_chunks(step)) {
                bind(work_.exchanges.emplace_back(), mine, step);
            } else {
                bind_work(work_, mine, step, scratch);
            }
        }
    }

    /// What was bound elsewhere.
    Job(JobWork&& work, MemoryPolicy const& memory) : memory_(&memory), work_(std::move(work)) {}

    [[nodiscard]] int phases() const noexcept { return work_.phases(); }
    /// For who runs this job's exchanges: the job no longer has it. \pre 0 <= phase < phases()
    [[nodiscard]] JobTransfers take_exchange(int phase) noexcept { return std::move(work_.exchanges[as_size(phase)]); }
    /// The rank's own work when so many exchanges are done, up to the next one.
    void work(int exchanges) const {
        for (JobStep const& step : work_.steps) {
            if (step.after != exchanges) continue;
            if (step.kind != StepKind::copy) {
                work_.carry_out(work_, *memory_, step);
            } else if (!step.copy.sends.empty()) {
                memory_->deliver(step.copy.sends, step.copy.receives);
            }
        }
    }

private:
    using Step = planning::Step;
    using StepKind = planning::StepKind;

    static void bind(JobTransfers& transfers, RankSteps const& mine, Step const& step) {
        Exchange exchange;
        if (step.kind == StepKind::exchange) {
            exchange = exchange_of(mine.steps, step, mine.rank);
        } else if (mine.gives()) {
            exchange.kept = local_messages(mine.plan.from, mine.plan.to, mine.rank);
        }
        // What the rank keeps is copied, unless it already lies where it is needed.
        bool const arrives = mine.steps.arrives(step);
        transfers.bind(exchange, bind_layout(mine, mine.steps.from(step)), bind_destination(mine), arrives,
                       arrives ? mine.change : ValueChange{});
    }

    MemoryPolicy const* memory_ = nullptr;
    JobWork work_;
};

}  // namespace reshard::inline v0_1::detail
