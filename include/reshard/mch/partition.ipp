// SPDX-License-Identifier: Apache-2.0
// How mch/partition.hpp is done.
#pragma once

#include <reshard/mch/partition.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE Partition::Partition(Index entries, Index destinations, int parts)
    : entries_(entries), destinations_(destinations), parts_(parts) {
    if (entries < 0 || destinations < 1 || destinations > max_destinations) {
        errors::raise(ErrorCode::shape, "reshard::Partition: ", entries, " entries for ", destinations,
                      " destinations. Fix: give 0 or more entries and 1 to ", max_destinations, " destinations.");
    }
    if (parts >= 1 && parts <= 65536) return;
    errors::raise(ErrorCode::shape, "reshard::Partition: ", parts,
                  " parts. Fix: give 1 to 65536, such as one per thread.");
}

RESHARD_INLINE void Partition::make_room() {
    if (memory_.size() != 0) return;
    memory_ = Scratch(carve(nullptr) + detail::part_alignment);
    static_cast<void>(carve(memory_.data()));
}

RESHARD_INLINE Index Partition::lay_out(std::span<PartitionColumn const> columns) {
    if (counts_ == nullptr) {
        errors::raise(ErrorCode::transition,
                      "reshard::Partition::lay_out: nothing is counted yet. Fix: call count() first.");
    }
    Index at = 0;
    for (Index d = 0; d < destinations_; ++d) {
        blocks_[d] = at;
        for (PartitionColumn const& column : columns) {
            Index const bytes = packed_block_bytes(counts_[d], {&column.width, 1});
            if (bytes > INT64_MAX - at) {
                errors::raise(ErrorCode::shape, "reshard::Partition: the blocks of ", kept(), " entries and ",
                              columns.size(),
                              " columns have more bytes than 64 bits count. Fix: move fewer entries at once.");
            }
            at += bytes;
        }
    }
    blocks_[destinations_] = at;
    return at;
}

RESHARD_INLINE Index Partition::carve(std::byte* memory) noexcept {
    detail::PartCarver carver(memory);
    counts_ = carver.take<Index>(destinations_);
    begins_ = carver.take<Index>(destinations_ + 1);
    blocks_ = carver.take<Index>(destinations_ + 1);
    parts_at_ = nullptr;
    static_cast<void>(share(0, &part_bytes_));
    parts_at_ = carver.take<std::byte>(parts_ * part_bytes_);
    return carver.bytes();
}

RESHARD_INLINE void Partition::add_up() noexcept {
    Index total = 0;
    for (Index d = 0; d < destinations_; ++d) {
        Index rows = 0;
        for (int part = 0; part < parts_; ++part) {
            Index& start = share(part).starts[d];
            Index const counted = start;
            start = rows;
            rows += counted;
        }
        counts_[d] = rows;
        begins_[d] = total;
        total += rows;
    }
    begins_[destinations_] = total;
}

RESHARD_INLINE bool Partition::check_scatter(std::span<PartitionColumn const> columns,
                                             std::span<std::byte const> packed) {
    Index const needed = lay_out(columns);
    if (detail::as_index(packed.size()) < needed) {
        errors::raise(ErrorCode::buffer, "reshard::Partition::scatter: the packed blocks have ", needed,
                      " bytes, the buffer ", packed.size(), ". Fix: allocate lay_out(columns) bytes.");
    }
    bool words = true;
    for (std::size_t c = 0; c != columns.size(); ++c) {
        words = words && columns[c].width == 8;
        if (columns[c].data != nullptr || entries_ == 0) continue;
        errors::raise(ErrorCode::buffer, "reshard::Partition::scatter: column ", c,
                      " is null. Fix: give every column the address of its entries.");
    }
    return words;
}

RESHARD_INLINE Partition::Share Partition::share(int part, Index* bytes) const noexcept {
    Index const bins = destinations_ + 1;
    detail::PartCarver carver(parts_at_ != nullptr ? parts_at_ + part * part_bytes_ : nullptr);
    Share result{};
    result.starts = carver.take<Index>(bins);
    result.lanes = carver.take<Index>(4 * bins);
    result.rows = carver.take<Index>(bins);
    result.places = carver.take<Index>(bins);
    result.first = carver.take<std::uint32_t>(bins + 1);
    result.bins = carver.take<std::uint16_t>(tile());
    result.order = carver.take<std::uint16_t>(tile());
    if (bytes != nullptr) *bytes = carver.bytes();
    return result;
}

RESHARD_INLINE void Partition::zero_padding(std::span<PartitionColumn const> columns, std::byte* packed,
                                            int part) const noexcept {
    Index const end = detail::part_begin(destinations_, parts_, part + 1);
    for (Index d = detail::part_begin(destinations_, parts_, part); d < end; ++d) {
        Index at = blocks_[d];
        for (PartitionColumn const& column : columns) {
            Index const rows = counts_[d] * column.width;
            Index const bytes = packed_column_bytes(counts_[d], column.width);
            std::memset(packed + at + rows, 0, detail::as_size(bytes - rows));
            at += bytes;
        }
    }
}

}  // namespace reshard::inline v0_1
