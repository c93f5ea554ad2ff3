// SPDX-License-Identifier: Apache-2.0
// Sharded safetensors to full files with an index, full files to shards, or shards to shards of another mesh. All ranks
// write equal shares. Reads what this library saves, PyTorch's DCP shards, and Hugging Face's files.
//
//     reshard_consolidate sharded full                          full files of up to 5 GB, ranks are threads
//     reshard_consolidate sharded full --dtype bf16 --one-file  floats cast, one model.safetensors
//     reshard_consolidate full shards --to "(2,2):(S0,R)"       the other way: shards of four ranks
//     mpirun -n 8 reshard_consolidate sharded full              the same on eight processes that share the folders
//     reshard_consolidate sharded full --dry-run --ranks 64     who would read and write what, without a byte written
//     reshard_consolidate --dry-run --model Qwen2.5-3B          the same for a model of eight ranks, without files
#include "support/model_lists.hpp"
#include "support/options.hpp"
#include "support/progress.hpp"
#include "support/ranks.hpp"

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/consolidate_plan.hpp>
#include <reshard/checkpoint/detail/consolidate_output.hpp>

#include <cstdio>
#include <optional>
#include <thread>

namespace {
using namespace reshard;

struct Arguments {
    std::string from;
    std::string to;
    std::string mesh;
    std::string dtype;
    std::string like;
    std::string model;
    std::string saved_as = "(8):(S0)";
    Index max_file_bytes = 5'000'000'000;
    bool one_file = false;
    bool dry_run = false;
    bool no_sync = false;
    bool no_checksums = false;
    int ranks = 0;
    int in_flight = 1;
    Index window = Index{32} << 20;
    int replica = -1;
};

DType dtype_of_name(std::string const& text) {
    for (DType const dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
        std::string lower;
        for (char const c : name(dtype)) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        if (text == lower) return dtype;
    }
    raise(ErrorCode::user, concat("--dtype ", text, ". Fix: f16, bf16, f32 or f64."));
}

template <class Options>
Options options_of(Arguments const& arguments) {
    Options options;
    if (!arguments.dtype.empty()) options.dtype = floats_as(dtype_of_name(arguments.dtype));
    options.durable = !arguments.no_sync;
    options.checksums = options.verify_checksums = !arguments.no_checksums;
    options.in_flight = arguments.in_flight;
    options.window_bytes = arguments.window;
    options.replica = arguments.replica;
    if constexpr (std::is_same_v<Options, ConsolidateOptions>) {
        options.max_file_bytes = arguments.one_file ? 0 : arguments.max_file_bytes;
        if (!arguments.like.empty()) options.weight_map = read_weight_map(arguments.like);
    }
    return options;
}

/// What is there, or what ranks would have saved of a model.
Catalogue catalogue_of(Arguments const& arguments) {
    if (arguments.model.empty()) return Catalogue(Checkpoint::open(arguments.from));
    std::string known;
    for (demo::ModelConfig const& config : demo::models()) {
        if (config.name == arguments.model) {
            Catalogue const full = Catalogue::of(demo::model_list(config));
            return detail::shard_output(full, placed_as(arguments.saved_as), {}, std::string(16, '0')).catalogue;
        }
        known += concat(known.empty() ? "" : ", ", config.name);
    }
    raise(ErrorCode::user, concat("no model is called '", arguments.model, "'. Fix: one of ", known, "."));
}

void print_plan(Arguments const& arguments, int ranks) {
    Catalogue const from = catalogue_of(arguments);
    RewritePlan const plan =
        arguments.mesh.empty()
            ? plan_consolidate(from, ranks, options_of<ConsolidateOptions>(arguments))
            : plan_shards(from, placed_as(arguments.mesh), ranks, options_of<ShardOptions>(arguments));
    std::printf("%s", explain(plan).c_str());
}

template <Communicator C>
void run(Arguments const& arguments, C& comm) {
    bool const speaks = comm.rank() == 0;
    auto const start = demo::Progress::Clock::now();
    std::optional<demo::Progress> bar;
    // Shares are equal: this rank's part of its share is everybody's.
    auto const progress = [&](Index done, Index total) {
        if (!bar) bar.emplace(total * comm.size(), start);
        bar->update_bytes(done * comm.size());
    };
    RewriteReport report;
    if (arguments.mesh.empty()) {
        auto options = options_of<ConsolidateOptions>(arguments);
        if (speaks) options.progress = progress;
        report = consolidate(arguments.from, arguments.to, comm, options);
    } else {
        auto options = options_of<ShardOptions>(arguments);
        if (speaks) options.progress = progress;
        report = shard_checkpoint(arguments.from, arguments.to, placed_as(arguments.mesh), comm, options);
    }
    if (!speaks) return;
    double const gigabytes = static_cast<double>(report.bytes_total) / 1e9;
    std::printf("%s: %zu tensors, %.3f GB in %zu files, by %s in %.2f s (%.2f GB/s)%s\n", arguments.to.c_str(),
                report.written.tensors.size(), gigabytes, report.written.files.size(), demo::ranks_text(comm).c_str(),
                report.seconds, gigabytes / report.seconds,
                report.bytes_verified > 0 ? "; what was read is what was saved" : "");
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app("Sharded safetensors to full files, and back: every rank writes an equal share.");
    app.add_option("from", arguments.from, "a folder of shards or of full files, or one file");
    app.add_option("to", arguments.to, "a folder that is not there yet, or empty");
    app.add_option(
        "--to", arguments.mesh,
        "write shards for this mesh and placements, such as \"(2,2):(S0,R)\"; a tensor without the dimension "
        "gets R");
    app.add_option("--dtype", arguments.dtype, "what floating-point tensors are cast to: f16, bf16, f32 or f64");
    app.add_option("--like", arguments.like, "an index whose weight_map says which tensor goes to which file");
    app.add_option("--max-file-bytes", arguments.max_file_bytes, "a file takes tensors up to this")
        ->check(CLI::Range(Index{1}, Index{1} << 50))
        ->capture_default_str();
    app.add_flag("--one-file", arguments.one_file, "one model.safetensors");
    app.add_option("--replica", arguments.replica, "which copy to take where copies were saved apart and differ");
    app.add_flag("--dry-run", arguments.dry_run, "write nothing: say which rank would read and write what");
    app.add_option("--model", arguments.model, "what a dry run without files is about: a model's name");
    app.add_option("--saved-as", arguments.saved_as, "mesh and placements that the model was saved with")
        ->capture_default_str();
    app.add_option("--ranks", arguments.ranks,
                   "number of threads (default: one for each processor, at most 8; under mpirun the launcher decides)")
        ->check(CLI::Range(1, 1 << 20));
    app.add_option("--in-flight", arguments.in_flight, "pieces that each rank has under way")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_option("--window", arguments.window, "bytes of memory of each rank for them")
        ->check(CLI::Range(Index{1} << 16, Index{1} << 40))
        ->capture_default_str();
    app.add_flag("--no-sync", arguments.no_sync, "do not wait until bytes are on the disk");
    app.add_flag("--no-checksums", arguments.no_checksums, "neither compare nor compute CRC-32C sums");
    int status = 0;
    if (!demo::parse_options(app, argc, argv, status)) return status;
    bool const from_list = arguments.dry_run && !arguments.model.empty();
    if (!from_list && (arguments.from.empty() || (arguments.to.empty() && !arguments.dry_run))) {
        if (demo::is_first_process())
            std::fprintf(stderr, "reshard_consolidate: name two folders: FROM TO. Run with --help.\n");
        return 1;
    }
    auto const processors = static_cast<int>(std::thread::hardware_concurrency());
    int const otherwise = std::clamp(processors, 1, 8);
    try {
        if (arguments.dry_run) {
            if (demo::is_first_process()) print_plan(arguments, arguments.ranks == 0 ? otherwise : arguments.ranks);
            return 0;
        }
        demo::RankOptions options;
        options.deadline = std::chrono::hours(1);  // of a vote: what the slowest disk needs for vote_bytes, and to sync
        return demo::run_ranks("reshard_consolidate", arguments.ranks, otherwise, options,
                               [&](auto& comm) { run(arguments, comm); });
    } catch (Error const& error) {
        std::fprintf(stderr, "reshard_consolidate: %s\n", error.what());
        return 1;
    }
}
