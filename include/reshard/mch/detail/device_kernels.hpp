// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/device_kernels.hpp
/// \brief  The kernel bodies that carry a shard to other ranks: where entries go, what came, scores.
/// \depends mch/detail/{leaving_rule,score}, cuda/{columns,rules,work}. Compiles without CUDA.
///
/// They are the loops of mch/detail/{outgoing,incoming}.hpp, an entry a thread. Faults are counted, and the entry that
/// the host's loops would name first is kept, so that the host can say the same of it.
#pragma once

#include <reshard/cuda/columns.hpp>
#include <reshard/cuda/rules.hpp>
#include <reshard/cuda/work.hpp>
#include <reshard/mch/detail/leaving_rule.hpp>
#include <reshard/mch/detail/score.hpp>

namespace reshard::inline v0_1::detail {

// ---- What leaves -------------------------------------------------------------------------------------------------

static_assert(MchLeavingRule::empty_place == not_sent && MchLeavingRule::misplaced == out_of_range);

struct MchIsLive {
    Index const* ids;
    Index empty;
    [[nodiscard]] RESHARD_HOST_DEVICE bool operator()(Index i) const noexcept { return ids[i] != empty; }
};
/// Whether an id is looked up elsewhere than where it lies.
struct MchIsStray {
    Index const* ids;
    Index empty;
    Router router;
    Index part;
    Index offset;  ///< the slot of entry 0, where slots bind
    [[nodiscard]] RESHARD_HOST_DEVICE bool operator()(Index i) const noexcept {
        return ids[i] != empty && !router.finds(ids[i], offset + i, part);
    }
};

// ---- What came ---------------------------------------------------------------------------------------------------

/// Packed blocks (mch/packed.hpp) in the order of ranks. Entries are counted through: their arrivals.
struct MchReceived {
    Index const* begins = nullptr;     ///< [blocks + 1]: arrivals before each
    Index const* addresses = nullptr;  ///< [blocks][columns]: of a column, had its block begun with arrival 0
    int blocks = 0;
    int columns = 0;
    Index entries = 0;

    [[nodiscard]] RESHARD_HOST_DEVICE int block_of(Index arrival) const noexcept {
        return part_at(begins, blocks, arrival);
    }
    /// The same without a search, where it is that of an arrival shortly before.
    [[nodiscard]] RESHARD_HOST_DEVICE int block_of(Index arrival, int before) const noexcept {
        return arrival < begins[before + 1] ? before : block_of(arrival);
    }
    [[nodiscard]] RESHARD_HOST_DEVICE std::byte const* element(int block, int c, Index width,
                                                               Index arrival) const noexcept {
        Index const at = addresses[block * columns + c] + arrival * width;
        return reinterpret_cast<std::byte const*>(at);  // NOLINT(performance-no-int-to-ptr)
    }
    /// Of a column of 64-bit integers.
    [[nodiscard]] RESHARD_HOST_DEVICE Index word(int block, int c, Index arrival) const noexcept {
        return load_as<Index>(element(block, c, 8, arrival));
    }
    [[nodiscard]] RESHARD_HOST_DEVICE Index word(int c, Index arrival) const noexcept {
        return word(block_of(arrival), c, arrival);
    }
};

/// What is found out about them; the host sees it after each step.
struct MchFindings {
    unsigned long long descents = 0;       ///< entries whose id is below that of the one before, in their block
    unsigned long long largest_count = 0;  ///< below INT64_MAX
    unsigned long long pinned = 0;         ///< counts of INT64_MAX
    unsigned long long on_reserved = 0;    ///< entries on the row of misses
    unsigned long long faults = 0;  ///< accesses and counts that cannot be, repeated ids, slots that are not free
};

/// What a thread has seen.
struct MchInspectState {
    Index largest_count;
    Index pinned;
};
inline constexpr Index mch_inspect_items = 4;

/// Ids for the merge; where runs begin; which numbers cannot be.
struct MchInspect {
    MchReceived received;
    int counts = -1;  ///< columns, -1 for none
    int access = -1;
    Index iteration = 0;
    Index* ids = nullptr;
    std::uint32_t* descents = nullptr;  ///< where ids descend, in any order
    MchFindings* found = nullptr;

    [[nodiscard]] Index tiles() const noexcept { return ceil_div(received.entries, mch_inspect_items * block_threads); }
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, NoShared&, Index tile) const {
        block.each([&](int thread, auto& state) {
            state = {0, 0};
            Entry list[mch_inspect_items];
            Index const first = tile * mch_inspect_items * block_threads + thread;
            int source = received.block_of(smaller(first, received.entries - 1));
            RESHARD_UNROLL
            for (int i = 0; i < mch_inspect_items; ++i) {  // all loads before the first use
                Index const arrival = first + Index{i} * block_threads;
                if (arrival >= received.entries) continue;
                source = received.block_of(arrival, source);
                list[i] = load(source, arrival);
            }
            RESHARD_UNROLL
            for (int i = 0; i < mch_inspect_items; ++i) {
                Index const arrival = first + Index{i} * block_threads;
                if (arrival < received.entries) look(block, arrival, list[i], state);
            }
        });
        if (counts < 0) return;
        block.fold([](auto const& state) { return state.largest_count; }, [](Index a, Index b) { return larger(a, b); },
                   [&](Index all) {
                       if (all != 0) block.higher(&found->largest_count, bits(all));
                   });
        block.fold([](auto const& state) { return state.pinned; }, [](Index a, Index b) { return a + b; },
                   [&](Index all) {
                       if (all != 0) block.add(&found->pinned, bits(all));
                   });
    }

private:
    [[nodiscard]] RESHARD_HOST_DEVICE static constexpr unsigned long long bits(Index value) noexcept {
        return static_cast<unsigned long long>(value);
    }
    struct Entry {
        Index id;
        Index before;  ///< the id of the one before it in its block
        Index last_access;
        Index count;
    };
    [[nodiscard]] RESHARD_HOST_DEVICE Entry load(int source, Index arrival) const {
        return {received.word(source, 0, arrival),
                received.word(source, 0, larger(arrival - 1, received.begins[source])),
                access < 0 ? 0 : received.word(source, access, arrival),
                counts < 0 ? 0 : received.word(source, counts, arrival)};
    }
    /// What cannot be ends the call: each entry of that kind is told by itself.
    template <class Block, class State>
    RESHARD_HOST_DEVICE void look(Block& block, Index arrival, Entry const& entry, State& mine) const {
        ids[arrival] = entry.id;
        if (entry.id < entry.before) {
            descents[block.add(&found->descents, 1ULL)] = static_cast<std::uint32_t>(arrival);
        }
        bool const fits = static_cast<std::uint64_t>(entry.last_access) <= static_cast<std::uint64_t>(iteration);
        if ((access >= 0 && !fits) || entry.count < 0) block.add(&found->faults, 1ULL);
        if (entry.count == INT64_MAX) ++mine.pinned;
        if (entry.count != INT64_MAX) mine.largest_count = larger(mine.largest_count, entry.count);
    }
};

/// Arrivals, where one run is in order as it is.
struct MchListArrivals {
    std::uint32_t* list;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index i) const {
        list[i] = static_cast<std::uint32_t>(i);
    }
};

/// Counts sorted ids that repeat.
struct MchFindRepeats {
    Index const* sorted;
    MchFindings* found;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, Index place) const {
        if (place == 0 || sorted[place] != sorted[place - 1]) return;
        block.add(&found->faults, 1ULL);
    }
};

// ---- Which ids go when there are too many ------------------------------------------------------------------------

/// A number that is in the order of doubles that are no NaN, -0 before 0.
[[nodiscard]] RESHARD_HOST_DEVICE inline Index ordered_bits(double value) noexcept {
    Index bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits >= 0 ? bits : bits ^ INT64_MAX;
}

/// Scores. The list is by descending id: of what scores alike, a
/// stable sort puts the largest ids first.
struct MchScores {
    MchReceived received;
    std::uint32_t const* order = nullptr;
    MchEviction eviction = MchEviction::none;
    double decay_exponent = 1;
    int counts = -1;
    int access = -1;
    Index iteration = 0;
    Index largest_count = 0;  ///< that stands for INT64_MAX
    Index* scores = nullptr;
    std::uint32_t* places = nullptr;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index i) const {
        Index const place = received.entries - 1 - i;
        Index const arrival = as_index(order[place]);
        double count = 0;
        double age = 1;
        if (counts >= 0) {
            Index const number = received.word(counts, arrival);
            count = static_cast<double>(number == INT64_MAX ? largest_count : number);
        }
        if (access >= 0) age = static_cast<double>(iteration - received.word(access, arrival)) + 1;
        scores[i] = ordered_bits(mch_score(eviction, decay_exponent, count, age));
        places[i] = static_cast<std::uint32_t>(place);
    }
};
/// The lowest scores, in their order, into the list of evicted ids.
struct MchEvict {
    std::uint32_t const* places;
    Index const* sorted;
    Index* evicted;
    std::uint32_t* gone;  ///< 1 for each place that does not stay
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index i) const {
        std::uint32_t const place = places[i];
        evicted[i] = sorted[place];
        gone[place] = 1;
    }
};
struct MchCompact {
    std::uint32_t const* gone;
    Index const* gone_before;
    Index const* ids;
    std::uint32_t const* order;
    Index* kept_ids;
    std::uint32_t* kept_order;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index place) const {
        if (gone[place] != 0) return;
        Index const to = place - gone_before[place];
        kept_ids[to] = ids[place];
        kept_order[to] = order[place];
    }
};

}  // namespace reshard::inline v0_1::detail
