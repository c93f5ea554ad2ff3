// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/rank_load.hpp
/// \brief  What one rank's part of a plan loads on each tier of a topology, and about how long that takes.
/// \depends plan, explain, fold_chunks, relay, topology; <vector>. Not part of the umbrella.
///
/// The model is Hockney's (Parallel Computing 20, 1994): a message of m bytes takes latency + m / bandwidth. A rank
/// sends and receives at the same time, and uses the links of different tiers at the same time; messages of one tier
/// and direction follow each other. Phases follow each other. Not modelled: congestion inside a tier, copies in
/// memory, ranks that start late.
///
/// A fold that is carried out in chunks (PrepareOptions::fold_elements) is one phase, with a message per peer and
/// chunk: no fewer than there are, unless a message of block-cyclic pieces is cut in between. What takes the result
/// from scratch memory goes in chunks as well. `fold_elements` is what prepare() will be given; 0: what it takes for
/// memory of a host, many messages and little scratch memory; INT64_MAX, as on devices: a message per peer, all
/// addends in memory.
#pragma once

#include <reshard/core/detail/explain_text.hpp>
#include <reshard/plan/explain.hpp>
#include <reshard/plan/fold_chunks.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/topology.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// What one rank moves over one tier's links.
struct TierLoad {
    Index messages_sent = 0;
    Index messages_received = 0;
    Index bytes_sent = 0;
    Index bytes_received = 0;
    friend constexpr bool operator==(TierLoad const&, TierLoad const&) = default;
};

/// One phase of one rank: a load per tier of the topology.
using PhaseLoad = InlineList<TierLoad, max_tiers>;

/// One rank's part of a plan.
struct RankLoad {
    std::vector<PhaseLoad> phases;  ///< one after the other; empty when nothing crosses ranks
    Index memory = 0;               ///< bytes: what the rank holds before, what it holds after, and scratch
    friend bool operator==(RankLoad const&, RankLoad const&) = default;
};

namespace detail {

/// Bytes of so many elements. Throws DTypeError for elements smaller than a byte, ShapeError beyond 64 bits.
[[nodiscard]] inline Index bytes_of(Index elements, DType dtype) {
    check_byte_sized("simulate", dtype, "count");
    Index result = 0;
    if (!multiply_fits(elements, bytes(dtype), result)) {
        raise(ErrorCode::shape, "reshard::simulate: ", elements, " elements of ", name(dtype),
              " are more bytes than 64 bits count. Fix: simulate a smaller tensor.");
    }
    return result;
}

/// total += count * value. Throws ShapeError beyond 64 bits.
inline void add_checked(Index& total, Index value, Index count = 1) {
    if (!add_fits(total, value, count)) {
        raise(ErrorCode::shape,
              "reshard::simulate: the bytes moved are more than 64 bits count. "
              "Fix: simulate a smaller tensor and scale.");
    }
}

/// What one rank's part of an exchange loads on each tier: `chunks` messages for each entry of its lists or, if
/// `joined`, for those that follow each other to one peer. elements_of(entry).
template <class Exchange, class Elements>
[[nodiscard]] PhaseLoad phase_load(Exchange const& exchange, Topology const& topology, Index rank, Index chunks,
                                   bool joined, DType dtype, Elements const& elements_of) {
    PhaseLoad load;
    for (int i = 0; i < topology.size(); ++i) load.push_back({});
    auto const add = [&](auto const& messages, Index TierLoad::*count, Index TierLoad::*moved) {
        Index last = -1;
        for (auto const& message : messages) {
            TierLoad& tier = load[topology.tier_of(rank, message.peer)];
            if (std::exchange(last, message.peer) != message.peer || !joined) tier.*count += chunks;
            add_checked(tier.*moved, bytes_of(elements_of(message), dtype));
        }
    };
    add(exchange.sends, &TierLoad::messages_sent, &TierLoad::bytes_sent);
    add(exchange.receives, &TierLoad::messages_received, &TierLoad::bytes_received);
    return load;
}

[[nodiscard]] inline Index held_bytes(DynamicDistribution const& distribution, Index rank, DType dtype) {
    return distribution.contains(rank) ? bytes_of(distribution.local_shape(rank).size(), dtype) : 0;
}

/// `steps`: those of the plan, which are the same for all ranks.
[[nodiscard]] inline RankLoad rank_load(Plan<> const& plan, planning::Steps const& steps, Topology const& topology,
                                        Index rank, DType dtype) {
    RankLoad load;
    int const phases = steps.phases();
    for (int phase = 0; phase < phases; ++phase) {
        planning::Step const& step = steps.exchange(phase);
        load.phases.push_back(phase_load(exchange_of(steps, step, rank), topology, rank,
                                         planning::chunks_of(steps, step), false, dtype,
                                         [](Message const& message) { return message.elements(); }));
    }
    load.memory = held_bytes(plan.from(), rank, dtype);
    if (plan.kind() == TransitionKind::view) return load;  // the window is memory the rank already holds
    add_checked(load.memory, held_bytes(plan.to(), rank, dtype));
    if (phases != 0) add_checked(load.memory, bytes_of(scratch_elements(steps, rank), dtype));
    return load;
}

/// The outermost unit holds every rank of the plan.
inline void require_covered(Plan<> const& plan, Topology const& topology) {
    topology.require(plan.from().mesh().last_rank());
    topology.require(plan.to().mesh().last_rank());
}

}  // namespace detail

/// What a rank moves over each tier when it carries out a plan, and the memory it needs. Zero for ranks outside.
/// Throws MeshError when the topology has not all the plan's ranks, DTypeError for elements smaller than a byte.
[[nodiscard]] inline RankLoad load_of(Plan<> const& plan, Topology const& topology, Index rank, DType dtype,
                                      Index fold_elements = 0) {
    detail::require_covered(plan, topology);
    return detail::rank_load(plan, plan.steps().folding(fold_elements), topology, rank, dtype);
}

/// Seconds that one tier's links are busy for a rank: its sends or its receives, whichever take longer.
[[nodiscard]] inline double seconds_of(TierLoad const& load, Tier const& tier) noexcept {
    auto const way = [&](Index messages, Index bytes) {
        return tier.latency * static_cast<double>(messages) + static_cast<double>(bytes) / tier.bandwidth;
    };
    return detail::larger(way(load.messages_sent, load.bytes_sent), way(load.messages_received, load.bytes_received));
}

/// Seconds of one phase of one rank: its slowest tier. \pre a load per tier.
[[nodiscard]] inline double seconds_of(PhaseLoad const& load, Topology const& topology) noexcept {
    double slowest = 0;
    for (int i = 0; i < load.size(); ++i) slowest = detail::larger(slowest, seconds_of(load[i], topology.tier(i)));
    return slowest;
}

/// Of one rank's part of a plan, by its own links alone: uplinks, which ranks share, need the whole world (simulate).
[[nodiscard]] inline double seconds_of(RankLoad const& load, Topology const& topology) noexcept {
    double sum = 0;
    for (PhaseLoad const& phase : load.phases) sum += seconds_of(phase, topology);
    return sum;
}

/// explain(plan, rank, dtype), and below it what each phase loads on each tier and about how long it takes: as planned,
/// and relayed inside units of the innermost tier (or directly, when the plan is relayed) where that makes a
/// difference. Throws like load_of.
template <class From, class To>
[[nodiscard]] std::string explain(Plan<From, To> const& typed, Topology const& topology, Index rank, DType dtype,
                                  Index fold_elements = 0) {
    Plan<> const plan = typed;
    std::string text = explain(typed, rank, dtype, fold_elements);
    RankLoad const load = load_of(plan, topology, rank, dtype, fold_elements);
    for (std::size_t phase = 0; phase != load.phases.size(); ++phase) {
        for (int i = 0; i < topology.size(); ++i) {
            TierLoad const& tier = load.phases[phase][i];
            if (tier == TierLoad{}) continue;
            text += errors::concat("  phase ", phase + 1, ", tier ", topology.tier(i).name, ": sends ",
                                   detail::bytes_text(tier.bytes_sent), " in ",
                                   detail::count_text(tier.messages_sent, "message"), "; receives ",
                                   detail::bytes_text(tier.bytes_received), " in ",
                                   detail::count_text(tier.messages_received, "message"), "; about ",
                                   detail::seconds_text(seconds_of(tier, topology.tier(i))), "\n");
        }
    }
    if (load.phases.empty()) return text;
    text += errors::concat("  about ", detail::seconds_text(seconds_of(load, topology)), " by its own links\n");
    Index const node = topology.tier(0).ranks;
    if (topology.size() == 1 || node == 1) return text;
    bool const relayed = plan.ranks_per_node() > 1;
    RankLoad const other = load_of(plan.relayed(relayed ? 1 : node), topology, rank, dtype, fold_elements);
    if (other.phases == load.phases) return text;
    return text + errors::concat("  ", relayed ? std::string("directly") : errors::concat("relayed(", node, ")"),
                                 ": about ", detail::seconds_text(seconds_of(other, topology)), "\n");
}

}  // namespace reshard::inline v0_1
