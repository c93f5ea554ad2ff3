// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/scalapack.hpp
/// \brief  ScaLAPACK array descriptors as distributions, and back.
/// \depends distribution, core/tensor_view. Not part of the umbrella, and nothing of ScaLAPACK is included or linked.
///
/// Source: ScaLAPACK Users' Guide, "Array Descriptor for In-core Dense Matrices"
/// (https://www.netlib.org/scalapack/slug/node77.html), and TOOLS/numroc.f: what NUMROC computes is local_shape().
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/core/tensor_view.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// The nine integers of a dense matrix, in their order. `{.m = 100, .n = 50, .mb = 8, .nb = 8, .lld = 56}`.
struct ScalapackDescriptor {
    int dtype = 1;  ///< DTYPE_: 1, a dense matrix
    int ctxt = 0;   ///< CTXT_: the BLACS context; carried along, never asked
    int m = 0;      ///< M_: rows of the whole matrix
    int n = 0;      ///< N_: columns
    int mb = 1;     ///< MB_: rows of a block
    int nb = 1;     ///< NB_: columns of a block
    int rsrc = 0;   ///< RSRC_: the process row that holds the first row
    int csrc = 0;   ///< CSRC_: the process column that holds the first column
    int lld = 1;    ///< LLD_: elements between two columns of this process's local matrix; its own on every process

    [[nodiscard]] static constexpr ScalapackDescriptor from(int const (&nine)[9]) noexcept {
        return {nine[0], nine[1], nine[2], nine[3], nine[4], nine[5], nine[6], nine[7], nine[8]};
    }
    constexpr void copy_to(int (&nine)[9]) const noexcept {
        int const values[9] = {dtype, ctxt, m, n, mb, nb, rsrc, csrc, lld};
        for (int i = 0; i < 9; ++i) nine[i] = values[i];
    }
    friend constexpr bool operator==(ScalapackDescriptor const&, ScalapackDescriptor const&) = default;
};

/// How a BLACS grid numbers its processes: 'R' and 'C' of BLACS_GRIDINIT.
enum class ProcessOrder : std::uint8_t { row_major, column_major };

/// A BLACS grid: process (p, q) is the rank rank(p, q).
struct ProcessGrid {
    int rows = 1;
    int columns = 1;
    ProcessOrder order = ProcessOrder::row_major;
    int first_rank = 0;

    [[nodiscard]] constexpr Index rank(Index row, Index column) const noexcept {
        return first_rank + (order == ProcessOrder::row_major ? row * columns + column : column * rows + row);
    }
    friend constexpr bool operator==(ProcessGrid const&, ProcessGrid const&) = default;
};

namespace detail {

[[noreturn]] inline void raise_descriptor(ErrorCode code, std::string_view field, Index value, std::string_view rule,
                                          std::string_view remedy) {
    raise(code, "reshard::ScalapackDescriptor: ", field, " is ", value, ", ", rule, ". Fix: ", remedy, ".");
}

constexpr void check_descriptor(ScalapackDescriptor const& d, ProcessGrid const& grid) {
    if (grid.rows < 1 || grid.columns < 1) {
        raise(ErrorCode::mesh, "reshard::ProcessGrid: ", grid.rows, " x ", grid.columns,
              " processes. Fix: a grid has one row and one column, or more.");
    }
    Index const processes = as_index(grid.rows) * grid.columns;
    if (grid.first_rank < 0 || processes > INT32_MAX - as_index(grid.first_rank)) {
        raise(ErrorCode::mesh, "reshard::ProcessGrid: first_rank is ", grid.first_rank, " of a grid of ", processes,
              " processes. Fix: ranks count from 0 and fit an int.");
    }
    if (d.dtype != 1) {
        raise_descriptor(ErrorCode::placement, "DTYPE_", d.dtype, "not 1",
                         "only dense matrices have blocks in both dimensions");
    }
    for (auto const& [field, value] : {std::pair{"M_", d.m}, std::pair{"N_", d.n}}) {
        if (value < 0) raise_descriptor(ErrorCode::shape, field, value, "below 0", "extents count from 0");
    }
    for (auto const& [field, value] : {std::pair{"MB_", d.mb}, std::pair{"NB_", d.nb}}) {
        if (value < 1)
            raise_descriptor(ErrorCode::placement, field, value, "below 1", "a block has one element or more");
    }
    if (d.rsrc < 0 || d.rsrc >= grid.rows) {
        raise_descriptor(ErrorCode::placement, "RSRC_", d.rsrc, concat("outside a grid of ", grid.rows, " rows"),
                         "name a process row of the grid, counted from 0");
    }
    if (d.csrc < 0 || d.csrc >= grid.columns) {
        raise_descriptor(ErrorCode::placement, "CSRC_", d.csrc, concat("outside a grid of ", grid.columns, " columns"),
                         "name a process column of the grid, counted from 0");
    }
    if (d.lld < 1) {
        raise_descriptor(ErrorCode::buffer, "LLD_", d.lld, "below 1",
                         "give at least the rows of the local matrix, and 1 where it has none");
    }
}

/// The block of one dimension: how `extent` is dealt out along `axis`. \pre two axes, two dimensions.
[[nodiscard]] constexpr int block_of(DynamicDistribution const& distribution, int dim) {
    constexpr std::string_view names[] = {"MB_", "NB_"};
    Placement const& placement = distribution.placement(dim);
    Index const extent = distribution.shape().extent(dim);
    Index const parts = distribution.mesh().extent(dim);
    Index block = 0;
    if (placement.is_shard() && placement.dim() == dim) {
        if (placement.rule().kind == SplitKind::cyclic) block = placement.rule().block;
        if (placement.rule().kind == SplitKind::chunk) block = larger<Index>(ceil_div(extent, parts), 1);
    }
    if (placement.is_replicate() && parts == 1) block = larger<Index>(extent, 1);
    if (block == 0) {
        raise(ErrorCode::placement, "reshard::descriptor: no ", names[dim], " says what mesh axis ", dim,
              " does. Fix: shard dimension ", dim,
              " over it, in blocks (BlockCyclic) or in chunks; ScaLAPACK has no copies and no addends.");
    }
    if (block > INT32_MAX) {
        raise_descriptor(ErrorCode::placement, names[dim], block, "beyond an int", "choose smaller blocks");
    }
    return static_cast<int>(block);
}

}  // namespace detail

/// What the processes of a grid hold: (S0:cycMB, S1:cycNB) on a mesh of rows x columns. A source other than process
/// (0, 0) turns the mesh's ranks, so that its position (0, 0) is the process that holds the first block: the matrix of
/// another source is on another mesh (plan_across). Throws a typed error that names the field at fault.
[[nodiscard]] constexpr DynamicDistribution distribution(ScalapackDescriptor const& descriptor,
                                                         ProcessGrid const& grid) {
    detail::check_descriptor(descriptor, grid);
    std::vector<Index> ranks;
    for (Index i = 0; i < grid.rows; ++i)
        for (Index j = 0; j < grid.columns; ++j) {
            ranks.push_back(grid.rank((descriptor.rsrc + i) % grid.rows, (descriptor.csrc + j) % grid.columns));
        }
    IndexList const list(ranks.data(), detail::as_index(ranks.size()));
    return {DynamicMesh({grid.rows, grid.columns}, RankList{0, list}),
            DynamicShape(Indices{descriptor.m, descriptor.n}),
            Placements{Placement::shard(0, {SplitKind::cyclic, descriptor.mb, {}}),
                       Placement::shard(1, {SplitKind::cyclic, descriptor.nb, {}})}};
}

/// The descriptor of a matrix that mesh axis 0 cuts by rows and axis 1 by columns, in blocks or in chunks (one block
/// each). `lld` is this process's own. RSRC_ and CSRC_ are found from where the mesh's first rank lies in `grid`.
/// Throws PlacementError, ShapeError or MeshError, which name what ScaLAPACK has no field for.
[[nodiscard]] constexpr ScalapackDescriptor descriptor(DynamicDistribution const& distribution, ProcessGrid const& grid,
                                                       Index lld, int ctxt = 0) {
    DynamicMesh const& mesh = distribution.mesh();
    DynamicShape const& shape = distribution.shape();
    if (shape.rank() != 2) {
        errors::raise(ErrorCode::shape, "reshard::descriptor: shape ", to_string(shape),
                      " is no matrix. Fix: ScaLAPACK describes tensors of two dimensions.");
    }
    if (mesh.axes() != 2 || mesh.extent(0) != grid.rows || mesh.extent(1) != grid.columns) {
        errors::raise(ErrorCode::mesh, "reshard::descriptor: the mesh is no grid of ", grid.rows, " x ", grid.columns,
                      ". Fix: distribute over a mesh of two axes: process rows, process columns.");
    }
    for (int dim = 0; dim < 2; ++dim) {
        if (shape.extent(dim) > INT32_MAX) {
            detail::raise_descriptor(ErrorCode::shape, dim == 0 ? "M_" : "N_", shape.extent(dim), "beyond an int",
                                     "ScaLAPACK counts in int; describe a part of the matrix");
        }
    }
    if (lld < 1 || lld > INT32_MAX) {
        detail::raise_descriptor(ErrorCode::buffer, "LLD_", lld, "not from 1 to 2^31 - 1",
                                 "give at least the rows of the local matrix, and 1 where it has none");
    }
    ScalapackDescriptor result;
    result.ctxt = ctxt;
    result.m = static_cast<int>(shape.extent(0));
    result.n = static_cast<int>(shape.extent(1));
    result.mb = detail::block_of(distribution, 0);
    result.nb = detail::block_of(distribution, 1);
    result.lld = static_cast<int>(lld);
    Index const first = mesh.rank_at(0) - grid.first_rank;
    bool const by_rows = grid.order == ProcessOrder::row_major;
    result.rsrc = static_cast<int>(by_rows ? first / grid.columns : first % grid.rows);
    result.csrc = static_cast<int>(by_rows ? first % grid.columns : first / grid.rows);
    bool found = first >= 0;
    for (Index i = 0; i < mesh.size() && found; ++i) {
        found = mesh.rank_at(i) == grid.rank((result.rsrc + i / grid.columns) % grid.rows,
                                             (result.csrc + i % grid.columns) % grid.columns);
    }
    if (!found) {
        errors::raise(
            ErrorCode::mesh,
            "reshard::descriptor: no RSRC_ and CSRC_ turn the process grid into the mesh. Fix: give the mesh the "
            "grid's ranks, in its order, starting at any of its processes.");
    }
    return result;
}

/// The local matrix of one rank: column-major, `lld` elements from column to column. Its shape is what NUMROC says.
/// Throws MeshError when the rank is not in the grid, BufferError when LLD_ is less than the local rows.
template <Element T>
[[nodiscard]] constexpr TensorView<T> local_matrix(T* data, ScalapackDescriptor const& descriptor,
                                                   ProcessGrid const& grid, Index rank) {
    DynamicShape const shape = distribution(descriptor, grid).local_shape(rank);
    if (descriptor.lld < shape.extent(0)) {
        detail::raise_descriptor(ErrorCode::buffer, "LLD_", descriptor.lld,
                                 errors::concat("less than the ", shape.extent(0), " rows of rank ", rank),
                                 "give at least as many");
    }
    return TensorView<T>(data, shape, Indices{1, descriptor.lld});
}

}  // namespace reshard::inline v0_1
