// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/checkpoint_types.hpp
/// \brief  Rows that are saved with tables, and what a load is told of columns and rows that differ.
/// \depends core/tensor_view, <vector>.
#pragma once

#include <reshard/core/tensor_view.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// Rows of a rank's shard, one per slot of it: weights, or the state of an optimizer. [z] or [z, ...], dense.
struct MchRows {
    std::string name;
    DynamicView view;
};

/// Weights or an optimizer state of a table in a saved folder: one row per slot.
struct MchRowsInfo {
    std::string name;
    DType dtype = DType::f32;
    Indices row_shape;  ///< of one row: [] for one number

    [[nodiscard]] Index row_bytes() const noexcept { return DynamicShape(row_shape).size() * bytes(dtype); }
    [[nodiscard]] friend bool operator==(MchRowsInfo const&, MchRowsInfo const&) = default;
};

/// A column that the saved table lacks.
struct MchFill {
    std::string column;
    Index value = 0;  ///< beside every id; empty places get what is empty. Other widths than 8 bytes: 0, or -1 for 0xff
};

struct MchLoadOptions {
    std::vector<MchFill> fill{};      ///< columns of the current table that were not saved
    std::vector<std::string> drop{};  ///< saved columns that the current table does not have
    /// Saved rows that load_redistributed() is not given and that are not wanted: where ids change their slots, rows
    /// that are not given do not follow.
    std::vector<std::string> leave_rows{};
    /// load_redistributed() of a sorted table, in mode `route`: the current table may have more or fewer slots than the
    /// saved one. Ids keep their slots where these are still theirs; where fewer slots are left than ids, the policy
    /// evicts, and MchChange::evicted lists what. Rows of slots that were not saved are zeros, and
    /// among MchChange::freed where no id has got one.
    bool resize = false;
};

}  // namespace reshard::inline v0_1
