// SPDX-License-Identifier: Apache-2.0
// How algebra/mesh.hpp is done: long lists, names, and what it throws.
#pragma once

#include <reshard/algebra/mesh.hpp>

#include <cstring>  // memcpy
#include <vector>   // vector

namespace reshard::inline v0_1 {

RESHARD_INLINE void DynamicMesh::intern_ranks(IndexList const& ranks) {
    auto const count = detail::as_size(size_);
    std::vector<Index> table(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
        table[i] = ranks[detail::as_index(i)];
        table[count + i] = table[i] << 32 | detail::as_index(i);  // to be sorted by rank
    }
    std::qsort(&table[count], count, sizeof(Index), [](void const* a, void const* b) {
        return *static_cast<Index const*>(a) < *static_cast<Index const*>(b) ? -1 : 1;
    });
    Index last = -1;
    for (std::size_t i = count; i < 2 * count; ++i) {
        if (table[i] >> 32 == last) raise_repeated(last);
        last = table[i] >> 32;
        table[i] &= INT32_MAX;
    }
    numbers_.many = detail::intern(table.data(), Index{2} * size_);
    interned_ = true;
}

RESHARD_INLINE void DynamicMesh::name_axes(InlineList<AxisName, max_axes> const& names) {
    if (names.size() != axes()) {
        errors::raise(ErrorCode::mesh, "reshard::Mesh: ", names.size(), " names for ", axes(),
                      " axes. Fix: name every axis.");
    }
    for (int a = 0; a < axes(); ++a) {
        for (int b = 0; b < a; ++b) {
            if (names[a].view().empty() || names[a].view() != names[b].view()) continue;
            errors::raise(ErrorCode::mesh, "reshard::Mesh: two axes are called '", names[a].view(),
                          "'. Fix: give each a name of its own.");
        }
    }
    Index const count = listed_ ? Index{2} * size_ : 1;
    std::vector<Index> table(detail::as_size(count + Index{2} * axes()));
    for (Index i = 0; i < count; ++i) table[detail::as_size(i)] = i < numbers() ? number(i) : place(i - size_);
    std::memcpy(table.data() + count, names.begin(), sizeof(AxisName) * detail::as_size(axes()));
    numbers_.many = detail::intern(table.data(), count + Index{2} * axes());
    interned_ = named_ = true;
}
RESHARD_INLINE void DynamicMesh::take_names(DynamicMesh const& mesh) {
    InlineList<AxisName, max_axes> names;
    for (int a = 0; a < mesh.axes(); ++a) names.push_back(AxisName(mesh.axis_name(a)));
    name_axes(names);
}
RESHARD_INLINE std::string_view DynamicMesh::axis_name(int axis) const noexcept {
    if (!named_) return {};
    Index const* const names = numbers_.many + (listed_ ? Index{2} * size_ : 1);
    return reinterpret_cast<char const*>(names) + sizeof(AxisName) * static_cast<unsigned>(axis);
}
RESHARD_INLINE int DynamicMesh::axis(std::string_view name) const {
    for (int a = 0; named_ && a < axes(); ++a)
        if (axis_name(a) == name) return a;
    std::string known;
    for (int a = 0; named_ && a < axes(); ++a) known += errors::concat(known.empty() ? "" : ", ", axis_name(a));
    errors::raise(ErrorCode::mesh, "reshard::Mesh: no axis is called '", name,
                  "'; the names are: ", named_ ? known : "none",
                  ". Fix: ", named_ ? "use one of them." : "name the axes with named().");
}

RESHARD_INLINE Indices DynamicMesh::axis_numbers(MeshAxes const& given) const {
    Indices numbers;
    unsigned seen = 0;
    for (AxisRef const& one : given) {
        int const number = one.name.data() != nullptr ? axis(one.name) : one.number;
        if (number < 0 || number >= axes() || ((seen >> number) & 1U) != 0) {
            errors::raise(ErrorCode::mesh, "reshard::Mesh: axis ", number, " of a mesh with ", axes(),
                          " axes does not exist, or is given twice. Fix: axes count from 0.");
        }
        seen |= 1U << number;
        numbers.push_back(number);
    }
    return numbers;
}
RESHARD_INLINE DynamicMesh DynamicMesh::along(MeshAxes const& given, Index rank) const {
    Indices const at = coordinates(rank);
    std::vector<Index> members{ordinal(rank)};
    Indices extents;
    InlineList<AxisName, max_axes> names;
    for (Index number : axis_numbers(given)) {
        int const axis = static_cast<int>(number);
        std::vector<Index> lines;  // of what was found so far, one member after the other
        for (Index member : members)
            for (Index i = 0; i < extent(axis); ++i) lines.push_back(member + (i - at[axis]) * stride(axis));
        members.swap(lines);
        extents.push_back(extent(axis));
        names.push_back(AxisName(axis_name(axis)));
    }
    for (Index& member : members) member = rank_at(member);
    DynamicMesh result(extents, RankList{0, members});
    if (named_) result.name_axes(names);
    return result;
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_extent(int axis, Index extent) {
    errors::raise(ErrorCode::mesh, "reshard::Mesh: axis ", axis, " has extent ", extent,
                  ". Fix: every axis has at least one rank.");
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_size() {
    errors::raise(
        ErrorCode::mesh,
        "reshard::Mesh: ranks count from 0 and fit a 32-bit int. Fix: check the extents, and the first rank.");
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_count(Index given, Index size) {
    errors::raise(ErrorCode::mesh, "reshard::Mesh: ", given, " ranks listed for a mesh of ", size,
                  ". Fix: list one rank per position, row-major.");
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_repeated(Index rank) {
    errors::raise(ErrorCode::mesh, "reshard::Mesh: rank ", rank,
                  " is negative, too large or listed twice. Fix: list each rank once.");
}

[[noreturn]] RESHARD_INLINE void DynamicMesh::raise_outside(Index rank) const {
    errors::raise(ErrorCode::mesh, "reshard::Mesh: rank ", rank, " is not one of the mesh's ", size_,
                  " ranks. Fix: ranks count from 0; one outside (ask mesh.contains(rank)) holds nothing, and gives an "
                  "empty tensor of "
                  "the same element type (Shape{0}) where all ranks call.");
}

}  // namespace reshard::inline v0_1
