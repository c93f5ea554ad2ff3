// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/buffers.hpp
/// \brief  Buffers of one rank against what the table says of them.
/// \depends mch/table, core/view_box.
#pragma once

#include <reshard/core/view_box.hpp>
#include <reshard/mch/table.hpp>

#include <tuple>  // tuple

namespace reshard::inline v0::detail {

/// Bytes of one entry of a column, or of one row.
[[nodiscard]] inline Index entry_bytes(DynamicView const& view) noexcept {
    Index result = bytes(view.dtype());
    for (int d = 1; d < view.rank(); ++d) result *= view.extent(d);
    return result;
}

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
        if (entry_bytes(view) != bytes_per_row) {
            refuse(ErrorCode::buffer, what, " has ", entry_bytes(view), " bytes an entry, the table says ",
                   bytes_per_row, ". Fix: describe the column as it is.");
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
        if (!is_dense(view)) {
            refuse(ErrorCode::buffer, what, " has strides ", to_string(view.strides()), " for shape ",
                   to_string(view.shape()), ". Fix: make it contiguous.");
        }
        if (view.data() == nullptr) refuse(ErrorCode::buffer, what, " is null. Fix: pass memory for every entry.");
        auto const begin = reinterpret_cast<std::uintptr_t>(view.data());
        std::uintptr_t const end = begin + static_cast<std::uintptr_t>(view.size() * bytes(view.dtype()));
        for (auto const& [from, to, other] : seen_) {
            if (to <= begin || end <= from) continue;
            refuse(ErrorCode::buffer, what, " overlaps ", other, ". Fix: give each buffer its own memory.");
        }
        seen_.emplace_back(begin, end, what);
        return view.data();
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
    std::vector<std::tuple<std::uintptr_t, std::uintptr_t, std::string>> seen_{};  ///< begins, ends, is called
};

}  // namespace reshard::inline v0::detail
