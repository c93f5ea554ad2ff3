// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/detail/tile.hpp
/// \brief  The kernel bodies of the partition: count a tile, lay blocks out, scatter a tile.
/// \depends core, cuda/columns, cuda/rules, cuda/detail/block. Compiles without CUDA.
///
/// Three launches, each of one table or of many: every tile counts its entries per destination into
/// table[destination][tile]; an exclusive sum over that table (CUB's) gives every tile its first row in every
/// destination; every tile moves. Entries of a tile belong to threads in an order that makes (warp, item, lane) the
/// order of entries, so ranks within a tile are stable: GPU Multisplit (Ashkiani et al., ACM TOPC 2017), with
/// reduce-then-scan instead of look-back: counts are wanted before anything moves, nothing waits for another block, and
/// the launches can be captured in a graph.
#pragma once

#include <reshard/cuda/columns.hpp>
#include <reshard/cuda/rules.hpp>

namespace reshard::inline v0_1::detail {

/// Destinations of one pass.
inline constexpr int tile_destinations = 256;

/// What was wrong with entries. On the device, behind the counts.
struct PartitionFaults {
    unsigned long long out_of_range = 0;    ///< entries whose rule answered neither a rank nor `not_sent`
    unsigned long long first = UINT64_MAX;  ///< the first of them
    template <class Block>
    RESHARD_HOST_DEVICE void add(Block& block, Index entry) {
        block.add(&out_of_range, 1ULL);
        block.lower(&first, static_cast<unsigned long long>(entry));
    }
};

/// One partition, as kernels see it. Arrays are the device's.
struct TilePlan {
    Index entries = 0;
    Index tiles = 0;
    int destinations = 0;
    int bits = 0;                    ///< that tell destinations + 1 bins apart
    std::uint32_t* table = nullptr;  ///< [destination][tile]: entries, and a zero behind the last
    Index* rows = nullptr;           ///< its exclusive sum, which may begin with that of other tables
    Index* counts = nullptr;         ///< [destinations]
    Index* begins = nullptr;         ///< [destinations + 1]
    Index* blocks = nullptr;         ///< [destinations + 1], bytes
    PartitionFaults* faults = nullptr;
    std::uint16_t* bins = nullptr;  ///< of each entry, where there are tiles

    TilePlan() = default;
    TilePlan(Index all, Index ranks, Index entries_of_tile) noexcept
        : entries(all),
          tiles(ceil_div(all, entries_of_tile)),
          destinations(static_cast<int>(ranks)),
          bits(bits_for(static_cast<std::uint64_t>(ranks) + 1)) {}
    /// Counters in the table; none where there are no tiles.
    [[nodiscard]] Index table_size() const noexcept { return tiles == 0 ? 0 : tiles * destinations + 1; }
    /// `words`: PartitionReport::words(destinations) of the device.
    void report_to(Index* words) noexcept {
        counts = words;
        begins = counts + destinations;
        blocks = begins + destinations + 1;
        faults = reinterpret_cast<PartitionFaults*>(blocks + destinations + 1);
    }
};

/// Entries of a tile, for each thread: more destinations, longer tiles, so that runs stay at 128 bytes and more.
[[nodiscard]] constexpr int tile_items(Index destinations) noexcept { return destinations <= 64 ? 8 : 16; }

/// Entry number of an item of a thread: neighbours in a warp are neighbours in memory.
template <int Items>
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Index entry_of(Index tile, int thread, int item) noexcept {
    int const in_tile = warp_of(thread) * (warp_threads * Items) + item * warp_threads + lane_of(thread);
    return tile * (Index{block_threads} * Items) + in_tile;
}

/// Offsets of a rule, in shared memory.
template <class Rule>
struct RuleTable {
    template <class Block>
    RESHARD_HOST_DEVICE void fill(Block&, Rule const&) {}
    /// No copy: one that is indexed at run time would be every thread's own, in local memory.
    [[nodiscard]] RESHARD_HOST_DEVICE Rule const& bound(Rule const& rule) const { return rule; }
};
template <HasTable Rule>
struct RuleTable<Rule> {
    Index values[tile_destinations + 1];
    template <class Block>
    RESHARD_HOST_DEVICE void fill(Block& block, Rule const& rule) {
        block.each([&](int thread, auto&) {
            for (int i = thread; i < rule.table_size(); i += block_threads) values[i] = rule.table()[i];
        });
    }
    [[nodiscard]] RESHARD_HOST_DEVICE auto bound(Rule const& rule) const { return rule.with(values); }
};
/// Throws ShapeError for a rule whose table finds no room there.
template <class Rule>
void check_rule_table([[maybe_unused]] char const* who, [[maybe_unused]] Rule const& rule) {
    if constexpr (HasTable<Rule>) {
        if (rule.table_size() <= tile_destinations + 1) return;
        raise(ErrorCode::shape, who, ": the table of the rule has ", rule.table_size(), " numbers. Fix: at most ",
              tile_destinations + 1, ", or PartitionMethod::sort, which reads it where it lies.");
    }
}

// ---- Count -------------------------------------------------------------------------------------------------------

/// A counter per warp and bin: warps of one bin do not wait for each other.
template <class Rule>
struct CountShared {
    std::uint32_t counters[block_warps * (tile_destinations + 1)];
    RuleTable<Rule> table;
};

struct CountState {};

/// Writes the bins down: 4 bytes an entry, which take less time than to ask the rule again.
template <int Items, class Rule>
struct CountTile {
    TilePlan plan;
    Rule rule;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, CountShared<Rule>& shared, Index tile) const {
        int const bins = plan.destinations + 1;
        block.each([&](int thread, auto&) {
            for (int i = thread; i < block_warps * bins; i += block_threads) shared.counters[i] = 0;
        });
        shared.table.fill(block, rule);
        block.each([&](int thread, auto&) {
            auto&& bound = shared.table.bound(rule);
            std::uint32_t* const counters = shared.counters + Index{warp_of(thread)} * bins;
            Index answers[as_size(Items)];
            RESHARD_UNROLL
            for (int i = 0; i < Items; ++i) {  // all loads before the first use, and none behind a branch
                Index const entry = smaller(entry_of<Items>(tile, thread, i), plan.entries - 1);
                answers[i] = as_index(bound(entry));
            }
            RESHARD_UNROLL
            for (int i = 0; i < Items; ++i) {
                Index const entry = entry_of<Items>(tile, thread, i);
                if (entry >= plan.entries) continue;
                std::uint32_t const bin = bin_of(answers[i], plan.destinations);
                block.add(counters + bin, std::uint32_t{1});
                plan.bins[entry] = static_cast<std::uint16_t>(bin);
                if (is_fault(answers[i], plan.destinations)) plan.faults->add(block, entry);
            }
        });
        block.each([&](int thread, auto&) {
            if (thread >= plan.destinations) return;
            std::uint32_t sum = 0;
            for (int w = 0; w < block_warps; ++w) sum += shared.counters[w * bins + thread];
            plan.table[thread * plan.tiles + tile] = sum;
            if (tile == 0 && thread == 0) plan.table[plan.destinations * plan.tiles] = 0;
        });
    }
};

// ---- Lay out -----------------------------------------------------------------------------------------------------

struct LayoutState {
    Index count = 0;
    Index bytes = 0;
    Index carried = 0;  ///< bytes of the blocks before, the same in all threads
};

/// counts, begins and blocks from the first row of every destination: begin(d) for d in [0, destinations]. One block.
template <class Begin>
struct LayOutBlocks {
    TilePlan plan;
    ColumnWidths widths;
    Begin begin;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, NoShared&, Index) const {
        for (Index base = 0; base <= plan.destinations; base += block_threads) {
            block.each([&](int thread, auto& state) {
                Index const d = base + thread;
                if (base == 0) state.carried = 0;
                state.bytes = 0;
                if (d <= plan.destinations) plan.begins[d] = begin(d);
                if (d >= plan.destinations) return;
                state.count = begin(d + 1) - begin(d);
                plan.counts[d] = state.count;
                for (Index const width : widths) state.bytes += device_column_bytes(state.count, width);
            });
            block.scan([](auto const& state) { return state.bytes; },
                       [&](int thread, auto& state, Index before, Index total) {
                           Index const d = base + thread;
                           if (d <= plan.destinations) plan.blocks[d] = state.carried + before;
                           state.carried += total;
                       });
        }
    }
};

/// The first row of a destination, from the summed table.
struct BeginOfTable {
    Index const* rows;
    Index tiles;
    [[nodiscard]] RESHARD_HOST_DEVICE Index operator()(Index d) const {
        return tiles == 0 ? 0 : rows[d * tiles] - rows[0];
    }
};

// ---- Scatter -----------------------------------------------------------------------------------------------------

template <int Items>
struct ScatterShared {
    static constexpr int tile = block_threads * Items;
    std::uint64_t stage[as_size(tile)];  ///< pieces of one column, in the order of destinations
    Index at[tile_destinations];         ///< bytes from the packed blocks to place 0 of the tile, per destination
    std::uint16_t counters[block_warps * (tile_destinations + 1)];  ///< per warp and bin: entries, then first places
    std::uint8_t bin[as_size(tile)];                                ///< of each place
    int kept;                                                       ///< places in use
};

inline constexpr std::uint16_t no_place = UINT16_MAX;

/// Thread t also looks after destination t.
template <int Items>
struct ScatterState {
    std::uint16_t bin[as_size(Items)];    ///< while entries are ranked
    std::uint16_t place[as_size(Items)];  ///< no_place: not sent
    std::uint64_t value[as_size(Items)];  ///< bits of its pieces of the column at hand
    Index row = 0;                        ///< of the tile's first entry for the destination, less its place
    Index column = 0;                     ///< where the column at hand begins in the packed blocks
    Index count = 0;                      ///< of the destination
    std::uint32_t in_tile = 0;
};

/// Ranks of all entries within the tile: place[] is where an entry stands when the tile is sorted by destination.
template <int Items, class Block>
RESHARD_HOST_DEVICE inline void rank_tile(Block& block, ScatterShared<Items>& shared, TilePlan const& plan,
                                          Index tile) {
    int const bins = plan.destinations + 1;
    block.each([&](int thread, auto& state) {
        for (int i = thread; i < block_warps * bins; i += block_threads) shared.counters[i] = 0;
        RESHARD_UNROLL
        for (int i = 0; i < Items; ++i) {
            Index const entry = entry_of<Items>(tile, thread, i);
            std::uint16_t const bin = plan.bins[smaller(entry, plan.entries - 1)];
            state.bin[i] = entry < plan.entries ? bin : static_cast<std::uint16_t>(plan.destinations);
        }
    });
    RESHARD_UNROLL
    for (int i = 0; i < Items; ++i) {
        block.match(
            plan.bits, [i](auto const& state) { return std::uint32_t{state.bin[i]}; },
            [&, i](int thread, auto& state, std::uint32_t peers) {
                int const counter = warp_of(thread) * bins + state.bin[i];
                state.place[i] =
                    static_cast<std::uint16_t>(shared.counters[counter] + ones_below(peers, lane_of(thread)));
            },
            [&, i](int thread, auto& state, std::uint32_t peers) {
                if (ones_below(peers, lane_of(thread)) != 0) return;
                int const counter = warp_of(thread) * bins + state.bin[i];
                shared.counters[counter] = static_cast<std::uint16_t>(shared.counters[counter] + ones(peers));
            });
    }
    block.sync();
    block.each([&](int thread, auto& state) {
        state.in_tile = 0;
        if (thread >= plan.destinations) return;
        for (int w = 0; w < block_warps; ++w) {
            std::uint16_t& counter = shared.counters[w * bins + thread];
            std::uint32_t const before = state.in_tile;
            state.in_tile += counter;
            counter = static_cast<std::uint16_t>(before);
        }
    });
    block.scan([](auto const& state) { return as_index(state.in_tile); },
               [&](int thread, auto& state, Index before, Index total) {
                   if (thread == 0) shared.kept = static_cast<int>(total);
                   if (thread >= plan.destinations) return;
                   for (int w = 0; w < block_warps; ++w) {
                       std::uint16_t& counter = shared.counters[w * bins + thread];
                       counter = static_cast<std::uint16_t>(counter + before);
                   }
                   Index const* const rows = plan.rows + thread * plan.tiles;
                   state.row = rows[tile] - rows[0] - before;
                   state.column = plan.blocks[thread];
                   state.count = plan.counts[thread];
               });
    block.each([&](int thread, auto& state) {
        RESHARD_UNROLL
        for (int i = 0; i < Items; ++i) {
            if (state.bin[i] >= plan.destinations) {
                state.place[i] = no_place;
                continue;
            }
            int const counter = warp_of(thread) * bins + state.bin[i];
            state.place[i] = static_cast<std::uint16_t>(state.place[i] + shared.counters[counter]);
            shared.bin[state.place[i]] = static_cast<std::uint8_t>(state.bin[i]);
        }
    });
}

template <int Items, class Columns>
struct ScatterTile {
    /// Blocks that a processor should have room for, so that some load while others store. Pieces of every width, each
    /// with its loop, want more registers than those of one.
    static constexpr int resident_blocks = Items == 8 && !std::is_same_v<Columns, ByteColumns> ? 4 : 2;

    TilePlan plan;
    Columns columns;
    std::byte* packed;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, ScatterShared<Items>& shared, Index tile) const {
        rank_tile<Items>(block, shared, plan, tile);
        struct {
            bool any = false;
            Index width = 8;  // of an element
            int bytes = 8;    // of a piece of it
        } staged;
        auto const write_staged = [&](int thread) {
            if (!staged.any) return;
            RESHARD_NO_UNROLL
            for (int place = thread; place < shared.kept; place += block_threads) {
                std::byte* const to = packed + shared.at[shared.bin[place]] + place * staged.width;
                with_word(staged.bytes, [&]<class U>() { store_for_later(to, static_cast<U>(shared.stage[place])); });
            }
        };
        columns.for_each([&](int c, Index offset, bool last, auto const& load) {
            block.each([&](int thread, auto& state) {  // the next piece is on its way while the one before is written
                RESHARD_UNROLL
                for (int i = 0; i < Items; ++i) {
                    if (state.place[i] != no_place) {
                        state.value[i] = bits_of(load(entry_of<Items>(tile, thread, i)));
                    }
                }
                write_staged(thread);
            });
            Index const width = columns.width(c);
            staged = {true, width, static_cast<int>(sizeof(load(Index{0})))};
            block.each([&](int thread, auto& state) {
                if (thread < plan.destinations) shared.at[thread] = state.column + state.row * width + offset;
                if (last) state.column += device_column_bytes(state.count, width);
                RESHARD_UNROLL
                for (int i = 0; i < Items; ++i) {
                    if (state.place[i] != no_place) shared.stage[state.place[i]] = state.value[i];
                }
            });
        });
        block.each([&](int thread, auto&) { write_staged(thread); });
        if (tile != 0) return;
        block.each([&](int thread, auto& state) {  // zeros behind the rows of columns that are not words
            if (thread >= plan.destinations) return;
            Index at = plan.blocks[thread];
            for (int c = 0; c < columns.count(); ++c) {
                Index const width = columns.width(c);
                Index const end = at + device_column_bytes(state.count, width);
                for (Index byte = at + state.count * width; byte < end; ++byte) packed[byte] = std::byte{0};
                at = end;
            }
        });
    }
};

}  // namespace reshard::inline v0_1::detail
