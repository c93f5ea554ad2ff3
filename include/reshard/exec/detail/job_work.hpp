// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/job_work.hpp
/// \brief  What one rank does to values besides moving them: folds, chunk after chunk, identities and factors.
/// \depends exec/detail/job.hpp, plan/fold_chunks.hpp.
#pragma once

#include <reshard/exec/detail/job.hpp>

namespace reshard::inline v0::detail {

/// What this rank folds; where the result lies in scratch memory, `places` have it.
inline void place_fold(JobWork& work, RankSteps const& mine, JobPlaces& places, std::byte* addends) {
    work.chunks = planning::FoldChunks(mine.steps);
    work.fold.addends = 0;  // until this rank is known to fold
    if (!places.plan.from.contains(places.rank)) return;
    planning::Step const& step = *mine.steps.find(planning::StepKind::fold);
    planning::Layout const& layout = mine.steps.to(step);
    DType const dtype = mine.change.from;
    DynamicShape const shape = layout.distribution.local_shape(places.rank);
    DynamicShape const chunk(work.chunks.largest_of(shape.extents()));
    Indices const strides = row_major_strides(chunk);
    FoldWork& fold = work.fold;
    fold.op = step.op;
    fold.dtype = dtype;
    fold.addends = mine.steps.from(step).addends;
    fold.divisor = step.op == Reduce::avg ? fold.addends : 1;
    fold.slot_bytes = chunk.size() * bytes(dtype);
    places.folded = aligned(addends == nullptr ? nullptr : addends + fold.slot_bytes * fold.addends);
    bool const waits = layout.place == planning::Place::scratch;
    fold.slots = box_transfer<std::byte const>(addends, dtype, strides, Box(shape));
    fold.folded = box_transfer(places.folded, dtype, waits ? row_major_strides(shape) : strides, Box(shape));
    fold.to = fold.folded;
    if (!waits) {
        Box const box = local_box(places.plan.to, layout.distribution, places.rank);
        fold.to = box_transfer(places.to.data(), mine.change.to, places.to.strides(), box);
        if (mine.change.is_active()) {
            fold.to.conversion = {mine.change.to, dtype, mine.change.factor, mine.change.convert};
        }
    }
    bool const mine_alone = layout.owner.is_at(layout.distribution.mesh().coordinates(places.rank));
    if (shape.size() == 0 || !mine_alone) fold.addends = 0;
}

/// The exchange of addends and their fold, chunk after chunk.
inline void bind_fold(JobWork& work, std::vector<JobStep>& steps, RankSteps const& mine, planning::Step const& step,
                      JobPlaces& places, std::byte* addends) {
    place_fold(work, mine, places, addends);
    DynamicDistribution const& folded = mine.steps.to(step).distribution;
    Exchange const whole = exchange_of(mine.steps, step, places.rank);
    Indices share;
    Indices strides;  // of a slot
    if (folded.contains(places.rank)) {
        share = folded.local_shape(places.rank).extents();
        strides = row_major_strides(DynamicShape(work.chunks.largest_of(share)));
    }
    for (Index chunk = 0; chunk < work.chunks.count(); ++chunk) {
        Index origin = 0;
        if (chunk != 0 && !share.empty()) {
            work.dim = work.chunks.dim_of(share);
            origin = work.chunks.part_of(share[work.dim], chunk).begin * strides[work.dim] * bytes(mine.change.from);
        }
        // Where the addends go: those of a chunk begin at its first index of the rank's share.
        BoundMemory<std::byte> slots{addends, {}};
        if (folded.contains(places.rank)) {
            slots.binding = {mine.change.from, strides, folded, places.rank, work.fold.slot_bytes, origin};
        }
        steps.push_back({planning::StepKind::exchange, {}, mine.change.to, 1, 1, chunk, {}});
        steps.back().transfers.bind(work.chunks.of(whole, folded, places.rank, chunk),
                                    places.read(mine.steps.from(step)), slots, true);
        steps.push_back({planning::StepKind::fold, {}, mine.change.to, 1, 1, chunk, {}});
    }
}

inline void fold_chunk(JobWork const& work, MemoryPolicy const& memory, Index chunk) {
    if (work.fold.addends == 0) return;
    if (work.chunks.count() == 1) return memory.fold(work.fold);
    FoldWork part = work.fold;
    Interval const inside = work.chunks.part_of(part.slots.box.dims[work.dim].extent, chunk);
    if (inside.empty()) return;
    bool const waits = part.to.base == part.folded.base;
    for (StridedBox* box : {&part.slots.box, &part.folded.box, &part.to.box}) {
        box->dims[work.dim].extent = inside.size();
    }
    part.to.base += inside.begin * part.to.box.dims[work.dim].stride;
    if (waits) part.folded.base = part.to.base;
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

}  // namespace reshard::inline v0::detail
