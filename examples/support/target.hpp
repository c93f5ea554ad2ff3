// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/target.hpp
/// \brief  A mesh and placements as a flag gives them, for every tensor of a model.
/// \depends reshard/checkpoint/placed_tensor.hpp.
#pragma once

#include <reshard/checkpoint/placed_tensor.hpp>

#include <string>
#include <utility>

namespace demo {

/// The notation without a tensor: mesh, placements, order.
class Target {
public:
    /// `text` may be empty: S0 over all ranks.
    Target(std::string text, int ranks)
        : text_(text.empty() ? reshard::errors::concat("(", ranks, "):(S0)") : std::move(text)), rule_(text_) {}
    [[nodiscard]] std::string const& text() const noexcept { return text_; }
    [[nodiscard]] int ranks() const noexcept { return static_cast<int>(rule_.mesh().last_rank()) + 1; }
    /// Throws MeshError where there are fewer ranks.
    void check_ranks(int ranks_there) const {
        if (ranks() <= ranks_there) return;
        reshard::errors::raise(
            reshard::ErrorCode::mesh,
            reshard::errors::concat("the mesh of ", text_, " needs ", ranks(), " ranks, not ", ranks_there,
                                    ". Fix: start as many (mpirun -n ", ranks(), "); alone, leave --ranks out."));
    }

    [[nodiscard]] reshard::DynamicDistribution of(reshard::DynamicShape const& shape,
                                                  reshard::DType dtype = reshard::DType::u8) const {
        return rule_.of(shape, dtype);
    }

private:
    std::string text_;
    reshard::PlacementRule rule_;
};

}  // namespace demo
