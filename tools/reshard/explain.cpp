// SPDX-License-Identifier: Apache-2.0
// reshard explain: what one rank does in a transition, and what nobody could do better.
#include "verbs.hpp"

#include <reshard/algebra/bound.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/reshard.hpp>

#include <cstdint>
#include <memory>

namespace command {
namespace {

using namespace reshard;

struct Explain {
    std::string from;
    std::string to;
    std::string shape;
    std::string dtype = "f32";
    Index rank = 0;
    Index ranks_per_node = 1;

    void run(Session& session) const {
        DynamicShape const extents = shape_given("--shape", shape);
        DType const type = dtype_given("--dtype", dtype);
        Plan<> const move = plan_given(from, to, extents, type, ranks_per_node);
        if (!move.from().contains(rank) && !move.to().contains(rank)) {
            wrong("--rank: rank " + std::to_string(rank) + " is in neither mesh. Fix: name one that is.");
        }
        std::string const text = given("explain", [&] { return explain(move, rank, type); });
        if (!Session::speaks()) return;
        session.say(text, session.json ? record(move, type) : Json());
    }

private:
    [[nodiscard]] Json record(Plan<> const& move, DType type) const {
        Cost const cost = move.cost(rank);
        Bound const bound = receive_bound(move.from(), move.to(), rank, move.is_across());
        auto const bytes_of = [&](Index elements) {
            Index count = 0;  // beyond 64 bits: null
            return detail::bytes_fit(elements, type, count) ? Json(count) : Json();
        };
        return {{"from", to_string(move.from())},
                {"to", to_string(move.to())},
                {"shape", record_of(move.from().shape())},
                {"dtype", name(type)},
                {"relayed", move.ranks_per_node()},
                {"rank", rank},
                {"kind", name(move.kind())},
                {"phases", cost.phases},
                {"messages_sent", cost.messages_sent},
                {"messages_received", cost.messages_received},
                {"bytes_sent", bytes_of(cost.sent)},
                {"bytes_received", bytes_of(cost.received)},
                {"bytes_bound", bound.known ? bytes_of(bound.elements) : Json()}};
    }
};

}  // namespace

void add_explain(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Explain>();
    CLI::App* const command =
        add_verb(app, "explain", "what a rank sends and receives in a transition, and why",
                 "reshard explain '(2,4):(R,S0)' '(2,4):(R,S1)' --shape 8192x1024 --dtype bf16 --rank 3");
    command->add_option("FROM", verb->from, "mesh and placements now, such as '(2,4):(R,S0)'")->required();
    command->add_option("TO", verb->to, "those that are needed")->required();
    command->add_option("--shape", verb->shape, "of the whole tensor: 8192x1024 or [8192,1024]")->required();
    command->add_option("--dtype", verb->dtype, "element type")->capture_default_str();
    command->add_option("--rank", verb->rank, "whose part")->check(whole_number(0, INT32_MAX))->capture_default_str();
    command->add_option("--relayed", verb->ranks_per_node, "ranks per node: a byte enters a node once")
        ->check(whole_number(1, most_ranks));
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
