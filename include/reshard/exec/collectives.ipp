// SPDX-License-Identifier: Apache-2.0
// How exec/collectives.hpp is done.
#pragma once

#include <reshard/exec/collectives.hpp>
#include <reshard/exec/sync.hpp>

namespace reshard::inline v0 {

namespace detail {

/// The tensors of all ranks as one: behind a dimension for each other axis, which cuts it.
class Beside {
public:
    Beside(DynamicMesh const& mesh, MeshAxes const& axes, DynamicShape const& shape)
        : mesh_(mesh), axes_(mesh.axis_numbers(axes)), others_(mesh.axes() - axes_.size()) {
        if (shape.rank() + others_ > max_rank) {
            raise(ErrorCode::shape, concat("reshard: a tensor of ", shape.rank(), " dimensions beside ", others_,
                                           " other axes of ", to_string(mesh), ": together they may be ", max_rank,
                                           ". Fix: flatten the tensor, or split the communicator along the axes."));
        }
        for (int axis = 0; axis < mesh.axes(); ++axis)
            if (!is_along(axis)) extents_.push_back(mesh.extent(axis));
        for (Index extent : shape.extents()) extents_.push_back(extent);
    }

    [[nodiscard]] DynamicDistribution placed(Placement const& along) const {
        Placements placements;
        AxisList order;
        for (int axis = 0; axis < mesh_.axes(); ++axis) {
            placements.push_back(is_along(axis) ? along : Placement::shard(order.size()));
            if (!is_along(axis)) order.push_back(static_cast<std::int8_t>(axis));
        }
        for (Index axis : axes_)
            if (along.is_shard()) order.push_back(static_cast<std::int8_t>(axis));
        return DynamicDistribution(mesh_, DynamicShape(extents_), placements, order);
    }
    /// Cut along a dimension of the tensor. Throws PlacementError where it has none of that number.
    [[nodiscard]] DynamicDistribution cut(int dim) const {
        return placed(Placement::shard(dim < 0 ? dim : dim + others_));
    }
    /// One rank's tensor, with the dimensions in front.
    template <class View>
    [[nodiscard]] View view(View const& tensor) const {
        Indices extents;
        Indices strides;
        for (int other = 0; other < others_; ++other) {
            extents.push_back(1);
            strides.push_back(tensor.rank() == 0 ? 1 : tensor.extent(0) * tensor.stride(0));
        }
        for (int dim = 0; dim < tensor.rank(); ++dim) {
            extents.push_back(tensor.extent(dim));
            strides.push_back(tensor.stride(dim));
        }
        return View(tensor.data(), tensor.dtype(), DynamicShape(extents), strides);
    }

private:
    [[nodiscard]] bool is_along(int axis) const noexcept {
        for (Index along : axes_)
            if (along == axis) return true;
        return false;
    }

    DynamicMesh const& mesh_;
    Indices axes_;
    int others_;
    Indices extents_;
};

}  // namespace detail

RESHARD_INLINE void all_reduce(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                               DynamicMesh const& mesh, MeshAxes const& axes, Reduce op) {
    detail::Beside const all(mesh, axes, source.shape());
    redistribute(plan(all.placed(Placement::partial(op)), all.placed(Placement::replicate())), comm, all.view(source),
                 all.view(destination));
}
RESHARD_INLINE void all_reduce(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh,
                               MeshAxes const& axes, Reduce op) {
    all_reduce(tensor, tensor, comm, mesh, axes, op);
}
RESHARD_INLINE void reduce_scatter(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                                   DynamicMesh const& mesh, MeshAxes const& axes, int dim, Reduce op) {
    detail::Beside const all(mesh, axes, source.shape());
    redistribute(plan(all.placed(Placement::partial(op)), all.cut(dim)), comm, all.view(source), all.view(destination));
}
RESHARD_INLINE void all_gather(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                               DynamicMesh const& mesh, MeshAxes const& axes, int dim) {
    detail::Beside const all(mesh, axes, destination.shape());
    redistribute(plan(all.cut(dim), all.placed(Placement::replicate())), comm, all.view(source), all.view(destination));
}
RESHARD_INLINE void broadcast(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh,
                              MeshAxes const& axes, int root) {
    detail::Beside const all(mesh, axes, tensor.shape());
    DynamicMesh const along = mesh.along(axes, mesh.rank_at(0));
    if (root < 0 || root >= along.size()) {
        raise(ErrorCode::mesh, concat("reshard::broadcast: root ", root, " of ", along.size(),
                                      " ranks along the axes. Fix: they count from 0."));
    }
    LocalTensor const one{"tensor", all.placed(Placement::replicate()), all.view(tensor)};
    SyncOptions options;
    options.source = static_cast<int>(along.rank_at(root));
    sync(std::span(&one, 1), comm, options);
}

}  // namespace reshard::inline v0
