// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/nodes.hpp
/// \brief  Which ranks of a mesh share a node, in terms of mesh axes.
/// \depends algebra; <algorithm>, <vector>.
///
/// Rank / ranks_per_node is the node. Along every axis the largest aligned block of neighbours that never leaves a node
/// is found; an axis of 16 over nodes of 8 then counts as two axes, (2, 8): one between nodes and one inside them.
/// Ordinals stay what they were, so a cut by the axis of 16 is a cut by both of the two at once: in a grid it keeps its
/// parts and its stride (Grid::lay_on), while copies along the axis can be told apart by node.
#pragma once

#include <reshard/algebra/distribution.hpp>

#include <algorithm>  // sort
#include <vector>     // vector

namespace reshard::inline v0_1 {

/// For Plan::relayed: all ranks count as one node, so that between meshes every byte leaves the source once.
inline constexpr Index all_ranks = INT32_MAX;

namespace detail {

/// Whether all ranks of a mesh are in one node. \pre ranks_per_node > 0 (else false).
[[nodiscard]] inline bool is_one_node(DynamicMesh const& mesh, Index ranks_per_node) noexcept {
    if (ranks_per_node < 1) return false;
    Index const node = mesh.rank_at(0) / ranks_per_node;
    return mesh.lowest_rank() / ranks_per_node == node && mesh.last_rank() / ranks_per_node == node;
}

/// Whether aligned blocks of `block` neighbours along an axis lie inside nodes.
[[nodiscard]] inline bool stays_inside(DynamicMesh const& mesh, int axis, Index block, Index ranks_per_node) noexcept {
    Index const stride = mesh.stride(axis);
    if (!mesh.is_listed()) {
        // Together such blocks fill runs of consecutive ranks; no node may begin inside a run.
        Index const run = block * stride;
        Index const first = mesh.rank_at(0);
        Index const last = first + mesh.size() - 1;
        Index const begin = (first / ranks_per_node + 1) * ranks_per_node;  // the first node that begins in the mesh
        if (begin > last) return true;
        return (begin - first) % run == 0 && (begin + ranks_per_node > last || ranks_per_node % run == 0);
    }
    for (Index ordinal = 0; ordinal < mesh.size(); ++ordinal) {
        Index const head = ordinal - ordinal / stride % block * stride;
        if (mesh.rank_at(ordinal) / ranks_per_node != mesh.rank_at(head) / ranks_per_node) return false;
    }
    return true;
}

/// Per axis the largest such block. The block of all axes together lies inside a node as well.
[[nodiscard]] inline Indices blocks_inside(DynamicMesh const& mesh, Index ranks_per_node) {
    Indices blocks;
    for (int axis = 0; axis < mesh.axes(); ++axis) {
        Index const extent = mesh.extent(axis);
        Index block = extent;
        if (!stays_inside(mesh, axis, block, ranks_per_node))
            block = smaller(larger<Index>(extent - 1, 1), ranks_per_node);
        while (block > 1 && (extent % block != 0 || !stays_inside(mesh, axis, block, ranks_per_node))) --block;
        blocks.push_back(block);
    }
    return blocks;
}

/// The most ranks of a mesh that sit in one node.
[[nodiscard]] inline Index most_in_one_node(DynamicMesh const& mesh, Index ranks_per_node) {
    std::vector<Index> nodes;
    if (!mesh.is_listed()) {
        Index const first = mesh.rank_at(0) % ranks_per_node;
        if (first + mesh.size() > 2 * ranks_per_node) return ranks_per_node;  // some node is full
        Index const in_first = smaller(mesh.size(), ranks_per_node - first);
        return larger(in_first, mesh.size() - in_first);
    }
    for (Index i = 0; i < mesh.size(); ++i) nodes.push_back(mesh.rank_at(i) / ranks_per_node);
    std::sort(nodes.begin(), nodes.end());
    Index most = 0;
    Index run = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        run = i > 0 && nodes[i] == nodes[i - 1] ? run + 1 : 1;
        most = larger(most, run);
    }
    return most;
}

/// A mesh whose axes between and inside nodes are told apart.
struct NodeMesh {
    DynamicMesh mesh;
    Indices first;        ///< per axis of the original mesh, its first axis here
    unsigned inside = 0;  ///< axes along which ranks stay in their node
    bool exact = true;    ///< false when an axis had to stay whole: a mesh has at most 8 axes

    /// The axis here that is the part of an original axis inside nodes, and the one between nodes; -1 for none.
    [[nodiscard]] int inner(int axis) const noexcept {
        int const last = static_cast<int>(axis + 1 < first.size() ? first[axis + 1] : mesh.axes()) - 1;
        return ((inside >> last) & 1U) != 0 ? last : -1;
    }
    [[nodiscard]] int outside(int axis) const noexcept {
        int const place = static_cast<int>(first[axis]);
        return ((inside >> place) & 1U) != 0 ? -1 : place;
    }
};

/// Splits the axes for which `may_split(axis)`; another axis counts as inside when it stays inside as a whole.
template <class MaySplit>
[[nodiscard]] NodeMesh node_mesh(DynamicMesh const& mesh, Indices const& blocks, MaySplit&& may_split) {
    NodeMesh result;
    Indices extents;
    for (int axis = 0; axis < mesh.axes(); ++axis) {
        Index const extent = mesh.extent(axis);
        Index const block = blocks[axis];
        result.first.push_back(extents.size());
        bool split = block > 1 && block < extent && may_split(axis);
        if (split && extents.size() + mesh.axes() - axis == max_axes) result.exact = split = false;
        if (split) extents.push_back(extent / block);
        if (split || block == extent) result.inside |= 1U << extents.size();
        extents.push_back(split ? block : extent);
    }
    result.mesh = mesh.reshaped(extents);
    return result;
}

/// A distribution on the finer mesh. \pre only axes that hold copies were split.
[[nodiscard]] inline DynamicDistribution on_node_mesh(DynamicDistribution const& distribution, NodeMesh const& nodes) {
    Placements placements = replicated(nodes.mesh, distribution.shape()).placements();
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        placements[static_cast<int>(nodes.first[axis])] = distribution.placement(axis);
    }
    AxisList order = distribution.signature().order();
    for (std::int8_t& axis : order) axis = static_cast<std::int8_t>(nodes.first[axis]);
    return DynamicDistribution(nodes.mesh, distribution.shape(), placements, order);
}

}  // namespace detail

}  // namespace reshard::inline v0_1
