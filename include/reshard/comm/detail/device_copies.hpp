// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/device_copies.hpp
/// \brief  How transports for devices pack and unpack: StridedCopies, one copy of CUDA or more per box.
/// \depends comm/detail/device_passage.hpp, memory/copy_on_stream.hpp. No kernels: detail/kernel_copies.cuh has another
/// way.
#pragma once

#include <reshard/comm/detail/device_passage.hpp>
#include <reshard/memory/copy_on_stream.hpp>
#include <reshard/memory/memory_policy.hpp>

#include <span>
#include <vector>

namespace reshard::inline v0::detail {

/// Memory of a device as plans see it where there are no kernels: copied by CUDA, not computed on.
class CopiedMemory final : public MemoryPolicy {
public:
    using Check = void (*)(int device, void const* memory);

    /// Of a device alone; where there may be memory of the host, `passage` is for waits.
    CopiedMemory(cudaStream_t stream, int device, Check checks, HostPassage* passage = nullptr) noexcept
        : stream_(stream), device_(device), check_(checks), passage_(passage) {}

    void check(std::string_view, void const* memory, Index) const override { check_(device_, memory); }
    [[nodiscard]] Workspace allocate(Index) const override { return {}; }  // only folds need any
    void deliver(std::span<Send const> sends, std::span<Receive const> receives) const override {
        CurrentDevice const device(device_);
        for (std::size_t k = 0; k < sends.size(); ++k)
            copy_on_stream(sends[k].base, sends[k].box, receives[k].base, receives[k].box, stream_);
        if (passage_ != nullptr && (has_host(sends) || has_host(receives))) passage_->wait();
    }
    [[nodiscard]] std::string_view copies_only() const noexcept override {
        return "use a communicator with kernels, NcclKernelCommunicator of <reshard/comm/nccl.cuh>, "
               "DeviceThreadKernelCommunicator of <reshard/comm/device_threads.cuh> or StagedOnHostWithKernels of "
               "<reshard/comm/staged_on_host.cuh>, which nvcc compiles.";
    }

private:
    /// The transfers lie in one tensor; empty ones, anywhere.
    template <class Byte>
    [[nodiscard]] bool has_host(std::span<Transfer<Byte> const> transfers) const {
        for (auto const& transfer : transfers)
            if (transfer.box.elements() != 0) return memory_kind(device_, transfer.base) != MemoryKind::device;
        return false;
    }

    cudaStream_t stream_;
    int device_;
    Check check_;
    HostPassage* passage_;
};

/// Each box by copies of its own, enqueued at once. What a `Copies` class of a transport must have; where `converts` is
/// true, add() takes values that change on the way between memory that the device reaches, and there is also
///
///     static void check_alignment(std::byte const* base, StridedBox const& box);  // throws BufferError
///
/// Else the host converts.
class StridedCopies {
public:
    using Memory = CopiedMemory;
    using MixedMemory = CopiedMemory;
    static constexpr bool converts = false;
    /// Of plans, on this stream. `device_source` is where kernels would take scratch memory from.
    [[nodiscard]] static CopiedMemory memory(cudaStream_t stream, int device, StagingOptions const& /*device_source*/,
                                             CopiedMemory::Check check) noexcept {
        return {stream, device, check};
    }

    /// The same where tensors lie on the host or on the device.
    [[nodiscard]] static CopiedMemory mixed_memory(HostPassage& passage, StagingOptions const& /*device_source*/,
                                                   CopiedMemory::Check check) noexcept {
        return {passage.stream, passage.device, check, &passage};
    }

    /// Where memory may come from: pinned for lists of boxes, and as much on the device.
    StridedCopies(StagingOptions const& /*pinned*/, StagingOptions const& /*device*/) noexcept {}

    /// Makes room for an exchange: so many copies in all, in so many batches. False where there is none.
    [[nodiscard]] bool reserve(Index /*copies*/, Index /*batches*/) noexcept { return true; }
    /// `from` becomes `to`, at flush() at the latest. Boxes of a batch are independent of each other.
    void add(Send const& from, Receive const& to, cudaStream_t stream) {
        copy_on_stream(from.base, from.box, to.base, to.box, stream);
    }
    /// Ends a batch.
    void flush(cudaStream_t) noexcept {}
    /// Lets go of its memory, or, if the device may still use it, of the right to free it.
    void close(bool /*stuck*/) noexcept {}
};

}  // namespace reshard::inline v0::detail
