// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/incoming.hpp
/// \brief  Entries that arrive at a shard: merged, given slots, and written into its columns once all is well.
/// \depends mch/{merge,routing}, mch/detail/{arrival,succession}, memory/scratch.
#pragma once

#include <reshard/core/detail/access.hpp>
#include <reshard/mch/detail/arrival.hpp>
#include <reshard/mch/detail/succession.hpp>
#include <reshard/mch/merge.hpp>
#include <reshard/mch/routing.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // fill, find_if, replace, sort, nth_element
#include <optional>   // optional

namespace reshard::inline v0 {

namespace detail {

class MchIncoming : public MchExpected {
public:
    /// \pre `table` outlives this. `parts` as Merge's.
    MchIncoming(MchTable const& table, MchShard const& shard, int parts)
        : MchExpected(table, shard), parts_(parts), columns_(widths_.size()) {}

    /// What stays on this rank, in the shard's columns; null for none. It is changed, and has to outlive this.
    void keep(int rank, MchOwnEntries* own) noexcept {
        own_rank_ = rank;
        own_ = own;
    }
    void allocate() { memory_ = Scratch(total_); }
    /// Where to receive a block that is not this rank's own.
    [[nodiscard]] std::byte* memory(MchBlock const& block) noexcept { return memory_.data() + block.begin; }

    /// Works out the shard that the entries make, and lists in `change` what becomes of them. Throws MismatchError for
    /// counts below 0, accesses that are before iteration 0 or still to come, an id that arrives twice, a slot that two
    /// ids hold and, where slots stay, one that is not of the shard. Nothing of the caller's is written. `pack_own()`
    /// is called where entries that stay have to be merged with others, and returns a block of them.
    void arrange(MchMode mode, MchChange& change, TeamRef team, FunctionRef<Scratch()> pack_own) {
        succession_.emplace(*table_, shard_, own_);
        for (MchBlock const& block : blocks_) succession_->add(entries_of(block), block.entries);
        if (succession_->arrange(mode == MchMode::route, iteration_, change.moves)) return;
        succession_.reset();
        if (own_ != nullptr && own_->count != 0) {
            own_memory_ = pack_own();
            auto const behind = std::find_if(blocks_.begin(), blocks_.end(),
                                             [this](MchBlock const& block) { return block.rank > own_rank_; });
            blocks_.insert(behind, {own_rank_, own_->count, own_memory_.size(), 0, own_memory_.data()});
        }
        check_accesses();
        change.unpinned = check_and_unpin();
        order(team);
        assign(mode == MchMode::route, change.evicted, change.moves, team);
    }

    /// Writes the shard. \pre all ranks have agreed.
    void commit(TeamRef team) {
        if (succession_) {
            succession_->commit(parts_, team);
        } else {
            write_merged(team);
        }
        if (shard_.iteration != nullptr) *shard_.iteration = iteration_;
        for (Index i = 0; i < shard_.segment_count; ++i) shard_.segments[i] = table_->segment(i);
    }
    [[nodiscard]] Index live() const noexcept { return succession_ ? succession_->kept() : merge_->kept(); }
    /// Ids of the shard, once it is written, that another part than this looks up. They are in order: of most blocks
    /// the ends say where all are looked up.
    [[nodiscard]] Index strays(Router const& router, Index part) const noexcept {
        constexpr Index block = 64;
        Index count = 0;
        for (Index begin = 0; begin < live(); begin += block) {
            Index const end = smaller(begin + block, live());
            std::int32_t const same = router.part_of_ids(shard_.ids[begin], shard_.ids[end - 1]);
            for (Index i = begin; same < 0 && i < end; ++i) count += router.part_of_id(shard_.ids[i]) != part ? 1 : 0;
            if (same >= 0 && same != part) count += end - begin;
        }
        return count;
    }

private:
    void write_merged(TeamRef team) {
        Index const kept = merge_->kept();
        gather(0, reinterpret_cast<std::byte*>(shard_.ids), team);
        std::copy(slots_.begin(), slots_.end(), shard_.slots);
        for (std::size_t c = 0; c < table_->metadata.size(); ++c) {
            Index const width = table_->metadata[c].bytes;
            if (shard_.metadata[c] == nullptr) continue;
            gather(c + 2, shard_.metadata[c], team);
            std::memset(shard_.metadata[c] + kept * width, table_->metadata[c].empty,
                        static_cast<std::size_t>((shard_.entries - kept) * width));
        }
        std::fill(shard_.ids + kept, shard_.ids + shard_.entries, empty_id(table_->layout));
        if (given_) given_->write(shard_.slots);
    }

    void check_accesses() const {
        for_each_column(scored_.access, [&](MchBlock const& block, Index const* access) {
            for (Index i = 0; i < block.entries; ++i) {
                if (access[i] < 0 || access[i] > iteration_) refuse_entry(block, i, "was last accessed at", access[i]);
            }
        });
    }
    /// A shard that was full once left its last id the count of the row for misses, which none surpasses: it gets the
    /// largest other one. Returns how many there are.
    [[nodiscard]] Index check_and_unpin() {
        Index largest = 0;
        Index pinned = 0;
        for_each_column(scored_.counts, [&](MchBlock const& block, Index const* counts) {
            for (Index i = 0; i < block.entries; ++i) {
                if (counts[i] < 0) refuse_entry(block, i, "has count", counts[i]);
                bool const is_pinned = counts[i] == INT64_MAX;
                pinned += is_pinned ? 1 : 0;
                largest = larger(largest, is_pinned ? 0 : counts[i]);
            }
        });
        if (pinned == 0) return 0;
        for_each_column(scored_.counts, [&](MchBlock const& block, Index* counts) {
            std::replace(counts, counts + block.entries, Index{INT64_MAX}, largest);
        });
        return pinned;
    }

    void order(TeamRef team) {
        for (MchBlock const& block : blocks_) {
            std::byte const* const base = entries_of(block);
            auto const* const ids = reinterpret_cast<Index const*>(base);
            for_each_sorted_run({ids, static_cast<std::size_t>(block.entries)}, [&](Index begin, Index end) {
                runs_.push_back({ids + begin, end - begin});
                for (std::size_t c = 0; c < widths_.size(); ++c) {
                    columns_[c].push_back(base + packed_column_begin(block.entries, widths_, c) + begin * widths_[c]);
                }
            });
        }
        merge_.emplace(runs_, parts_);
        merge_memory_ = Scratch(merge_->workspace_bytes());
        merge_->order(merge_memory_.bytes(), team);
        if (merge_->duplicates() == 0) return;
        Index first = 0;
        Index found = 0;
        merge_->for_each_duplicate([&](Index, Index id, Index, Index) {
            if (found++ == 0) first = id;
        });
        refuse_repeated_ids(*table_, merge_->duplicates(), shard_.range(), first);
    }

    /// Gives every entry a slot. What finds no room is evicted, lowest score first.
    void assign(bool may_move, std::vector<Index>& evicted, std::vector<MchRowMove>& moves, TeamRef team) {
        if (!may_move && merge_->entries() >= shard_.entries) check_slots();  // what is evicted would not be looked at
        evict(evicted, team);
        slots_memory_ = Scratch(merge_->kept() * 8);
        slots_ = slots_memory_.words();
        gather(1, slots_memory_.data(), team);
        if (shard_.entries == 0) return;
        given_.emplace(shard_.range(), merge_->kept());
        given_->look(slots_.data(), merge_->kept());
        if (given_->give(may_move, moves)) return;
        MchTakenSlots(shard_.range()).refuse_kept_twice(*table_, slots_);
        check_slots();  // throws: one is not of the shard
    }

    /// An entry of a column of 8-byte integers.
    [[nodiscard]] Index number(Index run, int column, Index row) const noexcept {
        return load_as<Index>(columns_[static_cast<std::size_t>(column)][static_cast<std::size_t>(run)] + row * 8);
    }
    void gather(std::size_t column, std::byte* to, TeamRef team) const {
        merge_->gather(widths_[column], columns_[column], to, team);
    }
    [[nodiscard]] std::byte* entries_of(MchBlock const& block) const noexcept {
        return block.own != nullptr ? block.own : memory_.data() + block.begin;
    }
    /// Calls f(block, entries) for a column of 8-byte integers, if the table has it.
    template <class F>
    void for_each_column(int column, F&& f) const {
        if (column < 0) return;
        for (MchBlock const& block : blocks_) {
            Index const begin = packed_column_begin(block.entries, widths_, static_cast<std::size_t>(column));
            f(block, reinterpret_cast<Index*>(entries_of(block) + begin));
        }
    }
    [[noreturn]] void refuse_entry(MchBlock const& block, Index entry, std::string_view what, Index value) const {
        refuse_received_entry(*table_, reinterpret_cast<Index const*>(entries_of(block))[entry], block.rank, what,
                              value, iteration_);
    }

    /// Where slots stay: all arrive at their owner, none twice.
    void check_slots() const {
        MchTakenSlots taken(shard_.range());
        for (MchBlock const& block : blocks_) {
            auto const* const slots = reinterpret_cast<Index const*>(entries_of(block)) + block.entries;
            for (Index i = 0; i < block.entries; ++i) taken.take_or_refuse(*table_, slots[i]);
        }
    }

    /// Which goes first when a shard is full: the lowest score and, among equals, the largest id. Ids ascend.
    struct Candidate {
        double score;
        Index position;
        [[nodiscard]] friend bool operator<(Candidate const& a, Candidate const& b) noexcept {
            return a.score != b.score ? a.score < b.score : a.position > b.position;
        }
    };
    [[nodiscard]] double score(Index run, Index row) const noexcept {
        bool const counts = scored_.counts >= 0;
        bool const access = scored_.access >= 0;
        double const count = counts ? static_cast<double>(number(run, scored_.counts, row)) : 0;
        double const age = access ? static_cast<double>(iteration_ - number(run, scored_.access, row)) + 1 : 1;
        return mch_score(table_->eviction, table_->decay_exponent, count, age);
    }
    /// What does not fit goes.
    void evict(std::vector<Index>& evicted, TeamRef team) {
        Index const room = larger<Index>(shard_.entries - 1, 0);
        Index const surplus = merge_->entries() - room;
        if (surplus <= 0) return;
        Scratch const ids(merge_->entries() * 8);
        gather(0, ids.data(), team);
        std::vector<Candidate> list;
        list.reserve(static_cast<std::size_t>(merge_->entries()));
        merge_->for_each([&](Index position, Index run, Index row) { list.push_back({score(run, row), position}); });
        auto const last = list.begin() + static_cast<std::ptrdiff_t>(surplus - 1);
        std::nth_element(list.begin(), last, list.end());
        std::sort(list.begin(), last);
        evicted.reserve(static_cast<std::size_t>(surplus));
        for (auto one = list.begin(); one <= last; ++one) {
            evicted.push_back(ids.words()[static_cast<std::size_t>(one->position)]);
            merge_->drop(one->position);
        }
        merge_->settle();
    }

    int parts_;
    Scratch memory_;
    int own_rank_ = 0;
    MchOwnEntries* own_ = nullptr;
    std::optional<MchSuccession> succession_;  ///< once entries are found to follow one another
    Scratch own_memory_;                       ///< once they are not
    std::vector<SortedRun> runs_;
    std::vector<std::vector<std::byte const*>> columns_;  ///< of each, where each run begins
    std::optional<Merge> merge_;                          ///< once there are runs
    Scratch merge_memory_;
    Scratch slots_memory_;
    std::span<Index> slots_;              ///< that what is kept has had, by ascending id
    std::optional<MchGivenSlots> given_;  ///< to it
};

}  // namespace detail

}  // namespace reshard::inline v0
