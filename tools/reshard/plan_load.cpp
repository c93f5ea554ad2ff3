// SPDX-License-Identifier: Apache-2.0
// reshard plan-load: what a load by the ranks of a mesh would read, send and hold. Reads what opening a
// checkpoint reads, no tensor.
#include "verbs.hpp"

#include <reshard/checkpoint/load_forecast.hpp>

#include <memory>

namespace command {
namespace {

using namespace reshard;

struct PlanLoad {
    std::string path;
    std::string where;
    std::string strategy = "cooperative";
    std::string checksums = "whole";
    std::vector<std::string> apart;

    void run(Session& session) const {
        auto const rule = given("WHERE", [&] { return PlacementRule(where); });
        int const ranks = planned_ranks("WHERE", rule);
        LoadOptions options;
        options.verify_checksums = checksums == "none"    ? Checksums::none
                                   : checksums == "whole" ? Checksums::whole_blocks
                                                          : Checksums::touched_blocks;
        for (std::string const& text : apart)
            options.replica_axes.push_back(axis_given("--apart", text, "WHERE", rule.mesh()));
        if (!Session::speaks()) return;
        Catalogue const catalogue(Checkpoint::open(path));
        std::vector<PlacedTensor> const targets = placed_given("WHERE", rule, catalogue.tensors());
        auto const forecast_of = [&](auto how) {
            how.options = options;
            return forecast_load(catalogue, targets, ranks, how);
        };
        LoadForecast const forecast = strategy == "boxes"       ? forecast_of(EachRankReadsItsBoxes{})
                                      : strategy == "every"     ? forecast_of(EveryRankReads{})
                                      : strategy == "scatter"   ? forecast_of(OneRankReads<Scatter>{})
                                      : strategy == "broadcast" ? forecast_of(OneRankReads<Broadcast>{})
                                                                : forecast_of(CooperativeRead{});
        auto const unlisted = detail::with_unlisted(catalogue.manifest().files);
        session.say(
            errors::concat(explain(forecast), detail::kind_note(catalogue.kind()), detail::unlisted_text(unlisted)),
            record(forecast, unlisted));
    }

private:
    [[nodiscard]] static Json record(LoadForecast const& forecast, std::vector<CheckpointFile> const& unlisted) {
        return {{"strategy", forecast.strategy},
                {"ranks", forecast.ranks},
                {"tensors", forecast.tensors},
                {"bytes_loaded", forecast.bytes_loaded},
                {"scatters", forecast.collectives.scatters},
                {"broadcasts", forecast.collectives.broadcasts},
                {"exchanges", forecast.collectives.exchanges},
                {"agreements", forecast.collectives.agreements},
                {"bytes_passed", forecast.bytes_passed},
                {"bytes_on_wire", forecast.bytes_on_wire},
                {"messages", forecast.messages},
                {"bytes_of_lists", forecast.bytes_of_lists},
                {"bytes_in_files", forecast.bytes_in_files},
                {"bytes_read", forecast.bytes_read},
                {"most_bytes_read", forecast.most_bytes_read},
                {"reads", forecast.reads},
                {"most_reads", forecast.most_reads},
                {"files_opened", forecast.files_opened},
                {"lists_opened", forecast.lists_opened},
                {"bytes_verified", forecast.bytes_verified},
                {"memory_of_a_rank", forecast.extra_bytes},
                {"read_directly", forecast.read_directly},
                {"unlisted", record_of(unlisted)},
                {"contradicting", contradicting(unlisted)},
                {"seconds", forecast.seconds}};
    }
};

}  // namespace

void add_plan_load(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<PlanLoad>();
    CLI::App* const command =
        add_verb(app, "plan-load", "says what a load by the ranks of a mesh would read, send and hold",
                 "reshard plan-load checkpoint '(8,4):(R,S0)'");
    command->add_option("CHECKPOINT", verb->path, "a folder of shards or of full files, or one file")
        ->required()
        ->check(some_path());
    command
        ->add_option("WHERE", verb->where,
                     "mesh and placements, without boundaries; a tensor without the dimension gets R")
        ->required();
    command
        ->add_option("--strategy", verb->strategy,
                     "cooperative: together, as load() does; boxes, every: each rank its own part, with or without "
                     "agreement; scatter, broadcast: one rank reads")
        ->check(CLI::IsMember({"cooperative", "boxes", "every", "scatter", "broadcast"}))
        ->capture_default_str();
    command
        ->add_option("--checksums", verb->checksums,
                     "what is compared with them: whole, the blocks that lie in what a rank reads; touched, all blocks "
                     "with something of it, the rest of which is read as well; none")
        ->check(CLI::IsMember({"none", "whole", "touched"}))
        ->capture_default_str();
    command
        ->add_option(
            "--apart", verb->apart,
            "a mesh axis, by number or name, along which copies were saved apart; given several times, several")
        ->allow_extra_args(false);
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
