// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/plan_laws.hpp
/// \brief  The laws of a plan's messages, checked by counting elements.
#pragma once

#include <reshard/algebra/bound.hpp>
#include <reshard/algebra/total_bound.hpp>
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include "support/messages.hpp"
#include "support/oracle.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace reshard::test {

/// All ranks of both meshes.
inline std::vector<Index> everybody(Plan<> const& plan) {
    std::vector<Index> ranks = oracle::ranks(plan.from());
    for (Index rank : oracle::ranks(plan.to()))
        if (!plan.from().contains(rank)) ranks.push_back(rank);
    return ranks;
}

inline bool moves_sets(Plan<> const& plan) {
    for (auto const* side : {&plan.from(), &plan.to()})
        for (auto const& placement : side->signature().placements)
            if (placement.is_partial()) return false;
    return true;
}

/// Every message has its partner, in the same place of the same order; nothing is empty, nothing goes to oneself.
inline void check_partners(Plan<> const& plan, int phase) {
    std::map<std::pair<Index, Index>, std::vector<planning::Message>> sent;
    std::map<std::pair<Index, Index>, std::vector<planning::Message>> received;
    auto const without_peer = [](planning::Message message) {
        message.peer = 0;
        return message;
    };
    for (Index rank : everybody(plan)) {
        planning::Exchange const exchange = plan.exchange(rank, phase);
        for (auto const& message : exchange.sends) {
            REQUIRE(message.elements() > 0);
            REQUIRE(message.peer != rank);
            Index extents = 1;
            for (int dim = 0; dim < message.box.size(); ++dim) extents *= message.extent(dim);
            REQUIRE(extents == message.elements());
            for (auto const& repeat : message.repeats) REQUIRE(repeat.count > 1);
            sent[{rank, message.peer}].push_back(without_peer(message));
        }
        for (auto const& message : exchange.receives) {
            received[{message.peer, rank}].push_back(without_peer(message));
        }
    }
    bool const partners = sent == received;
    REQUIRE(partners);
}

/// What arrives, plus what is at home, is what is needed, each element once.
inline void check_coverage(Plan<> const& plan) {
    for (Index rank : oracle::ranks(plan.to())) {
        planning::Exchange const exchange = plan.exchange(rank);
        std::map<Index, int> hits;
        for (auto const* list : {&exchange.receives, &exchange.kept}) {
            for (auto const& message : *list) {
                for (Index position : positions(message, plan.to().shape())) ++hits[position];
            }
        }
        std::map<Index, int> wanted;
        for (Index position : oracle::elements(plan.to(), rank)) ++wanted[position];
        bool const exact = hits == wanted;
        CAPTURE(rank);
        REQUIRE(exact);
    }
}

/// The busiest sender against the min-max optimum: copies of a piece can only divide what others need of it.
inline void check_balance(Plan<> const& plan) {
    std::map<std::vector<Index>, std::pair<Index, Index>> groups;  // piece -> (copies, elements others need)
    for (Index rank : oracle::ranks(plan.from())) {
        auto const piece = oracle::elements(plan.from(), rank);
        if (!piece.empty()) ++groups[piece].first;
    }
    for (Index rank : oracle::ranks(plan.to())) {
        std::vector<Index> const own =
            plan.from().contains(rank) ? oracle::elements(plan.from(), rank) : std::vector<Index>{};
        auto const wanted = oracle::elements(plan.to(), rank);
        std::vector<bool> wants(static_cast<std::size_t>(plan.to().shape().size()), false);
        for (Index i : wanted) wants[static_cast<std::size_t>(i)] = true;
        for (auto& [piece, group] : groups) {
            if (piece == own) continue;
            for (Index i : piece) group.second += wants[static_cast<std::size_t>(i)] ? 1 : 0;
        }
    }
    Index optimum = 0;
    for (auto const& [piece, group] : groups) optimum = std::max(optimum, detail::ceil_div(group.second, group.first));
    Index most = 0;
    for (Index rank : everybody(plan)) most = std::max(most, plan.cost(rank).sent);
    CAPTURE(most);
    CAPTURE(optimum);
    REQUIRE(most <= 2 * optimum);
}

/// No plan does better than what is claimed that nobody can do better.
inline void check_bounds_are_bounds(Plan<> const& plan) {
    Index received = 0;
    Index sent = 0;
    Index total = 0;
    Index busiest_bound = 0;
    for (Index rank : everybody(plan)) {
        Cost const cost = plan.cost(rank);
        received = std::max(received, cost.received);
        sent = std::max(sent, cost.sent);
        total += cost.received;
        Bound const bound = receive_bound(plan.from(), plan.to(), rank, plan.is_across());
        CAPTURE(rank);
        if (bound.known && bound.busiest) busiest_bound = std::max(busiest_bound, bound.elements);
        if (bound.known && !bound.busiest) REQUIRE(cost.received >= bound.elements);
    }
    REQUIRE(received >= busiest_bound);
    TotalBound const bound = total_bound(plan.from(), plan.to(), plan.is_across());
    if (!bound.known) return;
    REQUIRE(received >= bound.received);
    REQUIRE(sent >= bound.sent);
    REQUIRE(total >= bound.total);
}

/// All of them; the law of balance where asked for.
inline void check_laws(Plan<> const& plan, bool with_balance) {
    if (plan.is_local()) {
        for (Index rank : everybody(plan)) REQUIRE(plan.cost(rank) == Cost{});
        return;
    }
    for (int phase = 0; phase < plan.steps().phases(); ++phase) check_partners(plan, phase);
    check_bounds_are_bounds(plan);
    if (!moves_sets(plan)) return;
    check_coverage(plan);
    for (Index rank : everybody(plan)) {  // law.bound
        REQUIRE(plan.cost(rank).received == oracle::missing(plan.from(), plan.to(), rank));
    }
    if (with_balance) check_balance(plan);
}

}  // namespace reshard::test
