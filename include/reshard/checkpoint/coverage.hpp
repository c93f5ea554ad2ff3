// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/coverage.hpp
/// \brief  Whether the extents of a checkpoint hold every element of every replica exactly once; if not, where not.
/// \depends checkpoint/manifest.hpp. No I/O.
#pragma once

#include <reshard/checkpoint/manifest.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// Throws FormatError unless every element of every replica is held exactly once, naming the tensor, the replica and a
/// box that is missing or held more than once. Tensors without elements need no extent. O(n log n) in the extents.
/// \pre tensors and files of the extents exist, and replicas are below StoredTensor::replicas.
void check_coverage(Manifest const& manifest, std::string_view file);

namespace detail {

/// What is wrong with the coverage of a checkpoint, in words; empty when nothing is.
[[nodiscard]] std::string coverage_fault(Manifest const& manifest);
/// The same of one tensor with these extents: those of the manifest do not count.
[[nodiscard]] std::string coverage_fault(Manifest const& manifest, std::size_t tensor,
                                         std::span<Extent const* const> extents);

}  // namespace detail
}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/coverage.ipp>
#endif
