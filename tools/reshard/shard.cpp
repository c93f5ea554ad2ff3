// SPDX-License-Identifier: Apache-2.0
// reshard shard: any checkpoint becomes what the ranks of a mesh would have saved, with a manifest.
#include "rewrite.hpp"

#include <memory>
#include <string>
#include <vector>

namespace command {
namespace {

using namespace reshard;

struct Shard : Rewrite {
    std::string mesh;
    std::string dedup = "balanced";
    std::vector<std::string> apart;

    void run_verb(Session& session) const {
        auto options = this->options<ShardOptions>();
        for (SaveDedup const one : {SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared}) {
            if (dedup == name(one)) options.dedup = one;
        }
        auto const rule = given("--to", [&] { return PlacementRule(mesh); });
        for (std::string const& text : apart)
            options.replica_axes.push_back(axis_given("--apart", text, "--to", rule.mesh()));
        if (rule.dims() > 1 && !(in.empty() && model.empty())) check_cuts("--to", rule.dims(), catalogue().tensors());
        PlaceTensor const place = placed_as(mesh);
        run(
            session, options,
            [&](Catalogue const& from, int ranks) { return plan_shards(from, place, ranks, options); },
            [&](CommunicatorRef comm, auto const& mine) { return shard_checkpoint(in, out, place, comm, mine); });
    }
};

}  // namespace

void add_shard(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Shard>();
    CLI::App* const command = add_verb(app, "shard", "writes a checkpoint as the ranks of another mesh would save it",
                                       "reshard shard full shards --to '(4,2):(S0,R)'");
    verb->add_options(*command, session);
    command
        ->add_option("--to", verb->mesh,
                     "mesh and placements, without boundaries; a tensor without the dimension gets R")
        ->required();
    command->add_option("--dedup", verb->dedup, "which of the ranks that hold the same bytes has them in its file")
        ->check(CLI::IsMember({"lowest_rank", "balanced", "shared"}))
        ->transform(with_underscores())
        ->capture_default_str();
    command
        ->add_option("--apart", verb->apart,
                     "a mesh axis, by number or name, along which every copy is written; given several times, several")
        ->allow_extra_args(false);
    command->callback([verb, &session] { verb->run_verb(session); });
}

}  // namespace command
