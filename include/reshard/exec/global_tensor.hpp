// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/global_tensor.hpp
/// \brief  Between a rank's part and the whole tensor, as DTensor's full_tensor() and from_local().
/// \depends exec/{redistribute,detail/check}, comm/collectives; <vector>. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/exec/detail/check.hpp>
#include <reshard/exec/redistribute.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// The whole tensor on every rank of its mesh, addends folded; empty on others. Collective over `comm`; throws what
/// redistribute() throws.
template <class S>
[[nodiscard]] Tensor<std::remove_const_t<S>> full_tensor(DynamicDistribution const& from, CommunicatorRef comm,
                                                         TensorView<S> const& mine) {
    return redistribute(plan(from, replicated(from.mesh(), from.shape())), comm, mine);
}

namespace detail {

/// Where a part does not fit: what would make it.
[[nodiscard]] inline std::string name_cuts(DynamicDistribution const& distribution, std::vector<Indices> const& parts,
                                           int dim) {
    AxisList const cuts = distribution.cuts(dim);
    std::string general = "give the parts that the placements cut";
    if (cuts.size() != 1) return general;
    std::vector<Index> ends{0};
    DynamicMesh const& mesh = distribution.mesh();
    for (Index i = 0; i < mesh.extent(cuts[0]); ++i) {
        ends.push_back(ends.back() + parts[as_size(i * mesh.stride(cuts[0]))][dim]);
    }
    SplitRule const rule = Boundaries(ends).rule(0, 0);
    return concat(general, ", or say where they are cut: ", to_string(Placement::shard(dim, rule)));
}

/// The distribution whose parts these are, one per position of the mesh.
[[nodiscard]] inline DynamicDistribution of_parts(DynamicMesh const& mesh, std::string_view text,
                                                  std::vector<Indices> const& parts) {
    int const dims = parts[0].size();
    auto const raise_part = [&](Index ordinal, auto const&... why) {
        DynamicShape const part(parts[as_size(ordinal)]);
        raise(ErrorCode::mismatch, "reshard::from_local: rank ", mesh.rank_at(ordinal), " has a part of shape ",
              to_string(part), ", but ", why...);
    };
    for (Index i = 0; i < mesh.size(); ++i) {
        if (parts[as_size(i)].size() == dims) continue;
        raise_part(i, "that of rank ", mesh.rank_at(0), " has ", dims, " dimensions. Fix: give parts of one tensor.");
    }
    auto const [placements, order] = read_placements(text, mesh, dims);
    // Along a dimension the parts of the ranks that only the axes cutting it tell apart lie side by side.
    Indices extents;
    for (int dim = 0; dim < dims; ++dim) {
        Index extent = 0;
        for (Index i = 0; i < mesh.size(); ++i) {
            Indices const at = mesh.coordinates(mesh.rank_at(i));
            bool counts = true;
            for (int axis = 0; axis < placements.size() && axis < mesh.axes(); ++axis) {
                bool const cuts = placements[axis].is_shard() && placements[axis].dim() == dim;
                counts = counts && (cuts || at[axis] == 0);
            }
            Index const part = parts[as_size(i)][dim];
            if (counts && !add_fits(extent, part))
                raise_part(i, "along dimension ", dim,
                           " all parts are more than 64 bits count. Fix: check their extents.");
        }
        extents.push_back(extent);
    }
    DynamicDistribution result(mesh, DynamicShape(extents), placements, order);
    for (Index i = 0; i < mesh.size(); ++i) {
        DynamicShape const wanted = result.local_shape(mesh.rank_at(i));
        for (int dim = 0; dim < dims; ++dim) {
            if (parts[as_size(i)][dim] == wanted.extent(dim)) continue;
            raise_part(i, "under ", to_string(result), " of ", to_string(result.shape()), " it holds ",
                       to_string(wanted), ". Fix: ", name_cuts(result, parts, dim), ".");
        }
    }
    return result;
}

}  // namespace detail

/// The distribution of the tensor whose parts the ranks of a mesh have: `from_local(mesh, "S0,R", comm, mine.shape())`.
/// Its shape is what the parts add up to, which may be uneven. Collective over `comm`, one agreement and one exchange
/// of shapes, in memory of the host; ranks outside the mesh take part, and their shape does not count.
///
/// Throws, the same on every rank: MeshError for a mesh of ranks that do not exist; MismatchError where ranks give
/// other meshes or placements, and, naming the first rank, where a part is not what the placements make of the whole;
/// NotationError, PlacementError.
[[nodiscard]] inline DynamicDistribution from_local(DynamicMesh const& mesh, std::string_view placements,
                                                    CommunicatorRef comm, DynamicShape const& mine) {
    constexpr std::size_t words = 1 + max_dims;  // dimensions, extents
    std::vector<Index> all;
    std::vector<Indices> parts;
    detail::TransferLists lists;
    detail::agree_on_words(comm, "from_local", [&] {
        detail::check_mesh(mesh, comm.size(), "reshard::from_local: ");
        all.resize(words * detail::as_size(comm.size()));
        parts.resize(detail::as_size(mesh.size()));
        lists.make_room(comm.size());
        return errors::concat("has parts of ", to_string(mesh), ":", placements);
    });
    Index own[words] = {mine.rank()};
    for (int dim = 0; dim < mine.rank(); ++dim) own[1 + dim] = mine.extent(dim);
    detail::all_gather(comm, std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)), lists);
    for (Index i = 0; i < mesh.size(); ++i) {
        Index const* const part = &all[words * detail::as_size(mesh.rank_at(i))];
        for (Index dim = 0; dim < part[0]; ++dim) parts[detail::as_size(i)].push_back(part[1 + dim]);
    }
    return detail::of_parts(mesh, placements, parts);
}

}  // namespace reshard::inline v0_1
