// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/target.hpp
/// \brief  A mesh and placements as a flag gives them, for every tensor of a model.
/// \depends reshard/algebra/notation.hpp.
#pragma once

#include <reshard/algebra/notation.hpp>

#include <string>
#include <utility>

namespace demo {

/// The notation without a tensor: mesh, placements, order.
class Target {
public:
    /// `text` may be empty: S0 over all ranks.
    Target(std::string text, int ranks)
        : text_(text.empty() ? reshard::concat("(", ranks, "):(S0)") : std::move(text)) {
        reshard::Indices extents;
        for (int dim = 0; dim < reshard::max_rank; ++dim) extents.push_back(1);
        any_ = reshard::parse(text_, reshard::DynamicShape(extents));
    }
    [[nodiscard]] std::string const& text() const noexcept { return text_; }
    [[nodiscard]] int ranks() const noexcept { return static_cast<int>(any_.mesh().last_rank()) + 1; }
    /// Throws MeshError where there are fewer ranks.
    void check_ranks(int ranks_there) const {
        if (ranks() <= ranks_there) return;
        reshard::raise(reshard::ErrorCode::mesh,
                       reshard::concat("the mesh of ", text_, " needs ", ranks(), " ranks, not ", ranks_there,
                                       ". Fix: start as many, or leave --ranks out."));
    }

    /// Axes that cut a dimension the tensor does not have hold copies.
    [[nodiscard]] reshard::DynamicDistribution of(reshard::DynamicShape const& shape) const {
        using namespace reshard;
        Placements placements;
        AxisList order;
        for (int axis = 0; axis < any_.mesh().axes(); ++axis) {
            Placement const& placement = any_.placement(axis);
            bool const fits = !placement.is_shard() || placement.dim() < shape.rank();
            placements.push_back(fits ? placement : Placement::replicate());
        }
        for (int dim = 0; dim < max_rank; ++dim)
            for (int axis : any_.cuts(dim)) order.push_back(static_cast<std::int8_t>(axis));
        for (int axis = 0; axis < any_.mesh().axes(); ++axis)
            if (!any_.placement(axis).is_shard()) order.push_back(static_cast<std::int8_t>(axis));
        return DynamicDistribution(any_.mesh(), shape, placements, order);
    }

private:
    std::string text_;
    reshard::DynamicDistribution any_;
};

}  // namespace demo
