// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/state.hpp
/// \brief  MchState: one rank's shard of one managed-collision table, as columns over memory that the caller owns.
/// \depends mch/table, core/tensor_view. Opt-in: not part of the umbrella.
///
/// Buffers keep their storage: everything in this room writes in place, because TorchRec's modules and the tensors of a
/// checkpoint refer to the same memory.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/mch/table.hpp>

namespace reshard::inline v0 {

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
/// A rank outside the table's mesh, or with a shard of no slots, may leave everything null.
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
};

namespace detail {

/// What is wrong with the buffers of one rank, in the words of one message.
class MchBuffers {
public:
    MchBuffers(MchTable const& table, Index rank) : table_(table), rank_(rank) {}

    /// \pre elements of whole bytes are what the view holds: checked here.
    std::byte* column(DynamicView const& view, std::string_view what, Index rows, Index bytes_per_row) {
        if (!is_byte_sized(view.dtype())) {
            refuse(ErrorCode::dtype, what, " of ", name(view.dtype()),
                   " has no addressable entries. Fix: view it as U8.");
        }
        Index const found = view.rank() == 0 ? 0 : view.extent(0);
        if (view.rank() == 0 && view.data() == nullptr && rows == 0) return nullptr;
        if (view.rank() == 0 || found != rows) {
            refuse(ErrorCode::buffer, what, " has shape ", to_string(view.shape()), ": ", found,
                   " entries, but the shard has ", rows, " (slots ", table_.range(rank_).begin, " to ",
                   table_.range(rank_).end, " of ", table_.size(),
                   "). Fix: configure the size and the ranks the buffers were made for.");
        }
        Index per_row = bytes(view.dtype());
        for (int d = 1; d < view.rank(); ++d) per_row *= view.extent(d);
        if (per_row != bytes_per_row) {
            refuse(ErrorCode::buffer, what, " has ", per_row, " bytes an entry, the table says ", bytes_per_row,
                   ". Fix: describe the column as it is.");
        }
        return memory(view, what);
    }
    Index* integers(DynamicView const& view, std::string_view what, Index rows) {
        check_integers(view, what);
        return reinterpret_cast<Index*>(column(view, what, rows, 8));
    }
    void check_integers(DynamicView const& view, std::string_view what) const {
        if (view.data() == nullptr || view.dtype() == DType::i64) return;
        refuse(ErrorCode::dtype, what, " is ", name(view.dtype()), ", not I64. Fix: convert it.");
    }
    std::byte* memory(DynamicView const& view, std::string_view what) {
        if (view.size() == 0) return nullptr;
        Index expected = 1;
        for (int d = view.rank() - 1; d >= 0; --d) {
            if (view.extent(d) != 1 && view.stride(d) != expected) {
                refuse(ErrorCode::buffer, what, " has strides ", to_string(view.strides()), " for shape ",
                       to_string(view.shape()), ". Fix: make it contiguous.");
            }
            expected *= view.extent(d);
        }
        if (view.data() == nullptr) refuse(ErrorCode::buffer, what, " is null. Fix: pass memory for every entry.");
        keep_apart(view.data(), view.size() * bytes(view.dtype()), what);
        return view.data();
    }
    void absent(DynamicView const& view, std::string_view what) const {
        if (view.data() == nullptr) return;
        refuse(ErrorCode::buffer, what, " is given, but a ", name(table_.layout),
               " table has none. Fix: leave it out, or name the layout the buffers have.");
    }
    template <class... Parts>
    [[noreturn]] void refuse(ErrorCode code, Parts const&... parts) const {
        refuse_table(code, table_, concat("on rank ", rank_, ": ", parts...));
    }

private:
    struct Stretch {
        std::uintptr_t begin;
        std::uintptr_t end;
        std::string name;
    };
    void keep_apart(std::byte const* data, Index size, std::string_view what) {
        auto const begin = reinterpret_cast<std::uintptr_t>(data);
        Stretch const mine{begin, begin + static_cast<std::uintptr_t>(size), std::string(what)};
        for (Stretch const& other : seen_) {
            if (other.end <= mine.begin || mine.end <= other.begin) continue;
            refuse(ErrorCode::buffer, what, " overlaps ", other.name, ". Fix: give each buffer its own memory.");
        }
        seen_.push_back(mine);
    }

    MchTable const& table_;
    Index rank_;
    std::vector<Stretch> seen_{};
};

}  // namespace detail

/// The shard of `rank` as pointers, after checking that every buffer is what the table says. Reads no buffer.
///
/// Throws what check_table() throws; BufferError for a buffer of the wrong length or width, not dense, null, missing,
/// superfluous, or overlapping another; DTypeError for integers that are not I64; MismatchError when the state has not
/// exactly the table's columns. All name the table, the rank, the buffer and the remedy.
[[nodiscard]] inline MchShard shard_of(MchTable const& table, MchState const& state, Index rank) {
    check_table(table);
    detail::MchBuffers buffers(table, rank);
    Interval const range = table.range(rank);
    MchShard shard;
    shard.entries = range.size();
    shard.offset = range.begin;
    shard.ids = buffers.integers(state.ids, "the column of ids", shard.entries);
    bool const nothing = shard.entries == 0 && state.metadata.empty();  // says no more than that it has no slots
    for (MchColumn const& column : table.metadata) {
        MchColumnView const* found = nullptr;
        for (MchColumnView const& one : state.metadata) {
            if (one.name != column.name) continue;
            if (found != nullptr) {
                buffers.refuse(ErrorCode::mismatch, "the state has two columns '", column.name, "'. Fix: pass one.");
            }
            found = &one;
        }
        if (found == nullptr && !nothing) {
            buffers.refuse(ErrorCode::mismatch, "the state has no column '", column.name,
                           "'. Fix: pass every column of the table, or fill what a saved state lacks.");
        }
        std::string const what = concat("column '", column.name, "'");
        bool const scored = column.name == mch_counts || column.name == mch_last_access;
        if (!nothing && scored) buffers.check_integers(found->view, what);
        shard.metadata.push_back(nothing ? nullptr : buffers.column(found->view, what, shard.entries, column.bytes));
    }
    for (MchColumnView const& one : state.metadata) {
        if (find_column(table, one.name) != nullptr) continue;
        buffers.refuse(ErrorCode::mismatch, "the table has no column '", one.name, "'. Fix: describe it in the table.");
    }
    if (table.layout == MchLayout::buckets) {
        buffers.absent(state.slots, "a column of slots");
        buffers.absent(state.segments, "a list of segments");
        buffers.absent(state.iteration, "an iteration");
        return shard;
    }
    shard.slots = buffers.integers(state.slots, "the column of slots", shard.entries);
    bool const here = state.iteration.data() != nullptr || state.segments.data() != nullptr;
    if (shard.entries == 0 && !here) return shard;
    shard.iteration = buffers.integers(state.iteration, "the current iteration", 1);
    shard.segment_count = state.segments.rank() == 0 ? 0 : state.segments.extent(0);
    shard.segments = buffers.integers(state.segments, "the list of segments", shard.segment_count);
    if (shard.segment_count < table.parts() + 1) {
        buffers.refuse(ErrorCode::buffer, "the list of segments has ", shard.segment_count, " places for the ",
                       table.parts() + 1, " offsets of ", table.parts(),
                       " shards. Fix: a longer list (TorchRec's holds 1024 shards).");
    }
    return shard;
}

}  // namespace reshard::inline v0
