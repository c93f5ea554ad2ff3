// SPDX-License-Identifier: Apache-2.0
// How exec/collectives.hpp is done.
#pragma once

#include <reshard/exec/collectives.hpp>
#include <reshard/exec/detail/batch_job.hpp>
#include <reshard/exec/prepare.hpp>
#include <reshard/plan/replicas.hpp>

#include <algorithm>  // count_if, find
#include <optional>   // optional

namespace reshard::inline v0_1 {

namespace detail {

/// The ranks along axes of a mesh as a mesh of their own: in the mesh's order, whichever axis is given first, so that
/// sums are folded alike. (Takes no memory, which a rank may not have.)
struct AxisLine {
    MeshAxes along;     ///< of the mesh
    MeshAxes order;     ///< the axes of the line, as they were given: the first cuts first
    DynamicMesh alone;  ///< its ranks numbered from 0, which is the same for all lines

    AxisLine(DynamicMesh const& mesh, MeshAxes const& axes) {
        Indices const given = mesh.axis_numbers(axes);
        if (given.empty())
            raise(ErrorCode::mesh, "reshard: a collective along no axis. Fix: give one axis of the mesh, or more.");
        Indices extents;
        for (int axis = 0; axis < mesh.axes(); ++axis) {
            if (std::find(given.begin(), given.end(), axis) == given.end()) continue;
            along.push_back(axis);
            extents.push_back(mesh.extent(axis));
        }
        alone = DynamicMesh(extents);
        for (Index axis : given)
            order.push_back(static_cast<int>(
                std::count_if(given.begin(), given.end(), [axis](Index other) { return other < axis; })));
    }
    /// The line of a rank; outside the mesh, any.
    [[nodiscard]] DynamicMesh of(DynamicMesh const& mesh, Index rank) const {
        if (along.size() == mesh.axes()) return mesh;
        return mesh.along(along, mesh.contains(rank) ? rank : mesh.rank_at(0));
    }
};

/// Tensors of one shape, one for each rank of a line.
struct LineTensors {
    DynamicMesh const& mesh;
    MeshAxes const& order;
    DynamicShape const& shape;

    [[nodiscard]] DynamicDistribution placed(Placement const& along) const {
        Placements placements;
        AxisList cuts;
        for (AxisRef const& axis : order) {
            placements.push_back(along);
            cuts.push_back(static_cast<std::int8_t>(axis.number));
        }
        return DynamicDistribution(mesh, shape, placements, cuts);
    }
    [[nodiscard]] DynamicDistribution copied() const { return replicated(mesh, shape); }
    /// Throws PlacementError where the tensor has no dimension of that number.
    [[nodiscard]] DynamicDistribution cut(int dim) const {
        if (dim < 0 || dim >= shape.rank()) {
            raise(ErrorCode::placement, "reshard: a tensor of ", shape.rank(), " dimensions has no dimension ", dim,
                  " to cut along. Fix: ", dimensions_text(shape.rank()), ".");
        }
        return placed(Placement::shard(dim));
    }
};

/// What one rank passes. `plan_of` makes the plan of a line's tensors of `shape`; none where nothing moves.
struct CollectiveCall {
    std::string_view name;
    DynamicShape const& shape;
    ConstDynamicView const& source;
    DynamicView const& destination;
    FunctionRef<std::optional<Plan<>>(LineTensors const& all)> plan_of;
};

/// Throws BufferError where one of two tensors makes the other of another shape: in words of the caller, who has named
/// no distribution.
inline void check_pair(Plan<> const& move, int rank, CollectiveCall const& call) {
    auto const check = [&](std::string_view what, ConstDynamicView const& given, DynamicDistribution const& under,
                           std::string_view other, ConstDynamicView const& beside) {
        if (!under.contains(rank) || given.shape() == under.local_shape(rank)) return;
        raise(ErrorCode::buffer, "reshard::prepare: the ", what, " of rank ", rank, " has shape ",
              to_string(given.shape()), ", but beside a ", other, " of ", to_string(beside.shape()), " it is ",
              to_string(under.local_shape(rank)),
              ". Fix: give the source first, the destination second, or allocate that.");
    };
    check("source", call.source, move.from(), "destination", call.destination);
    check("destination", call.destination, move.to(), "source", call.source);
}

/// Checks and binds what a rank of `comm` does in its line, those of `mesh`. Communicates nothing.
[[nodiscard]] inline BatchJob* bind_line(CollectiveCall const& call, CommunicatorRef comm, DynamicMesh const& mesh,
                                         MeshAxes const& order) {
    LineTensors const all{mesh, order, call.shape};
    if (std::optional<Plan<>> const plan = call.plan_of(all)) {
        check_pair(*plan, comm.rank(), call);
        return bind_plan(all_means(host_memory()), {plan->value(), comm.rank(), call.source, call.destination}, comm);
    }
    check_byte_sized("prepare", call.destination.dtype());  // what is wrong is wrong where something moves, too
    if (mesh.contains(comm.rank()))
        check_view("tensor", call.destination, false, call.shape, comm.rank(), all.copied());
    return new BatchJob(comm, Job(), Workspace());
}

inline void digest(Digest& words, DynamicMesh const& mesh, MeshAxes const& axes) {
    digest(words, replicated(mesh, DynamicShape()));
    for (Index axis : mesh.axis_numbers(axes)) words.add_signed(-1 - axis);
}
/// Collective. Whether all ranks give the same mesh and axes.
[[nodiscard]] inline bool same_axes(std::string_view call, CommunicatorRef comm, DynamicMesh const& mesh,
                                    MeshAxes const& axes) {
    Digest words;
    Verdict mine = verdict_of([&] { digest(words, mesh, axes); }, call);
    if (mine.ok()) mine.digest = words.value();
    return agreed(comm, std::move(mine)).ok();
}

/// Collective, also for what this rank alone gets wrong. `told`: what all ranks in the call agree on, which lines have
/// alike: the plan of each is that of ranks from 0 on.
[[nodiscard]] inline PreparedPlan prepare_lines(CollectiveCall const& call, CommunicatorRef comm,
                                                DynamicMesh const& mesh, MeshAxes const& axes, Verdict& told) {
    PreparedPlan prepared;
    std::optional<Plan<>> alike;
    ValueChange change;
    Digest words;
    told = verdict_of(
        [&] {
            AxisLine const line(mesh, axes);
            check_mesh(mesh, comm.size(), "reshard::prepare: ");
            alike = call.plan_of({line.alone, line.order, call.shape});
            change.from = change.to =
                (mesh.contains(comm.rank()) ? call.source : ConstDynamicView(call.destination)).dtype();
            digest(words, mesh, axes);
            if (alike) digest(words, alike->value(), change, {});
            prepared = PreparedPlan(bind_line(call, comm, line.of(mesh, comm.rank()), line.order));
        },
        call.name);
    auto const text = [&] {
        std::string what("moves nothing");
        if (alike)
            what = concat("prepared ", move_text(alike->value(), change, {}, mesh.contains(comm.rank()) ? 0 : -1));
        return concat(what, " along axes ", to_string(mesh.axis_numbers(axes)), " of ", to_string(mesh));
    };
    if (told.ok()) {
        told.digest = words.value();
        told.about = &text;
        told.words = [](void const* about) { return (*static_cast<decltype(text)*>(about))(); };
    }
    told = agreed(comm, std::move(told));
    return prepared;
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

/// Collective. Where tensors are not alike on all ranks (cut unevenly along other axes, or none where a rank is outside
/// the mesh), the ranks of each line agree among themselves on what they move: each line has its own shapes. What is
/// prepared is a plan of `comm` all the same.
[[nodiscard]] inline PreparedPlan prepare_along(CollectiveCall const& call, CommunicatorRef comm,
                                                DynamicMesh const& mesh, MeshAxes const& axes) {
    Verdict all;
    PreparedPlan prepared = prepare_lines(call, comm, mesh, axes, all);
    if (all.ok()) return prepared;
    auto const raise_all = [&] { raise_agreed(std::move(all), comm.size()); };
    bool const of_tensors =
        all.code == ErrorCode::mismatch || all.code == ErrorCode::shape || all.code == ErrorCode::buffer;
    // Those outside the mesh give any type, of which the op may have no fold, and any number of dimensions.
    bool const of_outsiders = all.code == ErrorCode::placement || all.code == ErrorCode::dtype;
    if (all.apart || (!of_tensors && !of_outsiders)) raise_all();
    prepared = {};
    // What ranks do next depends on mesh and axes: they must be the same.
    if (!same_axes(call.name, comm, mesh, axes)) raise_all();
    bool const some_outside = mesh.size() != comm.size();
    if (!some_outside && (of_outsiders || axes.size() == mesh.axes())) raise_all();
    AxisLine const line(mesh, axes);
    transport::MeshLine const place = transport::mesh_line(mesh, line.along, comm.rank(), comm.size());
    bool const is_inside = mesh.contains(comm.rank());
    std::optional<AnyCommunicator> own;
    // Collective, and complete on all where a rank has no memory for its part.
    agree_on_errors(
        comm, [&] { own.emplace(comm.split(place.colour, place.key)); }, call.name);
    auto const prepare_own = [&] {
        if (!is_inside) return;
        Verdict told;
        static_cast<void>(prepare_lines(call, *own, line.alone, line.order, told));
        if (!told.ok()) raise_agreed(std::move(told), own->size());
    };
    Verdict const again = agreed(comm, verdict_of(prepare_own, call.name));
    if (again.code == ErrorCode::mesh) raise_all();  // ranks give other axes
    if (!again.ok()) {
        // Who is wrong has a number among the ranks of its line.
        bool const among = mesh.contains(again.rank);
        raise_agreed(again.code, among ? concat("among ", brief(line.of(mesh, again.rank)), ": ", words_of(again))
                                       : words_of(again, comm.size()));
    }
    BatchJob* job = nullptr;
    auto const bind = [&] {
        job = is_inside ? bind_line(call, comm, line.of(mesh, comm.rank()), line.order)
                        : new BatchJob(comm, Job(), Workspace());
        prepared = PreparedPlan(job);
    };
    agree_or_raise(comm, verdict_of(bind, call.name));
    // Ranks start the same exchanges: of all lines as many as the one has that has most.
    int const exchanges = largest_of_all(comm, job->phases());
    agree_or_raise(comm, verdict_of([&] { job->bind_again(comm, exchanges); }, call.name));
    return prepared;
}

}  // namespace detail

RESHARD_INLINE PreparedPlan prepare_all_reduce(ConstDynamicView const& source, DynamicView const& destination,
                                               CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                               Reduce op) {
    // An exchange costs more to start than to carry out: measured on 2 to 8 processes of a node, to 8 or 16 KiB.
    constexpr Index limit = Index{8} << 10;
    bool const few = source.size() <= limit && source.size() * bits(source.dtype()) <= 8 * limit;
    auto const plan_of = [&](detail::LineTensors const& all) -> std::optional<Plan<>> {
        Plan<> const sums = plan(all.placed(Placement::partial(op)), all.copied());
        return few ? sums.one_shot_fold() : sums;
    };
    return detail::prepare_along({"all_reduce", source.shape(), source, destination, plan_of}, comm, mesh, axes);
}
RESHARD_INLINE PreparedPlan prepare_reduce_scatter(ConstDynamicView const& source, DynamicView const& destination,
                                                   CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                                   int dim, Reduce op) {
    auto const plan_of = [&](detail::LineTensors const& all) -> std::optional<Plan<>> {
        return plan(all.placed(Placement::partial(op)), all.cut(dim));
    };
    return detail::prepare_along({"reduce_scatter", source.shape(), source, destination, plan_of}, comm, mesh, axes);
}
RESHARD_INLINE PreparedPlan prepare_all_gather(ConstDynamicView const& source, DynamicView const& destination,
                                               CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                               int dim) {
    auto const plan_of = [&](detail::LineTensors const& all) -> std::optional<Plan<>> {
        return plan(all.cut(dim), all.copied());
    };
    return detail::prepare_along({"all_gather", destination.shape(), source, destination, plan_of}, comm, mesh, axes);
}
RESHARD_INLINE PreparedPlan prepare_broadcast(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh,
                                              MeshAxes const& axes, int root) {
    auto const plan_of = [&](detail::LineTensors const& all) -> std::optional<Plan<>> {
        DynamicMesh const line = all.mesh.along(all.order, all.mesh.rank_at(0));  // they count in the order given
        if (root < 0 || root >= line.size()) {
            errors::raise(ErrorCode::mesh, "reshard::broadcast: root ", root, " of ", line.size(),
                          " ranks along the axes. Fix: they count along the axes, from 0, and are no ranks of the "
                          "communicator.");
        }
        if (line.size() == 1) return std::nullopt;
        return detail::replica_plan(all.copied(), line.rank_at(root));
    };
    return detail::prepare_along({"broadcast", tensor.shape(), tensor, tensor, plan_of}, comm, mesh, axes);
}

}  // namespace reshard::inline v0_1
