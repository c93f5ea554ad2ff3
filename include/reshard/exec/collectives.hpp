// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/collectives.hpp
/// \brief  Collectives of tensors by the names people know, along one axis of a mesh.
/// \depends exec/redistribute; <string_view>. Opt-in: not part of the umbrella.
///
///     all_reduce(gradient, comm, mesh, "dp");                      // in place: along dp every rank has the sum
///     reduce_scatter(gradient, shard, comm, mesh, "dp", 0);        // its rows, as Shard<0> cuts them
///     all_gather(shard, weight, comm, mesh, "dp", 0);
///     broadcast(weight, comm, mesh, "dp");
///
/// Each is a transition (Partial to Replicate, Partial to Shard, Shard to Replicate) of the tensors that ranks along
/// the axis hold; those with other coordinates along other axes go about their own at the same time. So sums are folded
/// in ascending order along the axis, the same bits on every transport, parts may be uneven, and mistakes are the
/// errors of redistribute(). Collective over `comm`, which has the ranks of the mesh; the same shapes on all.
///
/// A call agrees and prepares each time. What is repeated is better prepared once, as such a transition.
#pragma once

#include <reshard/exec/redistribute.hpp>

#include <string_view>  // string_view

namespace reshard::inline v0 {

/// An axis of a mesh, by its number or its name.
class MeshAxis {
public:
    constexpr MeshAxis(int number) noexcept : number_(number) {}
    constexpr MeshAxis(std::string_view name) noexcept : name_(name) {}
    constexpr MeshAxis(char const* name) noexcept : name_(name) {}

    /// Throws MeshError when the mesh has no such axis.
    [[nodiscard]] int of(DynamicMesh const& mesh) const;

private:
    int number_ = -1;
    std::string_view name_;
};

/// Every rank along the axis gets the reduction of what they hold, in place.
void all_reduce(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh, MeshAxis axis,
                Reduce op = Reduce::sum);
/// The same into other memory.
void all_reduce(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                DynamicMesh const& mesh, MeshAxis axis, Reduce op = Reduce::sum);
/// Every rank along the axis gets its part of the reduction, cut along `dim` as Shard does: the first ones of the
/// rounded-up size.
void reduce_scatter(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                    DynamicMesh const& mesh, MeshAxis axis, int dim = 0, Reduce op = Reduce::sum);
/// Every rank along the axis gets all their parts, side by side along `dim`.
void all_gather(ConstDynamicView const& source, DynamicView const& destination, CommunicatorRef comm,
                DynamicMesh const& mesh, MeshAxis axis, int dim = 0);
/// Every rank along the axis gets what the one at coordinate `root` holds, in place.
void broadcast(DynamicView const& tensor, CommunicatorRef comm, DynamicMesh const& mesh, MeshAxis axis, int root = 0);

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/exec/collectives.ipp>
#endif
