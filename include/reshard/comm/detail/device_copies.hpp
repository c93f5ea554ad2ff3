// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/device_copies.hpp
/// \brief  How transports for devices pack and unpack: StridedCopies, one copy of CUDA or more per box.
/// \depends comm/device_staging.hpp, memory/copy_on_stream.hpp. No kernels: detail/kernel_copies.cuh has another way.
#pragma once

#include <reshard/comm/device_staging.hpp>
#include <reshard/memory/copy_on_stream.hpp>

#include <span>
#include <vector>

namespace reshard::inline v0::detail {

/// Memory of a device as plans see it where there are no kernels: copied by CUDA, not computed on.
class CopiedMemory {
public:
    using workspace_type = std::vector<std::byte>;  // stays empty: only folds need any
    using Check = void (*)(int device, void const* memory);
    static constexpr bool computes = false;
    static constexpr std::string_view remedy =
        "use a communicator with kernels, NcclKernelCommunicator of <reshard/comm/nccl.cuh> or "
        "DeviceThreadKernelCommunicator of <reshard/comm/device_threads.cuh>, which nvcc compiles.";

    CopiedMemory(cudaStream_t stream, int device, Check checks) noexcept
        : stream_(stream), device_(device), check_(checks) {}

    void check(char const*, void const* memory, Index) const { check_(device_, memory); }
    [[nodiscard]] static workspace_type allocate(Index) noexcept { return {}; }
    void deliver(std::span<Send const> sends, std::span<Receive const> receives) const {
        CurrentDevice const device(device_);
        for (std::size_t k = 0; k < sends.size(); ++k)
            copy_on_stream(sends[k].base, sends[k].box, receives[k].base, receives[k].box, stream_);
    }

private:
    cudaStream_t stream_;
    int device_;
    Check check_;
};

/// Each box by copies of its own, enqueued at once. What a `Copies` class of a transport must have; where `converts` is
/// true it also has
///
///     static void check_alignment(std::byte const* base, StridedBox const& box);  // throws BufferError
///     void add(Send const& from, Receive const& to);
///
/// for values that change on the way between memory that the device reaches, counted and flushed like copies. Else the
/// host converts.
class StridedCopies {
public:
    static constexpr bool converts = false;
    /// Of plans, on this stream. `device_source` is where kernels would take scratch memory from.
    [[nodiscard]] static CopiedMemory memory(cudaStream_t stream, int device, StagingOptions const& /*device_source*/,
                                             CopiedMemory::Check check) noexcept {
        return {stream, device, check};
    }

    /// Where memory may come from: pinned for lists of boxes, and as much on the device.
    StridedCopies(StagingOptions const& /*pinned*/, StagingOptions const& /*device*/) noexcept {}

    /// Makes room for an exchange: so many copies in all, in so many batches. False where there is none.
    [[nodiscard]] bool reserve(Index /*copies*/, Index /*batches*/) noexcept { return true; }
    /// Element k of `from_box` becomes element k of `to_box`, at flush() at the latest. Boxes of a batch are
    /// independent of each other.
    void add(std::byte const* from, StridedBox const& from_box, std::byte* to, StridedBox const& to_box,
             cudaStream_t stream) {
        copy_on_stream(from, from_box, to, to_box, stream);
    }
    /// Ends a batch.
    void flush(cudaStream_t) noexcept {}
    /// Lets go of its memory, or, if the device may still use it, of the right to free it.
    void close(bool /*stuck*/) noexcept {}
};

}  // namespace reshard::inline v0::detail
