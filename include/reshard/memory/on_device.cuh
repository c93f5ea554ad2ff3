// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/on_device.cuh
/// \brief  DeviceMemory: the memory policy of a CUDA device. What plans do with tensors there, as kernels of a stream.
/// \depends memory/cuda_call.hpp, memory/memory_policy.hpp, memory/detail/value_kernels.hpp. Needs nvcc.
///
///     redistribute(plan, source, destination, rank, DeviceMemory{stream});     // a plan that sends nothing
///
/// NcclKernelCommunicator has a member memory() that returns one with its stream (memory/memory_policy.hpp says what
/// a policy is); communicators that take memory of the host as well have one that uses it. Every operation is enqueued
/// on that stream and returns at once: lists of boxes travel with the launch as its arguments, so nothing is allocated
/// or uploaded, and a graph may capture them. Never the default stream, unless it is the one that was given. Results
/// are those of host_memory(), bit for bit, but for which NaN a sum hands on.
#pragma once

#include <reshard/memory/cuda_call.hpp>
#include <reshard/memory/detail/value_kernels.hpp>
#include <reshard/memory/memory_policy.hpp>

#include <chrono>
#include <memory>  // unique_ptr

namespace reshard::inline v0_1 {

namespace detail {

[[nodiscard]] inline unsigned box_grid(Index tiles) {
    if (tiles > INT32_MAX) {
        raise(ErrorCode::shape, "reshard: boxes of ", tiles,
              " tiles need more blocks than a launch has. Fix: copy fewer at once.");
    }
    return static_cast<unsigned>(tiles);
}

/// Boxes that one launch works on; they are its argument.
template <class Box, int Most>
struct BoxPack {
    static constexpr int most = Most;
    Box boxes[Most];
    Index starts[Most] = {};  ///< first tile of each box
    int count = 0;
    Index tiles = 0;

    void add(Box const& box) {
        boxes[count] = box;
        starts[count++] = tiles;
        tiles += ceil_div(box.loops.units, box_tile);
    }
};
using CopyPack = BoxPack<CopyBox, 10>;
using CastPack = BoxPack<CastBox, 9>;
static_assert(sizeof(CopyPack) <= 4096 && sizeof(CastPack) <= 4096);
/// For lists of many: between two launches the device has less to do for some 4 us. Arguments of up to 32764 bytes are
/// what drivers of CUDA 12.1 and newer take.
using LongCopyPack = BoxPack<CopyBox, 78>;
static_assert(sizeof(LongCopyPack) <= 32764);

// Templates, so that every file that includes this may have them. Copies that convert have other boxes.
template <class Pack>
__global__ void __launch_bounds__(box_threads) copy_pack_kernel(__grid_constant__ Pack const pack) {
    int const number = part_at(pack.starts, pack.count, blockIdx.x);
    copy_thread(pack.boxes[number], as_index(blockIdx.x) - pack.starts[number], static_cast<int>(threadIdx.x));
}
/// Blocks at once: loads that are under way want registers, accumulators of 64 bits more of them.
template <class A>
inline constexpr int fold_blocks_at_once = sizeof(A) == 4 ? 3 : 2;
template <class A, class Box>
__global__ void __launch_bounds__(box_threads, fold_blocks_at_once<A>)
    fold_box_kernel(__grid_constant__ Box const box) {
    fold_thread<A>(box, blockIdx.x, static_cast<int>(threadIdx.x));
}
template <class A, class Box>
__global__ void __launch_bounds__(box_threads, fold_blocks_at_once<A>)
    fold_cast_kernel(__grid_constant__ Box const box) {
    fold_cast_thread<A>(box, blockIdx.x, static_cast<int>(threadIdx.x));
}
template <class Box>
__global__ void __launch_bounds__(box_threads) fill_box_kernel(__grid_constant__ Box const box) {
    fill_thread(box, blockIdx.x, static_cast<int>(threadIdx.x));
}
template <class Box>
__global__ void __launch_bounds__(box_threads) scale_box_kernel(__grid_constant__ Box const box) {
    scale_thread(box, blockIdx.x, static_cast<int>(threadIdx.x));
}

/// Calls copies(box) or casts(box) with what brings values of one side into the other, whose memory both are within
/// reach of kernels: the two conversions as one, as deliver() of the host.
template <class Copies, class Casts>
void with_delivery(Send const& send, Receive const& receive, Copies&& copies, Casts&& casts) {
    Conversion const& from = send.conversion;
    Conversion const& to = receive.conversion;
    double const factor = from.factor * to.factor;
    bool const plain = from.is_plain() && to.is_plain();
    if (plain || (from.memory == to.memory && factor == 1.0)) {
        copies(copy_box(send.base, send.box, receive.base, receive.box));
    } else {
        casts(cast_box(send.base, send.box, from.memory, receive.base, receive.box, to.memory, factor));
    }
}

/// Memory of a device that is released with this object, once the stream that works in it has come to an end: a plan
/// may be gone before its last kernel is. If that takes longer than the deadline, it is kept. Move-only.
class DeviceWorkspace {
public:
    DeviceWorkspace(cudaStream_t stream, int device, DeviceSource const& source, std::chrono::milliseconds deadline,
                    Index bytes) {
        CurrentDevice const current(device);
        data_ = {source.allocate(bytes), {source, stream, device, deadline, bytes}};
        if (data_ != nullptr) return;
        raise_no_memory(stream,
                        concat("reshard: no memory for a workspace of ", bytes, " bytes on device ", device,
                               ". Fix: free some, pass a workspace, or fold fewer addends at once: smaller rounds of a "
                               "batch."));
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }

private:
    struct Release {
        DeviceSource source;
        cudaStream_t stream;
        int device;
        std::chrono::milliseconds deadline;
        Index bytes;

        void operator()(std::byte* memory) const noexcept {
            CurrentDevice const current(device, std::nothrow);
            if (is_over()) source.release(memory, bytes);
        }
        /// Waits. An error of the device is told by whoever uses it next.
        [[nodiscard]] bool is_over() const noexcept {
            auto const since = Clock::now();
            return await_cuda(cudaStreamQuery, stream, since, comparable(deadline)) != cudaErrorNotReady;
        }
    };
    std::unique_ptr<std::byte, Release> data_;
};

}  // namespace detail

/// Memory of one device, worked on by one stream. A value: copies mean the same stream.
class DeviceMemory final : public MemoryPolicy {
public:
    /// On the device that is current now. Throws TransportError when CUDA cannot say which.
    explicit DeviceMemory(cudaStream_t stream, DeviceSource const& source = {})
        : DeviceMemory(stream, detail::current_device(), source) {}
    /// `deadline`: of the wait for the stream before scratch memory is freed; what outlasts it is kept for good.
    DeviceMemory(cudaStream_t stream, int device, DeviceSource const& source = {},
                 std::chrono::milliseconds deadline = std::chrono::milliseconds::max()) noexcept
        : source_(source), stream_(stream), deadline_(deadline), device_(device) {}

    [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
    [[nodiscard]] int device() const noexcept { return device_; }

    /// Throws BufferError for memory of the host or of another device, and for addresses that are no multiple of
    /// `alignment`. `what` names it: "source".
    void check(std::string_view what, void const* memory, Index alignment) const override {
        detail::CurrentDevice const current(device_);
        detail::check_device_memory("reshard::prepare", what, -1, memory, 1, alignment);
    }
    /// Throws OutOfMemory.
    [[nodiscard]] Workspace allocate(Index bytes) const override {
        return Workspace(detail::DeviceWorkspace(stream_, device_, source_, deadline_, bytes));
    }

    // All of them throw TransportError when CUDA refuses a launch.

    void deliver(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) const override {
        detail::CurrentDevice const current(device_);
        sends.size() > detail::CopyPack::most ? deliver_by<detail::LongCopyPack>(sends, receives)
                                              : deliver_by<detail::CopyPack>(sends, receives);
    }
    /// One launch, conversion included; a second one for up to three elements at the end of a single row.
    void fold(FoldWork const& work) const override {
        if (work.dtype == DType::c64) {  // which nothing converts
            FoldWork floats = work;
            floats.dtype = DType::f32;
            floats.slots.box = detail::floats_of(work.slots.box);
            floats.to.box = detail::floats_of(work.to.box);
            return fold(floats);
        }
        transport::Conversion const& change = work.to.conversion;
        auto box = detail::fold_box(work.op, work.dtype, work.slots.base, work.slots.box, work.slot_bytes, work.addends,
                                    work.to.base, work.to.box, work.divisor);
        auto const rest = detail::widen(box, work.to.box.element_bytes);
        fold(box, change);
        fold(rest, change);
    }
    void fill_identity(Reduce op, DType dtype, std::byte* to, transport::StridedBox const& box) const override {
        if (dtype == DType::c64) return fill_identity(op, DType::f32, to, detail::floats_of(box));
        auto const filled = detail::identity_box(op, dtype, to, box);
        launch(detail::fill_box_kernel<detail::FillBox>, filled, filled.loops.units);
    }
    void scale(DType dtype, std::byte* to, transport::StridedBox const& box, Index multiply,
               Index divide) const override {
        if (dtype == DType::c64) return scale(DType::f32, to, detail::floats_of(box), multiply, divide);
        auto const scaled = detail::scale_box(dtype, to, box, multiply, divide);
        launch(detail::scale_box_kernel<detail::ScaleBox>, scaled, scaled.loops.units);
    }

private:
    template <class Copies>
    void deliver_by(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) const {
        Copies copies;
        detail::CastPack conversions;
        for (std::size_t k = 0; k < sends.size(); ++k) {
            detail::with_delivery(
                sends[k], receives[k], [&](detail::CopyBox const& box) { add(copies, box); },
                [&](detail::CastBox const& box) { add(conversions, box); });
        }
        flush(copies);
        flush(conversions);
    }
    void fold(detail::FoldBox const& box, transport::Conversion const& change) const {
        if (change.is_plain()) {
            void (*kernel)(detail::FoldBox) = nullptr;  // a launch may throw
            detail::with_carrier(box.dtype, [&]<class A>() { kernel = detail::fold_box_kernel<A, detail::FoldBox>; });
            return launch(kernel, box, box.elements());
        }
        detail::FoldCastBox const cast{box, detail::cast_rule(box.dtype, change.memory, change.factor)};
        void (*kernel)(detail::FoldCastBox) = nullptr;
        detail::with_carrier(box.dtype, [&]<class A>() { kernel = detail::fold_cast_kernel<A, detail::FoldCastBox>; });
        launch(kernel, cast, box.elements());
    }
    template <class Pack, class Box>
    void add(Pack& pack, Box const& box) const {
        if (box.loops.units == 0) return;
        if (pack.count == Pack::most || pack.tiles + detail::ceil_div(box.loops.units, detail::box_tile) > INT32_MAX) {
            flush(pack);
        }
        pack.add(box);
    }
    template <class Pack>
    void flush(Pack& pack) const {
        enqueue(detail::copy_pack_kernel<Pack>, pack, pack.tiles);
        pack.count = 0;
        pack.tiles = 0;
    }
    template <class Kernel, class Box>
    void launch(Kernel kernel, Box const& box, Index units) const {
        detail::CurrentDevice const current(device_);
        enqueue(kernel, box, detail::ceil_div(units, detail::box_tile));
    }
    template <class Kernel, class Argument>
    void enqueue(Kernel kernel, Argument const& argument, Index tiles) const {
        if (tiles == 0) return;
        detail::launch_kernel("plans", kernel, detail::box_grid(tiles), detail::box_threads, stream_, argument);
    }

    DeviceSource source_;
    cudaStream_t stream_;
    std::chrono::milliseconds deadline_;
    int device_;
};

}  // namespace reshard::inline v0_1
