// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/job.hpp
/// \brief  What one rank does for a plan: its exchanges, bound to memory, and its own work before, between and after.
/// \depends plan, comm/communicator.hpp, exec/detail/{bind,value_change}.hpp, memory/memory_policy.hpp.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/exec/detail/bind.hpp>
#include <reshard/exec/detail/value_change.hpp>
#include <reshard/memory/memory_policy.hpp>
#include <reshard/plan/fold_chunks.hpp>

namespace reshard::inline v0::detail {

/// The transfers of one exchange, in memory.
struct JobTransfers {
    std::vector<Send> sends;
    std::vector<Receive> receives;

    void bind(Exchange const& exchange, Binding<std::byte const> const& source, Binding<std::byte> const& target,
              bool keep, ValueChange const& change = {}) {
        sends.reserve(exchange.sends.size() + exchange.kept.size());
        receives.reserve(exchange.receives.size() + exchange.kept.size());
        // What stays with the rank travels as a transfer to itself, in its place among the peers.
        auto const merge = [&](std::vector<Message> const& messages, auto const& binding, auto& transfers,
                               Conversion const& conversion) {
            std::size_t next = 0;
            std::vector<Message> const& kept = exchange.kept;
            for (Message const& message : messages) {
                while (keep && next < kept.size() && kept[next].peer < message.peer) {
                    transfers.push_back(binding.transfer(kept[next++]));
                }
                transfers.push_back(binding.transfer(message));
            }
            while (keep && next < kept.size()) transfers.push_back(binding.transfer(kept[next++]));
            for (auto& transfer : transfers) transfer.conversion = conversion;
        };
        merge(exchange.sends, source, sends, change.send());
        merge(exchange.receives, target, receives, change.receive());
    }
};

/// A plan's steps, bound to one rank's memory: everything about a prepared plan that does not depend on the transport.
class Job {
public:
    /// \pre `memory` outlives this.
    Job(PlanValue const& plan, RankSteps const& mine, int rank, ConstDynamicView const& source,
        DynamicView const& destination, std::span<std::byte> scratch, MemoryPolicy const& memory)
        : memory_(&memory), chunks_(mine.steps) {
        fold_.addends = 0;  // until this rank is known to fold
        Places const places(plan, mine, rank, source, destination, scratch, chunks_, fold_);
        steps_.reserve(static_cast<std::size_t>(mine.steps.list.size() + 2 * chunks_.count()));
        for (Step const& step : mine.steps.list) {
            if (step.kind == StepKind::fold) continue;  // behind the exchange of its addends
            if (mine.steps.to(step).addends != 0) {
                bind_fold(mine, step, places);
                continue;
            }
            steps_.push_back({step.kind, step.op, mine.change.to, step.multiply, step.divide, 0, {}});
            bind(steps_.back(), plan, mine, step, rank, destination, places);
        }
    }

    [[nodiscard]] int phases() const noexcept {
        int count = 0;
        for (BoundStep const& step : steps_) count += step.kind == StepKind::exchange ? 1 : 0;
        return count;
    }
    /// For who runs this job's exchanges: the job no longer has it. \pre 0 <= phase < phases()
    [[nodiscard]] JobTransfers take_exchange(int phase) noexcept {
        auto step = steps_.begin();
        while (step->kind != StepKind::exchange || phase-- != 0) ++step;
        return std::move(step->transfers);
    }
    /// The rank's own work when so many exchanges are done, up to the next one.
    void work(int exchanges) const {
        int done = 0;
        for (BoundStep const& step : steps_) {
            if (step.kind == StepKind::exchange) {
                ++done;
            } else if (done == exchanges) {
                carry_out(step);
            }
        }
    }

private:
    using Step = planning::Step;
    using StepKind = planning::StepKind;
    using FoldChunks = planning::FoldChunks;
    using Place = planning::Place;

    struct BoundStep {
        StepKind kind;
        Reduce op;
        DType dtype;
        Index multiply;
        Index divide;
        Index chunk;             ///< fold
        JobTransfers transfers;  ///< exchange, copy
    };

    /// Where the layouts of a plan lie on this rank; empty where it has no part of them.
    struct Places {
        PlanValue const& plan;
        ValueChange const& change;
        int rank;
        ConstDynamicView const& from;
        DynamicView const& to;
        std::byte* addends = nullptr;  ///< of what the rank folds
        std::byte* result = nullptr;   ///< of the fold, where it lies in scratch memory
        Index slot_bytes = 0;
        Indices slot_strides;

        Places(PlanValue const& whole, RankSteps const& mine, int own, ConstDynamicView const& source,
               DynamicView const& destination, std::span<std::byte> scratch, FoldChunks const& chunks, FoldWork& fold)
            : plan(whole), change(mine.change), rank(own), from(source), to(destination) {
            Step const* const step = mine.steps.find(StepKind::fold);
            if (step == nullptr || !plan.from.contains(rank)) return;
            planning::Layout const& layout = mine.steps.to(*step);
            DynamicShape const shape = layout.distribution.local_shape(rank);
            DynamicShape const chunk(chunks.largest_of(shape.extents()));
            slot_strides = row_major_strides(chunk);
            fold.op = step->op;
            fold.dtype = change.from;
            fold.addends = mine.steps.from(*step).addends;
            fold.divisor = step->op == Reduce::avg ? fold.addends : 1;
            fold.slot_bytes = slot_bytes = chunk.size() * bytes(change.from);
            addends = aligned(scratch.data());
            result = aligned(addends == nullptr ? nullptr : addends + slot_bytes * fold.addends);
            bool const waits = layout.place == Place::scratch;
            fold.slots = box_transfer<std::byte const>(addends, change.from, slot_strides, Box(shape));
            fold.folded =
                box_transfer(result, change.from, waits ? row_major_strides(shape) : slot_strides, Box(shape));
            if (waits) {
                fold.to = fold.folded;
            } else {
                fold.to =
                    box_transfer(to.data(), change.to, to.strides(), local_box(plan.to, layout.distribution, rank));
                if (change.is_active()) fold.to.conversion = {change.to, change.from, change.factor, change.convert};
            }
            bool const mine_alone = layout.owner.is_at(layout.distribution.mesh().coordinates(rank));
            if (shape.size() == 0 || !mine_alone) fold.addends = 0;
        }
        [[nodiscard]] Binding<std::byte const> read(planning::Layout const& layout) const {
            if (layout.place != Place::source) return write(layout);
            if (!plan.from.contains(rank)) return {};
            return {from.data(), change.from, from.strides(), plan.from, rank};
        }
        [[nodiscard]] Binding<std::byte> write(planning::Layout const& layout) const {
            bool const here = layout.place == Place::destination;
            DynamicDistribution const& held = here ? plan.to : layout.distribution;
            if (!held.contains(rank)) return {};
            if (here) return {to.data(), change.to, to.strides(), held, rank};
            return {result, change.from, row_major_strides(held.local_shape(rank)), held, rank};
        }
        /// Where the addends of a chunk go that begins at `begin` of the rank's share, along `dim`.
        [[nodiscard]] Binding<std::byte> slots(DynamicDistribution const& folded, int dim, Index begin) const {
            if (!folded.contains(rank)) return {};
            Index const origin = begin == 0 ? 0 : begin * slot_strides[dim] * bytes(change.from);
            return Binding<std::byte>(addends, change.from, slot_strides, folded, rank).staged(slot_bytes, origin);
        }
        [[nodiscard]] static std::byte* aligned(std::byte* pointer) noexcept {
            auto const address = reinterpret_cast<std::uintptr_t>(pointer);
            return pointer == nullptr ? nullptr : pointer + ((64 - address % 64) % 64);
        }
    };

    void bind(BoundStep& bound, PlanValue const& plan, RankSteps const& mine, Step const& step, int rank,
              DynamicView const& destination, Places const& places) {
        planning::Layout const& from = mine.steps.from(step);
        planning::Layout const& to = mine.steps.to(step);
        ValueChange const change = mine.steps.arrives(step) ? mine.change : ValueChange{};
        switch (step.kind) {
            case StepKind::fill:
            case StepKind::scale:
                if (!plan.to.contains(rank)) return;
                whole_ = box_transfer(destination.data(), bound.dtype, destination.strides(), Box(destination.shape()));
                return;
            case StepKind::fold: return;  // bind_fold()
            case StepKind::exchange:
                // What the rank keeps is copied, unless it already lies where it is needed.
                bound.transfers.bind(exchange_of(mine.steps, step, rank), places.read(from), places.write(to),
                                     from.place != to.place, change);
                return;
            case StepKind::copy: {
                Exchange kept;
                if (plan.from.contains(rank)) kept.kept = local_messages(plan.from, plan.to, rank);
                bound.transfers.bind(kept, places.read(from), places.write(to), true, change);
                return;
            }
        }
    }
    /// The exchange of addends and their fold, chunk after chunk.
    void bind_fold(RankSteps const& mine, Step const& step, Places const& places) {
        DynamicDistribution const& folded = mine.steps.to(step).distribution;
        Exchange const whole = exchange_of(mine.steps, step, places.rank);
        Indices share;
        if (folded.contains(places.rank)) share = folded.local_shape(places.rank).extents();
        for (Index chunk = 0; chunk < chunks_.count(); ++chunk) {
            Index begin = 0;
            if (chunk != 0 && !share.empty()) {
                dim_ = chunks_.dim_of(share);
                begin = chunks_.part_of(share[dim_], chunk).begin;
            }
            steps_.push_back({StepKind::exchange, {}, mine.change.to, 1, 1, chunk, {}});
            steps_.back().transfers.bind(chunks_.of(whole, folded, places.rank, chunk),
                                         places.read(mine.steps.from(step)), places.slots(folded, dim_, begin), true);
            steps_.push_back({StepKind::fold, {}, mine.change.to, 1, 1, chunk, {}});
        }
    }
    void fold(Index chunk) const {
        if (fold_.addends == 0) return;
        if (chunks_.count() == 1) return memory_->fold(fold_);
        FoldWork part = fold_;
        Interval const inside = chunks_.part_of(fold_.slots.box.dims[dim_].extent, chunk);
        if (inside.empty()) return;
        bool const waits = fold_.to.base == fold_.folded.base;
        for (StridedBox* box : {&part.slots.box, &part.folded.box, &part.to.box})
            box->dims[dim_].extent = inside.size();
        part.to.base += inside.begin * part.to.box.dims[dim_].stride;
        if (waits) part.folded.base = part.to.base;
        memory_->fold(part);
    }
    void carry_out(BoundStep const& step) const {
        switch (step.kind) {
            case StepKind::fill:
                if (whole_.base != nullptr) memory_->fill_identity(step.op, step.dtype, whole_.base, whole_.box);
                return;
            case StepKind::scale:
                if (whole_.base != nullptr)
                    memory_->scale(step.dtype, whole_.base, whole_.box, step.multiply, step.divide);
                return;
            case StepKind::fold: fold(step.chunk); return;
            case StepKind::copy:
                if (!step.transfers.sends.empty()) memory_->deliver(step.transfers.sends, step.transfers.receives);
                return;
            case StepKind::exchange: return;
        }
    }

    MemoryPolicy const* memory_;
    FoldChunks chunks_;
    FoldWork fold_;    ///< of all chunks; no addends where this rank folds nothing
    int dim_ = 0;      ///< along which they lie
    Receive whole_{};  ///< fill, scale: the destination; without address where there is none
    std::vector<BoundStep> steps_;
};

}  // namespace reshard::inline v0::detail
