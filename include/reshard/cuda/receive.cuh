// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/receive.cuh
/// \brief  What a rank makes of received blocks, on the device: checked, sorted by id, written over its shard.
/// \depends core, memory/cuda_check.cuh, cuda/detail; CUB's radix sort and scan.
///
///     DeviceReceive receive(entries, sources, columns, slots);             // slots: the Interval the rank owns
///     receive.inspect(received, begins, workspace, stream);                // nothing of yours is touched
///     receive.copy_report(words, stream);  synchronise;  ReceiveReport(words).check();
///     receive.order(ReceiveReport(words), stream);                         // sorts by the bits that vary
///     receive.copy_report(words, stream);  synchronise;  check, and agree with the other ranks
///     receive.rebuild(shard, stream);                                      // in place: ids, slots, metadata
///
/// The shard then is what TorchRec's modules want: ids ascending, empty places behind with the unused slots in
/// ascending order, their metadata zero.
#pragma once

#include <reshard/cuda/detail/device_block.cuh>
#include <reshard/cuda/detail/receive_kernels.hpp>
#include <reshard/cuda/receive_report.hpp>
#include <reshard/memory/cuda_check.cuh>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>  // plus

namespace reshard::inline v0 {

namespace detail {

template <class Plan>
__global__ void __launch_bounds__(block_threads) inspect_kernel(Plan plan) {
    __shared__ InspectShared shared;
    __shared__ typename DeviceBlock<InspectState>::Shared scan;
    DeviceBlock<InspectState> block(scan);
    inspect_tile_of(block, shared, plan, blockIdx.x);
}
template <class Plan>
__global__ void __launch_bounds__(block_threads) repeats_kernel(Plan plan) {
    Index const place = static_cast<Index>(blockIdx.x) * block_threads + threadIdx.x;
    int const count = __syncthreads_count(repeats(plan, place) ? 1 : 0);
    if (threadIdx.x == 0 && count != 0) {
        atomicAdd(&plan.faults->duplicate_ids, static_cast<unsigned long long>(count));
    }
}
template <class Plan>
__global__ void __launch_bounds__(block_threads) count_free_kernel(Plan plan) {
    count_free(plan, static_cast<Index>(blockIdx.x) * block_threads + threadIdx.x);
}
template <class Plan>
__global__ void __launch_bounds__(block_threads) rebuild_kernel(Plan plan, RebuildColumns columns) {
    rebuild_row(plan, columns, static_cast<Index>(blockIdx.x) * block_threads + threadIdx.x);
}
template <class Plan>
__global__ void __launch_bounds__(block_threads) write_free_kernel(Plan plan, Index* slots) {
    write_free(plan, slots, static_cast<Index>(blockIdx.x) * block_threads + threadIdx.x);
}

}  // namespace detail

/// One shard's receiver. Holds no memory; used by one thread at a time.
class DeviceReceive {
public:
    /// `columns`: ids, slots and metadata, 8 bytes each. Throws ShapeError for numbers out of range: more than 2^32 - 1
    /// entries or more entries than slots, no source, less than 2 columns or more than 16.
    DeviceReceive(Index entries, int sources, int columns, Index first_slot, Index slots, Index empty = INT64_MAX) {
        bool const fits = entries >= 0 && entries <= UINT32_MAX && slots >= 0 && slots <= (Index{1} << 38U) &&
                          first_slot >= 0 && first_slot <= INT64_MAX - slots;
        if (!fits || sources < 1 || columns < 2 || columns > detail::max_receive_columns) {
            raise(ErrorCode::shape,
                  concat("reshard::DeviceReceive: ", entries, " entries of ", columns, " columns from ", sources,
                         " sources into ", slots, " slots from ", first_slot,
                         ". Fix: give at most 2^32 - 1 entries, 2 to ", detail::max_receive_columns,
                         " columns, 1 source or more, and slots within [0, 2^63)."));
        }
        if (entries > slots) {
            raise(ErrorCode::mismatch,
                  concat("reshard::DeviceReceive: ", entries, " entries for ", slots,
                         " slots. Fix: slots are duplicate, or entries must be evicted before they are sent."));
        }
        plan_.entries = entries;
        plan_.sources = sources;
        plan_.columns = columns;
        plan_.first = first_slot;
        plan_.slots = slots;
        plan_.empty = empty;
    }

    /// Bytes of device memory, aligned to 256: 24 an entry, 12 for each 32 slots, and CUB's share.
    [[nodiscard]] Index workspace_bytes() const {
        Index used = 0;
        static_cast<void>(carve(nullptr, used));
        return used + 256;
    }
    /// Bytes of the received blocks.
    [[nodiscard]] Index received_bytes() const noexcept { return 8 * plan_.columns * plan_.entries; }

    /// Looks at what came; reads the blocks and `begins` (device memory: entries before each source's block, and
    /// `entries` behind the last). Nothing but the workspace is written. Throws BufferError for memory that is too
    /// small or not the current device's, TransportError when CUDA refuses a call.
    void inspect(std::span<std::byte const> received, Index const* begins, std::span<std::byte> workspace,
                 cudaStream_t stream) {
        constexpr auto who = "reshard::DeviceReceive::inspect";
        detail::check_device_span(who, "received memory", received, received_bytes(), 8);
        detail::check_device_memory(who, "the list of begins", -1, begins, 8 * (plan_.sources + 1), 8);
        detail::check_device_span(who, "workspace", workspace, workspace_bytes(), 1);
        Index used = 0;
        auto const address = reinterpret_cast<std::uintptr_t>(workspace.data());
        memory_ = carve(workspace.data() + (256 - address % 256) % 256, used);
        plan_.received = received.data();
        plan_.begins = begins;
        plan_.taken = memory_.taken;
        plan_.free = memory_.free;
        plan_.free_before = memory_.free_before;
        plan_.ids = memory_.ids;
        plan_.arrivals = memory_.arrivals;
        plan_.sorted = memory_.sorted;
        plan_.order = memory_.order;
        plan_.faults = memory_.faults;
        ordered_ = false;
        auto const bitmap = static_cast<std::size_t>(plan_.words() * 4);
        detail::check_cuda(cudaMemsetAsync(plan_.taken, 0, bitmap, stream), "cudaMemsetAsync");
        detail::check_cuda(cudaMemsetAsync(plan_.faults, 0, sizeof(detail::ReceiveFaults) - 8, stream),
                           "cudaMemsetAsync");
        detail::check_cuda(cudaMemsetAsync(&plan_.faults->ids_and, 0xff, 8, stream), "cudaMemsetAsync");
        if (plan_.entries == 0) return;
        detail::inspect_kernel<<<blocks(plan_.entries, detail::inspect_tile), detail::block_threads, 0, stream>>>(
            plan_);
        launched("inspect");
    }

    /// Copies ReceiveReport::words words to the host.
    void copy_report(std::span<Index> words, cudaStream_t stream) const {
        check_inspected("reshard::DeviceReceive::copy_report");
        static_cast<void>(ReceiveReport(words));
        detail::check_cuda(
            cudaMemcpyAsync(words.data(), plan_.faults, sizeof(detail::ReceiveFaults), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    }

    /// Sorts ids by the bits that the report says vary, counts those that repeat, and lists the free slots. Throws
    /// MismatchError for a report with faults, TransitionError before inspect().
    void order(ReceiveReport const& report, cudaStream_t stream) {
        check_inspected("reshard::DeviceReceive::order");
        report.check();
        detail::check_cuda(cudaMemsetAsync(&plan_.faults->duplicate_ids, 0, 8, stream), "cudaMemsetAsync");
        if (plan_.entries != 0) {
            detail::SortBits const bits = report.bits();
            std::size_t bytes = memory_.sort_bytes;
            if (bits.end == bits.begin) {  // all ids are equal: as they came
                copy_device(memory_.sorted, memory_.ids, plan_.entries * 8, stream);
                copy_device(memory_.order, memory_.arrivals, plan_.entries * 4, stream);
            } else {
                detail::check_cuda(cub::DeviceRadixSort::SortPairs(memory_.temporary, bytes, memory_.ids,
                                                                   memory_.sorted, memory_.arrivals, memory_.order,
                                                                   plan_.entries, bits.begin, bits.end, stream),
                                   "cub::DeviceRadixSort::SortPairs");
            }
            detail::repeats_kernel<<<blocks(plan_.entries, detail::block_threads), detail::block_threads, 0, stream>>>(
                plan_);
            launched("repeats");
        }
        detail::
            count_free_kernel<<<blocks(plan_.words() + 1, detail::block_threads), detail::block_threads, 0, stream>>>(
                plan_);
        launched("free slots");
        std::size_t bytes = memory_.scan_bytes;
        detail::check_cuda(sum_free(memory_, memory_.temporary, bytes, stream), "cub::DeviceScan::ExclusiveScan");
        ordered_ = true;
    }

    /// Writes the shard: `shard[c]` is column c, of as many words as there are slots. Everything was checked before.
    /// Throws BufferError for memory that is not the current device's, ShapeError for another number of columns,
    /// TransitionError before order(); then nothing is written.
    void rebuild(std::span<Index* const> shard, cudaStream_t stream) const {
        constexpr auto who = "reshard::DeviceReceive::rebuild";
        check_inspected(who);
        if (!ordered_) raise(ErrorCode::transition, concat(who, ": there is no order yet. Fix: call order() first."));
        if (static_cast<int>(shard.size()) != plan_.columns) {
            raise(ErrorCode::shape, concat(who, ": ", shard.size(), " columns, ", plan_.columns,
                                           " were received. Fix: give as many, ids and slots first."));
        }
        detail::RebuildColumns columns;
        for (std::size_t c = 0; c != shard.size(); ++c) {
            detail::check_device_memory(who, "column", static_cast<Index>(c), shard[c], 8 * plan_.slots, 8);
            columns.data.push_back(shard[c]);
        }
        if (plan_.slots == 0) return;
        detail::rebuild_kernel<<<blocks(plan_.slots, detail::block_threads), detail::block_threads, 0, stream>>>(
            plan_, columns);
        launched("rebuild");
        detail::write_free_kernel<<<blocks(plan_.words(), detail::block_threads), detail::block_threads, 0, stream>>>(
            plan_, shard[1]);
        launched("free list");
    }

private:
    struct Memory {
        detail::ReceiveFaults* faults = nullptr;
        std::uint32_t* taken = nullptr;
        std::uint32_t* free = nullptr;
        Index* free_before = nullptr;
        Index* ids = nullptr;
        Index* sorted = nullptr;
        std::uint32_t* arrivals = nullptr;
        std::uint32_t* order = nullptr;
        void* temporary = nullptr;
        std::size_t sort_bytes = 0;
        std::size_t scan_bytes = 0;
    };

    [[nodiscard]] Memory carve(std::byte* at, Index& used) const {
        auto const take = [&]<class T>(T*& array, Index count) {
            Index const bytes = (count * static_cast<Index>(sizeof(T)) + 255) / 256 * 256;
            array = reinterpret_cast<T*>(at);
            if (at != nullptr) at += bytes;
            used += bytes;
        };
        Memory memory;
        take(memory.faults, 1);
        take(memory.taken, plan_.words());
        take(memory.free, plan_.words() + 1);
        take(memory.free_before, plan_.words() + 1);
        take(memory.ids, plan_.entries);
        take(memory.sorted, plan_.entries);
        take(memory.arrivals, plan_.entries);
        take(memory.order, plan_.entries);
        detail::check_cuda(cub::DeviceRadixSort::SortPairs(nullptr, memory.sort_bytes, memory.ids, memory.sorted,
                                                           memory.arrivals, memory.order, plan_.entries, 0, 64),
                           "cub::DeviceRadixSort::SortPairs");
        detail::check_cuda(sum_free(memory, nullptr, memory.scan_bytes, nullptr), "cub::DeviceScan::ExclusiveScan");
        std::byte* temporary = nullptr;
        take(temporary, static_cast<Index>(larger(memory.sort_bytes, memory.scan_bytes)));
        memory.temporary = temporary;
        return memory;
    }
    cudaError_t sum_free(Memory const& memory, void* temporary, std::size_t& bytes, cudaStream_t stream) const {
        return cub::DeviceScan::ExclusiveScan(temporary, bytes, memory.free, memory.free_before, ::cuda::std::plus<>{},
                                              Index{0}, plan_.words() + 1, stream);
    }
    static void copy_device(void* to, void const* from, Index bytes, cudaStream_t stream) {
        detail::check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
                           "cudaMemcpyAsync");
    }
    /// \pre checked sizes: at most 2^38 rows.
    [[nodiscard]] static unsigned blocks(Index rows, Index per_block) noexcept {
        return static_cast<unsigned>(ceil_div(rows, per_block));
    }
    static void launched(char const* what) {
        detail::check_cuda(cudaGetLastError(), concat("the launch of reshard's ", what, " kernel").c_str());
    }
    void check_inspected(char const* who) const {
        if (plan_.faults != nullptr) return;
        raise(ErrorCode::transition, concat(who, ": nothing was received yet. Fix: call inspect() first."));
    }

    detail::ReceivePlan plan_;  // its addresses lie in the workspace of inspect()
    Memory memory_;
    bool ordered_ = false;
};

}  // namespace reshard::inline v0
