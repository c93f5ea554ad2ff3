// SPDX-License-Identifier: Apache-2.0
// How checkpoint/placed_tensor.hpp is done.
#pragma once

#include <reshard/checkpoint/placed_tensor.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE std::vector<PlacedTensor> placed_tensors(std::span<LocalTensor const> tensors) {
    std::vector<PlacedTensor> placed;
    placed.reserve(tensors.size());
    for (LocalTensor const& tensor : tensors) {
        placed.push_back({tensor.name, tensor.distribution, tensor.view.dtype(), tensor.within});
    }
    return placed;
}

RESHARD_INLINE PlacementRule::PlacementRule(std::string_view notation) {
    std::string text(notation);
    std::erase(text, ' ');
    auto const refuse = [&](std::string_view why) {
        errors::raise(ErrorCode::notation, "reshard::PlacementRule: '", notation, "' ", why);
    };
    if (text.find("S-") != std::string::npos)
        refuse("counts a dimension from the end, and is for tensors of any number of them. Fix: count from 0.");
    if (text.find('[', text.find(":(")) != std::string::npos)
        refuse("has boundaries of one extent, and is for tensors of any. Fix: cut by S0, S0:bal or S0:cyc64.");
    DynamicShape const all_dimensions(Indices{1, 1, 1, 1, 1, 1, 1, 1});
    any_ = parse(notation, all_dimensions);
}

RESHARD_INLINE int PlacementRule::dims() const noexcept {
    int most = 0;
    for (int axis = 0; axis < mesh().axes(); ++axis)
        if (any_.placement(axis).is_shard()) most = detail::larger(most, any_.placement(axis).dim() + 1);
    return most;
}

RESHARD_INLINE DynamicDistribution PlacementRule::of(DynamicShape const& shape, DType dtype) const {
    Placements placements;
    AxisList order = any_.signature().order();
    for (int axis = 0; axis < mesh().axes(); ++axis) {
        Placement const placement = any_.placement(axis);
        bool const fits = !placement.is_shard() || (placement.dim() < shape.rank() && is_byte_sized(dtype));
        placements.push_back(fits ? placement : Placement::replicate());
    }
    for (int axis = 0; axis < mesh().axes(); ++axis)
        if (!any_.signature()[axis].is_shard()) order.push_back(static_cast<std::int8_t>(axis));
    return DynamicDistribution(mesh(), shape, placements, order);
}

}  // namespace reshard::inline v0_1
