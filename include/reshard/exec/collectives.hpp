// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/collectives.hpp
/// \brief  Collectives of tensors by the names people know, along axes of a mesh.
/// \depends exec/redistribute. Opt-in: not part of the umbrella.
///
///     all_reduce(gradient.view(), comm, mesh, "dp");               // in place: along dp every rank has the sum
///     reduce_scatter(gradient.view(), shard.view(), comm, mesh, "dp", 0);  // its rows, as Shard<0> cuts them
///     all_gather(shard.view(), weight.view(), comm, mesh, "dp", 0);
///     broadcast(weight.view(), comm, mesh, {"dp", "tp"});
///
/// Each is a transition (Partial to Replicate, Partial to Shard, Shard to Replicate) of the tensors that ranks along
/// the axis hold; those with other coordinates along other axes go about their own at the same time. So sums are folded
/// in ascending order along the axis, or of the mesh along several, the same bits on every transport, parts may be
/// uneven, and mistakes are the errors of redistribute(). Collective over `comm`, which has the ranks of the mesh.
/// Ranks along the axis give the same shapes; where those of other coordinates give others (what another axis cuts
/// unevenly), a call splits the communicator while it prepares. So it does where ranks outside the mesh give others, or
/// nothing: theirs are not touched.
///
/// A call agrees and prepares each time. What is repeated is prepared once, with the arguments of the call:
///
///     PreparedPlan sums = prepare_all_reduce(gradient.view(), comm, mesh, "dp");
///     for (;;) { ...; sums.run(); }                                // or start() and wait()
#pragma once

#include <reshard/exec/redistribute.hpp>

namespace reshard::inline v0_1 {

/// Each of the calls below, prepared: checked, agreed on and allocated once; a run moves what the tensors hold then, to
/// the bits that the call leaves. Collective on all ranks of `comm`, as the call is, and with its errors; those outside
/// the mesh run it as well, and nothing is touched.
[[nodiscard]] PreparedPlan prepare_all_reduce(ConstDynamicView const& source, DynamicView const& destination,
                                              CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                              Reduce op = Reduce::sum);
[[nodiscard]] inline PreparedPlan prepare_all_reduce(DynamicView const& tensor, CommunicatorRef comm,
                                                     DynamicMesh const& mesh, MeshAxes const& axes,
                                                     Reduce op = Reduce::sum) {
    return prepare_all_reduce(tensor, tensor, comm, mesh, axes, op);
}
[[nodiscard]] PreparedPlan prepare_reduce_scatter(ConstDynamicView const& source, DynamicView const& destination,
                                                  CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                                  int dim = 0, Reduce op = Reduce::sum);
[[nodiscard]] PreparedPlan prepare_all_gather(ConstDynamicView const& source, DynamicView const& destination,
                                              CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                                              int dim = 0);
[[nodiscard]] PreparedPlan prepare_broadcast(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh,
                                             MeshAxes const& axes, int root = 0);

/// Every rank along the axes gets the reduction of what they hold, in place. Up to 8 KiB take one exchange in place of
/// two (Plan::one_shot_fold); the same bits.
inline void all_reduce(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                       Reduce op = Reduce::sum) {
    prepare_all_reduce(tensor, comm, mesh, axes, op).run();
}
/// The same into other memory.
inline void all_reduce(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                       DynamicMesh const& mesh, MeshAxes const& axes, Reduce op = Reduce::sum) {
    prepare_all_reduce(source, destination, comm, mesh, axes, op).run();
}
/// Every rank along the axes gets its part of the reduction, cut along `dim` as Shard does: parts of the rounded-up
/// size, the last ones short or empty. Of several axes the one given first cuts first.
inline void reduce_scatter(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                           DynamicMesh const& mesh, MeshAxes const& axes, int dim = 0, Reduce op = Reduce::sum) {
    prepare_reduce_scatter(source, destination, comm, mesh, axes, dim, op).run();
}
/// Every rank along the axes gets all their parts, side by side along `dim`.
inline void all_gather(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                       DynamicMesh const& mesh, MeshAxes const& axes, int dim = 0) {
    prepare_all_gather(source, destination, comm, mesh, axes, dim).run();
}
/// Every rank along the axes gets what number `root` of them holds, in place.
inline void broadcast(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh, MeshAxes const& axes,
                      int root = 0) {
    prepare_broadcast(tensor, comm, mesh, axes, root).run();
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/exec/collectives.ipp>
#endif
