// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/relabel.hpp
/// \brief  Which rank should take which place of a new distribution, so that the fewest bytes move.
/// \depends algebra, detail/assignment; <vector>. Not part of the umbrella.
///
/// Where the program may choose, for instance because ranks are interchangeable after a restart, the places of the
/// destination's mesh are dealt to ranks by what they hold already. The assignment is exact. Exchanging owners in
/// pairs, as COSTA does (github.com/eth-cscs/COSTA), misses every longer cycle: owners 1, 2, 3, 0 need four changes
/// at once.
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/plan/detail/assignment.hpp>
#include <reshard/plan/message.hpp>

#include <reshard/core/dtype.hpp>

#include <algorithm>  // find
#include <vector>     // vector

namespace reshard::inline v0_1 {

/// One tensor that is to move: several of them may share one relabelling.
struct Relabelled {
    DynamicDistribution from;
    DynamicDistribution to;
    DType dtype = DType::u8;
};

/// Who takes which place, and what that saves.
struct Relabelling {
    std::vector<Index> ranks;  ///< per row-major place of the destination's mesh: the rank that takes it
    DynamicMesh mesh;          ///< the destination's mesh on those ranks; the one given when nothing can be saved
    Index bytes_before = 0;    ///< received by all ranks without relabelling
    Index bytes_after = 0;

    [[nodiscard]] Index saved() const noexcept { return bytes_before - bytes_after; }
};

/// The same placements and cutting order on another mesh of the same extents. Throws MeshError when extents differ.
[[nodiscard]] inline DynamicDistribution on_mesh(DynamicDistribution const& distribution, DynamicMesh const& mesh) {
    if (!(mesh.extents() == distribution.mesh().extents())) {
        errors::raise(ErrorCode::mesh, "reshard::on_mesh: the mesh ", detail::brief(mesh), " has not the extents of ",
                      detail::brief(distribution.mesh()), ". Fix: only the ranks may differ.");
    }
    return DynamicDistribution(mesh, distribution.shape(), distribution.placements(), distribution.order());
}

namespace detail {

[[nodiscard]] inline std::vector<Index> ranks_of(DynamicMesh const& mesh) {
    std::vector<Index> ranks;
    for (Index place = 0; place < mesh.size(); ++place) ranks.push_back(mesh.rank_at(place));
    return ranks;
}

/// What each rank holds, in mesh order.
[[nodiscard]] inline std::vector<IndexSets> held_sets(DynamicDistribution const& distribution) {
    std::vector<IndexSets> result;
    DynamicMesh const& mesh = distribution.mesh();
    for (Index rank : ranks_of(mesh)) result.push_back(index_sets(distribution, mesh.coordinates(rank)));
    return result;
}

inline constexpr Index most_relabelled = 4096;

inline void require_relabelled(std::vector<Relabelled> const& tensors, std::vector<Index> const& candidates) {
    if (tensors.empty()) raise(ErrorCode::mismatch, "reshard::relabel: no tensor given. Fix: give one or more.");
    DynamicMesh const& mesh = tensors[0].to.mesh();
    for (Relabelled const& tensor : tensors) {
        if (!(tensor.from.shape() == tensor.to.shape())) {
            raise(ErrorCode::mismatch, "reshard::relabel: shapes differ: ", to_string(tensor.from.shape()), " and ",
                  to_string(tensor.to.shape()), ". Fix: both sides describe one tensor.");
        }
        if (!(tensor.to.mesh() == mesh)) {
            raise(ErrorCode::mismatch, "reshard::relabel: destinations on ", to_string(mesh), " and on ",
                  to_string(tensor.to.mesh()), ". Fix: relabel the tensors of one mesh together.");
        }
        for (DynamicDistribution const* side : {&tensor.from, &tensor.to}) {
            if (side->signature().axes_of(PlacementKind::partial) == 0) continue;
            raise(ErrorCode::transition, "reshard::relabel: ", brief(*side),
                  " owes a reduction: no rank holds its values. "
                  "Fix: relabel between placements without Partial.");
        }
        check_byte_sized("relabel", tensor.dtype, "count");
    }
    auto const count = as_index(candidates.size());
    if (count < mesh.size() || count > most_relabelled) {
        raise(ErrorCode::mesh, "reshard::relabel: ", count, " ranks for the ", mesh.size(), " places of ", brief(mesh),
              ". Fix: give at least one rank per place, at most ", most_relabelled, " in all.");
    }
}

/// total += the bytes of so many elements, checked.
inline void weigh(Index& total, Index elements, DType dtype) {
    if (!add_fits(total, elements, bytes(dtype))) {
        raise(ErrorCode::shape, "reshard::relabel: the bytes do not fit 64 bits. Fix: relabel a smaller tensor.");
    }
}

}  // namespace detail

/// Deals the places of the destination's mesh to `candidates` (ranks; at least as many as there are places, each
/// once), for all tensors together. Bytes moved are then the fewest possible: what is needed and not held.
/// Throws MismatchError when shapes or destination meshes differ, TransitionError when something is Partial,
/// DTypeError for elements smaller than a byte, ShapeError when bytes do not fit 64 bits, MeshError for too few, more
/// than 4096 or repeated candidates.
/// Cost: places^2 x candidates at worst.
[[nodiscard]] inline Relabelling relabel(std::vector<Relabelled> const& tensors, std::vector<Index> const& candidates) {
    detail::require_relabelled(tensors, candidates);
    DynamicMesh const& mesh = tensors[0].to.mesh();
    auto const count = detail::as_index(candidates.size());
    // The mesh checks that candidates are ranks and listed once.
    static_cast<void>(DynamicMesh(Indices{count}, RankList{0, IndexList(candidates.data(), count)}));
    detail::GainTable table(mesh.size(), count);
    Relabelling result;
    Index needed = 0;
    Index held = 0;
    for (Relabelled const& tensor : tensors) {
        std::vector<detail::IndexSets> const have = detail::held_sets(tensor.from);
        std::vector<detail::IndexSets> const want = detail::held_sets(tensor.to);
        std::vector<Index> ordinals;
        ordinals.reserve(candidates.size());
        for (Index rank : candidates) ordinals.push_back(tensor.from.mesh().ordinal(rank));
        for (Index place = 0; place < mesh.size(); ++place) {
            detail::IndexSets const& wanted = want[detail::as_size(place)];
            detail::weigh(needed, detail::common_size(wanted, wanted), tensor.dtype);
            auto const add_common = [&](Index& total, Index ordinal) {
                if (ordinal < 0) return;
                detail::weigh(total, detail::common_size(wanted, have[detail::as_size(ordinal)]), tensor.dtype);
            };
            add_common(held, tensor.from.mesh().ordinal(mesh.rank_at(place)));
            for (Index i = 0; i < count; ++i) add_common(table.at(place, i), ordinals[detail::as_size(i)]);
        }
    }
    std::vector<Index> const chosen = detail::best_assignment(table);
    Index gained = 0;
    for (Index place = 0; place < mesh.size(); ++place) {
        gained += table.at(place, chosen[detail::as_size(place)]);
    }
    result.bytes_before = needed - held;
    result.bytes_after = needed - gained;
    result.ranks = detail::ranks_of(mesh);
    result.mesh = mesh;
    bool stays = result.bytes_after == result.bytes_before;  // everybody may, if allowed to
    for (Index rank : result.ranks)
        stays = stays && std::find(candidates.begin(), candidates.end(), rank) != candidates.end();
    if (stays) return result;
    for (std::size_t place = 0; place < chosen.size(); ++place) {
        result.ranks[place] = candidates[detail::as_size(chosen[place])];
    }
    result.mesh = mesh.on(RankList{0, IndexList(result.ranks.data(), mesh.size())});
    return result;
}

/// The same for one tensor, among the ranks of the destination's mesh.
[[nodiscard]] inline Relabelling relabel(DynamicDistribution const& from, DynamicDistribution const& to, DType dtype) {
    return relabel({{from, to, dtype}}, detail::ranks_of(to.mesh()));
}

}  // namespace reshard::inline v0_1
