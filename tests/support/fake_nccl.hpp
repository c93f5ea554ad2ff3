// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/fake_nccl.hpp
/// \brief  A test double of NCCL and of the CUDA runtime: exactly the calls comm/nccl*.hpp makes, for ranks that are
///         threads of one process. "Device memory" is memory of the host, and a stream is a list of what is left to do.
///         Linked in place of libnccl and libcudart, it says nothing about them: what it checks is how they are called.
///
/// It is strict where NCCL is silent: operations of one rank start in the order of the stream, a group ends when all of
/// its operations have met theirs, counts that differ never meet, a communicator that has said ncclInProgress must be
/// asked before it is used again, and each call that does not block says ncclInProgress first.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace reshard::test::fake_nccl {

/// What all ranks have done since reset().
struct Counts {
    std::int64_t largest_group = 0;  ///< sends and receives
    std::int64_t groups = 0;
    std::int64_t messages = 0;          ///< sends that met their receive
    std::uint64_t largest_message = 0;  ///< bytes
    std::int64_t copies = 0;            ///< calls of cudaMemcpy*Async
    std::int64_t device_allocations = 0;
    std::int64_t default_stream = 0;  ///< what was enqueued on stream 0
    std::int64_t mismatches = 0;      ///< messages whose counts differ: never complete
    std::int64_t native = 0;          ///< collectives of NCCL's own
    std::int64_t aborted = 0;
    std::int64_t revoked = 0;
    std::int64_t destroyed = 0;
    std::int64_t misused = 0;  ///< calls while ncclInProgress
};
Counts counts();
void reset();
/// Communicators that exist, pointers that are allocated.
int live_communicators();
int live_allocations();

/// The next call of this name by this thread, after `skipped` others, returns `code` instead of doing anything.
void fail(char const* call, int code, int skipped = 0);
/// What ncclCommGetAsyncError says from now on.
void set_async_error(ncclComm_t comm, ncclResult_t code);
/// Communicators that are made from now on never become ready.
void stall_init(bool stalls);
/// What cudaPointerGetAttributes says of these addresses; -1: memory of the host. Everything else is memory of the
/// current device.
void claim(void const* memory, std::size_t bytes, int device);

/// A stream that is gone at the end of the scope.
class Stream {
public:
    Stream() { static_cast<void>(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    Stream(Stream const&) = delete;
    Stream& operator=(Stream const&) = delete;
    ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
    operator cudaStream_t() const noexcept { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

}  // namespace reshard::test::fake_nccl
