// SPDX-License-Identifier: Apache-2.0
// Reshards a whole checkpoint on ranks that are threads, or processes when mpirun starts it, and shows what each
// transition cost.
//
//     reshard_demo                       makes a checkpoint with the tensors of Qwen2.5-0.5B and uses that
//     reshard_demo model.safetensors     one file
//     reshard_demo folder                a folder with model.safetensors.index.json, or one file
//     mpirun -n 4 reshard_demo folder    the same on four processes
#include "support/made_checkpoint.hpp"
#include "support/main_job.hpp"
#include "support/options.hpp"
#include "support/progress.hpp"
#include "support/ranks.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {
using namespace reshard;

struct Arguments {
    std::string path;
    int ranks = 0;
    int layers = 4;
    Index scale = 1;
    bool keep = false;
    bool map = false;
};

/// `model.layers.*.mlp.up_proj.weight`: names that differ in numbers only belong together.
std::string group_name(std::string const& name) {
    std::string result;
    std::string part;
    for (char c : name + ".") {
        if (c != '.') {
            part += c;
            continue;
        }
        bool const number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
        if (!result.empty()) result += '.';
        result += number ? "*" : part;
        part.clear();
    }
    return result;
}

std::string size_text(Index bytes) {
    char text[32];
    auto const count = static_cast<double>(bytes);
    if (bytes < 1000) {
        std::snprintf(text, sizeof(text), "%lld B", static_cast<long long>(bytes));
    } else if (bytes < 1'000'000) {
        std::snprintf(text, sizeof(text), "%.1f kB", count / 1e3);
    } else if (bytes < 1'000'000'000) {
        std::snprintf(text, sizeof(text), "%.1f MB", count / 1e6);
    } else {
        std::snprintf(text, sizeof(text), "%.2f GB", count / 1e9);
    }
    return text;
}

/// One row of the table: a group of tensors in one transition, all ranks together.
struct Row {
    TransitionKind kind = TransitionKind::view;
    int phases = 0;
    Index messages = 0;
    Index moved = 0;
    Index bound = 0;
    double seconds = 0.0;
};

struct Group {
    std::string name;
    std::string shape;
    Index tensors = 0;
    std::vector<Row> rows{static_cast<std::size_t>(demo::Chain::steps())};
    std::vector<std::string> labels;
};

void print_row(char const* label, Row const& row, int ranks) {
    std::string lowered(name(row.kind));
    if (row.kind == TransitionKind::collective)
        lowered = errors::concat(row.phases, row.phases == 1 ? " exchange" : " exchanges");
    if (row.kind == TransitionKind::collective && row.messages == 0)
        lowered = "nothing moves";  // each rank has what it needs
    std::printf("  %-26s %-13s %9lld  %12s  %12s  ", label, lowered.c_str(), static_cast<long long>(row.messages),
                size_text(row.moved / ranks).c_str(), size_text(row.bound / ranks).c_str());
    if (row.moved == 0) {
        std::printf("%8s\n", "-");
    } else {
        std::printf("%8.2f\n", static_cast<double>(row.moved) / row.seconds / 1e9);
    }
}

/// Prints the table. `records[(rank * tensors + tensor) * steps + step]`.
void print_table(Checkpoint const& checkpoint, std::string const& path, std::string const& who, int ranks,
                 std::vector<demo::StepRecord> const& records) {
    auto const tensors = checkpoint.tensors();
    std::size_t const steps = static_cast<std::size_t>(demo::Chain::steps());
    std::size_t const width = static_cast<std::size_t>(ranks);
    std::vector<Group> groups;
    std::map<std::string, std::size_t> places;
    std::vector<Row> totals(steps);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        std::string const shape = errors::concat(name(tensors[i].dtype), " ", to_string(tensors[i].shape));
        std::string const name = group_name(tensors[i].name);
        auto const [place, is_new] = places.try_emplace(name + shape, groups.size());
        if (is_new) {
            groups.emplace_back();
            groups.back().name = name;
            groups.back().shape = shape;
            demo::Chain const chain(ranks, is_byte_sized(tensors[i].dtype) ? tensors[i].shape : DynamicShape(Shape{1}));
            for (int step = 0; step < demo::Chain::steps(); ++step) groups.back().labels.push_back(chain.label(step));
        }
        Group& group = groups[place->second];
        ++group.tensors;
        for (std::size_t step = 0; step < steps; ++step) {
            double slowest = 0.0;
            for (std::size_t rank = 0; rank < width; ++rank) {
                demo::StepRecord const& record = records[(rank * tensors.size() + i) * steps + step];
                slowest = std::max(slowest, record.seconds);
                for (Row* row : {&group.rows[step], &totals[step]}) {
                    row->kind = detail::larger(row->kind, record.kind);
                    row->phases = std::max(row->phases, record.phases);
                    row->messages += record.messages;
                    row->moved += record.moved;
                    row->bound += record.bound;
                }
            }
            group.rows[step].seconds += slowest;
            totals[step].seconds += slowest;
        }
    }

    std::printf("%s: %zu tensors, %s, %s\n\n", path.c_str(), tensors.size(),
                size_text(checkpoint.total_bytes()).c_str(), who.c_str());
    std::printf("  %-26s %-13s %9s  %12s  %12s  %8s\n", "transition", "lowered to", "messages", "moved/rank",
                "bound/rank", "GB/s");
    for (Group const& group : groups) {
        std::printf("%lld x %s  %s\n", static_cast<long long>(group.tensors), group.name.c_str(), group.shape.c_str());
        for (std::size_t step = 0; step < steps; ++step) print_row(group.labels[step].c_str(), group.rows[step], ranks);
    }
    std::printf("all tensors\n");
    char const* const names[] = {"whole -> rows", "rows -> columns", "columns -> tiles", "tiles -> whole"};
    for (std::size_t step = 0; step < steps; ++step) print_row(names[step], totals[step], ranks);
    std::printf("\nEvery step of every tensor equals the file, bit for bit; bytes counted = planned = bound.\n");
}

void run(Arguments const& arguments, CommunicatorRef comm) {
    bool const first = comm.rank() == 0;
    demo::TemporaryFolder made;
    std::string const path =
        demo::given_or_made(comm, arguments.path, made, arguments.keep, arguments.layers, arguments.scale);
    Checkpoint const checkpoint = demo::open_whole(path, arguments.map ? Access::mmap : Access::pread);
    auto const tensors = checkpoint.tensors();
    auto const steps = static_cast<std::size_t>(demo::Chain::steps());
    std::vector<demo::StepRecord> mine(tensors.size() * steps);
    demo::Progress progress(checkpoint.total_bytes());
    demo::MainJob job(comm, checkpoint);
    Index done = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        job.take(i, [&](std::size_t tensor, int step, demo::StepRecord const& record) {
            mine[tensor * steps + static_cast<std::size_t>(step)] = record;
        });
        done += tensors[i].bytes();
        if (first) progress.update(done, tensors[i].name);
    }
    auto const all = demo::gather_records(comm, mine);
    if (first) print_table(checkpoint, path, demo::ranks_text(comm), comm.size(), all);
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    demo::Options const app(
        "Takes every tensor of a checkpoint through R -> S0 -> S1 -> (a,b):(S0,S1) -> R on ranks that are threads, or "
        "processes under mpirun.");
    app.add("path", arguments.path, "a .safetensors file, or a folder; without it a checkpoint is made");
    app.add("--ranks", arguments.ranks, "number of threads (default 4; under mpirun the launcher decides)")
        .within(1, 1024);
    app.add("--layers", arguments.layers, "layers of the checkpoint that is made (the model has 24)")
        .within(1, 24)
        .show_default();
    app.add("--scale", arguments.scale, "divides its widths").positive();
    app.add("--keep", arguments.keep, "keep the checkpoint that is made");
    app.add("--mmap", arguments.map, "map the files instead of reading them");
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    return demo::run_ranks("reshard_demo", arguments.ranks, 4, [&](CommunicatorRef comm) { run(arguments, comm); });
}
