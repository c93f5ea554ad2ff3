// SPDX-License-Identifier: Apache-2.0
// reshard shard: any checkpoint becomes what the ranks of a mesh would have saved, with a manifest.
#include "rewrite.hpp"

#include <charconv>  // from_chars
#include <memory>
#include <string>
#include <system_error>  // errc
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
        for (std::string const& text : apart) options.replica_axes.push_back(axis_given(rule.mesh(), text));
        if (rule.dims() > 1 && !(in.empty() && model.empty())) check_cuts("--to", rule.dims(), catalogue().tensors());
        PlaceTensor const place = placed_as(mesh);
        run(
            session, [&](Catalogue const& from, int ranks) { return plan_shards(from, place, ranks, options); },
            [&](CommunicatorRef comm, auto progress) {
                auto mine = options;
                mine.progress = progress;
                return shard_checkpoint(in, out, place, comm, mine);
            });
    }

private:
    /// By its number or its name.
    [[nodiscard]] static int axis_given(DynamicMesh const& ranks, std::string const& text) {
        int axis = 0;
        char const* const end = text.data() + text.size();
        auto const [rest, error] = std::from_chars(text.data(), end, axis);
        if (error != std::errc() || rest != end) return given("--apart", [&] { return ranks.axis(text); });
        if (axis >= 0 && axis < ranks.axes()) return axis;
        wrong(errors::concat("--apart ", axis, ": the mesh of --to has ", ranks.axes(),
                             ranks.axes() == 1 ? " axis" : " axes",
                             ". Fix: they count from 0, or give a name that --to gives."));
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
