// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/fake_nccl.hpp
/// \brief  A test double of NCCL: exactly the calls comm/nccl*.hpp makes, for ranks that are threads of one process,
///         on streams of the double of the CUDA runtime. Linked in place of libnccl, it says nothing about it: what it
///         checks is how it is called.
///
/// It is strict where NCCL is silent: operations of one rank start in the order of the stream, a group ends when all of
/// its operations have met theirs, counts that differ never meet, a communicator that has said ncclInProgress must be
/// asked before it is used again, and each call that does not block says ncclInProgress first.
#pragma once

#include "support/fake_cuda_runtime.hpp"

#include <nccl.h>

#include <cstdint>

namespace reshard::test::fake_nccl {

using fake_runtime::claim;
using fake_runtime::enqueue;
using fake_runtime::fail;
using fake_runtime::guard_device_memory;
using fake_runtime::live_allocations;
using fake_runtime::Stream;

/// What all ranks have done since reset().
struct Counts : fake_runtime::Counts {
    std::int64_t largest_group = 0;  ///< sends and receives
    std::int64_t groups = 0;
    std::int64_t messages = 0;          ///< sends that met their receive
    std::uint64_t largest_message = 0;  ///< bytes
    std::int64_t mismatches = 0;        ///< messages whose counts differ: never complete
    std::int64_t native = 0;            ///< collectives of NCCL's own
    std::int64_t aborted = 0;
    std::int64_t revoked = 0;
    std::int64_t destroyed = 0;
    std::int64_t misused = 0;  ///< calls while ncclInProgress
};
Counts counts();
void reset();
/// Communicators that exist.
int live_communicators();

/// What ncclCommGetAsyncError says from now on.
void set_async_error(ncclComm_t comm, ncclResult_t code);
/// Communicators that are made from now on never become ready.
void stall_init(bool stalls);
/// Rank 2 says `word` first in each ncclAllGather from now on; 0: what it says.
void gather_first(std::uint64_t word);

}  // namespace reshard::test::fake_nccl
