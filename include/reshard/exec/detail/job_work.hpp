// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/job_work.hpp
/// \brief  What one rank does to values besides moving them: folds, chunk after chunk, identities and factors.
/// \depends exec/detail/job.hpp, plan/fold_chunks.hpp.
#pragma once

#include <reshard/exec/detail/job.hpp>

namespace reshard::inline v0_1::detail {

/// What this rank folds. Returns scratch memory for what a chunk becomes.
inline std::byte* place_fold(JobWork& work, RankSteps const& mine, std::byte* addends) {
    work.chunks = planning::FoldChunks(mine.steps);
    work.fold.addends = 0;  // until this rank is known to fold
    if (!mine.gives()) return nullptr;
    planning::Step const& step = *mine.steps.find(planning::StepKind::fold);
    planning::Layout const& layout = mine.steps.to(step);
    DType const dtype = mine.change.from;
    DynamicShape const shape = layout.distribution.local_shape(mine.rank);
    DynamicShape const chunk(work.chunks.largest_of(shape.extents()));
    Indices const strides = row_major_strides(chunk);
    FoldWork& fold = work.fold;
    fold.op = step.op;
    fold.dtype = dtype;
    fold.addends = mine.steps.from(step).addends;
    fold.divisor = step.op == Reduce::avg ? fold.addends : 1;
    fold.slot_bytes = chunk.size() * bytes(dtype);
    std::byte* const folded = aligned(addends == nullptr ? nullptr : addends + fold.slot_bytes * fold.addends);
    fold.slots = box_transfer<std::byte const>(addends, dtype, strides, Box(shape));
    fold.folded = box_transfer(folded, dtype, strides, Box(shape));
    fold.to = fold.folded;
    if (layout.place == planning::Place::destination) {
        Box const box = local_box(mine.plan.to, layout.distribution, mine.rank);
        fold.to = box_transfer(mine.destination.data(), mine.change.to, mine.destination.strides(), box);
        if (mine.change.is_active()) {
            fold.to.conversion = {mine.change.to, dtype, mine.change.factor, mine.change.convert};
        }
    }
    bool const mine_alone = layout.owner.is_at(layout.distribution.mesh().coordinates(mine.rank));
    if (shape.size() == 0 || !mine_alone) fold.addends = 0;
    return folded;
}
/// How a chunk of the rank's share lies in scratch memory, addends and result: it begins with the chunk's first index.
[[nodiscard]] inline Binding chunk_binding(JobWork const& work, DType dtype, DynamicDistribution const& folded,
                                           Index rank, Index chunk) {
    if (!folded.contains(rank)) return {};
    Indices const share = folded.local_shape(rank).extents();
    Indices const strides = row_major_strides(DynamicShape(work.chunks.largest_of(share)));
    int const dim = work.chunks.dim();
    Index const before = chunk == 0 ? 0 : work.chunks.part_of(share[dim], chunk).begin * strides[dim];
    return {dtype, strides, folded, rank, work.fold.slot_bytes, before * bytes(dtype)};
}

/// The exchange of addends, their fold, and the exchange that takes the result from scratch memory, if one does: chunk
/// after chunk.
inline void bind_fold(JobWork& work, RankSteps const& mine, planning::Step const& step, std::byte* addends) {
    using planning::StepKind;
    std::byte* const folded = place_fold(work, mine, addends);
    planning::Step const* onward = nullptr;
    for (planning::Step const& next : mine.steps.list) {
        if (next.kind == StepKind::exchange && mine.steps.from(next).place == planning::Place::scratch) onward = &next;
    }
    Exchange const whole = exchange_of(mine.steps, step, mine.rank);
    Exchange const results = onward == nullptr ? Exchange{} : exchange_of(mine.steps, *onward, mine.rank);
    for (Index chunk = 0; chunk < work.chunks.count(); ++chunk) {
        Binding const there = chunk_binding(work, mine.change.from, mine.steps.to(step).distribution, mine.rank, chunk);
        Exchange const part = work.chunks.of(whole, mine.steps, step, mine.rank, chunk);
        work.exchanges.emplace_back().bind(part, bind_layout(mine, mine.steps.from(step)), {addends, there}, true);
        work.steps.push_back({StepKind::fold, work.phases(), chunk});
        if (onward == nullptr) continue;
        Exchange const result = work.chunks.of(results, mine.steps, *onward, mine.rank, chunk);
        work.exchanges.emplace_back().bind(result, {folded, there}, bind_destination(mine), true, mine.change);
    }
}

inline void fold_chunk(JobWork const& work, MemoryPolicy const& memory, Index chunk) {
    if (work.fold.addends == 0) return;
    if (work.chunks.count() == 1) return memory.fold(work.fold);
    FoldWork part = work.fold;
    int const dim = work.chunks.dim();
    Interval const inside = work.chunks.part_of(part.slots.box.dims[dim].extent, chunk);
    if (inside.empty()) return;
    for (StridedBox* box : {&part.slots.box, &part.folded.box, &part.to.box}) {
        box->dims[dim].extent = inside.size();
    }
    bool const stays = part.to.base == part.folded.base;  // in scratch memory, where every chunk lies
    if (!stays) part.to.base += inside.begin * part.to.box.dims[dim].stride;
    memory.fold(part);
}
inline void carry_out(JobWork const& work, MemoryPolicy const& memory, JobStep const& step) {
    Receive const& whole = work.whole;
    switch (step.kind) {
        case planning::StepKind::fold: return fold_chunk(work, memory, step.chunk);
        case planning::StepKind::fill:
            if (whole.base != nullptr) memory.fill_identity(step.op, step.dtype, whole.base, whole.box);
            return;
        case planning::StepKind::scale:
            if (whole.base != nullptr) memory.scale(step.dtype, whole.base, whole.box, step.multiply, step.divide);
            return;
        case planning::StepKind::exchange:
        case planning::StepKind::copy: return;  // those of Job
    }
}

}  // namespace reshard::inline v0_1::detail
