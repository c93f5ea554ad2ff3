// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/partition_by_rank.cuh
/// \brief  Entries sorted into one packed block per destination rank, on the device: stable, no hidden allocation.
/// \depends core, memory/cuda_call.hpp, cuda; CUB's device scan and radix sort.
///
///     DevicePartition partition(entries, ranks);
///     partition.count(rule, columns, workspace, stream);           // workspace_bytes() of the device
///     partition.copy_report(words, stream);                        // the only copy to the host
///     partition.scatter(rule, columns, packed, stream);            // at most most_packed_bytes(columns)
///     cudaStreamSynchronize(stream);
///     PartitionReport report(words, ranks);                        // counts, begins, blocks, faults
///
/// The blocks are those of Partition (mch/partition.hpp), bit for bit. All calls return at once, work on your stream
/// only, and may be captured in a graph: nothing they launch depends on counts.
#pragma once

#include <reshard/core/detail/carver.hpp>
#include <reshard/cuda/detail/device_block.cuh>
#include <reshard/cuda/detail/tile.hpp>
#include <reshard/cuda/report.hpp>
#include <reshard/memory/cuda_call.hpp>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>  // plus

namespace reshard::inline v0 {

/// How: tiles ranked in shared memory, for up to 256 destinations; or CUB's radix sort of the destinations, 8 bits a
/// pass, and a gather, for up to 65535.
enum class PartitionMethod : std::uint8_t { automatic, tiles, sort };

namespace detail {

// Arguments stay where launches put them: a copy of what is indexed at run time would be in local memory.

template <int Items, class Rule>
__global__ void __launch_bounds__(block_threads)
    count_kernel(__grid_constant__ TilePlan const plan, __grid_constant__ Rule const rule) {
    __shared__ CountShared<Rule> shared;
    __shared__ typename DeviceBlock<CountState>::Shared scan;
    DeviceBlock<CountState> block(scan);
    count_tile<Items>(block, shared, plan, rule, blockIdx.x);
}

/// Blocks that a processor should have room for, so that some load while others store. Pieces of every width, each with
/// its loop, want more registers than those of one.
template <int Items, class Columns>
inline constexpr int scatter_blocks = Items == 8 && !std::is_same_v<Columns, ByteColumns> ? 4 : 2;

template <int Items, class Rule, class Columns>
__global__ void __launch_bounds__(block_threads, scatter_blocks<Items, Columns>)
    scatter_kernel(__grid_constant__ TilePlan const plan, __grid_constant__ Rule const rule,
                   __grid_constant__ Columns const columns, std::byte* packed) {
    __shared__ ScatterShared<Items, Rule> shared;
    __shared__ typename DeviceBlock<ScatterState<Items>>::Shared scan;
    DeviceBlock<ScatterState<Items>> block(scan);
    scatter_tile<Items>(block, shared, plan, rule, columns, packed, blockIdx.x);
}

template <class Columns, class Begin>
__global__ void __launch_bounds__(block_threads) lay_out_kernel(TilePlan plan, Columns columns, Begin begin) {
    __shared__ typename DeviceBlock<LayoutState>::Shared scan;
    DeviceBlock<LayoutState> block(scan);
    lay_out_blocks(block, plan, columns, begin);
}

template <class Rule>
__global__ void __launch_bounds__(block_threads)
    destinations_kernel(TilePlan plan, Rule rule, std::uint16_t* keys, std::uint32_t* entries) {
    Index const entry = static_cast<Index>(blockIdx.x) * block_threads + threadIdx.x;
    if (entry >= plan.entries) return;
    Index const answer = static_cast<Index>(rule(entry));
    keys[entry] = static_cast<std::uint16_t>(bin_of(answer, plan.destinations));
    entries[entry] = static_cast<std::uint32_t>(entry);
    if (!is_fault(answer, plan.destinations)) return;
    atomicAdd(&plan.faults->out_of_range, 1ULL);
    atomicMin(&plan.faults->first, static_cast<unsigned long long>(entry));
}

template <class Columns>
__global__ void __launch_bounds__(block_threads) place_kernel(TilePlan plan, Columns columns, std::byte* packed,
                                                              std::uint16_t const* sorted, std::uint32_t const* from) {
    Index const place = static_cast<Index>(blockIdx.x) * block_threads + threadIdx.x;
    if (place < plan.begins[plan.destinations]) place_sorted(plan, columns, packed, sorted, from, place);
}

}  // namespace detail

/// A partition of `entries` entries among `destinations` ranks. Holds no memory; used by one thread at a time.
class DevicePartition {
public:
    static constexpr Index max_destinations = 65535;

    /// Throws ShapeError for negative or too many entries, destinations or tiles out of range.
    DevicePartition(Index entries, Index destinations, PartitionMethod method = PartitionMethod::automatic) {
        bool const few = destinations <= detail::tile_destinations;
        if (method == PartitionMethod::automatic) method = few ? PartitionMethod::tiles : PartitionMethod::sort;
        bool const sorts = method == PartitionMethod::sort;
        Index const most = sorts ? max_destinations : detail::tile_destinations;
        Index const most_entries = sorts ? UINT32_MAX : INT64_MAX / (16 * detail::tile_destinations);
        if (entries < 0 || entries > most_entries || destinations < 1 || destinations > most) {
            raise(ErrorCode::shape,
                  concat("reshard::DevicePartition: ", entries, " entries for ", destinations,
                         " destinations. Fix: give 0 to ", most_entries, " entries and 1 to ", most, " destinations."));
        }
        method_ = method;
        items_ = destinations <= 64 ? 8 : 16;  // more destinations, longer tiles: runs stay at 128 bytes and more
        plan_.entries = entries;
        plan_.destinations = static_cast<int>(destinations);
        plan_.bits = detail::bits_for(static_cast<std::uint64_t>(destinations) + 1);
        plan_.tiles = ceil_div(entries, sorts ? detail::block_threads : items_ * detail::block_threads);
        if (plan_.tiles > INT32_MAX) {
            raise(ErrorCode::shape, concat("reshard::DevicePartition: ", entries,
                                           " entries need more blocks than a launch has. Fix: partition fewer at "
                                           "once."));
        }
    }

    [[nodiscard]] Index entries() const noexcept { return plan_.entries; }
    [[nodiscard]] Index destinations() const noexcept { return plan_.destinations; }
    [[nodiscard]] PartitionMethod method() const noexcept { return method_; }

    /// Bytes of device memory, aligned to 256, that count() asks for and scatter() goes on using: 12 bytes per tile
    /// (2048 or 4096 entries) and destination, or 12 bytes and CUB's share per entry where it sorts.
    [[nodiscard]] Index workspace_bytes() const {
        Carver carver;
        static_cast<void>(carve(carver));
        static_cast<void>(carver.take<std::byte>(static_cast<Index>(temporary_bytes(Memory{}))));
        return carver.bytes() + alignment;
    }

    /// What `packed` must have room for, whatever the counts turn out to be. Throws ShapeError when it does not fit 64
    /// bits.
    template <class Columns>
    [[nodiscard]] Index most_packed_bytes(Columns const& columns) const {
        Index total = 0;
        for (int c = 0; c < columns.count(); ++c) {
            Index const width = columns.width(c);
            Index bytes = 0;
            bool fits = width >= 1 && multiply_fits(plan_.entries, larger<Index>(width, 1), bytes);
            fits = fits && bytes <= INT64_MAX - total - 15 * destinations();
            if (!fits) {
                raise(ErrorCode::shape,
                      concat("reshard::DevicePartition: column ", c, " has ", plan_.entries, " entries of ", width,
                             " bytes. Fix: give columns of 1 byte or more an entry whose bytes fit 64 bits."));
            }
            total += bytes + (width == 8 ? 0 : 15 * destinations());
        }
        return total;
    }

    /// Counts entries per destination and lays the blocks out. `rule(entry)` is asked on the device, see
    /// cuda/rules.hpp. Throws BufferError for a workspace that is too small, and for columns or a workspace that are
    /// not memory of the current device, or not aligned; TransportError when CUDA refuses a call. Then nothing was
    /// launched, or its results are not to be used.
    template <class Rule, class Columns>
    void count(Rule const& rule, Columns const& columns, std::span<std::byte> workspace, cudaStream_t stream) {
        constexpr auto who = "reshard::DevicePartition::count";
        detail::check_device_span(who, "workspace", workspace, workspace_bytes(), 1);
        static_cast<void>(most_packed_bytes(columns));
        check_columns(who, columns);
        Carver carver{workspace.data()};
        memory_ = carve(carver);
        plan_.table = memory_.table;
        plan_.rows = memory_.rows;
        plan_.counts = memory_.report;
        plan_.begins = plan_.counts + destinations();
        plan_.blocks = plan_.begins + destinations() + 1;
        plan_.faults = reinterpret_cast<detail::PartitionFaults*>(plan_.blocks + destinations() + 1);
        detail::cuda_check(cudaMemsetAsync(plan_.faults, 0, 8, stream), "cudaMemsetAsync");
        detail::cuda_check(cudaMemsetAsync(&plan_.faults->first, 0xff, 8, stream), "cudaMemsetAsync");
        std::size_t bytes = temporary_bytes(memory_);
        void* const temporary = carver.take<std::byte>(static_cast<Index>(bytes));
        if (method_ == PartitionMethod::sort) {
            count_by_sort(rule, columns, temporary, bytes, stream);
        } else if (items_ == 8) {
            count_by_tiles<8>(rule, columns, temporary, bytes, stream);
        } else {
            count_by_tiles<16>(rule, columns, temporary, bytes, stream);
        }
    }

    /// Copies PartitionReport::words(destinations) words to the host; pinned memory keeps the stream from waiting.
    /// Throws BufferError when `words` is too short, TransitionError before count().
    void copy_report(std::span<Index> words, cudaStream_t stream) const {
        check_counted("reshard::DevicePartition::copy_report");
        static_cast<void>(PartitionReport(words, destinations()));
        auto const bytes = static_cast<std::size_t>(PartitionReport::words(destinations())) * 8;
        detail::cuda_check(cudaMemcpyAsync(words.data(), plan_.counts, bytes, cudaMemcpyDeviceToHost, stream),
                           "cudaMemcpyAsync");
    }

    /// Where those words lie on the device, once count() has been called.
    [[nodiscard]] Index const* report_words() const noexcept { return plan_.counts; }

    /// Writes the packed blocks, padding included: bytes [0, report.packed_bytes()) and no other. Rule and columns must
    /// be as they were in count(), and its workspace untouched. Throws as count() does, and TransitionError before it;
    /// `packed` must be aligned to 16.
    template <class Rule, class Columns>
    void scatter(Rule const& rule, Columns const& columns, std::span<std::byte> packed, cudaStream_t stream) const {
        scatter(rule, columns, packed, most_packed_bytes(columns), stream);
    }
    /// The same into memory for what was counted: `report` says how much that is.
    template <class Rule, class Columns>
    void scatter(Rule const& rule, Columns const& columns, std::span<std::byte> packed, PartitionReport const& report,
                 cudaStream_t stream) const {
        scatter(rule, columns, packed, report.packed_bytes(), stream);
    }

private:
    static constexpr Index alignment = 256;
    using Carver = detail::Carver<alignment>;

    struct Memory {
        Index* report = nullptr;
        std::uint32_t* table = nullptr;  ///< with tiles
        Index* rows = nullptr;
        std::uint16_t* keys = nullptr;  ///< where it sorts
        std::uint32_t* entries = nullptr;
        std::uint16_t* sorted = nullptr;
        std::uint32_t* from = nullptr;
    };

    [[nodiscard]] Memory carve(Carver& carver) const {
        Memory memory;
        memory.report = carver.take<Index>(PartitionReport::words(destinations()));
        if (method_ == PartitionMethod::sort) {
            memory.keys = carver.take<std::uint16_t>(plan_.entries);
            memory.entries = carver.take<std::uint32_t>(plan_.entries);
            memory.sorted = carver.take<std::uint16_t>(plan_.entries);
            memory.from = carver.take<std::uint32_t>(plan_.entries);
        } else {
            memory.table = carver.take<std::uint32_t>(table_size());
            memory.rows = carver.take<Index>(table_size());
        }
        return memory;
    }
    [[nodiscard]] Index table_size() const noexcept { return plan_.tiles * plan_.destinations + 1; }

    /// CUB's share.
    [[nodiscard]] std::size_t temporary_bytes(Memory const& memory) const {
        std::size_t bytes = 0;
        if (method_ == PartitionMethod::sort) {
            detail::cuda_check(
                cub::DeviceRadixSort::SortPairs(nullptr, bytes, memory.keys, memory.sorted, memory.entries, memory.from,
                                                plan_.entries, 0, plan_.bits),
                "cub::DeviceRadixSort::SortPairs");
        } else {
            detail::cuda_check(sum_table(memory, nullptr, bytes, nullptr), "cub::DeviceScan::ExclusiveScan");
        }
        return bytes;
    }
    /// Adds in 64 bits: ExclusiveSum would add in the 32 of its input.
    cudaError_t sum_table(Memory const& memory, void* temporary, std::size_t& bytes, cudaStream_t stream) const {
        return cub::DeviceScan::ExclusiveScan(temporary, bytes, memory.table, memory.rows, ::cuda::std::plus<>{},
                                              Index{0}, table_size(), stream);
    }

    template <int Items, class Rule, class Columns>
    void count_by_tiles(Rule const& rule, Columns const& columns, void* temporary, std::size_t bytes,
                        cudaStream_t stream) const {
        if (plan_.tiles != 0) {
            detail::count_kernel<Items>
                <<<static_cast<unsigned>(plan_.tiles), detail::block_threads, 0, stream>>>(plan_, rule);
            detail::cuda_check(cudaGetLastError(), "the launch of reshard's count kernel");
            detail::cuda_check(sum_table(memory_, temporary, bytes, stream), "cub::DeviceScan::ExclusiveScan");
        }
        lay_out(columns, detail::BeginOfTable{plan_.rows, plan_.tiles}, stream);
    }
    template <class Rule, class Columns>
    void count_by_sort(Rule const& rule, Columns const& columns, void* temporary, std::size_t bytes,
                       cudaStream_t stream) const {
        if (plan_.tiles != 0) {
            detail::destinations_kernel<<<static_cast<unsigned>(plan_.tiles), detail::block_threads, 0, stream>>>(
                plan_, rule, memory_.keys, memory_.entries);
            detail::cuda_check(cudaGetLastError(), "the launch of reshard's destinations kernel");
            detail::cuda_check(
                cub::DeviceRadixSort::SortPairs(temporary, bytes, memory_.keys, memory_.sorted, memory_.entries,
                                                memory_.from, plan_.entries, 0, plan_.bits, stream),
                "cub::DeviceRadixSort::SortPairs");
        }
        lay_out(columns, detail::BeginOfSorted{memory_.sorted, plan_.entries}, stream);
    }
    template <class Columns, class Begin>
    void lay_out(Columns const& columns, Begin const& begin, cudaStream_t stream) const {
        detail::lay_out_kernel<<<1, detail::block_threads, 0, stream>>>(plan_, columns, begin);
        detail::cuda_check(cudaGetLastError(), "the launch of reshard's layout kernel");
    }

    template <class Rule, class Columns>
    void scatter(Rule const& rule, Columns const& columns, std::span<std::byte> packed, Index bytes,
                 cudaStream_t stream) const {
        constexpr auto who = "reshard::DevicePartition::scatter";
        check_counted(who);
        detail::check_device_span(who, "packed buffer", packed, bytes, 16);
        check_columns(who, columns);
        if (plan_.tiles == 0 || columns.count() == 0) return;
        auto const grid = static_cast<unsigned>(plan_.tiles);
        if (method_ == PartitionMethod::sort) {
            detail::place_kernel<<<grid, detail::block_threads, 0, stream>>>(plan_, columns, packed.data(),
                                                                             memory_.sorted, memory_.from);
        } else if (items_ == 8) {
            detail::scatter_kernel<8><<<grid, detail::block_threads, 0, stream>>>(plan_, rule, columns, packed.data());
        } else {
            detail::scatter_kernel<16><<<grid, detail::block_threads, 0, stream>>>(plan_, rule, columns, packed.data());
        }
        detail::cuda_check(cudaGetLastError(), "the launch of reshard's scatter kernel");
    }

    void check_counted(char const* who) const {
        if (plan_.counts != nullptr) return;
        raise(ErrorCode::transition, concat(who, ": nothing is counted yet. Fix: call count() first."));
    }
    template <class Columns>
    void check_columns(char const* who, Columns const& columns) const {
        if (columns.count() > max_device_columns) {
            raise(ErrorCode::shape,
                  concat(who, ": ", columns.count(), " columns. Fix: give at most ", max_device_columns, "."));
        }
        for (int c = 0; c < columns.count(); ++c) {
            if (columns.opaque(c)) continue;
            Index const width = columns.width(c);
            detail::check_device_memory(who, "column", c, columns.address(c), plan_.entries * width,
                                        columns.alignment(c));
        }
    }

    detail::TilePlan plan_;  // its addresses, and those of `memory_`, lie in the workspace of count()
    Memory memory_;
    PartitionMethod method_ = PartitionMethod::tiles;
    int items_ = 8;
};

}  // namespace reshard::inline v0
