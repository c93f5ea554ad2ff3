// SPDX-License-Identifier: Apache-2.0
// Saves a sharded model on one mesh and placements, and loads it on another. `reshard inspect` and `reshard verify`
// look at what lies in the folder.
//
//     reshard_checkpoint                                          the whole story, in a folder of its own
//     reshard_checkpoint save folder --from "(2,2):(R,S0)"        on 4 ranks that are threads
//     reshard_checkpoint load folder --to "(3):(S1)"              on 3: every bit is where it belongs, or it fails
//     mpirun -n 4 reshard_checkpoint save folder                  the same on four processes
//
// The model's values follow from a random seed, a tensor's name and an element's index in the whole tensor, so that
// any mesh can tell whether what it loaded is what another one saved.
#include "support/model_lists.hpp"
#include "support/model_part.hpp"
#include "support/options.hpp"
#include "support/progress.hpp"
#include "support/ranks.hpp"
#include "support/target.hpp"
#include "support/temporary_folder.hpp"

#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/checkpoint/save_plan.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/init/initialize.hpp>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {
using namespace reshard;

struct Arguments {
    std::string folder;
    std::string from;
    std::string to;
    std::string dedup = "balanced";
    std::vector<int> apart;
    std::uint64_t seed = 42;
    int ranks = 0;
    int layers = 2;
    Index scale = 1;
    bool in_background = false;
    bool fast = false;
};

// ---- The model ---------------------------------------------------------------------------------------------------

std::vector<PlacedTensor> targets_of(Arguments const& arguments, demo::Target const& where) {
    std::vector<PlacedTensor> targets;
    for (TensorSpec const& tensor :
         demo::model_list(demo::scaled(demo::qwen2_5_0_5b(arguments.layers), arguments.scale))) {
        targets.push_back({tensor.name, where.of(tensor.shape, tensor.dtype), tensor.dtype});
    }
    return targets;
}

/// Of the model whose tensors a checkpoint has.
std::vector<PlacedTensor> targets_of(Manifest const& manifest, demo::Target const& where) {
    std::vector<PlacedTensor> targets;
    for (StoredTensor const& tensor : manifest.tensors) {
        targets.push_back({tensor.name, where.of(tensor.shape, tensor.dtype), tensor.dtype});
    }
    return targets;
}

/// Compares this rank's part with what the seed says, bit for bit. Throws for the first tensor that differs.
void check_values(std::vector<PlacedTensor> const& targets, std::span<LocalTensor const> tensors, int rank,
                  std::uint64_t seed) {
    for (std::size_t i = 0; i < targets.size(); ++i) {
        demo::ModelPart expected({targets[i]}, rank);
        initialize(expected.tensors(), rank, seed, Normal{0.0, 0.02});
        DynamicView const& have = tensors[i].view;
        auto const bytes = static_cast<std::size_t>(have.size() * reshard::enums::bytes(have.dtype()));
        if (bytes == 0 || std::memcmp(have.data(), expected.tensors()[0].view.data(), bytes) == 0) continue;
        errors::raise(ErrorCode::user, "tensor '", targets[i].name, "' is not what was saved with --seed ", seed);
    }
}

// ---- Saving and loading ------------------------------------------------------------------------------------------

double megabytes(Index bytes) { return static_cast<double>(bytes) / 1e6; }

SaveOptions options_of(Arguments const& arguments) {
    SaveOptions options;
    options.dedup = arguments.dedup == "lowest_rank" ? SaveDedup::lowest_rank
                    : arguments.dedup == "shared"    ? SaveDedup::shared
                                                     : SaveDedup::balanced;
    for (int axis : arguments.apart) options.replica_axes.push_back(axis);
    options.durable = !arguments.fast;
    options.metadata = {{"seed", std::to_string(arguments.seed)}};
    return options;
}

void save_model(Arguments const& arguments, CommunicatorRef comm) {
    demo::Target const from(arguments.from, comm.size());
    from.check_ranks(comm.size());
    auto const targets = targets_of(arguments, from);
    demo::ModelPart part(targets, comm.rank());
    initialize(part.tensors(), comm.rank(), arguments.seed, Normal{0.0, 0.02});

    bool const speaks = comm.rank() == 0;
    SaveOptions options = options_of(arguments);
    std::unique_ptr<demo::Progress> bar;  // of rank 0's share: the others' are about as large
    if (speaks) {
        std::fputs(explain(plan_save(placed_tensors(part.tensors()), comm.size(), options)).c_str(), stdout);
        options.progress = [&](Index done, Index total) {
            if (!bar) bar = std::make_unique<demo::Progress>(total);
            bar->update(done, "rank 0 writes");
        };
    }
    SaveReport report;
    if (arguments.in_background) {
        auto handle = start_save(arguments.folder, part.tensors(), comm, options);
        part.forget();  // the trainer goes on: what it does now is not saved
        report = handle.wait();
    } else {
        report = save(arguments.folder, part.tensors(), comm, options);
    }
    auto const written = demo::gather_records(comm, std::vector<Index>{report.bytes_written});
    if (!speaks) return;
    Index all = 0;
    for (Index bytes : written) all += bytes;
    std::printf("saved %.1f MB of %s by %s in %.2f s\n", megabytes(all), from.text().c_str(),
                demo::ranks_text(comm).c_str(), report.seconds);
}

void load_model(Arguments const& arguments, CommunicatorRef comm) {
    demo::Target const to(arguments.to, comm.size());
    to.check_ranks(comm.size());
    std::vector<PlacedTensor> targets;
    std::uint64_t seed = arguments.seed;
    reshard::agree_on_errors(comm, [&] {  // a trainer knows its list; this program takes the checkpoint's
        Checkpoint const checkpoint = Checkpoint::open(arguments.folder);
        targets = targets_of(checkpoint.manifest(), to);
        for (auto const& [key, value] : checkpoint.manifest().metadata) {
            if (key == "seed") seed = std::stoull(value);
        }
    });
    demo::ModelPart part(targets, comm.rank());
    part.forget();
    CooperativeRead strategy;
    strategy.options.replica_axes = arguments.apart;
    LoadReport const report = load(arguments.folder, part.tensors(), comm, strategy);
    reshard::agree_on_errors(comm, [&] { check_values(targets, part.tensors(), comm.rank(), seed); });
    struct Sum {
        Index read = 0;
        Index verified = 0;
        Index opens = 0;
    };
    Sum all;
    for (Sum const& one : demo::gather_records(
             comm, std::vector<Sum>{{report.bytes_read, report.bytes_verified, report.files_opened}})) {
        all.read += one.read;
        all.verified += one.verified;
        all.opens += one.opens;
    }
    if (comm.rank() != 0) return;
    std::printf(
        "loaded onto %s of %s in %.2f s: %.1f MB read, %.1f MB of them verified, %lld open files; every bit is "
        "where the seed puts it\n",
        to.text().c_str(), demo::ranks_text(comm).c_str(), report.seconds, megabytes(all.read), megabytes(all.verified),
        static_cast<long long>(all.opens));
}

void verify_folder(Arguments const& arguments, CommunicatorRef comm) {
    auto const report = verify_checkpoint(arguments.folder, comm);
    if (comm.rank() != 0) return;
    std::printf("%lld tensors in %lld extents of %lld files, %.1f MB read once: all as the manifest says\n",
                static_cast<long long>(report.tensors), static_cast<long long>(report.extents),
                static_cast<long long>(report.files), megabytes(report.bytes));
}

// ---- The whole story ---------------------------------------------------------------------------------------------

/// Saves on four ranks, loads on three others, saves anew in the background, and verifies. As threads only: under
/// mpirun the number of ranks is the launcher's.
int tell(Arguments arguments) {
    demo::TemporaryFolder made;
    made.make(false);
    arguments.folder = made.path();
    arguments.scale = 4;  // a story, not a benchmark
    int status = 0;
    auto const step = [&](char const* title, int ranks, auto&& body) {
        if (status != 0) return;
        std::printf("\n%s\n", title);
        std::fflush(stdout);
        status = demo::run_ranks("reshard_checkpoint", ranks, ranks, body);
    };
    arguments.from = "(2,2):(R,S0)";
    step("Four ranks hold the model twice, and save it once:", 4,
         [&](CommunicatorRef comm) { save_model(arguments, comm); });
    arguments.to = "(3):(S1)";
    step("Three ranks load it, cut along the other dimension:", 3,
         [&](CommunicatorRef comm) { load_model(arguments, comm); });
    arguments.from = "(2,3):(S0,R)";
    arguments.dedup = "shared";
    arguments.in_background = true;
    arguments.seed = 43;
    step("Six ranks save another model into the same folder, in the background:", 6,
         [&](CommunicatorRef comm) { save_model(arguments, comm); });
    step("Two ranks verify what is there now:", 2, [&](CommunicatorRef comm) { verify_folder(arguments, comm); });
    arguments.to = "(2):(S0)";
    step("And load it:", 2, [&](CommunicatorRef comm) { load_model(arguments, comm); });
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    demo::Options const app("Saves a sharded model, and loads it on any other mesh.");
    auto const save = app.command("save", "writes the model");
    auto const load = app.command("load", "reads it back onto any mesh and placements, and checks every bit");
    save.add("--from", arguments.from,
             "mesh and placements, such as \"(2,2):(R,S0)\"; a tensor without the dimension gets R");
    save.add("--layers", arguments.layers, "of the 24 that Qwen2.5-0.5B has").within(1, 24).show_default();
    save.add("--scale", arguments.scale, "divides the model's widths").positive();
    save.add("--dedup", arguments.dedup, "which of the ranks that hold the same bytes writes them")
        .one_of({"lowest_rank", "balanced", "shared"})
        .show_default();
    save.add("--apart", arguments.apart, "mesh axes along which every copy is saved");
    save.add("--seed", arguments.seed, "random seed of the values").show_default();
    save.add("--background", arguments.in_background, "write while the program goes on");
    save.add("--fast", arguments.fast, "do not wait until the bytes are durable");
    load.add("--to", arguments.to, "mesh and placements; S0 over all ranks otherwise");
    load.add("--apart", arguments.apart, "mesh axes whose places read a copy of their own, where there are several");
    for (auto const& command : {save, load}) {
        command.add("folder", arguments.folder, "the checkpoint").required();
        command.add("--ranks", arguments.ranks, "number of threads; under mpirun the launcher decides").within(1, 4096);
    }
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    try {
        auto const run = [&](std::string const& where, auto&& body) {
            int const otherwise = where.empty() ? 2 : demo::Target(where, 1).ranks();
            return demo::run_ranks("reshard_checkpoint", arguments.ranks, otherwise, body);
        };
        if (save.chosen()) return run(arguments.from, [&](CommunicatorRef comm) { save_model(arguments, comm); });
        if (load.chosen()) return run(arguments.to, [&](CommunicatorRef comm) { load_model(arguments, comm); });
        return tell(arguments);
    } catch (Error const& error) {
        std::fprintf(stderr, "reshard_checkpoint: %s\n", error.what());
        return 1;
    }
}
