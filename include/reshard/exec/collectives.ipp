// SPDX-License-Identifier: Apache-2.0
// How exec/collectives.hpp is done.
#pragma once

#include <reshard/exec/collectives.hpp>
#include <reshard/exec/sync.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE int MeshAxis::of(DynamicMesh const& mesh) const {
    if (!name_.empty()) return mesh.axis(name_);
    if (number_ >= 0 && number_ < mesh.axes()) return number_;
    raise(ErrorCode::mesh, concat("reshard::MeshAxis: axis ", number_, " of the mesh ", to_string(mesh), ", which has ",
                                  mesh.axes(), ". Fix: axes count from 0."));
}

namespace detail {

/// The tensors of all ranks as one: behind a dimension for each other axis, which cuts it.
class Beside {
public:
    Beside(DynamicMesh const& mesh, MeshAxis axis, DynamicShape const& shape) : mesh_(mesh), axis_(axis.of(mesh)) {
        if (shape.rank() + mesh.axes() - 1 > max_rank) {
            raise(ErrorCode::shape, concat("reshard: a tensor of ", shape.rank(), " dimensions along one of ",
                                           mesh.axes(), " axes: together they may be ", max_rank + 1,
                                           ". Fix: flatten the tensor, or split the communicator along the axis."));
        }
        for (int other = 0; other < mesh.axes(); ++other)
            if (other != axis_) extents_.push_back(mesh.extent(other));
        for (Index extent : shape.extents()) extents_.push_back(extent);
    }

    [[nodiscard]] DynamicDistribution placed(Placement const& along) const {
        Placements placements;
        int dim = 0;
        for (int other = 0; other < mesh_.axes(); ++other) {
            placements.push_back(other == axis_ ? along : Placement::shard(dim));
            if (other != axis_) ++dim;
        }
        return DynamicDistribution(mesh_, DynamicShape(extents_), placements);
    }
    /// Cut along a dimension of the tensor. Throws PlacementError where it has none of that number.
    [[nodiscard]] DynamicDistribution cut(int dim) const {
        int const others = mesh_.axes() - 1;
        return placed(Placement::shard(dim < 0 ? dim : dim + others));
    }
    /// One rank's tensor, with the dimensions in front.
    template <class View>
    [[nodiscard]] View view(View const& tensor) const {
        Indices extents;
        Indices strides;
        for (int other = 1; other < mesh_.axes(); ++other) {
            extents.push_back(1);
            strides.push_back(tensor.rank() == 0 ? 1 : tensor.extent(0) * tensor.stride(0));
        }
        for (int dim = 0; dim < tensor.rank(); ++dim) {
            extents.push_back(tensor.extent(dim));
            strides.push_back(tensor.stride(dim));
        }
        return View(tensor.data(), tensor.dtype(), DynamicShape(extents), strides);
    }
    [[nodiscard]] int axis() const noexcept { return axis_; }

private:
    DynamicMesh const& mesh_;
    int axis_;
    Indices extents_;
};

}  // namespace detail

RESHARD_INLINE void all_reduce(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                               DynamicMesh const& mesh, MeshAxis axis, Reduce op) {
    detail::Beside const all(mesh, axis, source.shape());
    redistribute(plan(all.placed(Placement::partial(op)), all.placed(Placement::replicate())), comm, all.view(source),
                 all.view(destination));
}
RESHARD_INLINE void all_reduce(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh, MeshAxis axis,
                               Reduce op) {
    all_reduce(tensor, tensor, comm, mesh, axis, op);
}
RESHARD_INLINE void reduce_scatter(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                                   DynamicMesh const& mesh, MeshAxis axis, int dim, Reduce op) {
    detail::Beside const all(mesh, axis, source.shape());
    redistribute(plan(all.placed(Placement::partial(op)), all.cut(dim)), comm, all.view(source), all.view(destination));
}
RESHARD_INLINE void all_gather(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                               DynamicMesh const& mesh, MeshAxis axis, int dim) {
    detail::Beside const all(mesh, axis, destination.shape());
    redistribute(plan(all.cut(dim), all.placed(Placement::replicate())), comm, all.view(source), all.view(destination));
}
RESHARD_INLINE void broadcast(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh, MeshAxis axis,
                              int root) {
    detail::Beside const all(mesh, axis, tensor.shape());
    if (root < 0 || root >= mesh.extent(all.axis())) {
        raise(ErrorCode::mesh, concat("reshard::broadcast: coordinate ", root, " along an axis of ",
                                      mesh.extent(all.axis()), " ranks. Fix: coordinates count from 0."));
    }
    LocalTensor const one{"tensor", all.placed(Placement::replicate()), all.view(tensor)};
    SyncOptions options;
    options.source = static_cast<int>(mesh.rank_at(root * mesh.stride(all.axis())));
    sync(std::span(&one, 1), comm, options);
}

}  // namespace reshard::inline v0
