// SPDX-License-Identifier: Apache-2.0
// How algebra/mesh.hpp is done: what it throws.
#pragma once

#include <reshard/algebra/mesh.hpp>

namespace reshard::inline v0 {

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_extent(int axis, Index extent) {
    raise(ErrorCode::mesh,
          concat("reshard::Mesh: axis ", axis, " has extent ", extent, ". Fix: every axis has at least one rank."));
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_size() {
    raise(ErrorCode::mesh, "reshard::Mesh: rank numbers do not fit a 32-bit int. Fix: check the extents.");
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_count(Index given, Index size) {
    raise(ErrorCode::mesh, concat("reshard::Mesh: ", given, " ranks listed for a mesh of ", size,
                                  ". Fix: list one rank per position, row-major."));
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_repeated(Index rank) {
    raise(ErrorCode::mesh,
          concat("reshard::Mesh: rank ", rank, " is negative, too large or listed twice. Fix: list each rank once."));
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_names(int count) const {
    raise(ErrorCode::mesh, concat("reshard::Mesh: ", count, " names for ", axes(), " axes. Fix: name every axis."));
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_no_axis(std::string_view name) const {
    std::string known;
    for (auto const& axis : names_) known += concat(known.empty() ? "" : ", ", axis.view());
    raise(ErrorCode::mesh, concat("reshard::Mesh: no axis is called '", name, "'; the names are: ",
                                  known.empty() ? std::string("none") : known, ". Fix: name the axes with named()."));
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_outside(Index rank) const {
    raise(ErrorCode::mesh, concat("reshard::Mesh: rank ", rank, " is not one of the mesh's ", size_,
                                  " ranks. Fix: ask mesh.contains(rank) first."));
}

}  // namespace reshard::inline v0
