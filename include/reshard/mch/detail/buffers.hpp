// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/buffers.hpp
/// \brief  Buffers of one rank against what the table says of them.
/// \depends mch/table, core/{function_ref,view_box}, memory/place.
#pragma once

#include <reshard/core/function_ref.hpp>
#include <reshard/core/view_box.hpp>
#include <reshard/mch/table.hpp>
#include <reshard/memory/place.hpp>

#include <optional>  // optional
#include <tuple>     // tuple

namespace reshard::inline v0_1 {

struct MchShard;  // mch/state.hpp
struct MchState;

namespace detail {

/// Bytes of one entry of a column, or of one row.
[[nodiscard]] inline Index entry_bytes(DynamicView const& view) noexcept {
    Index result = bytes(view.dtype());
    for (int d = 1; d < view.rank(); ++d) result *= view.extent(d);
    return result;
}

/// What else is asked of memory that is not empty: throws BufferError.
using MchMemoryCheck = FunctionRef<void(std::string_view what, std::byte const* memory, Index bytes, Index alignment)>;

/// Asks that kernels of a Work (cuda/work.hpp) can be given it.
template <class Work>
struct MchOnDevice {
    MchOnDevice(Work& of, MchTable const& table, Index rank)
        : work(of), who(concat("reshard::mch: table '", table.name, "': on rank ", rank)) {}
    void operator()(std::string_view what, std::byte const* memory, Index bytes, Index alignment) const {
        work.check(who.c_str(), std::string(what).c_str(), memory, bytes, alignment);
    }
    Work& work;
    std::string who;
};

/// What is wrong with the buffers of one rank, in the words of one message.
class MchBuffers {
public:
    /// Of memory that the host can read: none that `memory`, the communicator's, holds.
    MchBuffers(MchTable const& table, Index rank, MemoryPolicy const* memory = nullptr)
        : table_(table), rank_(rank), memory_(memory) {}
    /// \pre what `check` refers to outlives this.
    MchBuffers(MchTable const& table, Index rank, MchMemoryCheck check) : table_(table), rank_(rank), check_(check) {}

    /// shard_of(), whose buffers are among these then: BufferError also for what these refuse.
    [[nodiscard]] MchShard shard(MchState const& state);

    /// \pre elements of whole bytes are what the view holds: checked here.
    std::byte* column(DynamicView const& view, std::string_view what, Index rows, Index bytes_per_row,
                      Index alignment = 1) {
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
                   "). Fix: configure the size and the ranks the buffers were made for; columns of other ranks are "
                   "loaded by position first, or taken there by redistribute(plan_across(saved.slots, current.slots), "
                   "comm, old_column, column) (docs/mch.md, \"Without a file\").");
        }
        if (entry_bytes(view) != bytes_per_row) {
            refuse(ErrorCode::buffer, what, " has ", entry_bytes(view), " bytes an entry, the table says ",
                   bytes_per_row, ". Fix: describe the column as it is.");
        }
        if (view.size() == 0) return nullptr;
        if (!is_dense(view)) {
            refuse(ErrorCode::buffer, what, " has strides ", to_string(view.strides()), " for shape ",
                   to_string(view.shape()), ". Fix: make it contiguous.");
        }
        if (view.data() == nullptr) refuse(ErrorCode::buffer, what, " is null. Fix: pass memory for every entry.");
        auto const begin = reinterpret_cast<std::uintptr_t>(view.data());
        Index const size = view.size() * bytes(view.dtype());
        std::uintptr_t const end = begin + static_cast<std::uintptr_t>(size);
        for (auto const& [from, to, other] : seen_) {
            if (to <= begin || end <= from) continue;
            refuse(ErrorCode::buffer, what, " overlaps ", other, ". Fix: give each buffer its own memory.");
        }
        seen_.emplace_back(begin, end, what);
        if (check_) {
            (*check_)(what, view.data(), size, alignment);
        } else if (is_far(memory_, view.data())) {
            refuse(ErrorCode::buffer, "a buffer lies in device memory. Fix: copy the shard to the host.");
        }
        return view.data();
    }
    Index* integers(DynamicView const& view, std::string_view what, Index rows) {
        check_integers(view, what);
        return reinterpret_cast<Index*>(column(view, what, rows, 8, 8));
    }
    void check_integers(DynamicView const& view, std::string_view what) const {
        if (view.data() == nullptr || view.dtype() == DType::i64) return;
        refuse(ErrorCode::dtype, what, " is ", name(view.dtype()), ", not I64. Fix: convert it.");
    }
    /// `which`: the offsets are, in words.
    void check_segments(Index places, MchTable const& table, std::string_view which) const {
        if (places > table.parts()) return;
        refuse(ErrorCode::buffer, "the list of segments has ", places, " places for the ", table.parts() + 1,
               " offsets ", which, ". Fix: a longer list (TorchRec's holds 1024 shards).");
    }
    void absent(DynamicView const& view, std::string_view what) const {
        if (view.data() == nullptr) return;
        refuse(ErrorCode::buffer, what, " is given, but a ", name(table_.layout),
               " table has none. Fix: leave it out, or name the layout the buffers have.");
    }
    template <class... Parts>
    [[noreturn]] void refuse(ErrorCode code, Parts const&... parts) const {
        refuse_table(code, table_, "on rank ", rank_, ": ", parts...);
    }

private:
    MchTable const& table_;
    Index rank_;
    MemoryPolicy const* memory_ = nullptr;
    std::optional<MchMemoryCheck> check_{};
    std::vector<std::tuple<std::uintptr_t, std::uintptr_t, std::string>> seen_{};  ///< begins, ends, is called
};

}  // namespace detail
}  // namespace reshard::inline v0_1
