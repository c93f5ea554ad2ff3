// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/placed_tensor.hpp
/// \brief  PlacedTensor: a named tensor and where its parts go, on any rank, without memory. PlacementRule: where those
///         of any tensor go.
/// \depends algebra/notation, exec/local_tensor.
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/checkpoint/detail/mode.hpp>
#include <reshard/exec/local_tensor.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// A tensor that is to be saved, or to be loaded: a LocalTensor of any rank, without its memory.
struct PlacedTensor {
    std::string name;
    DynamicDistribution distribution;
    DType dtype = DType::f32;
    Within within{};  ///< for a box of a larger tensor
};

/// What a list of local tensors is on any rank.
[[nodiscard]] std::vector<PlacedTensor> placed_tensors(std::span<LocalTensor const> tensors);

/// One mesh, placements and order for tensors of any shape, in the notation of distributions: "(2,2):(S0,R)".
class PlacementRule {
public:
    /// Throws NotationError, also for dimensions counted from the end and for boundaries: tensors have different ones.
    explicit PlacementRule(std::string_view notation);

    [[nodiscard]] DynamicMesh const& mesh() const noexcept { return any_.mesh(); }
    /// How many dimensions a tensor needs to be cut as it says; 0 where it cuts none.
    [[nodiscard]] int dims() const noexcept;
    /// Along mesh axes that cut a dimension the tensor does not have, or elements smaller than a byte, it has copies.
    [[nodiscard]] DynamicDistribution of(DynamicShape const& shape, DType dtype) const;

private:
    DynamicDistribution any_;
};

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/placed_tensor.ipp>
#endif
