// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/state.hpp
/// \brief  MchState: one rank's shard of one managed-collision table, as columns over memory that the caller owns, and
///         how small and how large its ids are.
/// \depends mch/table, core/tensor_view. Opt-in: not part of the umbrella.
///
/// Buffers keep their storage: everything in this room writes in place, because TorchRec's modules and the tensors of a
/// checkpoint refer to the same memory.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/mch/table.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// A metadata column of one shard: `view` has one row per slot of the shard, [z] or [z, d].
struct MchColumnView {
    std::string name;
    DynamicView view;
};

/// One rank's shard, z slots from slot o. Columns are dense; ids and slots are I64 of shape [z] (or [z, 1]).
///
/// member    | sorted (TorchRec's buffer)                                      | buckets
/// ----------|-----------------------------------------------------------------|---------------------------------------
/// ids       | _mch_sorted_raw_ids: ascending, INT64_MAX where there is none   | _hash_zch_identities: -1 where none
/// slots     | _mch_remapped_ids_mapping: GLOBAL slot of the id beside it      | none: the slot is o + position
/// metadata  | _mch_counts, _mch_last_access_iter, ... by the table's names    | _hash_zch_metadata, ...
/// segments  | _output_segments_tensor: offsets of all shards, Z, then -1      | none
/// iteration | _current_iter_tensor: [1]                                       | none
///
/// A rank outside the table's mesh, or with a shard of no slots, may leave everything null; without an iteration, or
/// with an empty one, its segments are ignored.
struct MchState {
    DynamicView ids;
    DynamicView slots;
    std::vector<MchColumnView> metadata;  ///< in any order; exactly the table's columns
    DynamicView segments;                 ///< I64 of any length that holds W + 1 offsets
    DynamicView iteration;                ///< I64 of one element
};

/// The same shard as plain pointers, in the table's order: what loops and kernels take. Refers to the state's memory.
struct MchShard {
    Index entries = 0;  ///< z
    Index offset = 0;   ///< o: the first slot
    Index* ids = nullptr;
    Index* slots = nullptr;              ///< sorted only
    std::vector<std::byte*> metadata{};  ///< column c of the table: entries * bytes
    Index* segments = nullptr;           ///< sorted only; may be null where there are no entries
    Index segment_count = 0;
    Index* iteration = nullptr;  ///< sorted only; may be null where there are no entries

    [[nodiscard]] Interval range() const noexcept { return {offset, offset + entries}; }
    /// Writes the iteration, and the offsets of `table`, where the shard has them.
    void write_constants(MchTable const& table, Index now) const noexcept {
        if (iteration != nullptr) *iteration = now;
        for (Index i = 0; i < segment_count; ++i) segments[i] = table.segment(i);
    }
    /// Of the columns that travel with an entry: ids, slots, metadata in the table's order.
    [[nodiscard]] std::byte* column(std::size_t c) const noexcept {
        return c < 2 ? reinterpret_cast<std::byte*>(c == 0 ? ids : slots) : metadata[c - 2];
    }
};

/// The shard of `rank` as pointers, after checking that every buffer is what the table says. Reads no buffer.
///
/// Throws what check_table() throws; BufferError for a buffer of the wrong length or width, not dense, null, missing,
/// superfluous, or overlapping another; DTypeError for integers that are not I64; MismatchError when the state has not
/// exactly the table's columns. All name the table, the rank, the buffer and the remedy.
[[nodiscard]] MchShard shard_of(MchTable const& table, MchState const& state, Index rank);

/// What is known of the ids of one shard. Negative ids are 2^63 and above where they are routed, so they are counted
/// apart.
struct MchIdBounds {
    Index live = 0;      ///< ids
    Index lowest = 0;    ///< of those of 0 or more
    Index highest = -1;  ///< of those of 0 or more; -1: there are none
    Index negative = 0;  ///< ids below 0

    friend constexpr bool operator==(MchIdBounds const&, MchIdBounds const&) = default;
};

/// The bounds of two runs of ids taken together.
[[nodiscard]] constexpr MchIdBounds operator+(MchIdBounds const& a, MchIdBounds const& b) noexcept {
    MchIdBounds sum{a.live + b.live, a.lowest, detail::larger(a.highest, b.highest), a.negative + b.negative};
    if (a.highest < 0 || (b.highest >= 0 && b.lowest < a.lowest)) sum.lowest = b.lowest;
    return sum;
}

/// The bounds of ids in any order; empty places are none.
[[nodiscard]] MchIdBounds id_bounds(MchLayout layout, std::span<Index const> ids) noexcept;
/// The bounds of a shard, whose memory the host can read.
[[nodiscard]] MchIdBounds id_bounds(MchTable const& table, MchShard const& shard) noexcept;

namespace detail {

/// Ids, and slots where there are any, that were never filled in: no two ids and no two slots are equal.
[[nodiscard]] bool never_loaded(Index const* ids, Index const* slots, Index count) noexcept;

/// Bytes of an entry of each column that travels.
[[nodiscard]] std::vector<Index> widths_of(MchTable const& table);

}  // namespace detail

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/state.ipp>
#endif
