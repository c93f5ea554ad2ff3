// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/extents_by_tensor.hpp
/// \brief  The extents of a checkpoint, tensor by tensor: of a manifest that has them all, or made when they are asked
///         for.
/// \depends checkpoint/manifest, core/function_ref. No I/O.
#pragma once

#include <reshard/checkpoint/manifest.hpp>
#include <reshard/core/function_ref.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0::detail {

/// The extents of a tensor, sorted by (file, begin). Asked for one tensor after the other, from 0 on; what it gives is
/// good until the next.
using ExtentsOf = FunctionRef<std::span<Extent const* const>(std::size_t tensor)>;

/// Those of a manifest. \pre it outlives this
class ExtentsByTensor {
public:
    explicit ExtentsByTensor(Manifest const& manifest)
        : first_(manifest.tensors.size() + 1), extents_(manifest.extents.size()) {
        for (Extent const& extent : manifest.extents) ++first_[extent.tensor + 1];
        for (std::size_t t = 1; t < first_.size(); ++t) first_[t] += first_[t - 1];
        auto next = first_;
        for (Extent const& extent : manifest.extents) extents_[next[extent.tensor]++] = &extent;
    }
    [[nodiscard]] std::span<Extent const* const> operator()(std::size_t tensor) const noexcept {
        return std::span(extents_).subspan(first_[tensor], first_[tensor + 1] - first_[tensor]);
    }

private:
    std::vector<std::size_t> first_;  ///< per tensor, its first place in the list
    std::vector<Extent const*> extents_;
};

}  // namespace reshard::inline v0::detail
