// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/device_work.cuh
/// \brief  DeviceAllocator: where device memory comes from. DeviceWork: a stream, and what is put on it.
/// \depends core, memory/cuda_call.hpp, cuda/work.hpp, cuda/detail/{chunks,launch}; CUB's radix sort and scan;
/// <memory>.
#pragma once

#include <reshard/cuda/detail/chunks.hpp>
#include <reshard/cuda/detail/launch.cuh>
#include <reshard/cuda/work.hpp>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>  // plus

#include <memory>  // shared_ptr, unique_ptr

namespace reshard::inline v0_1 {

/// Where functions that cannot know in advance how much they need take device memory from: by default CUDA's pool of
/// the current device, in the order of the stream (cudaMallocAsync). Memory is aligned to 256 bytes; small pieces are
/// cut from chunks of 4 MiB, since a call of CUDA's takes longer than most of what is done in them. Where ranks of one
/// process read one another's memory on other devices, DeviceThreadCommunicator opens that pool to its peers; a pool of
/// your own must allow it (cudaMemPoolSetAccess).
struct DeviceAllocator {
    void* context = nullptr;
    /// Null when there is none left. `release` is called once for each, on the same stream.
    void* (*allocate)(void* context, std::size_t bytes, cudaStream_t stream) noexcept =
        [](void*, std::size_t bytes, cudaStream_t stream) noexcept -> void* {
        void* memory = nullptr;
        if (cudaMallocAsync(&memory, bytes, stream) == cudaSuccess) return memory;
        static_cast<void>(cudaGetLastError());  // it is told by what is returned
        return nullptr;
    };
    void (*release)(void* context, void* memory, std::size_t bytes,
                    cudaStream_t stream) noexcept = [](void*, void* memory, std::size_t, cudaStream_t stream) noexcept {
        static_cast<void>(cudaFreeAsync(memory, stream));
    };
};

namespace detail {

/// An allocator, in the order of a stream.
struct DeviceOrder {
    DeviceAllocator allocator;
    cudaStream_t stream;
    [[nodiscard]] void* allocate(std::size_t bytes) const noexcept {
        return allocator.allocate(allocator.context, bytes, stream);
    }
    void release(void* memory, std::size_t bytes) const noexcept {
        allocator.release(allocator.context, memory, bytes, stream);
    }
};

}  // namespace detail

/// A stream of the current device as cuda/work.hpp wants it. A handle: copies put work on the same stream.
class DeviceWork {
public:
    class Memory {
    public:
        [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }

    private:
        friend class DeviceWork;
        struct Release {
            detail::DeviceOrder order;
            std::size_t bytes;
            std::shared_ptr<detail::Chunks<detail::DeviceOrder>> chunks;  ///< of which it is a piece
            void operator()(std::byte* memory) const noexcept {
                chunks != nullptr ? chunks->give_back(memory) : order.release(memory, bytes);
            }
        };
        std::unique_ptr<std::byte, Release> data_;
    };

    explicit DeviceWork(cudaStream_t stream, DeviceAllocator const& allocator = {},
                        detail::StreamPatience const& patience = {})
        : order_{allocator, stream},
          chunks_(std::make_shared<detail::Chunks<detail::DeviceOrder>>(order_)),
          patience_(patience) {}
    [[nodiscard]] cudaStream_t stream() const noexcept { return order_.stream; }

    /// Throws OutOfMemory; TransportError where the device has failed.
    [[nodiscard]] Memory allocate(Index bytes) {
        auto const size = detail::as_size(bytes);
        bool const is_piece = size <= chunks_->most_bytes;
        void* const data = is_piece ? chunks_->take(size) : order_.allocate(size);
        Memory memory;
        memory.data_ = {static_cast<std::byte*>(data), {order_, size, is_piece ? chunks_ : nullptr}};
        if (data == nullptr) {
            detail::raise_no_memory(
                stream(), errors::concat("reshard: ", bytes,
                                         " bytes of device memory were refused. Fix: leave room on the device, or "
                                         "give an allocator that has it, as where a device has no memory pools."));
        }
        return memory;
    }
    void fill(void* to, int byte, Index bytes) {
        if (bytes == 0) return;
        detail::cuda_check(cudaMemsetAsync(to, byte, detail::as_size(bytes), stream()), "cudaMemsetAsync");
    }
    void copy(void* to, void const* from, Index bytes) { copy(to, from, bytes, cudaMemcpyDeviceToDevice); }
    /// Memory of the host that is not pinned is read before this returns.
    void upload(void* to, void const* from, Index bytes) {
        if (bytes > at_once) wait();
        copy(to, from, bytes, cudaMemcpyHostToDevice);
    }
    void download(void* to, void const* from, Index bytes) {
        wait();
        copy(to, from, bytes, cudaMemcpyDeviceToHost);
        wait();
    }
    /// Throws DeadlineExceeded.
    void wait() { patience_.wait(stream(), "DeviceWork"); }

    template <class State, class Shared, class Body>
    void tiles(char const* what, Index count, Body const& body) {
        detail::launch_tiles<State, Shared>(what, count, body, stream());
    }
    void sum(std::uint32_t const* from, Index* to, Index count) {
        auto const run = [&](void* temporary, std::size_t& bytes) {
            detail::cuda_check(cub::DeviceScan::ExclusiveScan(temporary, bytes, from, to, ::cuda::std::plus<>{},
                                                              Index{0}, count, stream()),
                               "cub::DeviceScan::ExclusiveScan");
        };
        with_temporary(run);
    }
    void sort(Index const* keys, Index* sorted, std::uint32_t const* values, std::uint32_t* order, Index count) {
        auto const run = [&](void* temporary, std::size_t& bytes) {
            detail::cuda_check(
                cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, sorted, values, order, count, 0, 64, stream()),
                "cub::DeviceRadixSort::SortPairs");
        };
        with_temporary(run);
    }
    void check(char const* who, char const* what, void const* memory, Index bytes, Index alignment) const {
        detail::check_device_memory(who, what, -1, memory, bytes, alignment);
    }

private:
    /// Bytes that CUDA takes along in the call. For others of the host that are not pinned it may wait, without a
    /// deadline, until the stream has come so far: so that is waited for before.
    static constexpr Index at_once = Index{64} << 10;

    void copy(void* to, void const* from, Index bytes, cudaMemcpyKind kind) {
        if (bytes == 0) return;
        detail::cuda_check(cudaMemcpyAsync(to, from, detail::as_size(bytes), kind, stream()), "cudaMemcpyAsync");
    }
    /// CUB says how much it needs when it is given none.
    template <class Run>
    void with_temporary(Run const& run) {
        std::size_t bytes = 0;
        run(nullptr, bytes);
        Memory const memory = allocate(detail::as_index(detail::larger<std::size_t>(bytes, 1)));
        run(memory.data(), bytes);
    }

    detail::DeviceOrder order_;
    std::shared_ptr<detail::Chunks<detail::DeviceOrder>> chunks_;
    detail::StreamPatience patience_;
};

}  // namespace reshard::inline v0_1
