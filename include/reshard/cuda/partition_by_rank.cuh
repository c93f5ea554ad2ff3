// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/partition_by_rank.cuh
/// \brief  Entries sorted into one packed block per destination rank, on the device: stable, no hidden allocation.
/// \depends core, memory/cuda_call.hpp, cuda; CUB's device scan and radix sort.
///
///     DevicePartition partition(entries, ranks);
///     partition.count(rule, columns, workspace, stream);           // workspace_bytes() of the device
///     partition.copy_report(words, stream);                        // the only copy to the host
///     partition.scatter(columns, packed, stream);                  // at most most_packed_bytes(columns)
///     cudaStreamSynchronize(stream);
///     PartitionReport report(words, ranks);                        // counts, begins, blocks, faults
///
/// The blocks are those of Partition (mch/partition.hpp), bit for bit. All calls return at once, work on your stream
/// only, and may be captured in a graph: nothing they launch depends on counts.
#pragma once

#include <reshard/core/detail/carver.hpp>
#include <reshard/cuda/detail/launch.cuh>
#include <reshard/cuda/detail/sorted.hpp>
#include <reshard/cuda/report.hpp>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>  // plus

namespace reshard::inline v0_1 {

/// How: tiles ranked in shared memory, for up to 256 destinations; or CUB's radix sort of the destinations, 8 bits a
/// pass, and a gather, for up to 65535.
enum class PartitionMethod : std::uint8_t { automatic, tiles, sort };

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
            errors::raise(ErrorCode::shape, "reshard::DevicePartition: ", entries, " entries for ", destinations,
                          " destinations. Fix: give 0 to ", most_entries, " entries and 1 to ", most, " destinations.");
        }
        method_ = method;
        plan_ = {entries, destinations, (sorts ? 1 : detail::tile_items(destinations)) * detail::block_threads};
        if (plan_.tiles > INT32_MAX) {
            errors::raise(ErrorCode::shape, "reshard::DevicePartition: ", entries,
                          " entries need more blocks than a launch has. Fix: partition fewer at "
                          "once.");
        }
    }

    [[nodiscard]] Index entries() const noexcept { return plan_.entries; }
    [[nodiscard]] Index destinations() const noexcept { return plan_.destinations; }
    [[nodiscard]] PartitionMethod method() const noexcept { return method_; }

    /// Bytes of device memory, aligned to 256, that count() asks for and scatter() goes on using: 2 bytes per entry
    /// and 12 per tile (2048 or 4096 entries) and destination, or 12 bytes and CUB's share per entry where it sorts.
    [[nodiscard]] Index workspace_bytes() const {
        Carver carver;
        static_cast<void>(carve(carver));
        static_cast<void>(carver.take<std::byte>(detail::as_index(temporary_bytes(Memory{}))));
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
            bool fits = width >= 1 && detail::multiply_fits(plan_.entries, detail::larger<Index>(width, 1), bytes);
            fits = fits && bytes <= INT64_MAX - total - 15 * destinations();
            if (!fits) {
                errors::raise(ErrorCode::shape, "reshard::DevicePartition: column ", c, " has ", plan_.entries,
                              " entries of ", width,
                              " bytes. Fix: give columns of 1 byte or more an entry whose bytes fit 64 bits.");
            }
            total += bytes + (width == 8 ? 0 : 15 * destinations());
        }
        return total;
    }

    /// Counts entries per destination and lays the blocks out. `rule(entry)` is asked on the device, see
    /// cuda/rules.hpp. Throws BufferError for a workspace that is too small, and for columns or a workspace that are
    /// not memory of the current device, or not aligned; ShapeError for a rule's table of more than 257 numbers, but
    /// where it sorts; TransportError when CUDA refuses a call. Then nothing was launched, or its results are not to be
    /// used.
    template <class Rule, class Columns>
    void count(Rule const& rule, Columns const& columns, std::span<std::byte> workspace, cudaStream_t stream) {
        constexpr auto who = "reshard::DevicePartition::count";
        detail::check_device_span(who, "workspace", workspace, workspace_bytes(), 1);
        static_cast<void>(most_packed_bytes(columns));
        check_columns(who, columns);
        if (method_ == PartitionMethod::tiles) detail::check_rule_table(who, rule);
        Carver carver{workspace.data()};
        memory_ = carve(carver);
        plan_.table = memory_.table;
        plan_.rows = memory_.rows;
        plan_.bins = memory_.bins;
        plan_.report_to(memory_.report);
        detail::cuda_check(cudaMemsetAsync(plan_.faults, 0, 8, stream), "cudaMemsetAsync");
        detail::cuda_check(cudaMemsetAsync(&plan_.faults->first, 0xff, 8, stream), "cudaMemsetAsync");
        std::size_t bytes = temporary_bytes(memory_);
        void* const temporary = carver.take<std::byte>(detail::as_index(bytes));
        if (method_ == PartitionMethod::sort) {
            count_by_sort(rule, columns, temporary, bytes, stream);
        } else if (detail::tile_items(destinations()) == 8) {
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
        auto const bytes = detail::as_size(PartitionReport::words(destinations())) * 8;
        detail::cuda_check(cudaMemcpyAsync(words.data(), plan_.counts, bytes, cudaMemcpyDeviceToHost, stream),
                           "cudaMemcpyAsync");
    }

    /// Writes the packed blocks, padding included: bytes [0, report.packed_bytes()) and no other. Columns must be
    /// as they were in count(), and its workspace untouched. Throws as count() does, and TransitionError before it;
    /// `packed` must be aligned to 16.
    template <class Columns>
    void scatter(Columns const& columns, std::span<std::byte> packed, cudaStream_t stream) const {
        scatter(columns, packed, most_packed_bytes(columns), stream);
    }
    /// The same into memory for what was counted: `report` says how much that is.
    template <class Columns>
    void scatter(Columns const& columns, std::span<std::byte> packed, PartitionReport const& report,
                 cudaStream_t stream) const {
        scatter(columns, packed, report.packed_bytes(), stream);
    }

private:
    static constexpr Index alignment = 256;
    using Carver = detail::Carver<alignment>;

    struct Memory {
        Index* report = nullptr;
        std::uint32_t* table = nullptr;  ///< with tiles
        Index* rows = nullptr;
        std::uint16_t* bins = nullptr;
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
            memory.table = carver.take<std::uint32_t>(plan_.table_size());
            memory.rows = carver.take<Index>(plan_.table_size());
            memory.bins = carver.take<std::uint16_t>(plan_.entries);
        }
        return memory;
    }

    /// CUB's part: it sorts, or sums the table. Says in `bytes` what it needs where `temporary` is null.
    void run_cub(Memory const& memory, void* temporary, std::size_t& bytes, cudaStream_t stream) const {
        if (method_ == PartitionMethod::sort) {
            return detail::cuda_check(
                cub::DeviceRadixSort::SortPairs(temporary, bytes, memory.keys, memory.sorted, memory.entries,
                                                memory.from, plan_.entries, 0, plan_.bits, stream),
                "cub::DeviceRadixSort::SortPairs");
        }
        // Adds in 64 bits: ExclusiveSum would add in the 32 of its input.
        detail::cuda_check(cub::DeviceScan::ExclusiveScan(temporary, bytes, memory.table, memory.rows,
                                                          ::cuda::std::plus<>{}, Index{0}, plan_.table_size(), stream),
                           "cub::DeviceScan::ExclusiveScan");
    }
    [[nodiscard]] std::size_t temporary_bytes(Memory const& memory) const {
        std::size_t bytes = 0;
        run_cub(memory, nullptr, bytes, nullptr);
        return bytes;
    }

    template <int Items, class Rule, class Columns>
    void count_by_tiles(Rule const& rule, Columns const& columns, void* temporary, std::size_t bytes,
                        cudaStream_t stream) const {
        if (plan_.tiles != 0) {
            detail::launch_tiles<detail::CountState, detail::CountShared<Rule>>(
                "count", plan_.tiles, detail::CountTile<Items, Rule>{plan_, rule}, stream);
            run_cub(memory_, temporary, bytes, stream);
        }
        lay_out(columns, detail::BeginOfTable{plan_.rows, plan_.tiles}, stream);
    }
    template <class Rule, class Columns>
    void count_by_sort(Rule const& rule, Columns const& columns, void* temporary, std::size_t bytes,
                       cudaStream_t stream) const {
        if (plan_.entries != 0) {
            launch_each("destinations",
                        detail::ListDestinations<Rule, std::uint16_t>{plan_, rule, memory_.keys, memory_.entries},
                        stream);
            run_cub(memory_, temporary, bytes, stream);
        }
        lay_out(columns, detail::BeginOfSorted<std::uint16_t>{memory_.sorted, plan_.entries}, stream);
    }
    template <class Columns, class Begin>
    void lay_out(Columns const& columns, Begin const& begin, cudaStream_t stream) const {
        detail::launch_tiles<detail::LayoutState, detail::NoShared>(
            "layout", 1, detail::LayOutBlocks<Begin>{plan_, detail::column_widths(columns), begin}, stream);
    }
    /// body(block, entry) for all entries.
    template <class Body>
    void launch_each(char const* what, Body const& body, cudaStream_t stream) const {
        detail::launch_tiles<detail::NoState, detail::NoShared>(what,
                                                                detail::ceil_div(plan_.entries, detail::block_threads),
                                                                detail::EachIndex<Body>{plan_.entries, body}, stream);
    }

    template <class Columns>
    void scatter(Columns const& columns, std::span<std::byte> packed, Index bytes, cudaStream_t stream) const {
        constexpr auto who = "reshard::DevicePartition::scatter";
        check_counted(who);
        detail::check_device_span(who, "packed buffer", packed, bytes, 16);
        check_columns(who, columns);
        if (plan_.tiles == 0 || columns.count() == 0) return;
        if (method_ == PartitionMethod::sort) {
            launch_each("place",
                        detail::PlaceSorted<Columns, std::uint16_t>{plan_, columns, packed.data(), memory_.sorted,
                                                                    memory_.from},
                        stream);
        } else if (detail::tile_items(destinations()) == 8) {
            scatter_tiles<8>(columns, packed.data(), stream);
        } else {
            scatter_tiles<16>(columns, packed.data(), stream);
        }
    }
    template <int Items, class Columns>
    void scatter_tiles(Columns const& columns, std::byte* packed, cudaStream_t stream) const {
        detail::launch_tiles<detail::ScatterState<Items>, detail::ScatterShared<Items>>(
            "scatter", plan_.tiles, detail::ScatterTile<Items, Columns>{plan_, columns, packed}, stream);
    }

    void check_counted(char const* who) const {
        if (plan_.counts != nullptr) return;
        errors::raise(ErrorCode::transition, who, ": nothing is counted yet. Fix: call count() first.");
    }
    template <class Columns>
    void check_columns(char const* who, Columns const& columns) const {
        if (columns.count() > max_device_columns) {
            errors::raise(ErrorCode::shape, who, ": ", columns.count(), " columns. Fix: give at most ",
                          max_device_columns, ".");
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
};

}  // namespace reshard::inline v0_1
