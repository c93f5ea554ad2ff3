// SPDX-License-Identifier: Apache-2.0
// How exec/collectives.hpp is done.
#pragma once

#include <reshard/exec/batch.hpp>
#include <reshard/exec/collectives.hpp>
#include <reshard/exec/detail/batch_job.hpp>
#include <reshard/exec/prepare.hpp>
#include <reshard/plan/replicas.hpp>

#include <algorithm>  // count_if, find
#include <optional>   // optional

namespace reshard::inline v0_1 {

namespace detail {

/// The tensors of all ranks as one: behind a dimension for each other axis, which cuts it.
class Beside {
public:
    Beside(DynamicMesh const& mesh, MeshAxes const& axes, DynamicShape const& shape)
        : mesh_(mesh), given_(axes), axes_(mesh.axis_numbers(axes)), others_(mesh.axes() - axes_.size()) {
        if (shape.rank() + others_ > max_dims) {
            raise(ErrorCode::shape, "reshard: a tensor of ", shape.rank(), " dimensions beside ", others_,
                  " other axes of ", to_string(mesh), ": together they may be ", max_dims,
                  ". Fix: flatten the tensor, or split the communicator along the axes.");
        }
        if (axes_.empty())
            raise(ErrorCode::mesh, "reshard: a collective along no axis. Fix: give one axis of the mesh, or more.");
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
    [[nodiscard]] DynamicDistribution copied() const { return placed(Placement::replicate()); }
    /// Cut along a dimension of the tensor. Throws PlacementError where it has none of that number.
    [[nodiscard]] DynamicDistribution cut(int dim) const {
        int const dims = extents_.size() - others_;
        if (dim < 0 || dim >= dims) {
            raise(ErrorCode::placement, "reshard: a tensor of ", dims, " dimensions has no dimension ", dim,
                  " to cut along. Fix: ", dimensions_text(dims), ".");
        }
        return placed(Placement::shard(dim + others_));
    }
    /// The ranks along the axes, with the first of the mesh.
    [[nodiscard]] DynamicMesh line() const { return mesh_.along(given_, mesh_.rank_at(0)); }
    /// A shape without the dimensions in front.
    [[nodiscard]] DynamicShape inner(DynamicShape const& shape) const {
        Indices extents;
        for (int dim = others_; dim < shape.rank(); ++dim) extents.push_back(shape.extent(dim));
        return DynamicShape(extents);
    }
    /// One rank's tensor, with the dimensions in front.
    template <class View>
    [[nodiscard]] View view(View const& tensor) const {
        Indices extents;
        Indices strides;
        for (int other = 0; other < others_; ++other) {
            extents.push_back(1);
            strides.push_back(1);  // there is no second index
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
    MeshAxes const& given_;
    Indices axes_;
    int others_;
    Indices extents_;
};

/// Throws BufferError where one of two tensors makes the other of another shape: in words of the caller, who has named
/// neither a distribution nor the dimensions in front.
inline void check_pair(Beside const& all, Plan<> const& move, int rank, ConstDynamicView const& source,
                       ConstDynamicView const& destination) {
    auto const check = [&](std::string_view what, ConstDynamicView const& given, DynamicDistribution const& under,
                           std::string_view other, ConstDynamicView const& beside) {
        if (!under.contains(rank)) return;
        DynamicShape const wanted = under.local_shape(rank);
        if (given.shape() == wanted) return;
        raise(ErrorCode::buffer, "reshard::prepare: the ", what, " of rank ", rank, " has shape ",
              to_string(all.inner(given.shape())), ", but beside a ", other, " of ",
              to_string(all.inner(beside.shape())), " it is ", to_string(all.inner(wanted)),
              ". Fix: give the source first, the destination second, or allocate that.");
    };
    check("source", source, move.from(), "destination", destination);
    check("destination", destination, move.to(), "source", source);
}

/// Collective. Whether all ranks give the same mesh and axes.
[[nodiscard]] inline bool same_axes(CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes) {
    Digest words;
    Verdict mine = verdict_of([&] {
        digest(words, replicated(mesh, DynamicShape()));
        for (Index axis : mesh.axis_numbers(axes)) words.add_signed(-1 - axis);
    });
    if (mine.ok()) mine.digest = words.value();
    return agreed(comm, std::move(mine)).ok();
}

/// One rank's part of a collective; without a plan nothing moves.
struct PartAlong {
    std::optional<Plan<>> plan;
    ConstDynamicView source;
    DynamicView destination;
};
/// Makes it, for tensors of ranks along axes of a mesh. Throws what is wrong with the arguments.
using MakePart = FunctionRef<PartAlong(CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes)>;

/// Collective, also for what this rank alone gets wrong. `told`: what all ranks in `call` agree on.
[[nodiscard]] inline PreparedPlan prepare_part(std::string_view call, CommunicatorRef comm, DynamicMesh const& mesh,
                                               MeshAxes const& axes, MakePart make, Verdict& told) {
    PartAlong part;
    PreparedPlan nothing;
    told = verdict_of(
        [&] {
            part = make(comm, mesh, axes);
            std::size_t current = 0;
            if (!part.plan) nothing = PreparedPlan(bind_batch(Batch(), comm, {}, current));
        },
        call);
    if (part.plan)
        return prepare_with(all_means(host_memory()), part.plan->value(), comm, part.source, part.destination, {},
                            Verdict(told), &told);
    if (told.ok()) told.words = [](void const*) { return std::string("moves nothing"); };
    told = agreed(comm, std::move(told));
    return nothing;
}

/// Collective, by votes: the largest of the numbers that ranks have.
[[nodiscard]] inline int largest_of_all(CommunicatorRef comm, int mine) {
    auto const is_enough = [&](int number) {
        Verdict vote;
        if (mine > number) vote.code = ErrorCode::mismatch;
        return comm.agree(std::move(vote)).ok();
    };
    int enough = 0;
    while (!is_enough(enough)) enough = 2 * enough + 1;
    return first_where((enough + 1) / 2, enough, is_enough);
}

/// Collective. What `make` makes, prepared, for tensors that are alike on all ranks. Where they are not (cut unevenly
/// along other axes, or none where a rank is outside the mesh), the ranks along the axes agree among themselves, as a
/// mesh of their own, on what they move: each line of ranks has its own shapes, and what is wrong with them is said in
/// words that know of no other axes. What is prepared is one of `comm` all the same.
[[nodiscard]] inline PreparedPlan prepare_along(std::string_view call, CommunicatorRef comm, DynamicMesh const& mesh,
                                                MeshAxes const& axes, MakePart make) {
    Verdict all;
    PreparedPlan prepared = prepare_part(call, comm, mesh, axes, make, all);
    if (all.ok()) return prepared;
    auto const raise_all = [&] { raise_agreed(std::move(all), comm.size()); };
    bool const of_tensors =
        all.code == ErrorCode::mismatch || all.code == ErrorCode::shape || all.code == ErrorCode::buffer;
    // Those outside the mesh give any type, of which the op may have no fold, and any number of dimensions.
    bool const of_outsiders = all.code == ErrorCode::placement || all.code == ErrorCode::dtype;
    if (all.apart || (!of_tensors && !of_outsiders)) raise_all();
    prepared = {};
    // What ranks do next depends on mesh and axes: they must be the same.
    if (!same_axes(comm, mesh, axes)) raise_all();
    bool const some_outside = mesh.size() != comm.size();
    if (!some_outside && (of_outsiders || axes.size() == mesh.axes())) raise_all();
    // In the mesh's order, whichever axis is given first: sums are folded in the same order as above.
    Indices const given = mesh.axis_numbers(axes);
    MeshAxes along;
    MeshAxes each;  // those of the ranks' own mesh, in the order given
    Indices extents;
    for (int axis = 0; axis < mesh.axes(); ++axis) {
        if (std::find(given.begin(), given.end(), axis) == given.end()) continue;
        along.push_back(axis);
        extents.push_back(mesh.extent(axis));
    }
    DynamicMesh const alone(extents);  // (takes no memory, which a rank may not have here)
    for (Index axis : given)
        each.push_back(
            static_cast<int>(std::count_if(given.begin(), given.end(), [axis](Index other) { return other < axis; })));
    transport::MeshLine const place = transport::mesh_line(mesh, along, comm.rank(), comm.size());
    bool const is_inside = mesh.contains(comm.rank());
    std::optional<AnyCommunicator> line;
    // Collective, and complete on all where a rank has no memory for its part.
    agree_on_errors(comm, [&] { line.emplace(comm.split(place.colour, place.key)); });
    Verdict const again = agreed(comm, verdict_of([&] {
                                     if (!is_inside) return;
                                     Verdict own;
                                     static_cast<void>(prepare_part(call, *line, alone, each, make, own));
                                     if (!own.ok()) raise_agreed(std::move(own), line->size());
                                 }));
    if (again.code == ErrorCode::mesh) raise_all();  // ranks give other axes
    if (!again.ok()) {
        // Who is wrong has a number among the ranks of its line.
        bool const among = mesh.contains(again.rank);
        raise(again.code, among ? concat("among ", to_string(mesh.along(along, again.rank)), ": ", words_of(again))
                                : words_of(again, comm.size()));
    }
    BatchJob* job = nullptr;
    agree_or_raise(comm, verdict_of([&] {
                       PartAlong part;
                       if (is_inside) part = make(comm, mesh.along(along, comm.rank()), each);
                       Batch batch;
                       if (part.plan) batch.add(*part.plan, part.source, part.destination);
                       std::size_t current = 0;
                       job = bind_batch(batch, comm, {}, current);
                       prepared = PreparedPlan(job);
                   }));
    // Ranks start the same exchanges: of all lines as many as the one has that has most.
    int const exchanges = largest_of_all(comm, job->phases());
    agree_or_raise(comm, verdict_of([&] { job->bind_again(comm, exchanges); }));
    return prepared;
}

/// `plan_of` makes the plan of tensors of `shape`; none where nothing moves.
[[nodiscard]] inline PreparedPlan prepare_beside(std::string_view call, DynamicShape const& shape,
                                                 ConstDynamicView const& source, DynamicView const& destination,
                                                 CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                                 FunctionRef<std::optional<Plan<>>(Beside const& all)> plan_of) {
    auto const make = [&](CommunicatorRef among, DynamicMesh const& whole, MeshAxes const& given) {
        Beside const all(whole, given, shape);
        PartAlong part{plan_of(all), all.view(source), all.view(destination)};
        if (part.plan) {
            check_pair(all, *part.plan, among.rank(), part.source, part.destination);
            return part;
        }
        // What is wrong is wrong where something moves, too.
        check_mesh(whole, among.size(), "reshard::prepare: ");
        check_byte_sized(destination.dtype());
        Index const rank = among.rank();
        DynamicDistribution const copied = all.copied();
        if (copied.contains(rank)) check_view("tensor", part.destination, copied.local_shape(rank), rank, copied);
        return part;
    };
    return prepare_along(call, comm, mesh, axes, make);
}

}  // namespace detail

RESHARD_INLINE PreparedPlan prepare_all_reduce(ConstDynamicView const& source, DynamicView const& destination,
                                               CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                               Reduce op) {
    // An exchange costs more to start than to carry out: measured on 2 to 8 processes of a node, to 8 or 16 KiB.
    constexpr Index limit = Index{8} << 10;
    bool const few = source.size() <= limit && source.size() * bits(source.dtype()) <= 8 * limit;
    return detail::prepare_beside("all_reduce", source.shape(), source, destination, comm, mesh, axes,
                                  [&](detail::Beside const& all) {
                                      Plan<> const sums = plan(all.placed(Placement::partial(op)), all.copied());
                                      return few ? sums.one_shot_fold() : sums;
                                  });
}
RESHARD_INLINE PreparedPlan prepare_reduce_scatter(ConstDynamicView const& source, DynamicView const& destination,
                                                   CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                                   int dim, Reduce op) {
    return detail::prepare_beside(
        "reduce_scatter", source.shape(), source, destination, comm, mesh, axes,
        [&](detail::Beside const& all) { return plan(all.placed(Placement::partial(op)), all.cut(dim)); });
}
RESHARD_INLINE PreparedPlan prepare_all_gather(ConstDynamicView const& source, DynamicView const& destination,
                                               CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                               int dim) {
    return detail::prepare_beside("all_gather", destination.shape(), source, destination, comm, mesh, axes,
                                  [&](detail::Beside const& all) { return plan(all.cut(dim), all.copied()); });
}
RESHARD_INLINE PreparedPlan prepare_broadcast(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh,
                                              MeshAxes const& axes, int root) {
    auto const plan_of = [&](detail::Beside const& all) -> std::optional<Plan<>> {
        DynamicMesh const line = all.line();
        if (root < 0 || root >= line.size()) {
            errors::raise(ErrorCode::mesh, "reshard::broadcast: root ", root, " of ", line.size(),
                          " ranks along the axes. Fix: they count along the axes, from 0, and are no ranks of the "
                          "communicator.");
        }
        if (line.size() == 1) return std::nullopt;
        return detail::replica_plan(all.copied(), line.rank_at(root));
    };
    return detail::prepare_beside("broadcast", tensor.shape(), tensor, tensor, comm, mesh, axes, plan_of);
}

}  // namespace reshard::inline v0_1
