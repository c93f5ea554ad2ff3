// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/kernel_copies.cuh
/// \brief  How transports for devices pack and unpack with one launch for all boxes of a batch. Needs nvcc.
/// \depends comm/detail/device_copies.hpp, memory/cuda_call.hpp, memory/copy.cuh.
///
/// Strided copies of CUDA take a call per box, and a transposition many. Here the boxes of a batch are listed in pinned
/// memory, and one launch walks the list, which takes a few hundred bytes per box on the host and on the device.
#pragma once

#include <reshard/comm/detail/device_copies.hpp>
#include <reshard/comm/detail/kept.hpp>
#include <reshard/memory/copy.cuh>

#include <cstring>  // memcpy
#include <vector>

namespace reshard::inline v0::detail {

class KernelCopies {
public:
    static constexpr bool converts = false;

    KernelCopies(StagingOptions const& pinned, StagingOptions const& device) noexcept
        : listed_(pinned), near_(device) {}

    /// Lists of all batches of an exchange have places of their own: the host writes one while the device reads others.
    [[nodiscard]] bool reserve(Index copies, Index batches) {
        used_ = 0;
        if (copies == 0) return true;
        Index const bytes = copies * Index{sizeof(CopyBox) + sizeof(Index)} + 2 * batches * StagingOptions::alignment;
        boxes_.reserve(static_cast<std::size_t>(copies));
        starts_.reserve(static_cast<std::size_t>(copies));
        return listed_.grow(bytes) && near_.grow(bytes);
    }
    void add(std::byte const* from, StridedBox const& from_box, std::byte* to, StridedBox const& to_box, cudaStream_t) {
        CopyBox const box = copy_box(from, from_box, to, to_box);
        if (box.loops.units == 0) return;
        boxes_.push_back(box);
        starts_.push_back(tiles_);
        tiles_ += ceil_div(box.loops.units, box_tile);
        ++count_;
    }
    void flush(cudaStream_t stream) {
        if (count_ == 0) return;
        unsigned const grid = box_grid(tiles_);
        Index const first = used_;
        Index const boxes_bytes = count_ * Index{sizeof(CopyBox)};
        Index const starts_at = first + staging_slot(boxes_bytes);
        Index const starts_bytes = count_ * Index{sizeof(Index)};
        used_ = starts_at + staging_slot(starts_bytes);
        std::memcpy(listed_.data() + first, boxes_.data(), static_cast<std::size_t>(boxes_bytes));
        std::memcpy(listed_.data() + starts_at, starts_.data(), static_cast<std::size_t>(starts_bytes));
        cuda_check(cudaMemcpyAsync(near_.data() + first, listed_.data() + first,
                                   static_cast<std::size_t>(used_ - first), cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
        copy_boxes_kernel<<<grid, box_threads, 0, stream>>>(reinterpret_cast<CopyBox const*>(near_.data() + first),
                                                            reinterpret_cast<Index const*>(near_.data() + starts_at),
                                                            static_cast<int>(count_));
        cuda_check(cudaGetLastError(), "the launch of reshard's copy kernel");
        boxes_.clear();
        starts_.clear();
        count_ = 0;
        tiles_ = 0;
    }
    void close(bool stuck) noexcept {
        if (stuck) {
            keep_for_good(std::move(listed_));
            keep_for_good(std::move(near_));
        }
        listed_ = StagingMemory({});
        near_ = StagingMemory({});
    }

private:
    StagingMemory listed_;  ///< in pinned memory of the host
    StagingMemory near_;    ///< the same on the device
    std::vector<CopyBox> boxes_;
    std::vector<Index> starts_;  ///< first tile of each box
    Index count_ = 0;
    Index tiles_ = 0;
    Index used_ = 0;
};

}  // namespace reshard::inline v0::detail
