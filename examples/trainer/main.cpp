// SPDX-License-Identifier: Apache-2.0
// Trains a small recommender on any mesh: an embedding table behind managed collision, and layers on top of it. How
// tensors are placed is a string; all that is sent is a transition between two placements.
//
//     reshard_trainer                                             4 ranks that are threads, data parallel
//     reshard_trainer --place "(2,2):(R,S0),(R,S1)"               data parallel x column and row parallel, in turn
//     reshard_trainer --weights S0 --explain                      weights rest in shards (ZeRO-3): what a step sends
//     reshard_trainer --sums fixed --ranks 3                      losses do not depend on ranks and placements
//     mpirun -n 4 reshard_trainer --save folder --save-every 20   on processes, with checkpoints
//     reshard_trainer --ranks 3 --resume folder --steps 100       goes on, on another number of ranks
//
// Exit status: 0, 1 where something was wrong with data, files or ranks, above 100 for the command line.
#include "../support/options.hpp"
#include "../support/progress.hpp"
#include "../support/ranks.hpp"
#include "files.hpp"
#include "report.hpp"

#include <reshard/checkpoint/verify_replicas.hpp>
#include <reshard/comm/trace_json.hpp>
#include <reshard/comm/traced.hpp>

namespace {
using namespace reshard;
using namespace trainer;
using Clock = std::chrono::steady_clock;

struct Options {
    int ranks = 0;
    ModelOptions model;
    PlacementFlags placement;
    Index steps = 60;
    Index ids_per_field = 500;
    std::string data, sums = "float", resume, way = "cooperative", save, copies = "balanced", full, trace, curve;
    Index save_every = 0;
    bool gpus = false, explain = false, broken_seeds = false, compare_sums = false, quiet = false;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Rank 0 speaks for all.
template <class... Arguments>
void say(CommunicatorRef comm, char const* format, Arguments... arguments) {
    if (comm.rank() != 0) return;
    std::printf(format, arguments...);
    std::fflush(stdout);
}

SaveOptions save_options(Options const& options) {
    SaveOptions result;
    for (SaveDedup policy : {SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared}) {
        if (options.copies == name(policy)) result.dedup = policy;
    }
    return result;
}

/// What a step costs in one arithmetic: a few steps of a model that is then forgotten.
template <class Sum>
double say_cost(char const* what, Options const& options, Layout const& layout, ClickLog const& log,
                Transport& transport, CommunicatorRef comm) {
    Model<Sum> model(options.model, layout, transport);
    model.initialise(options.model.seed);
    Clock::time_point start;
    constexpr int steps = 5;
    for (int i = 0; i <= steps; ++i) {
        if (i == 1) start = Clock::now();  // the first one pays for memory
        static_cast<void>(model.step(log.batch(model.samples(), options.model.batch)));
    }
    double const seconds = seconds_since(start) / steps;
    say(comm, "%s sums: %.3f ms and %lld bytes a step\n", what, 1e3 * seconds,
        static_cast<long long>(explain(model.transitions(), false)));
    return seconds;
}

/// How much of the transitions of gradients computing has hidden: what the steps waited for, beside what the same
/// transitions take when nothing is computed meanwhile.
template <class Sum>
void say_hidden(Model<Sum>& model, Index steps, CommunicatorRef comm) {
    double waited = 0;
    for (Transitions* one : model.reductions()) waited += one->seconds_waited();
    constexpr int times = 20;
    auto const start = Clock::now();
    for (int i = 0; i < times; ++i)
        for (Transitions* one : model.reductions()) one->run();
    double const alone = seconds_since(start) / times;
    waited /= static_cast<double>(steps);
    say(comm, "gradients: %.3f ms a step by themselves, %.3f ms waited for: %.0f %% hidden behind computing\n",
        1e3 * alone, 1e3 * waited, alone > 0 ? 100 * std::max(0.0, 1 - waited / alone) : 0.0);
}

template <class Sum>
void train(Options const& options, Layout const& layout, ClickLog const& log, Transport& transport,
           CommunicatorRef comm, Trace* trace) {
    bool const speaks = comm.rank() == 0;
    Model<Sum> model(options.model, layout, transport);
    if (speaks && options.explain) std::printf("One step, all ranks together:\n");
    Index const bytes = explain(model.transitions(), speaks && options.explain);
    if (options.explain) say(comm, "%lld bytes a step\n", static_cast<long long>(bytes));

    if (!options.resume.empty()) {
        load(options.resume, options.way, model, comm);
        say(comm, "went on from step %lld of %s (%s)\n", static_cast<long long>(model.steps()), options.resume.c_str(),
            options.way.c_str());
    } else {
        model.initialise(options.model.seed + (options.broken_seeds ? static_cast<std::uint64_t>(comm.rank()) : 0));
    }
    ReplicaReport const start = verify_replicas(model.tensors(), comm);  // what differs is an error, and said in words
    say(comm, "replicas are equal: %lld tensors\n", static_cast<long long>(start.tensors));
    Index const first = model.steps();
    if (first > options.steps) {
        refuse(ErrorCode::user, concat("--steps ", options.steps, ": ", options.resume, " is at step ", first,
                                       ". Fix: --steps ", first, " to write it elsewhere, or more to go on."));
    }
    log.require(model.samples() + (options.steps - first) * options.model.batch);

    std::vector<LossPoint> curve;
    demo::Progress progress(options.steps - first);
    auto const save_step = [&] {
        SaveReport const report = save(options.save, model, comm, save_options(options));
        say(comm, "saved step %lld: %lld bytes, %lld more were copies\n", static_cast<long long>(model.steps()),
            static_cast<long long>(report.bytes_saved), static_cast<long long>(report.bytes_deduplicated));
    };
    if (!options.save.empty() && first == options.steps) save_step();
    while (model.steps() < options.steps) {
        auto const scope =
            trace != nullptr ? std::optional(trace->scope(concat("step ", model.steps() + 1))) : std::nullopt;
        double const loss = model.step(log.batch(model.samples(), options.model.batch));
        curve.push_back({model.steps(), loss});
        Index const done = model.steps() - first;
        if (speaks && !options.quiet) {
            char text[96];
            std::snprintf(text, sizeof(text), "step %lld  loss %.4f  %lld bytes a step",
                          static_cast<long long>(model.steps()), loss, static_cast<long long>(bytes));
            progress.update(done, text);
        }
        bool const last = model.steps() == options.steps;
        bool const due = options.save_every > 0 && model.steps() % options.save_every == 0;
        if (!options.save.empty() && (last || due)) save_step();
    }
    if (!curve.empty()) {
        say(comm, "loss %.6f at step %lld, %.6f at step %lld; %s sums, products by %s\n", curve.front().loss,
            static_cast<long long>(curve.front().step), curve.back().loss, static_cast<long long>(curve.back().step),
            options.sums.c_str(), options.sums == "float" ? std::string(products_by).c_str() : "loops");
        say_hidden(model, model.steps() - first, comm);
    }
    if (!options.curve.empty() && !curve.empty()) {
        reshard::agree_on_errors(comm, [&] {
            if (!speaks) return;
            write_text(options.curve + ".csv", curve_csv(curve));
            write_text(options.curve + ".svg", curve_svg(curve));
        });
    }
    verify_replicas(model.tensors(), comm);
    if (!options.full.empty()) {
        RewriteReport const report = consolidate(options.save, options.full, comm);
        say(comm, "%lld bytes in full files: %s\n", static_cast<long long>(report.bytes_total), options.full.c_str());
    }
}

void run(Options const& options, CommunicatorRef comm, Trace* trace = nullptr) {
    Layout const layout(options.placement, comm.size());
    std::optional<ClickLog> log;
    reshard::agree_on_errors(comm, [&] {
        if (options.data.empty()) {
            log.emplace(options.model.fields, options.ids_per_field, options.model.seed);
        } else {
            log.emplace(options.data);
        }
    });
    std::unique_ptr<Transport> const transport =
        options.gpus ? demo::gpu_transport(comm) : std::make_unique<Transport>(comm);
    Options all = options;
    all.model.fields = log->fields();
    say(comm, "%d ranks (%s), weights multiplied as %s, batches of %lld\n", comm.size(),
        std::string(transport->comm().name()).c_str(), layout.text().c_str(), static_cast<long long>(all.model.batch));
    if (options.compare_sums) {
        log->require(6 * all.model.batch);
        double const floats = say_cost<float>("float", all, layout, *log, *transport, comm);
        double const fixed = say_cost<Fixed>("fixed", all, layout, *log, *transport, comm);
        say(comm, "fixed sums take %.1f times as long\n", fixed / floats);
    }
    if (options.sums == "fixed") {
        train<Fixed>(all, layout, *log, *transport, comm, trace);
    } else {
        train<float>(all, layout, *log, *transport, comm, trace);
    }
}

void run_traced(Options const& options, CommunicatorRef comm) {
    if (options.trace.empty()) return run(options, comm);
    Trace trace(TraceCapacity{1 << 16, 1 << 18, 1 << 14});
    Traced<AnyCommunicator> traced(comm.split(0, comm.rank()), trace);
    run(options, traced, &trace);
    write_chrome_trace(traced, trace, options.trace);
    say(comm, "trace: %s (ui.perfetto.dev opens it)\n", options.trace.c_str());
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    demo::Options const app("Trains a small recommender on any mesh.");
    Index const most = Index{1} << 40;
    app.add("--ranks", options.ranks, "threads (default: those of --place, or 4), or what mpirun started")
        .within(1, 1024);
    app.add("--place", options.placement.compute,
            "mesh and, for each layer in turn, the placement of weights as they are multiplied: R cuts the "
            "batch, S0 out features, S1 in features (default: (ranks):(R))");
    app.add("--weights", options.placement.weights, "how they rest between steps: S0 (default: as multiplied)");
    app.add("--optimizer", options.placement.optimizer, "who updates what of them (default: what rests there)");
    app.add("--activations", options.placement.activations, "between layers, S0 or S1 on each axis");
    app.add("--sums", options.sums, "fixed: losses depend on neither ranks nor placements")
        .one_of({"float", "fixed"})
        .show_default();
    app.add("--compare-sums", options.compare_sums, "time both kinds of sums first");
    app.add("--steps", options.steps, "the step to end with").within(1, most).show_default();
    app.add("--batch", options.model.batch, "samples of a step").within(1, most).show_default();
    app.add("--hidden", options.model.hidden, "outputs of all layers but the last").within(1, most).show_default();
    app.add("--embedding", options.model.embedding, "numbers of an id's row").within(1, 256).show_default();
    app.add("--slots", options.model.slots, "rows of the table").within(1, most).show_default();
    app.add("--rate", options.model.rate, "of learning").show_default();
    app.add("--seed", options.model.seed, "of weights and data").show_default();
    app.add("--data", options.data, "lines of label,id,id,... (default: made from the seed)");
    app.add("--resume", options.resume, "a checkpoint to go on from");
    app.add("--strategy", options.way, "how its weights come to the ranks").one_of(ways_to_load).show_default();
    app.add("--save", options.save, "a folder for checkpoints");
    app.add("--save-every", options.save_every, "steps (default: at the end)").needs("--save").within(1, most);
    app.add("--dedup", options.copies, "who writes what several ranks have")
        .one_of({"lowest_rank", "balanced", "shared"})
        .show_default();
    app.add("--full", options.full, "a folder for full files, at the end").needs("--save");
    app.add("--curve", options.curve, "writes the losses to <this>.csv and <this>.svg");
    app.add("--gpus", options.gpus, "tensors of a GPU's memory, moved and summed by the GPU of each rank over NCCL");
    app.add("--trace", options.trace, "a file for what all ranks sent, and when").excludes("--gpus");
    app.add("--explain", options.explain, "print every transition of a step before the first");
    app.add("--broken-seeds", options.broken_seeds, "a seed of its own for every rank: see what is said of it");
    app.add("--quiet", options.quiet, "no progress");
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    int otherwise = 4;
    try {
        if (!options.placement.compute.empty()) otherwise = Layout::ranks_of(options.placement.compute);
        if (otherwise > 1024 && !demo::started_by_launcher()) {
            refuse(ErrorCode::mesh, concat(otherwise, " ranks are more than 1024 threads. Fix: a smaller mesh."));
        }
    } catch (Error const& error) {
        std::fprintf(stderr, "reshard_trainer: --place: %s\n", error.what());
        return 1;
    }
    return demo::run_ranks("reshard_trainer", options.ranks, otherwise,
                           [&](CommunicatorRef comm) { run_traced(options, comm); });
}
