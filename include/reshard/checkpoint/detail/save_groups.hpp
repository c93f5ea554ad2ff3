// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_groups.hpp
/// \brief  Which ranks of a mesh hold copies of each other's part of a tensor, for all parts at once.
/// \depends algebra/distribution. No communication: every rank lists the same.
#pragma once

#include <reshard/algebra/distribution.hpp>

#include <algorithm>      // sort
#include <span>           // span
#include <unordered_map>  // unordered_map
#include <vector>         // vector

namespace reshard::inline v0::detail {

/// A mesh whose ranks are dealt into groups: ranks of one group differ along the free axes only.
struct SaveFamily {
    DynamicMesh mesh;
    unsigned free_axes = 0;    ///< one bit per axis
    std::vector<int> members;  ///< group by group, ascending inside a group
    std::vector<Index> first;  ///< per group, the ordinal of its first place in the mesh: free coordinates are 0

    [[nodiscard]] Index groups() const noexcept { return static_cast<Index>(first.size()); }
    [[nodiscard]] std::size_t group_size() const noexcept { return members.size() / first.size(); }
    [[nodiscard]] std::span<int const> group(Index g) const noexcept {
        return std::span(members).subspan(static_cast<std::size_t>(g) * group_size(), group_size());
    }
};

[[nodiscard]] inline SaveFamily make_family(DynamicMesh const& mesh, unsigned free_axes) {
    SaveFamily family;
    family.mesh = mesh;
    family.free_axes = free_axes;
    // Ordinals of all places whose coordinates are 0 but for the axes chosen, in row-major order.
    auto const places = [&](bool free) {
        std::vector<Index> list{0};
        for (int axis = 0; axis < mesh.axes(); ++axis) {
            if ((((free_axes >> axis) & 1U) != 0) != free) continue;
            std::vector<Index> longer;
            longer.reserve(list.size() * static_cast<std::size_t>(mesh.extent(axis)));
            for (Index place : list)
                for (Index i = 0; i < mesh.extent(axis); ++i) longer.push_back(place + i * mesh.stride(axis));
            list = std::move(longer);
        }
        return list;
    };
    family.first = places(false);
    std::vector<Index> const steps = places(true);
    family.members.reserve(static_cast<std::size_t>(mesh.size()));
    for (Index place : family.first) {
        auto const begin = static_cast<std::ptrdiff_t>(family.members.size());
        for (Index step : steps) family.members.push_back(static_cast<int>(mesh.rank_at(place + step)));
        std::sort(family.members.begin() + begin, family.members.end());
    }
    return family;
}

/// Tensors share few meshes: each is taken apart once.
class SaveFamilies {
public:
    /// The number of the family.
    std::size_t find(DynamicMesh const& mesh, unsigned free_axes) {
        Digest digest;
        digest.add(free_axes).add_signed(mesh.lowest_rank());
        for (Index extent : mesh.extents()) digest.add_signed(extent);
        auto& bucket = by_digest_[digest.value()];
        for (std::size_t known : bucket) {
            if (families_[known].free_axes == free_axes && families_[known].mesh == mesh) return known;
        }
        bucket.push_back(families_.size());
        families_.push_back(make_family(mesh, free_axes));
        return families_.size() - 1;
    }
    [[nodiscard]] SaveFamily const& operator[](std::size_t family) const noexcept { return families_[family]; }

private:
    std::vector<SaveFamily> families_;
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_digest_;
};

}  // namespace reshard::inline v0::detail
