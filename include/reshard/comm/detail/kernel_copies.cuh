// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/kernel_copies.cuh
/// \brief  How transports for devices pack, unpack and convert with one launch for all boxes of a batch. Needs nvcc.
/// \depends comm/detail/device_copies.hpp, comm/detail/device_or_host_memory.cuh.
///
/// Strided copies of CUDA take a call per box, and a transposition many. Here the boxes of a batch are listed in pinned
/// memory, and one launch walks the list, which takes a few hundred bytes per box on the host and on the device; those
/// that cast or scale are a list and a launch of their own.
#pragma once

#include <reshard/comm/detail/device_copies.hpp>
#include <reshard/comm/detail/device_or_host_memory.cuh>

#include <cstring>  // memcpy
#include <vector>

namespace reshard::inline v0_1::detail {

/// The block's box in shared memory, where its loops are looked up for every unit.
template <class Box>
__device__ Box const& near_box(Box const& listed) {
    constexpr int words = sizeof(Box) / sizeof(std::uint64_t);
    static_assert(sizeof(Box) % sizeof(std::uint64_t) == 0 && words <= box_threads);
    __shared__ std::uint64_t box[words];
    if (threadIdx.x < words) box[threadIdx.x] = reinterpret_cast<std::uint64_t const*>(&listed)[threadIdx.x];
    __syncthreads();
    return reinterpret_cast<Box const&>(box);
}
// Three blocks at once: for four, ptxas spills 48 bytes on sm_90.
template <class Box>
__global__ void __launch_bounds__(box_threads, 3) copy_boxes_kernel(Box const* boxes, Index const* starts, int count) {
    int const number = part_at(starts, count, blockIdx.x);
    copy_thread(near_box(boxes[number]), as_index(blockIdx.x) - starts[number], static_cast<int>(threadIdx.x));
}

class KernelCopies {
public:
    using Memory = DeviceMemory;
    using MixedMemory = DeviceOrHostMemory;
    static constexpr bool converts = true;

    KernelCopies(StagingOptions const& pinned, StagingOptions const& device) noexcept
        : listed_(pinned), near_(device) {}

    /// Throws BufferError for what kernels cannot convert.
    static void check_alignment(std::byte const* base, StridedBox const& box) {
        if (is_aligned(base, box)) return;
        raise(ErrorCode::buffer,
              "reshard: values that are converted on the way are not aligned to their size. "
              "Fix: align addresses and strides; what travels as it is needs no alignment.");
    }

    /// Where one side converts, both sides' elements are loaded and stored whole.
    [[nodiscard]] static bool takes(Send const& from, Receive const& to) noexcept {
        return (from.conversion.is_plain() && to.conversion.is_plain()) ||
               (is_aligned(from.base, from.box) && is_aligned(to.base, to.box));
    }

    /// Lists of all batches of an exchange have places of their own: the host writes one while the device reads others.
    [[nodiscard]] bool reserve(Index copies) {
        used_ = 0;
        if (copies == 0) return true;
        constexpr Index most = larger(sizeof(CopyBox), sizeof(CastBox));
        Index const bytes = copies * (most + Index{sizeof(Index)});
        copies_.reserve(copies);
        casts_.reserve(copies);
        return listed_.grow(bytes) && near_.grow(bytes);
    }
    void add(Send const& from, Receive const& to, cudaStream_t) {
        with_delivery(
            from, to, [&](CopyBox const& box) { copies_.add(box); }, [&](CastBox const& box) { casts_.add(box); });
    }
    void flush(cudaStream_t stream) {
        Index const first = used_;
        if (copies_.boxes.empty() && casts_.boxes.empty()) return;
        copies_.write(listed_.data(), used_);
        casts_.write(listed_.data(), used_);
        cuda_check(cudaMemcpyAsync(near_.data() + first, listed_.data() + first, as_size(used_ - first),
                                   cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
        copies_.launch(near_.data(), stream);
        casts_.launch(near_.data(), stream);
    }
    void close(bool stuck) noexcept {
        listed_.close(stuck);
        near_.close(stuck);
    }

private:
    template <class Box>
    struct List {
        std::vector<Box> boxes;
        std::vector<Index> starts;  ///< first tile of each box
        Index tiles = 0;
        Index boxes_at = 0;  ///< where the list was written
        Index starts_at = 0;

        void reserve(Index most) {
            boxes.reserve(as_size(most));
            starts.reserve(as_size(most));
        }
        void add(Box const& box) {
            if (box.loops.units == 0) return;
            boxes.push_back(box);
            starts.push_back(tiles);
            tiles += ceil_div(box.loops.units, box_tile);
        }
        void write(std::byte* memory, Index& used) {
            if (boxes.empty()) return;
            static_assert(alignof(Box) == alignof(Index));  // lists lie side by side
            boxes_at = used;
            starts_at = boxes_at + as_index(boxes.size() * sizeof(Box));
            used = starts_at + as_index(starts.size() * sizeof(Index));
            std::memcpy(memory + boxes_at, boxes.data(), as_size(starts_at - boxes_at));
            std::memcpy(memory + starts_at, starts.data(), as_size(used - starts_at));
        }
        void launch(std::byte const* device, cudaStream_t stream) {
            if (boxes.empty()) return;
            unsigned const grid = box_grid(tiles);
            auto const count = static_cast<int>(boxes.size());
            boxes.clear();
            starts.clear();
            tiles = 0;
            launch_kernel("copy", copy_boxes_kernel<Box>, grid, box_threads, stream,
                          reinterpret_cast<Box const*>(device + boxes_at),
                          reinterpret_cast<Index const*>(device + starts_at), count);
        }
    };

    StagingMemory listed_;  ///< in pinned memory of the host
    StagingMemory near_;    ///< the same on the device
    List<CopyBox> copies_;
    List<CastBox> casts_;
    Index used_ = 0;
};

}  // namespace reshard::inline v0_1::detail
