// SPDX-License-Identifier: Apache-2.0
// reshard plan-save: what each policy of save() would write of a checkpoint's tensors, or of a model's. Writes nothing.
#include "verbs.hpp"

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/checkpoint/save_plan.hpp>
#include <reshard/core/detail/explain_text.hpp>

#include <cstdio>
#include <memory>

namespace command {
namespace {

using namespace reshard;

struct PlanSave {
    std::string where;
    std::string path;
    std::string model = "Qwen2.5-0.5B";
    int layers = 0;

    void run(Session& session) const {
        auto const rule = given("WHERE", [&] { return PlacementRule(where); });
        int const ranks = planned_ranks("WHERE", rule);
        if (!Session::speaks()) return;
        auto const list =
            path.empty() ? Catalogue::of(model_given("--model", model, layers)) : Catalogue(Checkpoint::open(path));
        std::string const& subject = path.empty() ? model : path;
        std::vector<PlacedTensor> const tensors = placed_given("WHERE", rule, list.tensors());
        std::string text = errors::concat(subject, layers > 0 ? errors::concat(", ", layers, " layers") : std::string(),
                                          ", ", where, " of ", ranks, " ranks\n");
        char line[160];
        std::snprintf(line, sizeof line, "  %-22s %6s %8s %12s %14s %12s\n", "policy", "files", "shards", "written",
                      "busiest rank", "of mean");
        text += line;
        Json rows = Json::array();
        auto const add = [&](std::string const& what, SaveOptions const& options) {
            SavePlan const plan = plan_save(tensors, ranks, options);
            Index busiest = 0;
            for (CheckpointFile const& file : plan.manifest.files)
                busiest = detail::larger(busiest, plan.bytes_of(file.writer));
            auto const written = static_cast<double>(plan.bytes_written);
            double const of_mean = written == 0 ? 1 : static_cast<double>(busiest) * ranks / written;
            std::snprintf(line, sizeof line, "  %-22s %6zu %8zu %12s %14s %11.2fx\n", what.c_str(),
                          plan.manifest.files.size(), plan.manifest.extents.size(),
                          detail::bytes_text(plan.bytes_written).c_str(), detail::bytes_text(busiest).c_str(), of_mean);
            text += line;
            rows.push_back({{"policy", what},
                            {"files", plan.manifest.files.size()},
                            {"shards", plan.manifest.extents.size()},
                            {"bytes", plan.bytes_written},
                            {"most_bytes", busiest}});
        };
        for (SaveDedup dedup : {SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared}) {
            SaveOptions options;
            options.dedup = dedup;
            add(std::string(name(dedup)), options);
        }
        for (int axis = 0; axis < rule.mesh().axes(); ++axis) {
            SaveOptions options;
            options.replica_axes.push_back(axis);
            add(errors::concat("copies of axis ", axis, " apart"), options);
        }
        auto const unlisted = detail::with_unlisted(list.manifest().files);
        session.say(errors::concat(text, detail::kind_note(list.kind()), detail::unlisted_text(unlisted)),
                    {{path.empty() ? "model" : "checkpoint", subject},
                     {"where", where},
                     {"ranks", ranks},
                     {"unlisted", record_of(unlisted)},
                     {"contradicting", contradicting(unlisted)},
                     {"policies", rows}});
    }
};

}  // namespace

void add_plan_save(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<PlanSave>();
    CLI::App* const command = add_verb(
        app, "plan-save", "says what each policy of save() would write of a checkpoint's tensors, or a model's",
        "reshard plan-save '(8,4):(R,S0)' checkpoint");
    command
        ->add_option("WHERE", verb->where,
                     "mesh and placements, without boundaries; a tensor without the dimension gets R")
        ->required();
    auto* const path = command->add_option("CHECKPOINT", verb->path,
                                           "what has the tensors: a folder of shards or of full files, or one file");
    path->check(some_path());
    command->add_option("--model", verb->model, "instead of it, a public model")->capture_default_str()->excludes(path);
    command->add_option("--layers", verb->layers, "of the model's; all otherwise")
        ->check(whole_number(1, 1000))
        ->excludes(path);
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
