// SPDX-License-Identifier: Apache-2.0
// reshard relabel: which rank should take which place, where the program may choose.
#include "verbs.hpp"

#include <reshard/core/detail/explain_text.hpp>
#include <reshard/plan/relabel.hpp>

#include <memory>
#include <vector>

namespace command {
namespace {

using namespace reshard;

struct Relabel {
    std::string from;
    std::string to;
    std::string shape;
    std::string dtype = "f32";

    void run(Session& session) const {
        DynamicShape const extents = shape_given("--shape", shape);
        DType const type = dtype_given("--dtype", dtype);
        auto const source = given("FROM", [&] { return parse(from, extents); });
        auto const target = given("TO", [&] { return parse(to, extents); });
        for (auto const& [which, mesh] : {std::pair("FROM", source.mesh()), std::pair("TO", target.mesh())})
            if (mesh.size() > 4096)
                wrong(std::string(which) + ": more than 4096 ranks. Fix: relabel nodes instead of ranks.");
        std::vector<Index> candidates;
        for (Index i = 0; i < source.mesh().size(); ++i) candidates.push_back(source.mesh().rank_at(i));
        for (Index i = 0; target.mesh().size() > source.mesh().size() && i < target.mesh().size(); ++i)
            if (Index const rank = target.mesh().rank_at(i); source.mesh().ordinal(rank) < 0)
                candidates.push_back(rank);
        Relabelling const best = given("FROM TO", [&] { return relabel({{source, target, type}}, candidates); });
        std::string const better = to_string(on_mesh(target, best.mesh));
        std::string const text = errors::concat(to_string(source), " -> ", to_string(target), "  moves ",
                                                detail::bytes_text(best.bytes_before), "\n", to_string(source), " -> ",
                                                better, "  moves ", detail::bytes_text(best.bytes_after), "\n");
        if (!Session::speaks()) return;
        session.say(text, {{"from", to_string(source)},
                           {"to", to_string(target)},
                           {"relabelled", better},
                           {"ranks", best.ranks},
                           {"bytes_before", best.bytes_before},
                           {"bytes_after", best.bytes_after}});
    }
};

}  // namespace

void add_relabel(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Relabel>();
    CLI::App* const command =
        add_verb(app, "relabel", "says which rank should take which place, so that the fewest bytes move",
                 "reshard relabel '(8):(S0:bal)' '(6):(S0:bal)' --shape 8192x8192 --dtype bf16");
    command
        ->add_option("FROM", verb->from,
                     "mesh and placements now; its ranks take the places, and TO's where TO has more")
        ->required();
    command->add_option("TO", verb->to, "those that are needed")->required();
    command->add_option("--shape", verb->shape, "of the whole tensor: 8192x1024 or [8192,1024]")->required();
    command->add_option("--dtype", verb->dtype, "element type")->capture_default_str();
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
