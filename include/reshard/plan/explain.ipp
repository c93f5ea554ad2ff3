// SPDX-License-Identifier: Apache-2.0
// How plan/explain.hpp is done.
#pragma once

#include <reshard/algebra/bound.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/plan/detail/share.hpp>
#include <reshard/plan/explain.hpp>
#include <reshard/plan/fold_chunks.hpp>

namespace reshard::inline v0_1 {

namespace detail {

[[nodiscard]] inline Index peers_of(std::vector<Message> const& messages) {
    Index peers = 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        if (i == 0 || messages[i].peer != messages[i - 1].peer) ++peers;
    }
    return peers;
}

/// `chunks`: of every message.
inline void explain_exchange(std::string& text, Exchange const& exchange, int phase, std::string_view what,
                             Index chunks, DType dtype) {
    auto const side = [&](std::string_view verb, auto const& messages, std::string_view word) {
        Index elements = 0;
        for (Message const& message : messages) add_elements(elements, message.elements());
        if (messages.empty()) return concat("; ", verb, " nothing");
        return concat("; ", verb, " ", bytes_text(elements, dtype), " in ",
                      count_text(as_index(messages.size()) * chunks, "message"), " ", word, " ",
                      count_text(peers_of(messages), "peer"));
    };
    text += concat("  phase ", phase, ": ", what, side("sends", exchange.sends, "to"),
                   side("receives", exchange.receives, "from"), "\n");
}

/// Why the transition is what it is: per axis, and per dimension where the cuts do not nest.
inline void explain_reason(std::string& text, Plan<> const& plan) {
    DynamicDistribution const& from = plan.from();
    DynamicDistribution const& to = plan.to();
    if (plan.is_across()) {
        bool const same = from.mesh() == to.mesh();
        text += same ? "  because: plan_across() was asked for; within one mesh plan() may need less\n"
                     : "  because: the two sides are different meshes\n";
        return;
    }
    text += "  because:";
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        Placement const& source = from.placement(axis);
        Placement const& target = to.placement(axis);
        constexpr std::string_view change_text[] = {"stays as it is", "is scaled",      "is folded",
                                                    "is filled",      "may owe copies", ""};
        AxisChange const change = axis_change(source, target);
        text += concat(axis == 0 ? " " : "; ", "axis ", axis, " ", to_string(source), "->", to_string(target));
        if (change != AxisChange::move) {
            text += concat(" ", change_text[static_cast<int>(change)]);
        } else if (source == target) {
            text += " stays";
        } else if (source.is_replicate()) {
            text += " keeps a part of its copy";
        } else {
            text += target.is_replicate() ? " is gathered" : " is cut another way";
        }
    }
    text += '\n';
}

/// What an exchange is for.
[[nodiscard]] inline std::string exchange_text(planning::Steps const& steps, planning::Step const& step) {
    planning::Layout const& to = steps.to(step);
    std::string text = "exchange";
    if (to.addends != 0) {
        append(text, {" and fold of ", to.addends, " addends (", name(steps.find(planning::StepKind::fold)->op),
                      ", in mesh order) as ", brief(to.distribution)});
    } else if (step.to == steps.relays.share) {
        append(text, {" to relays as ", brief(to.distribution)});
    } else if (step.from == steps.relays.share) {
        text += " among relays";
    }
    Index const chunks = planning::chunks_of(steps, step);
    if (chunks != 1) append(text, {" in ", chunks, " chunks"});
    return text;
}

}  // namespace detail

RESHARD_INLINE std::string detail::explain(Plan<> const& plan, TransitionKind kind, Index rank, DType dtype,
                                           Index fold_elements) {
    std::string text = concat(brief(plan.from()), " -> ", brief(plan.to()), "  shape ", to_string(plan.from().shape()),
                              " ", name(dtype), ", rank ", rank, ": ", name(kind), "\n");
    detail::explain_reason(text, plan);
    if (kind != TransitionKind::collective) {
        text += kind == TransitionKind::view ? "  a view of local memory: no copy, no communicator, 0 B\n"
                                             : "  a copy within the rank: no communicator, 0 B\n";
        return text;
    }
    if (!plan.from().contains(rank) && !plan.to().contains(rank)) {
        return text + "  the rank is in neither mesh: 0 B\n";
    }
    planning::Steps const steps = plan.steps().folding(fold_elements);
    Index received = 0;
    Index foreign = 0;  // of these, what comes from other nodes
    Index const ranks_per_node = plan.ranks_per_node();
    if (steps.relays.explain != nullptr) text += steps.relays.explain(steps, plan.to().mesh(), ranks_per_node);
    int phase = 0;
    for (planning::Step const& step : steps.list) {
        bool const has_op = step.kind == planning::StepKind::fill || step.kind == planning::StepKind::fold;
        if (has_op && !supports(step.op, dtype))
            text += concat("  prepare() refuses it: ", name(step.op), " is not defined for ", name(dtype), "\n");
        if (step.kind == planning::StepKind::fill) {
            text += concat("  the destination starts as the identity of ", name(step.op), "\n");
        } else if (step.kind == planning::StepKind::scale) {
            text += concat("  then scaled by ", step.multiply, "/", step.divide, "\n");
        }
        if (step.kind != planning::StepKind::exchange) continue;
        ++phase;
        if (!takes_part(steps, step, rank)) continue;
        planning::Exchange const exchange = exchange_of(steps, step, rank);
        detail::explain_exchange(text, exchange, phase, detail::exchange_text(steps, step),
                                 planning::chunks_of(steps, step), dtype);
        for (planning::Message const& message : exchange.receives) {
            bool const enters = ranks_per_node > 1 && message.peer / ranks_per_node != rank / ranks_per_node;
            detail::add_elements(received, message.elements());
            if (enters) detail::add_elements(foreign, message.elements());
        }
    }
    Bound const bound = receive_bound(plan.from(), plan.to(), rank, plan.is_across());
    text += concat("  receives ", detail::bytes_text(received, dtype));
    if (ranks_per_node > 1) text += concat(" (", detail::bytes_text(foreign, dtype), " from other nodes)");
    if (!bound.known) return text + ", no bound is known for this combination of Partial axes\n";
    text += concat(", lower bound ", detail::bytes_text(bound.elements, dtype),
                   bound.busiest ? " for the busiest rank" : "", "\n");
    return text;
}

}  // namespace reshard::inline v0_1
