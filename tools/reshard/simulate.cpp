// SPDX-License-Identifier: Apache-2.0
// reshard simulate: a world before it exists. No communicator, no memory to speak of.
#include "verbs.hpp"

#include <reshard/plan/relay.hpp>
#include <reshard/plan/simulate.hpp>

#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

namespace command {
namespace {

using namespace reshard;

/// `node:8:3:450:400`: name, ranks in a unit (all: 0), microseconds a message, GB/s of a rank, GB/s out of a unit.
Tier tier_given(std::string const& text) {
    std::vector<std::string> words(1);
    for (char const c : text) {
        if (c == ':') {
            words.emplace_back();
        } else {
            words.back() += c;
        }
    }
    if (words.size() < 4 || words.size() > 5) {
        wrong("--tier '" + text +
              "' has not 4 or 5 parts. Fix: NAME:RANKS:MICROSECONDS:GB/S[:GB/S OUT OF ALL RANKS], such as "
              "node:8:3:450:400");
    }
    auto const number = [&](std::string const& word) {
        double value = 0;
        if (!CLI::detail::lexical_cast(word, value) || !std::isfinite(value) || value < 0 || value > 1e15) {
            wrong("--tier '" + text + "': '" + word + "' is no number from 0 to 1e15. Fix: write one.");
        }
        return value;
    };
    double const ranks = words[1] == "all" ? 0 : number(words[1]);
    if (words[1] != "all" && (ranks < 1 || ranks != std::floor(ranks)))
        wrong("--tier '" + text + "': '" + words[1] + "' is no number of ranks. Fix: 1 or more, or all.");
    return {words[0], static_cast<Index>(ranks), number(words[2]) * 1e-6, number(words[3]) * 1e9,
            words.size() == 5 ? number(words[4]) * 1e9 : 0};
}

/// Nodes of 8 with 450 GB/s a way between their ranks, and a 400 Gb/s card per rank to leave by.
std::vector<std::string> const example_tiers{"node:8:3:450:400", "cluster:all:10:50"};

struct Simulate {
    std::vector<std::string> transitions;
    std::string shape;
    std::string dtype = "f32";
    std::vector<std::string> tiers = example_tiers;
    Index ranks_per_node = 1;

    void run(Session& session) const {
        if (transitions.size() % 2 != 0) wrong("FROM TO: '" + transitions.back() + "' goes nowhere. Fix: give pairs.");
        DynamicShape const extents = shape_given("--shape", shape);
        DType const type = dtype_given("--dtype", dtype);
        Topology const topology = given("--tier", [&] {
            std::vector<Tier> list;
            for (std::string const& text : tiers) list.push_back(tier_given(text));
            return Topology(list);
        });
        std::string text = to_string(topology) + heading(extents, type, topology);
        Json rows = Json::array();
        for (std::size_t i = 0; i + 1 < transitions.size(); i += 2) {
            Plan<> const move = plan_given(transitions[i], transitions[i + 1], extents, type, ranks_per_node);
            Simulation const world = given(transitions[i], [&] { return simulate(move, topology, type); });
            text += row(move, world, topology);
            rows.push_back(record(move, world, topology));
        }
        if (Session::speaks())
            session.say(text, {{"shape", record_of(extents)}, {"dtype", name(type)}, {"transitions", rows}});
    }

private:
    [[nodiscard]] static std::string heading(DynamicShape const& shape, DType type, Topology const& topology) {
        std::string text = "\n" + std::string(name(type)) + " " + to_string(shape) + "\n";
        text += line("", "in " + topology.tier(0).name, "beyond", "messages", "one rank",
                     "out of " + topology.tier(0).name, "bound", "time", "planned");
        return text;
    }
    [[nodiscard]] static std::string row(Plan<> const& move, Simulation const& world, Topology const& topology) {
        Index inside = 0;
        Index beyond = 0;
        Index messages = 0;
        Index out = 0;
        for (PhaseSum const& phase : world.phases) {
            inside += phase.tiers[0].bytes;
            out += phase.tiers[0].most_out;
            for (int i = 0; i < topology.size(); ++i) {
                messages += phase.tiers[i].messages;
                if (i > 0) beyond += phase.tiers[i].bytes;
            }
        }
        char bound[32] = "unknown";
        if (world.bound_known) std::snprintf(bound, sizeof bound, "%.2fx", world.over_bound());
        return line(label(move), detail::bytes_text(inside), detail::bytes_text(beyond), std::to_string(messages),
                    detail::bytes_text(world.most_received), detail::bytes_text(out), bound,
                    detail::seconds_text(world.seconds),
                    std::to_string(world.evaluated) + (world.exact ? "" : " (sample)"));
    }
    [[nodiscard]] static std::string label(Plan<> const& move) {
        std::string const relayed = move.ranks_per_node() > 1 ? " relayed" : "";
        return to_string(move.from()) + " -> " + to_string(move.to()) + relayed;
    }
    template <class... Words>
    [[nodiscard]] static std::string line(std::string const& label, Words const&... words) {
        std::string text = label;
        if (text.size() > 44) text += "\n" + std::string(44, ' ');
        text.resize(text.size() < 44 ? 44 : text.size(), ' ');
        for (std::string const& word : {std::string(words)...}) {
            std::size_t const width = 12;
            text += std::string(word.size() < width ? width - word.size() : 1, ' ') + word;
        }
        return text + "\n";
    }
    [[nodiscard]] static Json record(Plan<> const& move, Simulation const& world, Topology const& topology) {
        Json phases = Json::array();
        for (PhaseSum const& phase : world.phases) {
            Json tiers = Json::object();
            for (int i = 0; i < topology.size(); ++i) {
                TierSum const& tier = phase.tiers[i];
                tiers[topology.tier(i).name] = {{"messages", tier.messages},   {"bytes", tier.bytes},
                                                {"most_sent", tier.most_sent}, {"most_received", tier.most_received},
                                                {"most_out", tier.most_out},   {"most_in", tier.most_in}};
            }
            phases.push_back({{"seconds", phase.seconds}, {"tiers", tiers}});
        }
        return {{"from", to_string(move.from())},
                {"to", to_string(move.to())},
                {"relayed", move.ranks_per_node()},
                {"ranks", world.ranks},
                {"seconds", world.seconds},
                {"most_sent", world.most_sent},
                {"most_received", world.most_received},
                {"most_memory", world.most_memory},
                {"bytes_bound", world.bound_known ? Json(world.bound) : Json()},
                {"ranks_planned", world.evaluated},
                {"exact", world.exact},
                {"phases", phases}};
    }
};

}  // namespace

void add_simulate(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Simulate>();
    CLI::App* const command =
        add_verb(app, "simulate", "adds up what all ranks of a world would send, and estimates how long that takes",
                 "reshard simulate '(1024,1024):(S0,S1)' '(1024,1024):(S1,S0)' --shape 1048576x1048576 --dtype bf16\n"
                 "bound: the busiest rank's bytes over the least possible; planned: ranks worked out one by one, each "
                 "standing for its class");
    command
        ->add_option("FROM_TO", verb->transitions,
                     "mesh and placements now, and those that are needed; any number of pairs")
        ->required();
    command->add_option("--shape", verb->shape, "of the whole tensor: 8192x1024 or [8192,1024]")->required();
    command->add_option("--dtype", verb->dtype, "element type")->capture_default_str();
    command
        ->add_option("--tier", verb->tiers,
                     "one kind of link, inner to outer: NAME:RANKS:MICROSECONDS:GB/S[:GB/S OUT OF ALL RANKS]; "
                     "without, a cluster as an example: measure yours with calibrate()")
        ->allow_extra_args(false);  // one each time, else it would take what stands behind it
    command->add_option("--relayed", verb->ranks_per_node, "ranks per node: a byte enters a node once")
        ->check(whole_number(1, most_ranks));
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
