// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/mch_change.hpp
/// \brief  A managed-collision table of made ids whose world size changes: saved by some ranks, loaded by others.
///
/// Every column is a closed form of the position, so that ranks fill their part alone, and bench/peers/mch_torch.py
/// makes the same table. Saved shard s of z slots has n = 0.95 z ids, position i < n of them:
///     id     block(s) + i g + mix(i, s) mod g        g = (2^63 - 1) / W1 / (n + 1): ascending, spread, looked up on s
///     slot   o + (i^3 mod p), i from p up            p: the largest prime below z with p = 2 mod 3: a permutation
///     counts, last access                            small numbers without a pattern; 0 where there is no id
#pragma once

#include <reshard/mch/redistribute.hpp>

#include <string>   // string
#include <utility>  // move
#include <vector>   // vector

namespace reshard::bench {

/// The columns of one rank's shard, and a view of them.
struct MchColumns {
    std::vector<Index> ids;
    std::vector<Index> slots;
    std::vector<Index> counts;
    std::vector<Index> access;
    std::vector<Index> segments;
    Index iteration = 0;

    [[nodiscard]] MchState state() {
        MchState result;
        result.ids = view(ids);
        result.slots = view(slots);
        result.metadata = {{std::string(mch_counts), view(counts)}, {std::string(mch_last_access), view(access)}};
        result.segments = view(segments);
        result.iteration = TensorView<Index>(&iteration, Shape{1});
        return result;
    }
    [[nodiscard]] friend bool operator==(MchColumns const&, MchColumns const&) = default;

private:
    [[nodiscard]] static DynamicView view(std::vector<Index>& column) {
        return TensorView<Index>(column.data(), Shape{static_cast<Index>(column.size())});
    }
};

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
[[nodiscard]] constexpr std::uint64_t mch_mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

class MchWorldChange {
public:
    static constexpr Index iteration = 5000;
    static constexpr Index entry_bytes = 32;

    MchWorldChange(Index slots, Index saved_ranks, Index ranks)
        : saved_(mch_table("made", Mesh{saved_ranks}, slots, MchEviction::distance_lfu)),
          current_(saved_.on(mch_slots(Mesh{ranks}, slots))) {}

    [[nodiscard]] MchTable const& saved() const noexcept { return saved_; }
    [[nodiscard]] MchTable const& current() const noexcept { return current_; }
    /// Of those that load the table.
    [[nodiscard]] int ranks() const noexcept { return static_cast<int>(current_.parts()); }

    /// What `rank` loads: entries [o, o + z) of the saved shards, one behind the other.
    [[nodiscard]] MchColumns load(Index rank) const {
        Interval const mine = current_.range(rank);
        MchColumns columns;
        for (auto* column : {&columns.ids, &columns.slots, &columns.counts, &columns.access}) {
            column->resize(static_cast<std::size_t>(mine.size()));
        }
        columns.segments.assign(1025, -1);
        columns.iteration = iteration;
        for (Index part = 0; part < saved_.parts(); ++part) fill(columns, mine, part);
        return columns;
    }

private:
    void fill(MchColumns& columns, Interval mine, Index part) const {
        Interval const shard = saved_.part_range(part);
        Index const z = shard.size();
        if (z == 0) return;
        Index const live = detail::smaller(z * 95 / 100, z - 1);
        Index const prime = cubing_prime(z - 1);
        Index const base = detail::ceil_div(INT64_MAX, saved_.parts()) * part;
        Index const gap = INT64_MAX / saved_.parts() / (live + 1);
        Index const begin = detail::larger(mine.begin, shard.begin);
        Index const end = detail::smaller(mine.end, shard.end);
        for (Index position = begin; position < end; ++position) {
            Index const i = position - shard.begin;
            auto const at = static_cast<std::size_t>(position - mine.begin);
            columns.slots[at] = shard.begin + (i < prime ? i * i % prime * i % prime : i);
            columns.ids[at] = INT64_MAX;
            columns.counts[at] = columns.access[at] = 0;
            if (i >= live) continue;
            std::uint64_t const noise = mch_mix(static_cast<std::uint64_t>(position) + 1);
            columns.ids[at] = base + i * gap + static_cast<Index>(noise >> 1) % gap;
            columns.counts[at] = static_cast<Index>(noise & 1023) + 1;
            columns.access[at] = static_cast<Index>(noise >> 10 & 4095);
        }
    }
    /// The largest prime p = 2 mod 3 up to `most`, whose cubes are all numbers below it; 0 when there is none.
    [[nodiscard]] static Index cubing_prime(Index most) noexcept {
        for (Index p = most; p >= 2; --p) {
            bool found = p % 3 == 2;
            for (Index d = 2; found && d * d <= p; ++d) found = p % d != 0;
            if (found) return p;
        }
        return 0;
    }

    MchTable saved_;
    MchTable current_;
};

}  // namespace reshard::bench
