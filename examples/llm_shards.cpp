// SPDX-License-Identifier: Apache-2.0
// A model goes from the mesh that trains it to the mesh that serves it, as reinforcement learning does every few
// minutes: one batch, prepared once, and run for every update; beside gathering every tensor on one rank, which
// broadcasts it.
//
//     reshard_llm_shards                                  a made Qwen2.5-0.5B, 2 + 2 ranks that are threads
//     reshard_llm_shards model.safetensors --train 3      yours, from 3 ranks to 2 others
//     mpirun -n 4 reshard_llm_shards                      the same on four processes
//     scripts/real_model build/demo/examples/reshard_llm_shards     a real model, from the Python package index
#include "support/made_checkpoint.hpp"
#include "support/model_part.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"

#include <reshard/checkpoint/load.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/reshard.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {
using namespace reshard;

struct Arguments {
    std::string path;
    int ranks = 0;
    int train = 2;
    int serve = 2;
    int updates = 5;
    int layers = 2;
    Index scale = 1;
    bool goal = false;
};

/// Tensor parallelism, by name: matrices that are multiplied last keep columns, other matrices rows, vectors are
/// copied.
Placement served_as(std::string const& name, DynamicShape const& shape) {
    if (shape.rank() < 2) return Placement::replicate();
    for (std::string_view const last : {"o_proj.weight", "down_proj.weight", "output.dense.weight"})
        if (name.size() >= last.size() && name.ends_with(last)) return Placement::shard(1);
    return Placement::shard(0);
}

DynamicDistribution on(DynamicMesh const& mesh, DynamicShape const& shape, Placement const& placement) {
    Placements placements;
    placements.push_back(placement);
    return DynamicDistribution(mesh, shape, placements);
}

/// The same tensors, as four kinds of ranks hold them.
struct Sides {
    std::vector<PlacedTensor> trained;  ///< rows, cut among the ranks that train
    std::vector<PlacedTensor> served;   ///< tensor parallel, on ranks of their own
    std::vector<PlacedTensor> root;     ///< whole, on rank 0
    std::vector<PlacedTensor> copies;   ///< whole, on every rank that serves

    Sides(Checkpoint const& checkpoint, Arguments const& arguments) {
        DynamicMesh const train = Mesh{arguments.train};
        DynamicMesh const serve = Mesh{arguments.serve}.on(first_rank(arguments.train));
        DynamicMesh const one = Mesh{1};
        for (CheckpointTensor const& tensor : checkpoint.tensors()) {
            DynamicShape const& shape = tensor.shape;
            bool const scalar = shape.rank() == 0;
            trained.push_back(
                {tensor.name, on(train, shape, scalar ? Placement::replicate() : Placement::shard(0)), tensor.dtype});
            served.push_back({tensor.name, on(serve, shape, served_as(tensor.name, shape)), tensor.dtype});
            root.push_back({tensor.name, on(one, shape, Placement::replicate()), tensor.dtype});
            copies.push_back({tensor.name, on(serve, shape, Placement::replicate()), tensor.dtype});
        }
    }
};

/// All tensors of one side to the other, prepared.
PreparedPlan prepare_moves(CommunicatorRef comm, demo::ModelPart const& from, demo::ModelPart const& to) {
    Batch batch;
    for (std::size_t i = 0; i < from.tensors().size(); ++i) {
        LocalTensor const& source = from.tensors()[i];
        LocalTensor const& destination = to.tensors()[i];
        batch.add(plan_across(source.distribution, destination.distribution), source.view, destination.view,
                  source.name);
    }
    return prepare(batch, comm);
}

/// What this rank serves of the whole tensors that it was sent.
void keep_parts(int rank, demo::ModelPart const& copies, demo::ModelPart const& served) {
    for (std::size_t i = 0; i < copies.tensors().size(); ++i) {
        LocalTensor const& whole = copies.tensors()[i];
        LocalTensor const& part = served.tensors()[i];
        redistribute(plan(whole.distribution, part.distribution), whole.view, part.view, rank);
    }
}

/// Milliseconds until the last rank is done.
template <class Work>
double time_of(CommunicatorRef comm, Work&& work) {
    barrier(comm);
    auto const start = std::chrono::steady_clock::now();
    work();
    std::chrono::duration<double, std::milli> const mine = std::chrono::steady_clock::now() - start;
    auto const all = demo::gather_records(comm, std::vector<double>{mine.count()});
    return *std::max_element(all.begin(), all.end());
}
double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void run(Arguments const& arguments, CommunicatorRef comm) {
    int const needed = arguments.train + arguments.serve;
    if (comm.size() < needed) {
        errors::raise(ErrorCode::mesh, arguments.train, " ranks that train and ", arguments.serve, " that serve are ",
                      needed, ", the communicator has ", comm.size(), ". Fix: mpirun -n ", needed,
                      " reshard_llm_shards; of more ranks the others hold nothing.");
    }
    int const rank = comm.rank();
    demo::TemporaryFolder made;
    std::string const path = demo::given_or_made(comm, arguments.path, made, false, arguments.layers, arguments.scale);
    Checkpoint const checkpoint = demo::open_whole(path);
    Sides const sides(checkpoint, arguments);
    demo::ModelPart trained(sides.trained, rank);
    demo::ModelPart served(sides.served, rank);
    demo::ModelPart root(sides.root, rank);
    demo::ModelPart copies(sides.copies, rank);
    load(path, trained.tensors(), comm);

    auto const start = std::chrono::steady_clock::now();
    PreparedPlan direct = prepare_moves(comm, trained, served);
    std::chrono::duration<double, std::milli> const preparing = std::chrono::steady_clock::now() - start;
    PreparedPlan gather = prepare_moves(comm, trained, root);
    PreparedPlan broadcast = prepare_moves(comm, root, copies);

    std::vector<double> direct_times;
    std::vector<double> broadcast_times;
    Traffic sent[2];
    for (int update = 0; update <= arguments.updates; ++update) {
        served.forget();
        Traffic const before = comm.traffic();
        double const one = time_of(comm, [&] { direct.run(); });
        sent[0] = comm.traffic() - before;
        if (update == 0) served.compare(checkpoint);  // each row is the file's
        std::uint64_t const as_direct = served.hash();
        served.forget();
        Traffic const between = comm.traffic();
        double const other = time_of(comm, [&] {
            gather.run();
            broadcast.run();
            keep_parts(rank, copies, served);
        });
        sent[1] = comm.traffic() - between;
        if (served.hash() != as_direct) {
            errors::raise(ErrorCode::user, "update ", update, ": both ways leave other bytes on rank ", rank);
        }
        trained.change();
        if (update == 0) continue;  // memory is touched for the first time
        direct_times.push_back(one);
        broadcast_times.push_back(other);
    }
    auto const traffic = demo::gather_records(comm, std::vector<Index>{sent[0].bytes_sent, sent[1].bytes_sent});
    if (rank != 0) return;
    Index total[2] = {};
    Index busiest[2] = {};
    for (std::size_t i = 0; i < traffic.size(); ++i) {
        total[i % 2] += traffic[i];
        busiest[i % 2] = std::max(busiest[i % 2], traffic[i]);
    }
    double const ratio = median(broadcast_times) / median(direct_times);
    auto const megabytes = [](Index bytes) { return static_cast<double>(bytes) / 1e6; };
    std::printf("%zu tensors on %s: %s trains, %s serves\n", sides.trained.size(), demo::ranks_text(comm).c_str(),
                to_string(sides.trained[0].distribution.mesh()).c_str(),
                to_string(sides.served[0].distribution.mesh()).c_str());
    std::printf("%-32s %12s %12s %14s\n", "an update, median of the updates", "ms", "MB sent", "by the busiest");
    std::printf("%-32s %12.1f %12.1f %14.1f\n", "one batch, prepared", median(direct_times), megabytes(total[0]),
                megabytes(busiest[0]));
    std::printf("%-32s %12.1f %12.1f %14.1f\n", "gathered on rank 0, broadcast", median(broadcast_times),
                megabytes(total[1]), megabytes(busiest[1]));
    std::printf("prepared in %.1f ms, once; %.1f times as fast; every byte compared\n", preparing.count(), ratio);
    if (arguments.goal) {
        std::printf("goal trainer_to_inference_vs_broadcast %.3g 3 %s\n", ratio, ratio >= 3 ? "ok" : "short");
    }
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    demo::Options const app("Moves a model from the ranks that train it to the ranks that serve it, again and again.");
    app.add("checkpoint", arguments.path, "a safetensors file or a folder (default: one is made)");
    app.add("--ranks", arguments.ranks, "threads (default: as many as train and serve), or what mpirun started")
        .within(1, 1024);
    app.add("--train", arguments.train, "ranks that train").within(1, 512).show_default();
    app.add("--serve", arguments.serve, "ranks that serve").within(1, 512).show_default();
    app.add("--updates", arguments.updates, "how often").within(1, 1000).show_default();
    app.add("--layers", arguments.layers, "layers of the made model").within(1, 24);
    app.add("--scale", arguments.scale, "divides its sizes").within(1, 64);
    app.add("--goal", arguments.goal, "print the line that scripts/bench reads");
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    return demo::run_ranks("reshard_llm_shards", arguments.ranks, arguments.train + arguments.serve,
                           [&](CommunicatorRef comm) { run(arguments, comm); });
}
