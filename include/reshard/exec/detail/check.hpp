// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/check.hpp
/// \brief  What can be wrong with the arguments of prepare, found on each rank before anything is touched.
/// \depends plan, core, exec/detail/{means,value_change}.hpp.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/exec/detail/means.hpp>
#include <reshard/exec/detail/value_change.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::inline v0_1::detail {

/// First and one-past-last byte a view touches; equal when it is empty.
struct ByteRange {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
};
[[nodiscard]] inline ByteRange byte_range(ConstDynamicView const& view) noexcept {
    auto const base = reinterpret_cast<std::uintptr_t>(view.data());
    if (view.size() == 0) return {base, base};
    Index low = 0;
    Index high = 0;
    for (int dim = 0; dim < view.rank(); ++dim) {
        Index const reach = (view.extent(dim) - 1) * view.stride(dim) * bytes(view.dtype());
        (reach < 0 ? low : high) += reach;
    }
    return {base + static_cast<std::uintptr_t>(low), base + static_cast<std::uintptr_t>(high + bytes(view.dtype()))};
}

/// Whether no two indices of a view share an element: each step is longer than all shorter ones together. Sufficient,
/// and exact for windows of dense tensors.
[[nodiscard]] inline bool is_injective(ConstDynamicView const& view) noexcept {
    InlineList<StridedDim, max_dims> dims;
    for (int dim = 0; dim < view.rank(); ++dim) {
        if (view.extent(dim) == 0) return true;
        if (view.extent(dim) != 1) dims.push_back({view.extent(dim), larger(view.stride(dim), -view.stride(dim))});
    }
    for (Index reach = 0; !dims.empty(); dims.pop_back()) {  // by stride, the smallest first
        StridedDim* least = dims.begin();
        for (StridedDim& dim : dims)
            if (dim.stride < least->stride) least = &dim;
        if (least->stride <= reach || !add_fits(reach, least->stride, least->extent - 1)) return false;
        *least = dims.back();
    }
    return true;
}

/// Whether views of the same rank have the same strides, wherever there is a second element to step to.
[[nodiscard]] inline bool same_strides(ConstDynamicView const& a, ConstDynamicView const& b) noexcept {
    for (int dim = 0; dim < a.rank(); ++dim) {
        if (a.stride(dim) != b.stride(dim) && (a.extent(dim) != 1 || b.extent(dim) != 1)) return false;
    }
    return true;
}

/// How two views step through memory, in bytes: along the dimensions of both, and through their elements.
using StepsOfTwo = InlineList<StridedDim, 2 * max_dims + 2>;

/// Whether `place` is a sum of these steps, of each at most extent - 1; true as well where that takes more than
/// `tries`. \pre `reach` is the sum of all steps, none is negative.
[[nodiscard, gnu::cold]] inline bool may_reach(StepsOfTwo steps, Index place, Index reach, int& tries) noexcept {
    if (--tries < 0) return true;
    Index longest = 0;
    for (StridedDim const& step : steps) longest = larger(longest, step.stride);
    if (longest == 0) return place == 0;
    Index most = 0;  // such steps; dimensions in which they are equally long are one
    for (StridedDim& step : steps) {
        if (step.stride != longest) continue;
        most += step.extent - 1;
        step.stride = 0;
    }
    reach -= most * longest;
    for (Index taken = smaller(place / longest, most); taken >= 0 && place - taken * longest <= reach; --taken)
        if (may_reach(steps, place - taken * longest, reach, tries)) return true;  // the shorter ones make up for it
    return false;
}

/// Whether views share a byte. Exact for windows of one dense array, or of the members of its structs, backwards or
/// with dimensions in any order; views whose strides have nothing in common may be said to.
[[nodiscard]] inline bool overlap(ConstDynamicView const& a, ConstDynamicView const& b) noexcept {
    ByteRange const x = byte_range(a);
    ByteRange const y = byte_range(b);
    if (x.begin == x.end || y.begin == y.end) return false;
    if (x.end <= y.begin || y.end <= x.begin) return false;
    StepsOfTwo steps;
    for (ConstDynamicView const* view : {&a, &b}) {
        Index const element = bytes(view->dtype());
        steps.push_back({element, 1});
        for (int dim = 0; dim < view->rank(); ++dim) {
            Index const extent = view->extent(dim);
            if (extent > 1) steps.push_back({extent, larger(view->stride(dim), -view->stride(dim)) * element});
        }
    }
    // They meet where steps of `a` from its first byte, and of `b` back from its last, lead from the one to the other.
    Index reach = as_index(x.end - x.begin - 1);
    int tries = 4096;  // windows of one array: at most two ways to take each of 9 steps, 1023 tries
    return !add_fits(reach, as_index(y.end - y.begin - 1)) ||
           may_reach(steps, as_index(y.end - x.begin - 1), reach, tries);
}

/// What is wrong with the memory of a view, which may be written: how a sentence about it goes on. Empty: nothing.
[[nodiscard, gnu::cold]] inline std::string memory_fault(ConstDynamicView const& view, bool written) {
    if (view.data() == nullptr && view.size() != 0)
        return concat(" is null. Fix: pass memory for ", to_string(view.shape()), " elements.");
    bool const fit = strides_fit(view.shape(), view.strides(), view.dtype());
    if (fit && (!written || is_injective(view))) return {};
    return concat(" has strides ", to_string(view.strides()),
                  fit ? " that overlap. Fix: give every element memory of its own."
                      : ", which reach beyond 64 bits. Fix: check them.");
}
[[gnu::cold]] inline void check_view(char const* what, ConstDynamicView const& view, bool written,
                                     DynamicShape const& wanted, Index rank, DynamicDistribution const& distribution) {
    std::string const fault = !(view.shape() == wanted)
                                  ? concat(" has shape ", to_string(view.shape()), ", but under ", brief(distribution),
                                           " it holds ", to_string(wanted), ". Fix: allocate this shape.")
                                  : memory_fault(view, written);
    if (!fault.empty()) raise(ErrorCode::buffer, "reshard::prepare: the ", what, " of rank ", rank, fault);
}

/// Whether a plan only folds, so that its result may take the place of the addends: what a rank folds is read from
/// nowhere else, and what it receives afterwards was folded by ranks that have read theirs. Whether types know that
/// there is one addend (plan.kind) does not count: a trainer on one rank is the same program.
[[nodiscard]] inline bool only_folds(PlanValue const& plan) {
    if (plan.across || plan.ranks_per_node > 1 || kind_of(plan.from, plan.to) != TransitionKind::collective)
        return false;
    for (int axis = 0; axis < plan.from.mesh().axes(); ++axis) {
        PlacementForm const& source = plan.from.signature()[axis];
        PlacementForm const& target = plan.to.signature()[axis];
        if (!(source.is_partial() && target.is_replicate()) &&
            !(plan.from.placement(axis) == plan.to.placement(axis))) {
            return false;
        }
    }
    return plan.from.signature().order() == plan.to.signature().order();
}
/// Whether a move is one within the same memory, as it may be.
[[nodiscard]] inline bool is_in_place(RankSteps const& mine) {
    ConstDynamicView const& source = mine.source;
    DynamicView const& destination = mine.destination;
    return source.data() == destination.data() && source.dtype() == destination.dtype() && !mine.change.is_active() &&
           source.rank() == destination.rank() && same_strides(source, destination) && only_folds(mine.plan);
}

/// Throws MeshError for a mesh of ranks that the communicator does not have. `parts`: how the message begins.
template <class... Parts>
void check_mesh(DynamicMesh const& mesh, Index ranks, Parts const&... parts) {
    if (mesh.last_rank() < ranks) return;
    raise(ErrorCode::mesh, parts..., "the mesh ", brief(mesh), " has rank ", mesh.last_rank(),
          ", the communicator only ", ranks, " ranks. Fix: use a mesh of ranks that exist.");
}

/// Everything about one rank's arguments that does not need the other ranks, of which there are so many.
inline void check_arguments(Means const& means, MemoryPolicy const& memory, RankSteps const& mine, Index ranks,
                            bool cast) {
    PlanValue const& plan = mine.plan;
    ConstDynamicView const& source = mine.source;
    DynamicView const& destination = mine.destination;
    Index const rank = mine.rank;
    for (DynamicDistribution const* side : {&plan.from, &plan.to})
        check_mesh(side->mesh(), ranks, "reshard::prepare: ");
    bool const gives = mine.gives();
    if (!cast && gives && mine.takes() && source.dtype() != destination.dtype()) {
        raise(ErrorCode::mismatch, "reshard::prepare: the source of rank ", rank, " holds ", name(source.dtype()),
              ", the destination ", name(destination.dtype()),
              ". Fix: give both the same element type, or pass reshard::Casting{} to cast on the way.");
    }
    check_byte_sized("prepare", mine.change.from);
    if (means.check != nullptr) means.check(memory, mine);
    if (gives) check_view("source", source, false, plan.from.local_shape(rank), rank, plan.from);
    if (!mine.takes()) return;
    check_view("destination", destination, true, plan.to.local_shape(rank), rank, plan.to);
    if (gives && overlap(source, destination) && !is_in_place(mine)) {
        raise(ErrorCode::buffer, "reshard::prepare: source and destination of rank ", rank,
              " overlap. Fix: use separate memory; in place, only P to R, directly, without a cast or a factor (Pavg "
              "to R is a mean).");
    }
}

}  // namespace reshard::inline v0_1::detail
