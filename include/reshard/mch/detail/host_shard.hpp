// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/host_shard.hpp
/// \brief  A shard whose buffers the host can read.
/// \depends mch/state, memory/device_memory.
#pragma once

#include <reshard/mch/state.hpp>
#include <reshard/memory/device_memory.hpp>

namespace reshard::inline v0::detail {

/// Throws BufferError for memory that the host cannot read.
inline void refuse_device_buffer(MchTable const& table, Index rank, void const* buffer) {
    if (!is_device_memory(buffer)) return;
    refuse_table(ErrorCode::buffer, table,
                 concat("on rank ", rank, ": a buffer lies in device memory. Fix: copy the shard to the host."));
}

/// shard_of(), and BufferError for columns that the host cannot read.
[[nodiscard]] inline MchShard host_shard_of(MchTable const& table, MchState const& state, Index rank) {
    MchShard shard = shard_of(table, state, rank);
    for (std::byte const* column : shard.metadata) refuse_device_buffer(table, rank, column);
    for (Index const* column : {shard.ids, shard.slots, shard.segments, shard.iteration}) {
        refuse_device_buffer(table, rank, column);
    }
    return shard;
}

}  // namespace reshard::inline v0::detail
