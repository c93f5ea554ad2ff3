// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/incoming.hpp
/// \brief  Entries that arrive at a shard: merged, given slots, and written into its columns once all is well.
/// \depends mch/{state,partition,merge,slot_bitmap}.
#pragma once

#include <reshard/mch/merge.hpp>
#include <reshard/mch/partition.hpp>
#include <reshard/mch/slot_bitmap.hpp>
#include <reshard/mch/state.hpp>

#include <algorithm>  // sort, nth_element

namespace reshard::inline v0 {

namespace detail {

/// The columns of a shard as they travel: ids, slots, metadata in the table's order.
[[nodiscard]] inline std::vector<PartitionColumn> columns_of(MchTable const& table, MchShard const& shard) {
    std::vector<PartitionColumn> columns{{reinterpret_cast<std::byte const*>(shard.ids), 8},
                                         {reinterpret_cast<std::byte const*>(shard.slots), 8}};
    for (std::size_t c = 0; c < table.metadata.size(); ++c) {
        columns.push_back({shard.metadata[c], table.metadata[c].bytes});
    }
    return columns;
}

class MchIncoming {
public:
    /// \pre both outlive this.
    MchIncoming(MchTable const& table, MchShard const& shard) : table_(table), shard_(shard) {
        widths_ = {8, 8};
        for (MchColumn const& column : table.metadata) widths_.push_back(column.bytes);
    }

    /// In the order of ranks. Throws MismatchError for iterations that differ; a rank that starts anew has 0.
    void expect(int rank, Index entries, Index iteration) {
        Source source{rank, entries, total_, packed_block_bytes(entries, widths_)};
        if (source.bytes > INT64_MAX - total_) {
            refuse_table(ErrorCode::shape, table_, "more bytes arrive than 64 bits count. Fix: use more ranks.");
        }
        total_ += source.bytes;
        if (entries != 0) sources_.push_back(source);
        if (iteration == 0 || iteration == iteration_) return;
        if (iteration_ != 0) {
            refuse_table(ErrorCode::mismatch, table_,
                         concat("rank ", rank, " is at iteration ", iteration, ", another at ", iteration_,
                                ". Fix: load the states of one checkpoint."));
        }
        iteration_ = iteration;
    }
    void allocate() { memory_.resize(static_cast<std::size_t>(total_)); }
    [[nodiscard]] std::byte* block(int rank) noexcept { return memory_.data() + source_of(rank).begin; }
    [[nodiscard]] Index block_bytes(int rank) const noexcept { return source_of(rank).bytes; }

    /// Throws MismatchError for an id that arrives twice.
    void order() {
        for (Source const& source : sources_) {
            std::byte const* const base = memory_.data() + source.begin;
            auto const* const ids = reinterpret_cast<Index const*>(base);
            for_each_sorted_run({ids, static_cast<std::size_t>(source.entries)}, [&](Index begin, Index end) {
                runs_.push_back({ids + begin, end - begin});
                std::byte const* column = base;
                for (Index width : widths_) {
                    addresses_.push_back(column + begin * width);
                    column += packed_column_bytes(source.entries, width);
                }
            });
        }
        merge_.emplace_back(runs_);
        merge_memory_.resize(static_cast<std::size_t>(merge_[0].workspace_bytes()));
        merge_[0].order(merge_memory_);
        if (merge_[0].duplicates() == 0) return;
        std::string first;
        merge_[0].for_each_duplicate([&](Index, Index id, Index, Index) {
            if (first.empty()) first = concat(id);
        });
        refuse_table(ErrorCode::mismatch, table_,
                     concat(merge_[0].duplicates(), " ids arrive at slots ", shard_.range().begin, " to ",
                            shard_.range().end, " more than once, the first of them ", first,
                            ". Fix: the saved state is corrupt; validate() says where."));
    }

    /// Gives every entry a slot of the shard, but not the last one, which is the row of misses: its own where it can
    /// keep it, else the lowest free one. What finds no room is evicted, lowest score first. Throws MismatchError for a
    /// slot that two ids hold and, where slots stay, for one that is not of the shard.
    template <class Move>
    void assign(bool may_move, std::vector<Index>& evicted, std::vector<Move>& moves) {
        evict(evicted);
        Index const z = shard_.entries;
        Index const reserved = shard_.offset + z - 1;
        SlotBitmap taken(shard_.offset, z);
        bitmap_memory_.resize(static_cast<std::size_t>(taken.workspace_bytes()));
        taken.clear(bitmap_memory_);
        if (z > 0) static_cast<void>(taken.mark({&reserved, 1}));
        slots_.clear();
        slots_.reserve(static_cast<std::size_t>(merge_[0].kept()));
        std::vector<std::size_t> homeless;
        for_each_kept([&](Index, Index run, Index row) {
            Index const slot = slot_of(run, row);
            bool const here = taken.contains(slot);
            if (!here && !may_move) {
                refuse_table(ErrorCode::mismatch, table_,
                             concat("slot ", slot, " arrives at the owner of ", shard_.range().begin, " to ",
                                    shard_.range().end, ". Fix: the saved state is corrupt; validate() says where."));
            }
            if (here && slot != reserved) {
                if (taken.mark({&slot, 1}).duplicates != 0) {
                    refuse_table(ErrorCode::mismatch, table_,
                                 concat("two ids hold slot ", slot,
                                        ". Fix: the saved state is corrupt; validate() says where."));
                }
            } else {
                homeless.push_back(slots_.size());
            }
            slots_.push_back(slot);
        });
        free_.resize(static_cast<std::size_t>(taken.free()));
        taken.free_slots(free_);
        for (std::size_t i = 0; i < homeless.size(); ++i) {
            moves.push_back(Move{slots_[homeless[i]], free_[i]});
            slots_[homeless[i]] = free_[i];
        }
        free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(homeless.size()));
        if (z > 0) free_.push_back(reserved);  // the last, behind all others
    }

    /// Writes the shard. \pre all ranks have agreed.
    void commit() {
        Index const kept = merge_[0].kept();
        gather(0, reinterpret_cast<std::byte*>(shard_.ids));
        std::copy(slots_.begin(), slots_.end(), shard_.slots);
        for (std::size_t c = 0; c < table_.metadata.size(); ++c) {
            Index const width = table_.metadata[c].bytes;
            if (shard_.metadata[c] == nullptr) continue;
            gather(c + 2, shard_.metadata[c]);
            std::memset(shard_.metadata[c] + kept * width, table_.metadata[c].empty,
                        static_cast<std::size_t>((shard_.entries - kept) * width));
        }
        for (Index i = kept; i < shard_.entries; ++i) {
            shard_.ids[i] = empty_id(table_.layout);
            shard_.slots[i] = free_[static_cast<std::size_t>(i - kept)];
        }
        if (shard_.iteration != nullptr) *shard_.iteration = iteration_;
        if (shard_.segments == nullptr) return;
        std::vector<Index> const offsets = table_.offsets();
        for (Index i = 0; i < shard_.segment_count; ++i) {
            auto const at = static_cast<std::size_t>(i);
            shard_.segments[i] = at < offsets.size() ? offsets[at] : -1;
        }
    }
    [[nodiscard]] Index live() const noexcept { return merge_[0].kept(); }

private:
    struct Source {
        int rank = 0;
        Index entries = 0;
        Index begin = 0;  ///< of its block in memory
        Index bytes = 0;
    };
    struct Candidate {
        double score = 0;
        Index id = 0;
        Index position = 0;  ///< in the merged order
    };

    [[nodiscard]] Source source_of(int rank) const noexcept {
        for (Source const& source : sources_)
            if (source.rank == rank) return source;
        return {};
    }
    [[nodiscard]] Index slot_of(Index run, Index row) const noexcept { return number(run, 1, row); }
    /// An entry of a column of 8-byte integers.
    [[nodiscard]] Index number(Index run, std::size_t column, Index row) const noexcept {
        Index value = 0;
        std::memcpy(&value, addresses_[static_cast<std::size_t>(run) * widths_.size() + column] + row * 8, 8);
        return value;
    }
    template <class F>
    void for_each_kept(F&& f) const {
        auto const order = merge_[0].runs_in_order();
        merge_[0].for_each([&](Index position, Index run, Index row) {
            if (order[static_cast<std::size_t>(position)] < Merge::dropped_bit) f(position, run, row);
        });
    }
    void gather(std::size_t column, std::byte* to) const {
        std::vector<std::byte const*> of_runs;
        of_runs.reserve(runs_.size());
        for (std::size_t run = 0; run < runs_.size(); ++run)
            of_runs.push_back(addresses_[run * widths_.size() + column]);
        merge_[0].gather(widths_[column], of_runs, to);
    }

    /// Which goes first when a shard is full: TorchRec's scores, with its default decay exponent of 1.
    [[nodiscard]] double score(Index run, Index row) const {
        double counts = 0;
        double age = 1;
        for (std::size_t c = 0; c < table_.metadata.size(); ++c) {
            std::string_view const name = table_.metadata[c].name;
            if (name == mch_counts) counts = static_cast<double>(number(run, c + 2, row));
            if (name == mch_last_access) age = static_cast<double>(iteration_ - number(run, c + 2, row) + 1);
        }
        switch (table_.eviction) {
            case MchEviction::lfu: return counts;
            case MchEviction::lru: return -age;
            case MchEviction::distance_lfu: return counts / larger(age, 1.0);
            case MchEviction::none: break;
        }
        return 0;
    }
    void evict(std::vector<Index>& evicted) {
        Index const room = larger<Index>(shard_.entries - 1, 0);
        Index const surplus = merge_[0].entries() - room;
        if (surplus <= 0) return;
        std::vector<Candidate> candidates;
        candidates.reserve(static_cast<std::size_t>(merge_[0].entries()));
        merge_[0].for_each([&](Index position, Index run, Index row) {
            candidates.push_back({score(run, row), number(run, 0, row), position});
        });
        auto const worse = [](Candidate const& a, Candidate const& b) {
            return a.score != b.score ? a.score < b.score : a.id > b.id;
        };
        auto const end = candidates.begin() + static_cast<std::ptrdiff_t>(surplus);
        std::nth_element(candidates.begin(), end - 1, candidates.end(), worse);
        std::sort(candidates.begin(), end, worse);
        for (auto it = candidates.begin(); it != end; ++it) {
            merge_[0].drop(it->position);
            evicted.push_back(it->id);
        }
        merge_[0].settle();
    }

    MchTable const& table_;
    MchShard const& shard_;
    std::vector<Index> widths_;
    std::vector<Source> sources_;
    Index total_ = 0;
    Index iteration_ = 0;
    std::vector<std::byte> memory_;
    std::vector<SortedRun> runs_;
    std::vector<std::byte const*> addresses_;  ///< of each run, of each of its columns
    std::vector<Merge> merge_;                 ///< one, once there are runs
    std::vector<std::byte> merge_memory_;
    std::vector<std::byte> bitmap_memory_;
    std::vector<Index> slots_;  ///< of what is kept, by ascending id
    std::vector<Index> free_;   ///< the others, ascending, the last slot last
};

}  // namespace detail

}  // namespace reshard::inline v0
