// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/partition.hpp
/// \brief  Entries sorted into one packed block per destination rank: stable, threaded, two passes.
/// \depends core, mch/packed.hpp, mch/detail, memory/{scratch,stream_copy}.hpp.
///
///     Partition partition(entries, ranks, threads);
///     partition.count(rule);                                        // rule(entry): a rank; anything else drops it
///     std::vector<std::byte> packed(partition.lay_out(columns));    // counts(), begins(), blocks() are known
///     partition.scatter(rule, columns, packed);
///
/// Pass 1 counts per part and destination; a prefix over (destination, part) gives every part its first row in every
/// block; pass 2 moves. Entries keep their order, so the result is the same, bit for bit, for any number of parts.
/// Destinations are worked out in both passes: the columns a rule reads are read anyway, and a table of destinations
/// would cost memory with every entry. A rule that is slow (a search) is better run into an array first.
#pragma once

#include <reshard/mch/detail/mode.hpp>
#include <reshard/mch/detail/parts.hpp>
#include <reshard/mch/detail/scatter.hpp>
#include <reshard/mch/packed.hpp>
#include <reshard/memory/scratch.hpp>
#include <reshard/memory/stream_copy.hpp>

namespace reshard::inline v0_1 {

/// A partition of `entries` entries among `destinations` ranks, worked on in `parts` pieces by a thread each.
/// Move-only.
class Partition {
public:
    static constexpr Index max_destinations = 65535;

    /// Throws ShapeError when entries are negative, or destinations or parts are out of range.
    Partition(Index entries, Index destinations, int parts = 1);

    [[nodiscard]] int parts() const noexcept { return parts_; }

    /// Pass 1. `rule(entry)` is an integer, the same whenever it is asked: a destination, or anything outside
    /// [0, destinations) to drop the entry. It must not throw and is called from all threads. Where it has a member
    /// skip(begin, end), entries from `begin` up to what that returns are dropped without being asked for. Throws
    /// OutOfMemory: the first time it allocates what grows with parts x destinations, not with the entries.
    template <class Rule>
    void count(Rule const& rule) {
        make_room();
        detail::run_parts(parts_, parts_, [&, this](int part) { count_part(rule, part); });
        add_up();
    }

    /// Entries for each destination. Empty before count(), as are the others.
    [[nodiscard]] std::span<Index const> counts() const noexcept { return list(counts_, destinations_); }
    /// Their exclusive prefix and, behind it, the entries kept.
    [[nodiscard]] std::span<Index const> begins() const noexcept { return list(begins_, destinations_ + 1); }
    [[nodiscard]] Index kept() const noexcept { return begins_ != nullptr ? begins_[destinations_] : 0; }
    [[nodiscard]] Index dropped() const noexcept { return begins_ != nullptr ? entries_ - kept() : 0; }

    /// Bytes of all packed blocks of such columns; fills blocks(). Throws ShapeError when they do not fit 64 bits,
    /// TransitionError before count().
    Index lay_out(std::span<PartitionColumn const> columns);
    /// The first byte of each destination's block and, behind them, the end. Column c of a block of n rows starts
    /// after packed_column_bytes(n, width) of each column before it: with words only, at 8 (R begins[d] + c n).
    [[nodiscard]] std::span<Index const> blocks() const noexcept { return list(blocks_, destinations_ + 1); }

    /// Pass 2. `rule` and what it reads must be as they were in count(). Writes every byte of [0, lay_out(columns)),
    /// padding included, and no other. Throws BufferError when a column is null or `packed` is too small,
    /// TransitionError before count(); then nothing is written.
    template <class Rule>
    void scatter(Rule const& rule, std::span<PartitionColumn const> columns, std::span<std::byte> packed) {
        bool const words = check_scatter(columns, packed);
        Index const needed = blocks_[destinations_];
        if (needed == 0) return;
        std::byte* const to = packed.data();
        Index const streams = destinations_ * detail::as_index(columns.size());
        if (words && streams <= detail::most_streams && columns.size() <= 8) {
            detail::run_parts(parts_, parts_, [&, this](int part) { scatter_streams(rule, columns, to, part); });
            return;
        }
        bool const streaming = needed >= detail::streaming_partition_bytes;
        detail::run_parts(parts_, parts_, [&, this](int part) {
            scatter_tiles(rule, columns, to, streaming, part);
            if (!words) zero_padding(columns, to, part);
        });
    }

private:
    /// One part's share of the memory.
    struct Share {
        Index* starts;         ///< per bin: the count of pass 1, then the part's first row in the block
        Index* lanes;          ///< 4 per bin: counters of pass 1, cursors of streams, counters of a tile
        Index* rows;           ///< per destination: next row of a tile
        Index* places;         ///< per destination: where a column begins
        std::uint32_t* first;  ///< per bin: its first entry in the order of a tile
        std::uint16_t* bins;   ///< per entry of a tile
        std::uint16_t* order;  ///< the same
    };

    [[nodiscard]] Index tile() const noexcept { return detail::smaller(entries_ / parts_ + 1, detail::tile_entries); }

    [[nodiscard]] static std::span<Index const> list(Index const* first, Index count) noexcept {
        return {first, first != nullptr ? detail::as_size(count) : 0};
    }

    void make_room();
    /// Takes the memory, if there is any; returns how much of it.
    Index carve(std::byte* memory) noexcept;
    /// What the parts counted: first rows, counts and begins.
    void add_up() noexcept;
    /// Lays the blocks out; whether all columns are words.
    [[nodiscard]] bool check_scatter(std::span<PartitionColumn const> columns, std::span<std::byte const> packed);

    [[nodiscard]] Share share(int part, Index* bytes = nullptr) const noexcept;

    /// The destination, or the bin behind the last one for what is dropped. Negative numbers wrap to large ones.
    template <class Rule>
    [[nodiscard]] auto binned(Rule const& rule) const noexcept {
        return [rule, last = static_cast<std::uint64_t>(destinations_)](Index entry) {
            auto const to = static_cast<std::uint64_t>(static_cast<Index>(rule(entry)));
            return detail::as_index(detail::smaller(to, last));
        };
    }

    template <class Rule>
    void count_part(Rule const& rule, int part) const {
        Share const own = share(part);
        Index const bins = destinations_ + 1;
        Index* const lanes[4] = {own.lanes, own.lanes + bins, own.lanes + 2 * bins, own.lanes + 3 * bins};
        std::memset(own.lanes, 0, detail::as_size(4 * bins) * sizeof(Index));
        auto const bin = binned(rule);
        for_each_piece(rule, part, [&](Index entry, Index end) {
            for (; entry + 4 <= end; entry += 4) {  // four counters: neighbours of one bin do not wait for each other
                ++lanes[0][bin(entry)];
                ++lanes[1][bin(entry + 1)];
                ++lanes[2][bin(entry + 2)];
                ++lanes[3][bin(entry + 3)];
            }
            for (; entry < end; ++entry) ++lanes[0][bin(entry)];
        });
        for (Index b = 0; b < bins; ++b) own.starts[b] = lanes[0][b] + lanes[1][b] + lanes[2][b] + lanes[3][b];
    }

    template <class Rule>
    void scatter_streams(Rule const& rule, std::span<PartitionColumn const> columns, std::byte* packed,
                         int part) const {
        Share const own = share(part);
        auto* const cursors = reinterpret_cast<detail::StreamCursor*>(own.lanes);
        static_assert(sizeof(detail::StreamCursor) == 4 * sizeof(Index));
        for (Index d = 0; d < destinations_; ++d) {
            cursors[d] = {packed + blocks_[d] + 8 * own.starts[d], 8 * counts_[d], 8, 0};
        }
        cursors[destinations_] = {reinterpret_cast<std::byte*>(own.rows), 0, 0, 0};
        auto const bin = binned(rule);
        PartitionColumn const* const list = columns.data();
        for_each_piece(rule, part, [&](Index begin, Index end) {
            switch (columns.size()) {
                case 1: return detail::scatter_words<1>(bin, list, begin, end, cursors);
                case 2: return detail::scatter_words<2>(bin, list, begin, end, cursors);
                case 3: return detail::scatter_words<3>(bin, list, begin, end, cursors);
                case 4: return detail::scatter_words<4>(bin, list, begin, end, cursors);
                case 5: return detail::scatter_words<5>(bin, list, begin, end, cursors);
                case 6: return detail::scatter_words<6>(bin, list, begin, end, cursors);
                case 7: return detail::scatter_words<7>(bin, list, begin, end, cursors);
                default: return detail::scatter_words<8>(bin, list, begin, end, cursors);
            }
        });
    }

    /// Entries to look at between two questions whether some can be skipped.
    static constexpr Index skip_entries = 4096;

    /// Calls f(begin, end) for all of a part's entries but those that the rule skips, `skip_entries` at a time if it
    /// does.
    template <class Rule, class F>
    void for_each_piece(Rule const& rule, int part, F&& f) const {
        Index begin = detail::part_begin(entries_, parts_, part);
        Index const end = detail::part_begin(entries_, parts_, part + 1);
        if constexpr (requires { rule.skip(begin, end); }) {
            for (begin = rule.skip(begin, end); begin < end; begin = rule.skip(begin, end)) {
                Index const stop = detail::smaller(end, begin + skip_entries);
                f(begin, stop);
                begin = stop;
            }
        } else {
            f(begin, end);
        }
    }

    template <class Rule>
    void scatter_tiles(Rule const& rule, std::span<PartitionColumn const> columns, std::byte* packed, bool streaming,
                       int part) const {
        Share const own = share(part);
        auto* const lanes = reinterpret_cast<std::uint32_t*>(own.lanes);
        auto const bin = binned(rule);
        Index const end = detail::part_begin(entries_, parts_, part + 1);
        for (Index d = 0; d < destinations_; ++d) own.rows[d] = own.starts[d];
        for (Index at = detail::part_begin(entries_, parts_, part); at < end; at += tile()) {
            Index const count = detail::smaller(tile(), end - at);
            for (Index i = 0; i < count; ++i) own.bins[i] = static_cast<std::uint16_t>(bin(at + i));
            detail::order_tile(own.bins, count, destinations_ + 1, lanes, own.first, own.order);
            for (Index d = 0; d < destinations_; ++d) own.places[d] = blocks_[d];
            for (PartitionColumn const& column : columns) {
                detail::scatter_tile_column(column, at, own.order, own.first, destinations_, streaming, [&](Index d) {
                    return packed + own.places[d] + own.rows[d] * column.width;
                });
                for (Index d = 0; d < destinations_; ++d) {
                    own.places[d] += packed_column_bytes(counts_[d], column.width);
                }
            }
            for (Index d = 0; d < destinations_; ++d) own.rows[d] += own.first[d + 1] - own.first[d];
        }
        if (streaming) detail::stream_fence();
    }

    /// The bytes behind the rows of columns that are not words, of this part's share of the destinations.
    void zero_padding(std::span<PartitionColumn const> columns, std::byte* packed, int part) const noexcept;

    Index entries_;
    Index destinations_;
    int parts_;
    Scratch memory_;
    Index* counts_ = nullptr;
    Index* begins_ = nullptr;
    Index* blocks_ = nullptr;
    std::byte* parts_at_ = nullptr;
    Index part_bytes_ = 0;
};

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/partition.ipp>
#endif
