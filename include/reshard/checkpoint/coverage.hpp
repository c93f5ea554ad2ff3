// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/coverage.hpp
/// \brief  Whether the extents of a checkpoint hold every element of every replica exactly once; if not, where not.
/// \depends checkpoint/manifest.hpp. No I/O.
#pragma once

#include <reshard/checkpoint/manifest.hpp>

#include <span>         // span
#include <string_view>  // string_view

namespace reshard::inline v0 {

/// Throws FormatError unless every element of every replica is held exactly once, naming the tensor, the replica and a
/// box that is missing or held more than once. Tensors without elements need no extent. O(n log n) in the extents.
/// \pre tensors and files of the extents exist, and replicas are below StoredTensor::replicas.
void check_coverage(Manifest const& manifest, std::string_view file);

namespace detail {

/// A place where boxes do not add up to the whole once.
struct CoverFault {
    Box box;            ///< that is missing, or that is held more than once
    Index held = 0;     ///< by so many boxes; 0: missing, 1: there is no fault
    std::size_t a = 0;  ///< when held: two of those that hold it, as places in the list
    std::size_t b = 0;
};

/// Whether boxes add up to a whole. \pre the whole is not empty, all boxes lie inside it.
[[nodiscard]] CoverFault find_cover_fault(Box const& whole, std::span<Box const> boxes);

/// What is wrong with the coverage of a checkpoint, in words; empty when nothing is.
[[nodiscard]] std::string coverage_fault(Manifest const& manifest);

}  // namespace detail
}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/coverage.ipp>
#endif
