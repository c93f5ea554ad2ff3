// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/save_plan.hpp
/// \brief  Which rank writes which box of which tensor, and where in its file: a value, before any file is opened.
/// \depends checkpoint/{manifest,placed_tensor,save_options}. No I/O, no
/// communication.
///
///     SavePlan const plan = plan_save(placed_tensors(tensors), comm.size(), {.dedup = SaveDedup::shared});
///     std::puts(explain(plan).c_str());
///
/// Names, types, distributions, the number of ranks and options decide everything: each rank computes the same plan,
/// or its part of it, so that a save needs no collective call to find out who writes what.
#pragma once

#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/checkpoint/save_options.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// The same on every rank.
struct SavePlan {
    SaveDedup dedup = SaveDedup::lowest_rank;
    int ranks = 0;
    /// Tensors, files in the order of the ranks that write them, extents. What a plan cannot know is left out: id,
    /// names and headers of files, checksums.
    Manifest manifest;
    std::vector<std::size_t> sources;  ///< per extent, the place in the list that was planned of what it is a part of
    Index bytes_held = 0;              ///< by all ranks together
    Index bytes_written = 0;           ///< by all ranks together; the others are copies
    Index bytes_busiest = 0;           ///< by the rank that writes most

    /// The file that a rank writes; -1: none.
    [[nodiscard]] int file_of(int rank) const noexcept;
    [[nodiscard]] std::span<Extent const> extents_of(int rank) const noexcept;
    [[nodiscard]] Index bytes_of(Extent const& one) const noexcept { return detail::extent_bytes(manifest, one); }
    /// Of tensors, without the header.
    [[nodiscard]] Index bytes_of(int rank) const noexcept;
    [[nodiscard]] friend bool operator==(SavePlan const&, SavePlan const&) = default;
};

/// Plans a save of these tensors by so many ranks. Ranks outside a tensor's mesh write nothing of it. A block-cyclic
/// part is an extent per block. A tensor without elements is an extent of the lowest rank, a scalar is a tensor like
/// others. Time and memory: linear in extents and ranks; `balanced` also looks at every rank of a group for each of its
/// parts.
///
/// Tensors of one name are boxes of a larger one (PlacedTensor::within), which is saved whole: together they hold every
/// element once, of one shape, type and number of copies that are kept apart.
///
/// Throws TransitionError for Partial placements, MeshError for ranks or replica_axes that do not exist, DTypeError for
/// 4- and 6-bit tensors that are cut, FormatError for names that files cannot have or that would meet, PlacementError
/// for more boxes than max_manifest_bytes can hold, and for elements of a larger tensor that no box holds, or more than
/// one, ShapeError and MismatchError for boxes that are of no one tensor, BufferError for options that mean nothing.
/// All name the tensor.
[[nodiscard]] SavePlan plan_save(std::span<PlacedTensor const> tensors, int ranks, SaveOptions const& options = {});

namespace detail {
class SaveDealer;
/// What plan_save() comes to for one rank: the extents of the others are not listed, 4 bytes for each say who writes
/// it. All else is as in the whole plan. `dealt`: is given what is known of the others, for SaveExtents. Throws as
/// above.
[[nodiscard]] SavePlan plan_save_of_rank(std::span<PlacedTensor const> tensors, int ranks, int rank,
                                         SaveOptions const& options, SaveDealer* dealt = nullptr);
}  // namespace detail

/// A line for the whole, then a line for each of the first `most` ranks that write.
[[nodiscard]] std::string explain(SavePlan const& plan, std::size_t most = 16);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/save_plan.ipp>
#endif
