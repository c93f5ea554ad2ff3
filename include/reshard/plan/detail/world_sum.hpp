// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/world_sum.hpp
/// \brief  Loads of ranks added up to those of a world: totals, the busiest rank and unit of every tier, time.
/// \depends rank_load; <vector>.
#pragma once

#include <reshard/plan/rank_load.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// What all ranks together move over one tier's links in one phase. Every message counts once.
struct TierSum {
    Index messages = 0;
    Index bytes = 0;
    Index most_messages = 0;  ///< sent or received by one rank
    Index most_sent = 0;      ///< bytes, by one rank
    Index most_received = 0;  ///< bytes, by one rank
    Index most_out = 0;       ///< bytes that leave one unit of this tier
    Index most_in = 0;        ///< bytes that enter one unit of this tier
    friend constexpr bool operator==(TierSum const&, TierSum const&) = default;
};

struct PhaseSum {
    InlineList<TierSum, max_tiers> tiers;
    double seconds = 0;  ///< of the slowest rank, or of the slowest unit's uplink
    friend bool operator==(PhaseSum const&, PhaseSum const&) = default;
};

/// What a plan does to a world.
struct Simulation {
    std::vector<PhaseSum> phases;
    double seconds = 0;       ///< all phases, one after the other
    Index ranks = 0;          ///< in the world
    Index evaluated = 0;      ///< ranks planned: one per class, or one by one
    bool exact = true;        ///< false: a sample was planned; sums are scaled, the most is the most of the sample
    Index busiest = 0;        ///< the lowest rank whose own links take longest
    Index most_sent = 0;      ///< bytes, by one rank in all phases
    Index most_received = 0;  ///< bytes, by one rank in all phases
    Index most_memory = 0;    ///< bytes of source, destination and scratch of one rank
    bool bound_known = true;
    Index bound = 0;  ///< bytes that the rank with the largest bound must receive, whoever plans

    /// Bytes received by the busiest rank over the bound: 1 is the optimum. \pre bound_known.
    [[nodiscard]] double over_bound() const noexcept {
        if (most_received == bound) return 1;
        return static_cast<double>(most_received) / static_cast<double>(bound);
    }
    friend bool operator==(Simulation const&, Simulation const&) = default;
};

namespace detail {

struct RankFigures {
    RankLoad load;
    Index bound = 0;  ///< bytes it must receive; -1: not known
};

/// \pre ranks are added once each.
class WorldSum {
public:
    WorldSum(Topology const& topology, int phases) : topology_(topology) {
        sum_.phases.resize(as_size(phases));
        for (PhaseSum& phase : sum_.phases)
            for (int i = 0; i < topology.size(); ++i) phase.tiers.push_back({});
    }

    /// `count` ranks with these figures; the lowest of them is `rank`.
    void add(RankFigures const& figures, Index rank, Index count) {
        Index sent = 0;
        Index received = 0;
        double seconds = 0;
        for (std::size_t phase = 0; phase != sum_.phases.size(); ++phase) {
            PhaseLoad const& load = figures.load.phases[phase];
            PhaseSum& into = sum_.phases[phase];
            for (int i = 0; i < load.size(); ++i) {
                TierSum& tier = into.tiers[i];
                add_checked(tier.messages, load[i].messages_received, count);
                add_checked(tier.bytes, load[i].bytes_received, count);
                add_checked(total_, load[i].bytes_received, count);
                tier.most_messages = larger(tier.most_messages, load[i].messages_received);
                tier.most_messages = larger(tier.most_messages, load[i].messages_sent);
                tier.most_sent = larger(tier.most_sent, load[i].bytes_sent);
                tier.most_received = larger(tier.most_received, load[i].bytes_received);
                add_checked(sent, load[i].bytes_sent);
                add_checked(received, load[i].bytes_received);
            }
            double const own = seconds_of(load, topology_);
            into.seconds = larger(into.seconds, own);
            seconds += own;
        }
        if (longest_ < 0 || seconds > longest_ || (seconds == longest_ && rank < sum_.busiest)) {
            longest_ = seconds;
            sum_.busiest = rank;
        }
        sum_.most_sent = larger(sum_.most_sent, sent);
        sum_.most_received = larger(sum_.most_received, received);
        sum_.most_memory = larger(sum_.most_memory, figures.load.memory);
        if (figures.bound < 0) sum_.bound_known = false;
        sum_.bound = larger(sum_.bound, figures.bound);
    }

    /// A rank's part of what its units send out and get in: collected, until finish_units().
    void add_to_units(RankLoad const& load, Index rank) {
        units_.resize(sum_.phases.size() * as_size(topology_.size()));
        for (int i = 0; i + 1 < topology_.size(); ++i) {
            for (std::size_t phase = 0; phase != sum_.phases.size(); ++phase) {
                auto& units = units_[phase * as_size(topology_.size()) + as_size(i)];
                auto const unit = as_size(topology_.unit(i, rank));
                if (unit >= units.size()) units.resize(unit + 1);
                PhaseLoad const& own = load.phases[phase];
                for (int outer = i + 1; outer < own.size(); ++outer) {
                    add_checked(units[unit].out, own[outer].bytes_sent);  // what others receive may not be counted yet
                    units[unit].in += own[outer].bytes_received;          // no more than all bytes, which fit
                }
            }
        }
    }
    void finish_units() {
        for (std::size_t j = 0; j != units_.size(); ++j) {
            auto const tiers = as_size(topology_.size());
            TierSum& tier = sum_.phases[j / tiers].tiers[static_cast<int>(j % tiers)];
            for (Crossing const& unit : units_[j]) {
                tier.most_out = larger(tier.most_out, unit.out);
                tier.most_in = larger(tier.most_in, unit.in);
            }
        }
    }

    /// From a sample to the world. Units are taken to be full of the busiest ranks seen.
    void scale(Index ranks, Index evaluated) {
        auto const factor = static_cast<double>(ranks) / static_cast<double>(evaluated);
        for (PhaseSum& phase : sum_.phases) {
            for (int i = 0; i < topology_.size(); ++i) {
                TierSum& tier = phase.tiers[i];
                tier.messages = scaled(tier.messages, factor);
                tier.bytes = scaled(tier.bytes, factor);
                if (i + 1 == topology_.size()) continue;
                auto const unit = static_cast<double>(smaller(topology_.tier(i).ranks, ranks));
                Index out = 0;
                Index in = 0;
                for (int outer = i + 1; outer < topology_.size(); ++outer) {
                    add_checked(out, phase.tiers[outer].most_sent);
                    add_checked(in, phase.tiers[outer].most_received);
                }
                tier.most_out = scaled(out, unit);
                tier.most_in = scaled(in, unit);
            }
        }
    }

    [[nodiscard]] Simulation result(Index ranks, Index evaluated, bool exact) {
        sum_.ranks = ranks;
        sum_.evaluated = evaluated;
        sum_.exact = exact;
        for (PhaseSum& phase : sum_.phases) {
            for (int i = 0; i < topology_.size(); ++i) {
                TierSum const& tier = phase.tiers[i];
                double const uplink = topology_.tier(i).uplink;
                if (uplink > 0) {
                    phase.seconds =
                        larger(phase.seconds, static_cast<double>(larger(tier.most_out, tier.most_in)) / uplink);
                }
            }
            sum_.seconds += phase.seconds;
        }
        return sum_;
    }

private:
    [[nodiscard]] static Index scaled(Index value, double factor) {
        double const result = static_cast<double>(value) * factor + 0.5;
        if (result >= 9.2e18) add_checked(value, INT64_MAX, 2);  // throws
        return static_cast<Index>(result);
    }

    /// What crosses the border of a unit.
    struct Crossing {
        Index out = 0;
        Index in = 0;
    };

    Topology const& topology_;
    Simulation sum_;
    std::vector<std::vector<Crossing>> units_;  ///< per phase and tier, by unit
    Index total_ = 0;                           ///< bytes of all tiers and phases: no sum of some of them overflows
    double longest_ = -1;
};

}  // namespace detail

}  // namespace reshard::inline v0_1
