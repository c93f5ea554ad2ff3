// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/redistribute.cuh
/// \brief  redistribute_on_device(), apply_row_moves_on_device(): tables whose columns lie on the device, and stay
///         there.
/// \depends mch/detail/{device_tables,device_row_moves}, cuda/device_work.cuh. Needs nvcc. Link reshard::mch
/// and reshard::cuda.
///
///     NcclCommunicator comm = ...;                                     // any communicator with a stream()
///     std::vector<MchDeviceChange> changes = redistribute_on_device(tables, comm);
///     apply_row_moves_on_device(changes[0].moves(), current, rows, comm);
///
/// What the host sees are counts, reports of faults, and where runs of ids begin: a few words a table and pair of
/// ranks, of all tables at once. It waits for the device seven times at most. Where something is wrong with a table,
/// what came to its shard, or the column of ids that leave, comes to the host as well, which finds out what.
#pragma once

#include <reshard/cuda/device_work.cuh>
#include <reshard/mch/detail/device_row_moves.hpp>
#include <reshard/mch/detail/device_tables.hpp>

namespace reshard::inline v0_1 {

/// A communicator that moves memory of the current device, in the order of a stream.
template <class C>
concept DeviceCommunicator = Communicator<C> && requires(C const& comm) {
    { comm.stream() } -> std::convertible_to<cudaStream_t>;
};

namespace detail {
/// Waits as long for the device as the communicator does, if that says how long.
template <DeviceCommunicator C>
[[nodiscard]] DeviceWork device_work_of(C const& comm, DeviceAllocator const& allocator) {
    if constexpr (requires { StreamPatience(comm.patience()); }) {
        return DeviceWork(comm.stream(), allocator, comm.patience());
    } else {
        return DeviceWork(comm.stream(), allocator);
    }
}
}  // namespace detail

/// Says what redistribute() would: numbers at once, lists as spans of device memory, all of it by on_host().
using MchDeviceChange = detail::BasicMchDeviceChange<DeviceWork>;

/// redistribute() (mch/redistribute.hpp) where all columns, the segments and the iteration are memory of the current
/// device, aligned to 8 bytes (metadata but counts and accesses: to 1). Same result, bit for bit (but for evictions by
/// a decay exponent other than 1, where powers differ in their last bits), same agreements, same errors; and beside
/// them: BufferError for memory of the host or of another device, ShapeError for more than 14 columns of metadata or
/// 2^32 - 1 entries for one rank, TransportError for a call that CUDA refuses, DeadlineExceeded for a device that is
/// not done by the communicator's deadline. All or nothing, as there, but for a device that fails once all ranks have
/// agreed; that error is this rank's own.
///
/// All is put on the communicator's stream; when this returns, the columns are written in its order. Memory of the
/// device, from the allocator: the entries that leave or stay, and 2 bytes for each until they are packed; those that
/// come, and about 44 bytes for each the shard is to have; where ids are evicted 24 more for each that came.
/// MchOptions::threads says nothing here.
template <DeviceCommunicator C>
[[nodiscard]] std::vector<MchDeviceChange> redistribute_on_device(std::span<MchTransition const> tables, C& comm,
                                                                  MchOptions const& options = {},
                                                                  DeviceAllocator const& allocator = {}) {
    DeviceWork work = detail::device_work_of(comm, allocator);
    return detail::redistribute_with(work, tables, comm, options);
}

/// apply_row_moves() (mch/row_moves.hpp) where moves and rows are memory of the current device, in the order of the
/// communicator's stream. Same errors, and BufferError for memory of the host or of another device. At best, rows are
/// copied 8 bytes at a time; views whose rows have an odd number of bytes slow the others down.
template <DeviceCommunicator C>
void apply_row_moves_on_device(std::span<MchRowMove const> moves, MchTable const& table,
                               std::span<DynamicView const> rows, C& comm, DeviceAllocator const& allocator = {}) {
    DeviceWork work = detail::device_work_of(comm, allocator);
    detail::apply_row_moves_with(work, moves, table, rows, comm);
}

}  // namespace reshard::inline v0_1
