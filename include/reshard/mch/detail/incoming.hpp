// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/incoming.hpp
/// \brief  Entries that arrive at a shard: put in order, given slots, written once all ranks have agreed.
/// \depends mch/{routing,transition}, mch/detail/{arrival,parts,succession}, memory/scratch.
#pragma once

#include <reshard/core/detail/access.hpp>
#include <reshard/mch/detail/arrival.hpp>
#include <reshard/mch/detail/succession.hpp>
#include <reshard/mch/routing.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // merge, nth_element, sort
#include <optional>   // optional

namespace reshard::inline v0_1::detail {

/// Where entries follow one another by id, they are written as they lie (MchSuccession). Whatever is out of the
/// ordinary is found out and settled here, entry by entry: what is left makes one block in the order of ids, a
/// succession of one.
class MchIncoming : public MchExpected {
public:
    /// \pre `table` outlives this. `threads` sort, merge and write.
    MchIncoming(MchTable const& table, MchShard const& shard, int threads)
        : MchExpected(table, shard), threads_(threads) {}

    /// What stays on this rank, in the shard's columns; null for none. It has to outlive this.
    void keep(int rank, MchOwnEntries* own) noexcept {
        own_rank_ = rank;
        own_ = own;
    }
    void allocate() {
        memory_ = Scratch(total_);
        arriving_ = memory_.data();
    }

    /// Works out the shard that the entries make, and lists in `change` what becomes of them. Throws MismatchError for
    /// counts below 0, accesses that are before iteration 0 or still to come, an id that arrives twice, a slot that two
    /// ids hold and, where slots stay, one that is not of the shard. Nothing of the caller's is written.
    void arrange(MchMode mode, MchChange& change) {
        bool const may_move = mode == MchMode::route;
        succession_.emplace(*table_, shard_, own_);
        for (MchBlock const& block : blocks_) succession_->add(start_of(block), block.entries);
        if (succession_->arrange(may_move, iteration_, change.moves)) return;

        list_sources();
        std::vector<Entry> entries = arrived();
        check_numbers(entries, change.unpinned);
        put_in_order(entries);
        refuse_repeats(entries);
        bool const evicts = as_index(entries.size()) >= shard_.entries;
        if (evicts && !may_move) check_slots();  // what is evicted would not be looked at
        evict(entries, change.evicted);
        pack(entries);
        auto const kept = as_index(entries.size());
        succession_.emplace(*table_, shard_, nullptr);
        succession_->add(packed_.data(), kept);
        if (kept == 0 && shard_.entries == 0) return;
        if (succession_->arrange(may_move, iteration_, change.moves)) return;
        MchTakenSlots(shard_.range())
            .refuse_kept_twice(*table_, packed_.words().subspan(entries.size(), entries.size()));
        check_slots();  // throws: one is not of the shard
    }

    /// Lists, behind arrange(), the move of the row of misses, and slots whose rows have to begin anew. `live`: ids
    /// that were saved in this part, if it was.
    void list_rows(MchTable const& saved, Index part, Index live, MchChange& change) const {
        if (auto const miss = miss_move(saved, *table_, part)) change.moves.push_back(*miss);
        if (shard_.entries == 0) return;
        MchGivenSlots const& given = succession_->given();
        if (!has_freed(saved, *table_, part, live, given.from_shard())) return;
        auto const free = given.free();
        change.freed.reserve(free.size());
        prefer_large_pages(change.freed.data(), free.size_bytes());
        change.freed.insert(change.freed.end(), free.begin(), free.end());
    }

    /// Writes the shard. \pre all ranks have agreed.
    void commit() {
        succession_->commit(threads_);
        shard_.write_constants(*table_, iteration_);
    }
    [[nodiscard]] Index live() const noexcept { return succession_->kept(); }
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
    /// Where entries of one rank lie: the first of each column.
    struct Source {
        int rank;
        Index entries;
        std::vector<std::byte const*> columns;
        bool own;  ///< in the shard, among those that leave
    };
    struct Entry {
        Index id;
        std::uint64_t place;  ///< the source, and in the lower 48 bits the row there

        [[nodiscard]] std::size_t source() const noexcept { return place >> 48U; }
        [[nodiscard]] Index row() const noexcept { return as_index(place & ((std::uint64_t{1} << 48U) - 1)); }
    };
    static constexpr std::uint64_t gone = ~std::uint64_t{0};  ///< the place of what is evicted

    /// In the order of ranks.
    void list_sources() {
        for (MchBlock const& block : blocks_) {
            Source source{block.rank, block.entries, {}, false};
            for (std::size_t c = 0; c < widths_.size(); ++c) source.columns.push_back(column_of(block, c));
            sources_.push_back(std::move(source));
        }
        if (own_ == nullptr) return;
        Source mine{own_rank_, shard_.entries, {}, true};
        for (std::size_t c = 0; c < widths_.size(); ++c) mine.columns.push_back(shard_.column(c));
        auto const behind =
            std::ranges::find_if(sources_, [this](auto const& source) { return source.rank > own_rank_; });
        sources_.insert(behind, std::move(mine));
    }
    /// All entries, one source after the other.
    [[nodiscard]] std::vector<Entry> arrived() const {
        std::size_t count = own_ != nullptr ? as_size(own_->count) : 0;
        for (MchBlock const& block : blocks_) count += as_size(block.entries);
        std::vector<Entry> list;
        list.reserve(count);
        for (std::size_t s = 0; s < sources_.size(); ++s) {
            auto const* const ids = reinterpret_cast<Index const*>(sources_[s].columns[0]);
            for (Index row = 0; row < sources_[s].entries; ++row) {
                if (sources_[s].own && own_->stays(row) == 0) continue;
                list.push_back({ids[row], std::uint64_t{s} << 48U | static_cast<std::uint64_t>(row)});
            }
        }
        return list;
    }
    [[nodiscard]] std::byte const* element(Entry const& one, std::size_t column) const noexcept {
        return sources_[one.source()].columns[column] + one.row() * widths_[column];
    }
    /// An entry of a column of 8-byte integers.
    [[nodiscard]] Index number(Entry const& one, int column) const noexcept {
        return load_as<Index>(element(one, as_size(column)));
    }

    [[noreturn]] void refuse(Entry const& one, std::string_view what, int column) const {
        refuse_table(ErrorCode::mismatch, *table_, "id ", one.id, " from rank ", sources_[one.source()].rank, " ", what,
                     " ", number(one, column), ", at iteration ", iteration_,
                     ". Fix: load all columns and the iteration of one checkpoint, or take both there from the old "
                     "ranks (docs/mch.md, \"Without a file\"); validate() says where.");
    }
    /// A shard that was full once left its last id the count of the row for misses, which none surpasses: it gets the
    /// largest other one. Counts in `unpinned` how many there are.
    void check_numbers(std::span<Entry const> entries, Index& unpinned) {
        for (Entry const& one : entries) {
            Index const access = scored_.access < 0 ? 0 : number(one, scored_.access);
            Index const count = scored_.counts < 0 ? 0 : number(one, scored_.counts);
            if (access < 0 || access > iteration_) refuse(one, "was last accessed at", scored_.access);
            if (count < 0) refuse(one, "has count", scored_.counts);
            if (count == INT64_MAX) ++unpinned;
            if (count != INT64_MAX) largest_count_ = larger(largest_count_, count);
        }
    }
    [[nodiscard]] Index unpinned(Index count) const noexcept { return count == INT64_MAX ? largest_count_ : count; }

    /// By id. What lies in order already makes runs, and neighbouring runs become one until there is only one.
    void put_in_order(std::vector<Entry>& entries) const {
        auto const by_id = [](Entry const& a, Entry const& b) { return a.id < b.id; };
        std::vector<std::ptrdiff_t> begins;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (i == 0 || by_id(entries[i], entries[i - 1])) begins.push_back(static_cast<std::ptrdiff_t>(i));
        }
        begins.push_back(static_cast<std::ptrdiff_t>(entries.size()));
        if (begins.size() <= 2) return;
        std::vector<Entry> merged(entries.size());  // not inplace_merge: clang warns of what libstdc++ does in it
        while (begins.size() > 2) {
            if (begins.size() % 2 == 0) begins.push_back(begins.back());  // one run more, of nothing
            run_parts(threads_, static_cast<int>(begins.size() / 2), [&](int pair) {
                auto const* const at = begins.data() + std::ptrdiff_t{2} * pair;
                auto const from = entries.begin();
                std::merge(from + at[0], from + at[1], from + at[1], from + at[2], merged.begin() + at[0], by_id);
            });
            std::size_t runs = 0;
            for (std::size_t run = 0; run < begins.size(); run += 2) begins[runs++] = begins[run];
            begins.resize(runs);
            entries.swap(merged);
        }
    }
    void refuse_repeats(std::span<Entry const> entries) const {
        Index repeats = 0;
        Index first = 0;
        for (std::size_t i = 1; i < entries.size(); ++i) {
            if (entries[i].id != entries[i - 1].id) continue;
            if (repeats++ == 0) first = entries[i].id;
        }
        if (repeats == 0) return;
        refuse_table(ErrorCode::mismatch, *table_, repeats, " ids arrive at slots ", shard_.offset, " to ",
                     shard_.range().end, " more than once, the first of them ", first,
                     ". Fix: the saved state is corrupt; validate() says where.");
    }
    /// Where slots stay: all arrive at their owner, none twice.
    void check_slots() const {
        MchTakenSlots taken(shard_.range());
        for (Entry const& one : arrived()) taken.take_or_refuse(*table_, number(one, 1));
    }

    /// Which goes first when a shard is full: the lowest score and, among equals, the largest id. Ids ascend.
    struct Candidate {
        double score;
        std::size_t place;
        [[nodiscard]] friend bool operator<(Candidate const& a, Candidate const& b) noexcept {
            return a.score != b.score ? a.score < b.score : a.place > b.place;
        }
    };
    [[nodiscard]] double score(Entry const& one) const noexcept {
        double const count = scored_.counts >= 0 ? static_cast<double>(unpinned(number(one, scored_.counts))) : 0;
        double const age = scored_.access >= 0 ? static_cast<double>(iteration_ - number(one, scored_.access)) + 1 : 1;
        return mch_score(table_->eviction, table_->decay_exponent, count, age);
    }
    /// What does not fit goes.
    void evict(std::vector<Entry>& entries, std::vector<Index>& evicted) const {
        Index const room = larger<Index>(shard_.entries - 1, 0);
        Index const surplus = as_index(entries.size()) - room;
        if (surplus <= 0) return;
        std::vector<Candidate> list;
        list.reserve(entries.size());
        for (std::size_t i = 0; i < entries.size(); ++i) list.push_back({score(entries[i]), i});
        auto const last = list.begin() + (surplus - 1);
        std::nth_element(list.begin(), last, list.end());
        std::sort(list.begin(), last);
        evicted.reserve(as_size(surplus));
        for (auto one = list.begin(); one <= last; ++one) {
            evicted.push_back(entries[one->place].id);
            entries[one->place].place = gone;
        }
        std::erase_if(entries, [](Entry const& one) { return one.place == gone; });
    }
    /// Makes one block of them, which the shard can be written from.
    void pack(std::span<Entry const> entries) {
        auto const count = as_index(entries.size());
        packed_ = Scratch(packed_block_bytes(count, widths_));
        run_parts(threads_, static_cast<int>(widths_.size()), [&, this](int column) {
            auto const c = as_size(column);
            std::byte* to = packed_.data() + packed_column_begin(count, widths_, c);
            Index const width = widths_[c];
            for (Entry const& one : entries) {
                std::byte const* const from = element(one, c);
                if (column == scored_.counts) {
                    store_as(to, unpinned(load_as<Index>(from)));
                } else if (width == 8) {
                    store_as(to, load_as<Index>(from));
                } else {
                    std::memcpy(to, from, as_size(width));
                }
                to += width;
            }
        });
    }

    int threads_;
    Scratch memory_;
    int own_rank_ = 0;
    MchOwnEntries* own_ = nullptr;
    std::optional<MchSuccession> succession_;
    std::vector<Source> sources_;  ///< once entries are found not to follow one another, as the next
    Index largest_count_ = 0;      ///< that stands for INT64_MAX
    Scratch packed_;
};

}  // namespace reshard::inline v0_1::detail
