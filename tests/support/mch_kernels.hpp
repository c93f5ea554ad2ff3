// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/mch_kernels.hpp
/// \brief  The partition as a plain function of vectors: what the tests of every implementation share.
///
/// An implementation is a type with
///     static PartitionResult partition(PartitionCase const&);
/// The oracle knows nothing of parts or tiles.
#pragma once

#include "support/random.hpp"

#include <reshard/mch/partition.hpp>

#include <algorithm>  // stable_sort
#include <cstring>    // memcpy, memset
#include <utility>    // pair
#include <vector>

namespace reshard::test {

using Bytes = std::vector<std::byte>;

/// Random bytes, none of them the same from element to element for long.
inline Bytes random_bytes(Random& random, Index count) {
    Bytes bytes(static_cast<std::size_t>(count));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.engine()() >> 56);
    return bytes;
}

// ---- Memory with guards ------------------------------------------------------------------------------------------

/// `size` bytes at an address that is `shift` past a multiple of 64, with known bytes on both sides.
class Guarded {
public:
    static constexpr std::size_t guard = 256;
    explicit Guarded(Index size, int shift = 0) : memory_(static_cast<std::size_t>(size) + 2 * guard + 128, fill) {
        auto const address = reinterpret_cast<std::uintptr_t>(memory_.data() + guard);
        begin_ = guard + (64 - address % 64) % 64 + static_cast<std::size_t>(shift);
        size_ = static_cast<std::size_t>(size);
        std::memset(memory_.data() + begin_, 0x77, size_);
    }
    [[nodiscard]] std::span<std::byte> span() { return {memory_.data() + begin_, size_}; }
    [[nodiscard]] bool is_intact() const {
        for (std::size_t i = 0; i != memory_.size(); ++i)
            if ((i < begin_ || i >= begin_ + size_) && memory_[i] != fill) return false;
        return true;
    }

private:
    static constexpr std::byte fill{0xa5};
    std::vector<std::byte> memory_;
    std::size_t begin_ = 0;
    std::size_t size_ = 0;
};

// ---- Partition ---------------------------------------------------------------------------------------------------

struct PartitionCase {
    Index entries = 0;
    Index world = 1;
    int parts = 1;
    std::vector<Index> widths;
    std::vector<Bytes> columns;
    std::vector<Index> destinations;  ///< per entry; outside [0, world) is dropped
    int shift = 0;                    ///< of the packed blocks' address
};

struct PartitionResult {
    std::vector<Index> counts;
    std::vector<Index> begins;
    std::vector<Index> blocks;
    Bytes packed;
    bool guards_intact = true;

    friend bool operator==(PartitionResult const&, PartitionResult const&) = default;
};

/// For each destination, each column, each entry in order: the layout as mch/packed.hpp describes it.
inline PartitionResult partition_oracle(PartitionCase const& given) {
    PartitionResult result;
    result.begins.push_back(0);
    result.blocks.push_back(0);
    for (Index d = 0; d < given.world; ++d) {
        Index count = 0;
        for (Index to : given.destinations) count += to == d;
        for (std::size_t c = 0; c != given.columns.size(); ++c) {
            Index const width = given.widths[c];
            for (Index i = 0; i < given.entries; ++i) {
                if (given.destinations[static_cast<std::size_t>(i)] != d) continue;
                auto const from = given.columns[c].begin() + i * width;
                result.packed.insert(result.packed.end(), from, from + width);
            }
            while (width != 8 && (result.packed.size() - static_cast<std::size_t>(result.blocks.back())) % 8 != 0) {
                result.packed.push_back(std::byte{0});
            }
            if (width != 8 && count * width % 16 > 0 && count * width % 16 <= 8) {
                result.packed.insert(result.packed.end(), 8, std::byte{0});
            }
        }
        result.counts.push_back(count);
        result.begins.push_back(result.begins.back() + count);
        result.blocks.push_back(static_cast<Index>(result.packed.size()));
    }
    return result;
}

enum class Skew { even, to_one, few, blocks, none_kept };

inline PartitionCase random_partition(Random& random, Index entries, Index world, std::vector<Index> widths,
                                      Skew skew) {
    PartitionCase made;
    made.entries = entries;
    made.world = world;
    made.widths = std::move(widths);
    made.shift = random.chance(30) ? static_cast<int>(random.between(0, 40)) : 0;
    for (Index width : made.widths) made.columns.push_back(random_bytes(random, entries * width));
    Index const favourite = random.between(0, world - 1);
    for (Index i = 0; i < entries; ++i) {
        Index to = random.between(0, world - 1);
        if (skew == Skew::to_one) to = favourite;
        if (skew == Skew::few) to = random.chance(50) ? favourite : world - 1;
        if (skew == Skew::blocks) to = i * world / entries;
        if (skew == Skew::none_kept || random.chance(5)) {
            to = random.pick(std::vector<Index>{-1, world, INT64_MIN, INT64_MAX, world + 7});
        }
        made.destinations.push_back(to);
    }
    return made;
}

// ---- Implementations ---------------------------------------------------------------------------------------------

/// The host's.
struct HostKernels {
    static PartitionResult partition(PartitionCase const& given) {
        Partition partition(given.entries, given.world, given.parts);
        auto const rule = [to = given.destinations.data()](Index entry) { return to[entry]; };
        partition.count(rule);
        std::vector<PartitionColumn> columns;
        for (std::size_t c = 0; c != given.columns.size(); ++c) {
            columns.push_back({given.columns[c].data(), given.widths[c]});
        }
        Guarded packed(partition.lay_out(columns), given.shift);
        partition.scatter(rule, columns, packed.span());
        PartitionResult result;
        result.counts.assign(partition.counts().begin(), partition.counts().end());
        result.begins.assign(partition.begins().begin(), partition.begins().end());
        result.blocks.assign(partition.blocks().begin(), partition.blocks().end());
        result.packed.assign(packed.span().begin(), packed.span().end());
        result.guards_intact = packed.is_intact();
        return result;
    }
};

}  // namespace reshard::test
