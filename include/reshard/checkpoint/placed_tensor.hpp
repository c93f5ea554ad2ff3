// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/placed_tensor.hpp
/// \brief  PlacedTensor: a named tensor and where its parts go, on any rank, without memory. PlacementRule: where those
///         of any tensor go.
/// \depends algebra/notation, exec/local_tensor.
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/exec/local_tensor.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0 {

/// A tensor that is to be saved, or to be loaded: a LocalTensor of any rank, without its memory.
struct PlacedTensor {
    std::string name;
    DynamicDistribution distribution;
    DType dtype = DType::f32;
};

/// What a list of local tensors is on any rank.
[[nodiscard]] inline std::vector<PlacedTensor> placed_tensors(std::span<LocalTensor const> tensors) {
    std::vector<PlacedTensor> placed;
    placed.reserve(tensors.size());
    for (LocalTensor const& tensor : tensors) {
        placed.push_back({tensor.name, tensor.distribution, tensor.view.dtype()});
    }
    return placed;
}

/// One mesh, placements and order for tensors of any shape, in the notation of distributions: "(2,2):(S0,R)".
class PlacementRule {
public:
    /// Throws NotationError.
    explicit PlacementRule(std::string_view notation) : any_(parse(notation, shape_of_all_dimensions())) {}

    [[nodiscard]] DynamicMesh const& mesh() const noexcept { return any_.mesh(); }
    /// Along mesh axes that cut a dimension the tensor does not have, or elements smaller than a byte, it has copies.
    [[nodiscard]] DynamicDistribution of(DynamicShape const& shape, DType dtype) const {
        Placements placements;
        AxisList order;
        for (int axis = 0; axis < mesh().axes(); ++axis) {
            Placement const& placement = any_.placement(axis);
            bool const fits = !placement.is_shard() || (placement.dim() < shape.rank() && is_byte_sized(dtype));
            placements.push_back(fits ? placement : Placement::replicate());
        }
        for (int dim = 0; dim < max_rank; ++dim)
            for (int const axis : any_.cuts(dim)) order.push_back(static_cast<std::int8_t>(axis));
        for (int axis = 0; axis < mesh().axes(); ++axis)
            if (!any_.placement(axis).is_shard()) order.push_back(static_cast<std::int8_t>(axis));
        return DynamicDistribution(mesh(), shape, placements, order);
    }

private:
    [[nodiscard]] static DynamicShape shape_of_all_dimensions() {
        Indices extents;
        for (int dim = 0; dim < max_rank; ++dim) extents.push_back(1);
        return DynamicShape(extents);
    }

    DynamicDistribution any_;
};

}  // namespace reshard::inline v0
