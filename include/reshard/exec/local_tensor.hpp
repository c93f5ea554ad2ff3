// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/local_tensor.hpp
/// \brief  LocalTensor: one rank's part of a named, distributed tensor. What is loaded, initialised, synchronised and
/// verified is a list of them. \depends exec/detail/check.hpp, <string>. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/exec/detail/check.hpp>

#include <string>  // string

namespace reshard::inline v0 {

/// One rank's part of a distributed tensor, under the name that all ranks know it by.
struct LocalTensor {
    std::string name;
    DynamicDistribution distribution;
    DynamicView view;  ///< of shape distribution.local_shape(rank); outside the mesh only the element type counts
};

namespace detail {

/// Throws BufferError, naming the tensor, unless the view is what the distribution gives this rank: its shape, memory
/// behind it, and an element for every index. `who` is the function that was called.
inline void check_local_tensor(LocalTensor const& tensor, int rank, std::string_view who) {
    if (!tensor.distribution.contains(rank)) return;
    auto const refuse = [&](auto const&... parts) {
        raise(ErrorCode::buffer,
              concat("reshard::", who, ": tensor '", tensor.name, "' on rank ", rank, ": ", parts...));
    };
    DynamicShape const wanted = tensor.distribution.local_shape(rank);
    if (tensor.view.shape() != wanted) {
        refuse("the view has shape ", to_string(tensor.view.shape()), ", but ", to_string(tensor.distribution), " of ",
               to_string(tensor.distribution.shape()), " has ", to_string(wanted),
               " there. Fix: allocate local_shape(rank).");
    }
    if (tensor.view.data() == nullptr && tensor.view.size() != 0) {
        refuse("the view is null. Fix: pass memory for ", to_string(wanted), " elements.");
    }
    if (!is_injective(tensor.view)) {
        refuse("strides ", to_string(tensor.view.strides()), " overlap. Fix: give every element memory of its own.");
    }
}

}  // namespace detail

}  // namespace reshard::inline v0
