// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/arrival.hpp
/// \brief  What ranks tell each other before entries move, and the blocks of entries that then come to a shard.
/// \depends mch/packed, mch/detail/{refusals,score}.
#pragma once

#include <reshard/mch/detail/refusals.hpp>
#include <reshard/mch/detail/score.hpp>
#include <reshard/mch/packed.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// What every pair of ranks tells each other of each table before entries move.
struct MchArrival {
    Index entries = 0;
    Index iteration = 0;
};

/// A block of entries from one rank.
struct MchBlock {
    int rank = 0;
    Index entries = 0;
    Index bytes = 0;
    Index begin = 0;           ///< in the memory for what arrives
    std::byte* own = nullptr;  ///< where it lies already, when it is this rank's
};

/// What comes to a shard of `table`, wherever its columns lie: the base of those who take it in.
class MchExpected {
public:
    /// In the order of ranks. Throws MismatchError for iterations that differ or are below 0; a rank that starts
    /// anew has 0.
    void expect(int rank, Index entries, Index iteration, std::byte* own) {
        MchBlock block{rank, entries, packed_block_bytes(entries, widths_), total_, own};
        if (own == nullptr) {
            if (block.bytes > INT64_MAX - total_) {
                refuse_table(ErrorCode::shape, *table_, "more bytes arrive than 64 bits count. Fix: use more ranks.");
            }
            total_ += block.bytes;
        }
        if (entries != 0) blocks_.push_back(block);
        check_iteration(*table_, rank, iteration);
        if (iteration == 0 || iteration == iteration_) return;
        if (iteration_ != 0) {
            refuse_table(ErrorCode::mismatch, *table_, "rank ", rank, " is at iteration ", iteration, ", another at ",
                         iteration_, ". Fix: load the states of one checkpoint.");
        }
        iteration_ = iteration;
    }
    [[nodiscard]] std::vector<MchBlock> const& blocks() const noexcept { return blocks_; }
    /// Where to receive a block that is not this rank's own.
    [[nodiscard]] std::byte* memory(MchBlock const& block) const noexcept { return arriving_ + block.begin; }

protected:
    /// \pre `table` outlives this.
    MchExpected(MchTable const& table, MchShard const& shard)
        : table_(&table), scored_(table), shard_(shard), widths_(widths_of(table)) {}

    [[nodiscard]] std::byte const* start_of(MchBlock const& block) const noexcept {
        return block.own != nullptr ? block.own : memory(block);
    }
    /// Where a column of a block lies.
    [[nodiscard]] std::byte const* column_of(MchBlock const& block, std::size_t c) const noexcept {
        return start_of(block) + packed_column_begin(block.entries, widths_, c);
    }

    MchTable const* table_;
    MchScored scored_;
    MchShard shard_;
    std::vector<Index> widths_;  ///< of ids, slots and metadata
    std::vector<MchBlock> blocks_;
    Index total_ = 0;  ///< bytes of the blocks that are not this rank's own
    Index iteration_ = 0;
    std::byte* arriving_ = nullptr;  ///< memory for these, once there is some
};

}  // namespace reshard::inline v0_1::detail
