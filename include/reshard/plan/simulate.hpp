// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/simulate.hpp
/// \brief  A whole world before it exists: what a plan loads on every tier of a topology, and about how long it takes.
/// \depends rank_load, detail/rank_classes, detail/world_sum. Not part of the umbrella.
///
/// Ranks with the same picture of the plan form a class, and one rank of each class is planned. That is exact
/// (detail/rank_classes.hpp says when and why; the tests compare with every rank planned). Where a plan has no
/// classes (copies that share the sending, relays, two meshes, listed ranks, units across mesh rows) all ranks are
/// planned, and where that is more work than `budget` allows, a sample of them: then `exact` is false and sums are
/// scaled.
#pragma once

#include <reshard/algebra/bound.hpp>
#include <reshard/plan/box_table.hpp>
#include <reshard/plan/detail/rank_classes.hpp>
#include <reshard/plan/detail/world_sum.hpp>
#include <reshard/plan/rank_load.hpp>

#include <algorithm>  // unique
#include <optional>   // optional

namespace reshard::inline v0_1 {

/// How much work a simulation may be.
struct SimulateOptions {
    Index budget = 1 << 22;   ///< messages planned rank by rank
    Index lists = 1 << 24;    ///< pieces listed to find classes
    bool classes = true;      ///< false: plan rank by rank, to compare
    Index fold_elements = 0;  ///< PrepareOptions::fold_elements; 0: what a host does; INT64_MAX: what devices do
};

namespace detail {

/// The ranks of both meshes, each once: those of the source by position, then what only the destination has.
class WorldRanks {
public:
    WorldRanks(DynamicMesh const& from, DynamicMesh const& to) : from_(from), to_(to), same_(from == to) {
        if (same_) return;
        if (!from.is_listed() && !to.is_listed()) {
            Index const low = larger(from.rank_at(0), to.rank_at(0));
            Index const high = smaller(from.last_rank(), to.last_rank());
            shared_ = larger<Index>(0, high - low + 1);
        } else {
            for (Index i = 0; i < to.size(); ++i) shared_ += from.contains(to.rank_at(i)) ? 1 : 0;
        }
    }
    [[nodiscard]] Index size() const noexcept { return from_.size() + (same_ ? 0 : to_.size() - shared_); }
    /// Places 0 .. places() - 1 hold every rank once, and -1 where a rank was there before.
    [[nodiscard]] Index places() const noexcept { return from_.size() + (same_ ? 0 : to_.size()); }
    [[nodiscard]] Index at(Index place) const noexcept {
        if (place < from_.size()) return from_.rank_at(place);
        Index const rank = to_.rank_at(place - from_.size());
        return from_.contains(rank) ? -1 : rank;
    }

private:
    DynamicMesh const& from_;
    DynamicMesh const& to_;
    bool same_;
    Index shared_ = 0;
};

/// One rank's load and bound.
[[nodiscard]] inline RankFigures rank_figures(Plan<> const& plan, planning::Steps const& steps,
                                              Topology const& topology, Index rank, DType dtype) {
    RankFigures figures;
    figures.load = rank_load(plan, steps, topology, rank, dtype);
    Bound const bound = receive_bound(plan.from(), plan.to(), rank, plan.is_across());
    figures.bound = bound.known ? bytes_of(bound.elements, dtype) : -1;
    return figures;
}

[[nodiscard]] inline Simulation simulate_classes(Plan<> const& plan, planning::Steps const& steps,
                                                 Topology const& topology, DType dtype, RankClasses const& classes) {
    DynamicMesh const& mesh = plan.from().mesh();
    WorldSum sum(topology, steps.phases());
    std::vector<RankFigures> figures;
    for (std::size_t i = 0; i != classes.ranks.size(); ++i) {
        Index const rank = mesh.rank_at(classes.first[i]);
        figures.push_back(rank_figures(plan, steps, topology, rank, dtype));
        sum.add(figures.back(), rank, classes.ranks[i]);
    }
    for (Index ordinal = 0; ordinal < mesh.size(); ++ordinal) {
        sum.add_to_units(figures[classes.of[as_size(ordinal)]].load, mesh.rank_at(ordinal));
    }
    sum.finish_units();
    return sum.result(mesh.size(), as_index(classes.ranks.size()), true);
}

/// Rank by rank: all of them, or as many as the budget allows.
[[nodiscard]] inline Simulation simulate_ranks(Plan<> const& plan, planning::Steps const& steps,
                                               Topology const& topology, DType dtype, Index budget) {
    WorldRanks const ranks(plan.from().mesh(), plan.to().mesh());
    // What a rank costs: its messages, and about as much as ten of them whatever it does. They are planned once for all
    // chunks.
    int const phases = steps.phases();
    auto const work_of = [&](RankFigures const& figures) {
        Index work = 10;
        for (int phase = 0; phase < phases; ++phase) {
            Index const chunks = planning::chunks_of(steps, steps.exchange(phase));
            for (TierLoad const& tier : figures.load.phases[as_size(phase)])
                work += (tier.messages_sent + tier.messages_received) / chunks;
        }
        return work;
    };
    WorldSum sum(topology, phases);
    if (ranks.places() <= budget / 10) {
        Index work = 0;
        Index place = 0;
        for (; place < ranks.places() && work <= budget; ++place) {
            Index const rank = ranks.at(place);
            if (rank < 0) continue;
            RankFigures const figures = rank_figures(plan, steps, topology, rank, dtype);
            work += work_of(figures);
            sum.add(figures, rank, 1);
            sum.add_to_units(figures.load, rank);
        }
        if (place == ranks.places()) {
            sum.finish_units();
            return sum.result(ranks.size(), ranks.size(), true);
        }
    }
    // A sample: the first and the last place, and places between in the order of a fixed shuffle.
    WorldSum sample(topology, phases);
    Index work = 0;
    Index evaluated = 0;
    for (Index i = 0; work <= budget / 4 || evaluated < 2; ++i) {
        auto const dice = mixed(static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U);
        Index place = as_index(dice % static_cast<std::uint64_t>(ranks.places()));
        if (i < 2) place = i * (ranks.places() - 1);
        Index const rank = ranks.at(place);
        if (rank < 0) continue;
        RankFigures const figures = rank_figures(plan, steps, topology, rank, dtype);
        work += work_of(figures);
        sample.add(figures, rank, 1);
        ++evaluated;
    }
    sample.scale(ranks.size(), evaluated);
    return sample.result(ranks.size(), evaluated, false);
}

}  // namespace detail

/// What all ranks of a plan load on the tiers of a topology, and about how long it takes. `dtype` is that of memory and
/// of the wire: there are no casts. Of a move with Casting, bytes and seconds are those of the smaller type, for
/// addends of the source's, and memory is at most that of the larger one (a fold that casts needs a chunk more).
/// Throws MeshError when the topology has not all the plan's ranks, DTypeError for elements smaller than a byte and, as
/// prepare(), for ops that they do not have, ShapeError when bytes do not fit 64 bits. Cost: a few nanoseconds per rank
/// and list to sort a million ranks into classes, then one plan per class.
[[nodiscard]] inline Simulation simulate(Plan<> const& plan, Topology const& topology, DType dtype,
                                         SimulateOptions const& options = {}) {
    detail::require_covered(plan, topology);
    planning::Steps const steps = plan.steps().folding(options.fold_elements);
    detail::check_ops("simulate", steps, dtype);
    if (options.classes && steps.phases() != 0 && !plan.is_across() && plan.ranks_per_node() <= 1 &&
        plan.from().mesh().size() <= 1 << 28) {
        detail::RankKeys keys(steps, plan.from(), plan.to(), topology, options.lists);
        detail::RankClasses const classes = keys.classes(1 << 16);
        if (!classes.of.empty()) return detail::simulate_classes(plan, steps, topology, dtype, classes);
    }
    return detail::simulate_ranks(plan, steps, topology, dtype, options.budget);
}

/// The same of an exchange between two tables of boxes, such as a halo: one phase, in which all that goes to
/// a peer is a message, and no bound, of all ranks that have boxes, each of which is planned. Boxes of `from` that
/// share elements are copies, or the addends of a fold. Throws what exchange() does, too.
[[nodiscard]] inline Simulation simulate(BoxTable const& from, BoxTable const& to, Topology const& topology,
                                         DType dtype, std::optional<Reduce> fold = {}) {
    if (fold) detail::check_op("simulate", *fold, " is not defined for ", dtype);
    std::vector<Index> ranks;
    for (BoxTable const* const table : {&from, &to})
        for (HeldBox const& held : table->boxes()) ranks.push_back(held.rank);
    detail::sort_list(ranks);
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    if (!ranks.empty()) topology.require(ranks.back());
    detail::WorldSum sum(topology, 1);
    for (Index const rank : ranks) {
        detail::RankFigures figures{{}, -1};
        planning::BoxExchange const mine = exchange(from, to, rank, fold ? Overlap::addends : Overlap::copies);
        figures.load.phases.push_back(
            detail::phase_load(mine, topology, rank, 1, true, dtype,
                               [](planning::BoxMessage const& message) { return message.box.size(); }));
        detail::add_checked(figures.load.memory, detail::bytes_of(mine.scratch(), dtype));
        for (BoxTable const* const table : {&from, &to})
            for (HeldBox const& held : table->boxes_of(rank))
                detail::add_checked(figures.load.memory, detail::bytes_of(held.box.size(), dtype));
        sum.add(figures, rank, 1);
        sum.add_to_units(figures.load, rank);
    }
    sum.finish_units();
    return sum.result(detail::as_index(ranks.size()), detail::as_index(ranks.size()), true);
}

}  // namespace reshard::inline v0_1
