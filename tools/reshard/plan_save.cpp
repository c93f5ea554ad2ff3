// SPDX-License-Identifier: Apache-2.0
// reshard plan-save: what each policy of save() would write of a model. Writes nothing.
#include "verbs.hpp"

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
    std::string model = "Qwen2.5-0.5B";
    int layers = 0;

    void run(Session& session) const {
        auto const rule = given("WHERE", [&] { return PlacementRule(where); });
        int const ranks = planned_ranks("WHERE", rule);
        std::vector<PlacedTensor> tensors;
        auto const specs = model_given("--model", model, layers);
        check_cuts("WHERE", rule.dims(), specs);
        for (TensorSpec const& one : specs) {
            tensors.push_back({one.name, given("WHERE", [&] { return rule.of(one.shape, one.dtype); }), one.dtype});
        }
        std::string text = errors::concat(model, layers > 0 ? errors::concat(", ", layers, " layers") : std::string(),
                                          ", ", where, " of ", ranks, " ranks\n");
        char line[160];
        std::snprintf(line, sizeof line, "  %-22s %6s %8s %12s %14s %12s\n", "policy", "files", "shards", "written",
                      "busiest rank", "of mean");
        text += line;
        Json rows = Json::array();
        auto const add = [&](std::string const& what, SaveOptions const& options) {
            SavePlan const plan = given("WHERE", [&] { return plan_save(tensors, ranks, options); });
            Index busiest = 0;
            for (CheckpointFile const& file : plan.manifest.files)
                busiest = detail::larger(busiest, plan.bytes_of(file.writer));
            double const of_mean =
                static_cast<double>(busiest) * static_cast<double>(ranks) / static_cast<double>(plan.bytes_written);
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
        if (Session::speaks())
            session.say(text, {{"model", model}, {"where", where}, {"ranks", ranks}, {"policies", rows}});
    }
};

}  // namespace

void add_plan_save(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<PlanSave>();
    CLI::App* const command = add_verb(app, "plan-save", "says what each policy of save() would write of a model",
                                       "reshard plan-save '(8,4):(R,S0)' --model Qwen2.5-3B");
    command
        ->add_option("WHERE", verb->where,
                     "mesh and placements, without boundaries; a tensor without the dimension gets R")
        ->required();
    command->add_option("--model", verb->model, "a public model")->capture_default_str();
    command->add_option("--layers", verb->layers, "of the model's; all otherwise")->check(whole_number(1, 1000));
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
