// SPDX-License-Identifier: Apache-2.0
// How algebra/mesh.hpp is done: long lists, names, and what it throws.
#pragma once

#include <reshard/algebra/mesh.hpp>

#include <algorithm>  // sort
#include <cstring>    // memcpy
#include <vector>     // vector

namespace reshard::inline v0 {

RESHARD_INLINE void DynamicMesh::intern_ranks(IndexList const& ranks) {
    std::vector<Index> table(ranks.begin(), ranks.end());
    for (Index i = 0; i < size_; ++i) table.push_back(i);
    std::sort(table.begin() + size_, table.end(), [&](Index a, Index b) { return ranks[a] < ranks[b]; });
    numbers_.many = table.data();
    interned_ = true;
    for (Index i = 0; i < size_; ++i) {
        Index const rank = number(place(i));
        if (rank < 0 || rank > INT32_MAX || (i > 0 && rank == number(place(i - 1)))) raise_repeated(rank);
    }
    numbers_.many = detail::intern(table.data(), 2 * size_);
}

RESHARD_INLINE void DynamicMesh::name_axes(InlineList<AxisName, max_axes> const& names) {
    if (names.size() != axes()) raise_names(names.size());
    std::vector<Index> table;
    for (Index i = 0; i < numbers(); ++i) table.push_back(number(i));
    for (Index i = 0; listed_ && i < size_; ++i) table.push_back(place(i));
    for (AxisName const& name : names) {
        Index words[sizeof(AxisName) / sizeof(Index)];
        std::memcpy(words, &name, sizeof(AxisName));
        table.insert(table.end(), std::begin(words), std::end(words));
    }
    numbers_.many = detail::intern(table.data(), static_cast<Index>(table.size()));
    interned_ = named_ = true;
}
RESHARD_INLINE std::string_view DynamicMesh::axis_name(int axis) const noexcept {
    if (!named_) return {};
    Index const* const names = numbers_.many + (listed_ ? 2 * size_ : 1);
    return reinterpret_cast<char const*>(names) + sizeof(AxisName) * static_cast<unsigned>(axis);
}
RESHARD_INLINE int DynamicMesh::axis(std::string_view name) const {
    for (int a = 0; named_ && a < axes(); ++a)
        if (axis_name(a) == name) return a;
    raise_no_axis(name);
}

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
    for (int a = 0; named_ && a < axes(); ++a) known += concat(known.empty() ? "" : ", ", axis_name(a));
    raise(ErrorCode::mesh, concat("reshard::Mesh: no axis is called '", name, "'; the names are: ",
                                  known.empty() ? std::string("none") : known, ". Fix: name the axes with named()."));
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_outside(Index rank) const {
    raise(ErrorCode::mesh, concat("reshard::Mesh: rank ", rank, " is not one of the mesh's ", size_,
                                  " ranks. Fix: ask mesh.contains(rank) first."));
}

}  // namespace reshard::inline v0
