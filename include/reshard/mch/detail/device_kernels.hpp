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

namespace reshard::inline v0::detail {

// ---- What leaves -------------------------------------------------------------------------------------------------

static_assert(MchLeavingRule::empty_place == not_sent && MchLeavingRule::misplaced == out_of_range);

struct MchIsLive {
    Index const* ids;
    Index empty;
    [[nodiscard]] RESHARD_HOST_DEVICE bool operator()(Index i) const noexcept { return ids[i] != empty; }
};
/// Whether an id is looked up elsewhere.
struct MchIsStray {
    Index const* ids;
    Index empty;
    Router router;
    Index part;
    [[nodiscard]] RESHARD_HOST_DEVICE bool operator()(Index i) const noexcept {
        return ids[i] != empty && router.part_of_id(ids[i]) != part;
    }
};
struct MchIsFilled {
    Index const* ids;
    Index const* slots;
    [[nodiscard]] RESHARD_HOST_DEVICE bool operator()(Index i) const noexcept { return (ids[i] | slots[i]) != 0; }
};

// ---- What came ---------------------------------------------------------------------------------------------------

/// A packed block of entries (mch/packed.hpp).
struct MchSource {
    std::byte const* block = nullptr;
    Index begin = 0;  ///< entries before it
    Index entries = 0;
};

/// All blocks, in the order of ranks. Entries are counted through: their arrivals.
struct MchReceived {
    MchSource const* sources = nullptr;
    int count = 0;
    Index entries = 0;
    InlineList<Index, max_device_columns> widths;

    [[nodiscard]] RESHARD_HOST_DEVICE MchSource const& source_of(Index arrival) const noexcept {
        int low = 0;
        int high = count;  // begin of low <= arrival < begin of high
        while (high - low > 1) {
            int const middle = low + (high - low) / 2;
            (sources[middle].begin <= arrival ? low : high) = middle;
        }
        return sources[low];
    }
    [[nodiscard]] RESHARD_HOST_DEVICE std::byte const* element(MchSource const& source, int c,
                                                               Index arrival) const noexcept {
        std::byte const* at = source.block;
        for (int before = 0; before < c; ++before) at += device_column_bytes(source.entries, widths[before]);
        return at + (arrival - source.begin) * widths[c];
    }
    [[nodiscard]] RESHARD_HOST_DEVICE std::byte const* element(int c, Index arrival) const noexcept {
        return element(source_of(arrival), c, arrival);
    }
    [[nodiscard]] RESHARD_HOST_DEVICE Index word(int c, Index arrival) const noexcept {
        return load_as<Index>(element(c, arrival));
    }
};

/// What is found out about them; the host sees it after each step.
struct MchFindings {
    unsigned long long descents = 0;       ///< entries whose id is below that of the one before, in their block
    unsigned long long late = ~0ULL;       ///< the first arrival with an access that cannot be
    unsigned long long negative = ~0ULL;   ///< the first arrival with a count below 0
    unsigned long long largest_count = 0;  ///< below INT64_MAX
    unsigned long long pinned = 0;         ///< counts of INT64_MAX
    unsigned long long repeats = 0;        ///< ids, sorted, that are equal to the one before
    unsigned long long first_repeat = ~0ULL;
    unsigned long long faulty_slots = 0;  ///< of another shard, or taken
    unsigned long long on_reserved = 0;   ///< entries on the row of misses
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
            for (Index i = 0; i < mch_inspect_items; ++i) {
                Index const arrival = (tile * mch_inspect_items + i) * block_threads + thread;
                if (arrival < received.entries) look(block, arrival, state);
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
    /// What cannot be ends the call: each entry of that kind is told by itself.
    template <class Block, class State>
    RESHARD_HOST_DEVICE void look(Block& block, Index arrival, State& mine) const {
        MchSource const& source = received.source_of(arrival);
        Index const id = load_as<Index>(received.element(source, 0, arrival));
        ids[arrival] = id;
        if (arrival != source.begin && id < load_as<Index>(received.element(source, 0, arrival - 1))) {
            descents[block.fetch_add(&found->descents, 1ULL)] = static_cast<std::uint32_t>(arrival);
        }
        if (access >= 0) {
            Index const last = load_as<Index>(received.element(source, access, arrival));
            bool const fits = static_cast<std::uint64_t>(last) <= static_cast<std::uint64_t>(iteration);
            if (!fits) block.lower(&found->late, bits(arrival));
        }
        if (counts >= 0) {
            Index const count = load_as<Index>(received.element(source, counts, arrival));
            if (count < 0) block.lower(&found->negative, bits(arrival));
            if (count == INT64_MAX) ++mine.pinned;
            if (count != INT64_MAX) mine.largest_count = larger(mine.largest_count, count);
        }
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
        block.add(&found->repeats, 1ULL);
        block.lower(&found->first_repeat, static_cast<unsigned long long>(place));
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
        Index const arrival = static_cast<Index>(order[place]);
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

}  // namespace reshard::inline v0::detail
