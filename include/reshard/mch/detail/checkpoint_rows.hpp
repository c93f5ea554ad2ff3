// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_rows.hpp
/// \brief  A rank's columns and rows, as they are saved and loaded.
/// \depends mch/{checkpoint_types,state}, mch/detail/buffers.
#pragma once

#include <reshard/mch/checkpoint_types.hpp>
#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/state.hpp>

namespace reshard::inline v0::detail {

/// The column of that name in a state, or null.
[[nodiscard]] inline MchColumnView const* find_column(MchState const& state, std::string_view name) noexcept {
    for (MchColumnView const& column : state.metadata)
        if (column.name == name) return &column;
    return nullptr;
}

/// Throws BufferError and DTypeError for rows that are not [z, ...], dense, in memory of the host and none of
/// `buffers`'.
inline void check_rows(MchTable const& table, Index rank, MchRows const& rows, MchBuffers& buffers) {
    std::string const what = concat("rows '", rows.name, "'");
    if (rows.view.rank() == 0) {
        buffers.refuse(ErrorCode::buffer, what,
                       " have no shape. Fix: pass [z, ...], also where a rank has no slots: the others have rows.");
    }
    static_cast<void>(buffers.column(rows.view, what, table.range(rank).size(), entry_bytes(rows.view)));
}

/// Without the dimension that counts slots.
[[nodiscard]] inline Indices entry_shape(DynamicView const& view) {
    Indices shape;
    for (int d = 1; d < view.rank(); ++d) shape.push_back(view.extent(d));
    return shape;
}
[[nodiscard]] inline MchRowsInfo info_of(MchRows const& rows) {
    return {rows.name, rows.view.dtype(), entry_shape(rows.view)};
}

}  // namespace reshard::inline v0::detail
