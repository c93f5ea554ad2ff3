// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/device_copies.hpp
/// \brief  What transports and memory policies need between the host and a device: pinned memory, an end to waits, work
///         of the host in the order of a stream; and StridedCopies, by which they pack and unpack, a few 2-D and 3-D
///         copies of CUDA per box.
/// \depends comm/device_staging.hpp, memory/{copy,cuda_call,loop_nest,memory_policy}.hpp. No kernels:
/// detail/kernel_copies.cuh has another way.
#pragma once

#include <reshard/comm/device_staging.hpp>
#include <reshard/memory/copy.hpp>
#include <reshard/memory/cuda_call.hpp>
#include <reshard/memory/loop_nest.hpp>
#include <reshard/memory/memory_policy.hpp>

#include <atomic>  // atomic
#include <memory>  // shared_ptr
#include <span>
#include <vector>

namespace reshard::inline v0_1::detail {

/// What deliver() takes.
struct Delivery {
    Send from;
    Receive to;
};

/// deliver() by the host, in the middle of a stream: by a stream that is late, when ranks have given up and their
/// memory may be gone, nothing.
class HostJobs {
public:
    HostJobs() = default;
    /// They are called off when `failed` is 2, which is before any rank leaves.
    explicit HostJobs(std::shared_ptr<std::atomic<std::uint32_t> const> failed) : failed_(std::move(failed)) {}

    /// Before an exchange, for all that it adds: jobs keep their addresses.
    void reserve(Index most) {
        jobs_.clear();
        jobs_.reserve(as_size(most));
    }
    void add(Send const& from, Receive const& to, cudaStream_t stream) {
        jobs_.push_back({{from, to}, failed_.get()});
        cuda_check(cudaLaunchHostFunc(
                       stream,
                       [](void* data) {
                           auto& job = *static_cast<Job*>(data);
                           job.called_off = job.failed != nullptr && job.failed->load(std::memory_order_seq_cst) == 2;
                           if (!job.called_off) deliver(job.what.from, job.what.to);
                       },
                       &jobs_.back()),
                   "cudaLaunchHostFunc");
    }

    /// Of an exchange whose jobs the device is done with: whether one did nothing.
    [[nodiscard]] bool any_called_off() const noexcept {
        for (Job const& job : jobs_)
            if (job.called_off) return true;
        return false;
    }

private:
    struct Job {
        Delivery what;
        std::atomic<std::uint32_t> const* failed;
        bool called_off = false;
    };
    std::vector<Job> jobs_;
    std::shared_ptr<std::atomic<std::uint32_t> const> failed_;
};

/// Owned by a communicator, which outlives the plans that use it. Work between its exchanges passes through it.
struct HostStaging {
    HostStaging(std::string_view name, cudaStream_t its_stream, int its_device, StagingOptions const& source,
                Index bytes)
        : transport(name), stream(its_stream), device(its_device), memory(source), spare(source), window_bytes(bytes) {}
    HostStaging& operator=(HostStaging&&) = delete;
    ~HostStaging() {
        bool const stuck = is_stuck();
        memory.close(stuck);
        spare.close(stuck);
    }

    /// Takes the memory, if that was not done. Throws OutOfMemory.
    void open() {
        CurrentDevice const here(device);
        if (memory.grow(window_bytes)) return;
        raise_no_memory(
            stream,
            concat("reshard: the transport '", transport, "' has no pinned memory for a window of ", window_bytes,
                   " bytes. Fix: a smaller window_bytes in its options, or a larger source of memory."));
    }
    /// Pinned memory beside the window, for one thread at a time. The largest that was given back is kept for the next
    /// that asks: to pin memory takes longer than to copy as much. None while a
    /// late device may still use what was given back. \pre it is gone before this object is
    [[nodiscard]] Workspace allocate(Index bytes) {
        struct Pinned {
            StagingMemory memory;
            HostStaging* host_staging;
            Pinned(StagingMemory&& given, HostStaging* its) noexcept : memory(std::move(given)), host_staging(its) {}
            Pinned(Pinned&&) noexcept = default;
            ~Pinned() {
                if (memory.size() > host_staging->spare.size()) std::swap(memory, host_staging->spare);
                memory.close(host_staging->is_stuck());
            }
            [[nodiscard]] std::byte* data() const noexcept { return memory.data(); }
        };
        CurrentDevice const here(device);
        if (is_stuck()) return {};
        StagingMemory made = std::exchange(spare, StagingMemory(spare.options()));
        return made.grow(bytes) ? Workspace(Pinned(std::move(made), this)) : Workspace();
    }
    /// Until the device has done everything in the stream. Throws DeadlineExceeded, TransportError.
    void wait() const {
        CurrentDevice const here(device);
        patience.wait(stream, "the transport '", transport, "'");
    }
    /// Whether the device may still use what it was given here.
    [[nodiscard]] bool is_stuck() const noexcept {
        CurrentDevice const here(device, std::nothrow);
        return patience.is_stuck(stream);
    }

    std::string_view transport;
    cudaStream_t stream;
    int device;
    StagingMemory memory;
    StagingMemory spare;  ///< for allocate()
    Index window_bytes;
    StreamPatience patience{std::chrono::minutes(5)};  ///< what is split off shares it, as it shares the stream
};

// ---- Strided copies --------------------------------------------------------------------------------------------

/// A copy as CUDA knows it: planes of rows of `run` bytes. The loops that are left are walked by the host.
struct StreamCopyShape {
    LoopNest rest;
    LoopDim row{1, 0, 0};
    LoopDim plane{1, 0, 0};
    Index run = 1;
};

/// Pitches are positive, hold a row and fit into 31 bits (cudaDevAttrMaxPitch).
[[nodiscard]] constexpr bool can_be_row(LoopDim const& dim, Index run) noexcept {
    constexpr Index most = 0x7fffffff;
    return dim.from >= run && dim.to >= run && dim.from <= most && dim.to <= most;
}
/// A plane lies a whole number of rows behind the one before, on both sides.
[[nodiscard]] constexpr bool can_be_plane(LoopDim const& dim, LoopDim const& row) noexcept {
    return dim.from > 0 && dim.to > 0 && dim.from % row.from == 0 && dim.to % row.to == 0 &&
           dim.from / row.from >= row.extent && dim.to / row.to >= row.extent;
}

[[nodiscard]] constexpr StreamCopyShape stream_copy_shape(StridedBox const& from, StridedBox const& to) noexcept {
    StreamCopyShape shape{loop_nest(from, to)};
    shape.run = take_row(shape.rest, to.element_bytes);
    auto const& loops = shape.rest.dims;
    int best = -1;
    for (int d = 0; d < loops.size(); ++d) {
        if (can_be_row(loops[d], shape.run) && (best < 0 || loops[d].extent > loops[best].extent)) best = d;
    }
    if (best < 0) return shape;
    shape.row = take_loop(shape.rest, best);
    best = -1;
    for (int d = 0; d < loops.size(); ++d) {
        if (can_be_plane(loops[d], shape.row) && (best < 0 || loops[d].extent > loops[best].extent)) best = d;
    }
    if (best >= 0) shape.plane = take_loop(shape.rest, best);
    return shape;
}

inline void copy_planes_on_stream(StreamCopyShape const& shape, std::byte const* from, std::byte* to,
                                  cudaStream_t stream) {
    auto const size = [](Index value) { return as_size(value); };
    if (shape.plane.extent > 1) {
        cudaMemcpy3DParms copy{};
        copy.srcPtr = {const_cast<std::byte*>(from), size(shape.row.from), size(shape.run),
                       size(shape.plane.from / shape.row.from)};
        copy.dstPtr = {to, size(shape.row.to), size(shape.run), size(shape.plane.to / shape.row.to)};
        copy.extent = {size(shape.run), size(shape.row.extent), size(shape.plane.extent)};
        copy.kind = cudaMemcpyDefault;
        return cuda_check(cudaMemcpy3DAsync(&copy, stream), "cudaMemcpy3DAsync");
    }
    if (shape.row.extent > 1) {
        return cuda_check(cudaMemcpy2DAsync(to, size(shape.row.to), from, size(shape.row.from), size(shape.run),
                                            size(shape.row.extent), cudaMemcpyDefault, stream),
                          "cudaMemcpy2DAsync");
    }
    cuda_check(cudaMemcpyAsync(to, from, size(shape.run), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

/// Element k of `from_box` becomes element k of `to_box`, in the order of the stream: between memory of the host and of
/// devices, as addresses say (cudaMemcpyDefault). Throws TransportError, with CUDA's words.
/// \pre The boxes have the same extents and element_bytes, and do not overlap.
inline void copy_on_stream(std::byte const* from, StridedBox const& from_box, std::byte* to, StridedBox const& to_box,
                           cudaStream_t stream) {
    StreamCopyShape const shape = stream_copy_shape(from_box, to_box);
    if (shape.rest.empty) return;
    for_each_origin(
        shape.rest, shape.rest.dims.size(), from + shape.rest.from_offset, to + shape.rest.to_offset,
        [&](std::byte const* from_at, std::byte* to_at) { copy_planes_on_stream(shape, from_at, to_at, stream); });
}

/// Throws BufferError unless NCCL on `device` can move this memory.
inline void check_nccl_memory(int device, void const* memory) {
    MemoryKind const kind = reachable_kind("nccl", device, memory);
    if (kind == MemoryKind::device) return;
    raise(ErrorCode::buffer,
          "reshard: the transport 'nccl' moves memory of a CUDA device, and this is memory of the host: device and "
          "host memory mixed. Fix: copy it to the device first, or use a communicator for the host.");
}

/// Memory of a device as plans see it where there are no kernels: copied by CUDA, not computed on.
/// They need no scratch memory, but take a source of it as those with kernels do.
class CopiedMemory final : public MemoryPolicy {
public:
    /// Of a device alone.
    CopiedMemory(cudaStream_t stream, int device, DeviceSource const& /*source*/,
                 std::chrono::milliseconds /*deadline*/) noexcept
        : stream_(stream), device_(device) {}
    /// Where there may be memory of the host: `host_staging` is for waits.
    CopiedMemory(HostStaging& host_staging, DeviceSource const& /*source*/) noexcept
        : stream_(host_staging.stream), device_(host_staging.device), host_staging_(&host_staging) {}

    void check(std::string_view, void const* memory, Index) const override {
        if (host_staging_ == nullptr) return check_nccl_memory(device_, memory);
        static_cast<void>(reachable_kind(host_staging_->transport, device_, memory));
    }
    [[nodiscard]] Workspace allocate(Index) const override { return {}; }  // only folds need any
    [[nodiscard]] Workspace allocate_on_host(Index bytes) const override {
        return host_staging_ == nullptr ? Workspace() : host_staging_->allocate(bytes);
    }
    void deliver(std::span<Send const> sends, std::span<Receive const> receives) const override {
        CurrentDevice const device(device_);
        bool const waits = host_staging_ != nullptr && (has_host(sends) || has_host(receives));
        if (waits) host_staging_->wait();  // where memory is not pinned, CUDA would: without a deadline
        for (std::size_t k = 0; k < sends.size(); ++k)
            copy_on_stream(sends[k].base, sends[k].box, receives[k].base, receives[k].box, stream_);
        if (waits) host_staging_->wait();
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
    HostStaging* host_staging_ = nullptr;
};

/// Each box by copies of its own, enqueued at once. What a `Copies` class of a transport must have; where `converts` is
/// true, add() takes values that change on the way between memory that the device reaches. Else the host converts.
class StridedCopies {
public:
    using Memory = CopiedMemory;       ///< of plans
    using MixedMemory = CopiedMemory;  ///< the same where tensors lie on the host or on the device
    static constexpr bool converts = false;
    /// Throws BufferError for what add() cannot convert.
    static void check_alignment(std::byte const* /*base*/, StridedBox const& /*box*/) noexcept {}
    /// Whether add() takes them, of memory that the device reaches.
    [[nodiscard]] static bool takes(Send const& from, Receive const& to) noexcept {
        return from.conversion.is_plain() && to.conversion.is_plain();
    }
    /// Where memory may come from: pinned for lists of boxes, and as much on the device.
    StridedCopies(StagingOptions const& /*pinned*/, StagingOptions const& /*device*/) noexcept {}

    /// Makes room for an exchange: so many copies in all. False where there is none.
    [[nodiscard]] bool reserve(Index /*copies*/) noexcept { return true; }
    /// `from` becomes `to`, at flush() at the latest. Boxes of a batch are independent of each other.
    void add(Send const& from, Receive const& to, cudaStream_t stream) {
        copy_on_stream(from.base, from.box, to.base, to.box, stream);
    }
    /// Ends a batch.
    void flush(cudaStream_t) noexcept {}
    /// Lets go of its memory, or, if the device may still use it, of the right to free it.
    void close(bool /*stuck*/) noexcept {}
};

}  // namespace reshard::inline v0_1::detail
