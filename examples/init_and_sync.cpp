// SPDX-License-Identifier: Apache-2.0
// Three ways in which replicas of a model start out, each proven by verify_replicas():
//
//   1. every rank draws from a random seed of its own: they differ, and the report says where;
//   2. values that depend on seed, name and index alone: equal, whatever the mesh, and nothing was sent;
//   3. rank 0 overwrites one row, as a restored or tuned model would: sync() makes it everybody's.
//
//     reshard_init_and_sync                  one layer of Qwen2.5-0.5B on 6 ranks that are threads
//     mpirun -n 6 reshard_init_and_sync      the same on six processes
//     reshard_init_and_sync --ranks 4        another mesh: the digest of case 2 stays
#include "support/model_lists.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"

#include <reshard/checkpoint/verify_replicas.hpp>
#include <reshard/exec/sync.hpp>
#include <reshard/init/initialize.hpp>
#include <reshard/reshard.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace {
using namespace reshard;

struct Arguments {
    int ranks = 0;
    int layers = 1;
    Index scale = 8;
};

/// A rank's part of a model: copied along the first mesh axis, matrices cut by rows along the second.
class Module {
public:
    Module(std::vector<TensorSpec> const& list, DynamicMesh const& mesh, int rank) {
        memory_.reserve(list.size());
        for (TensorSpec const& spec : list) {
            auto const where = distribution(mesh, spec.shape, spec.shape.rank() >= 2 ? "R,S0" : "R,R");
            DynamicShape const local = where.local_shape(rank);
            memory_.emplace_back(static_cast<std::size_t>(local.size()));
            tensors_.push_back({spec.name, where, TensorView<float>(memory_.back().data(), local)});
        }
    }
    [[nodiscard]] std::span<LocalTensor const> tensors() const noexcept { return tensors_; }

    /// The usual law of each tensor: matrices by their fans, norms one, biases zero.
    void initialise(int rank, std::uint64_t seed) {
        for (LocalTensor const& tensor : tensors_) {
            if (tensor.distribution.shape().rank() >= 2) {
                initialize(tensor, rank, seed, kaiming_uniform(tensor));
            } else {
                initialize(tensor, rank, seed, Constant{tensor.name.ends_with("bias") ? 0.0 : 1.0});
            }
        }
    }
    /// Rank 0's own idea of one row.
    void overwrite_row(std::size_t tensor) {
        std::fill_n(memory_[tensor].begin(), tensors_[tensor].view.extent(1), 0.25F);
    }

private:
    std::vector<std::vector<float>> memory_;
    std::vector<LocalTensor> tensors_;
};

std::vector<TensorSpec> model(Arguments const& arguments) {
    std::vector<TensorSpec> list =
        demo::model_list(demo::scaled(demo::qwen2_5_0_5b(arguments.layers), arguments.scale));
    for (TensorSpec& tensor : list) tensor.dtype = DType::f32;
    return list;
}

/// A digest of all elements of the model and their places, each counted once: equal for every mesh only if the model
/// is. Digests of elements are added, so that it does not matter who adds which.
std::uint64_t digest_of_model(CommunicatorRef comm, Module const& module) {
    std::uint64_t mine = 0;
    for (LocalTensor const& tensor : module.tensors()) {
        DynamicMesh const& mesh = tensor.distribution.mesh();
        Indices const at = mesh.coordinates(comm.rank());
        bool const cut = tensor.distribution.placement(1).is_shard();
        if (at[0] != 0 || (!cut && at[1] != 0)) continue;  // one copy
        Index const first = cut ? tensor.distribution.box(comm.rank()).begin(0) * tensor.view.extent(1) : 0;
        for (Index i = 0; i < tensor.view.size(); ++i) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, tensor.view.data() + i * 4, 4);
            mine += detail::Digest{}.add_signed(first + i).add(bits).value();
        }
    }
    auto const all = demo::gather_records(comm, std::vector<std::uint64_t>{mine});
    return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
}

/// The first lines of a report, indented.
std::string head(std::string const& text, int lines) {
    std::string result;
    std::size_t begin = 0;
    for (; lines > 0 && begin < text.size(); --lines) {
        std::size_t const end = std::min(text.find('\n', begin), text.size());
        result += errors::concat("    ", std::string_view(text).substr(begin, end - begin), "\n");
        begin = end + 1;
    }
    return begin < text.size() ? result + "    ...\n" : result;
}

void run(CommunicatorRef comm, Arguments const& arguments) {
    int const rank = comm.rank();
    int const copies = comm.size() % 2 == 0 && comm.size() > 2 ? comm.size() / 2 : comm.size();
    DynamicMesh const mesh = Mesh{copies, comm.size() / copies};
    Module module(model(arguments), mesh, rank);
    VerifyReplicasOptions reporting;
    reporting.mode = VerifyMode::report;
    bool good = true;
    auto const say = [&](std::string const& text) {
        if (rank == 0) std::fputs(text.c_str(), stdout);
    };
    say(errors::concat(module.tensors().size(), " tensors on ", demo::ranks_text(comm), ", mesh ", to_string(mesh),
                       ", ", copies, " replicas\n"));

    say("\n1. a random seed per rank\n");
    module.initialise(rank, static_cast<std::uint64_t>(rank));
    ReplicaReport const differing = verify_replicas(module.tensors(), comm, reporting);
    good = good && (differing.equal() == (copies == 1));
    say(head(explain(differing), 3));

    say("\n2. one random seed: values by seed, name and index\n");
    module.initialise(rank, 42);
    Traffic const before = comm.traffic();
    module.initialise(rank, 42);
    Traffic const sent = comm.traffic() - before;
    ReplicaReport const equal = verify_replicas(module.tensors(), comm, reporting);
    good = good && equal.equal() && sent == Traffic{};
    say(head(explain(equal), 3));
    std::uint64_t const digest = digest_of_model(comm, module);
    char text[32];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(digest));
    say(errors::concat("    digest of the whole model ", text,
                       ", the same for any --ranks; bytes sent: ", sent.bytes_sent, "\n"));

    say("\n3. rank 0 overwrites one row, then sync\n");
    std::size_t row = 0;
    while (module.tensors()[row].distribution.shape().rank() < 2) ++row;
    if (rank == 0) module.overwrite_row(row);
    ReplicaReport const odd = verify_replicas(module.tensors(), comm, reporting);
    good = good && (odd.equal() == (copies == 1));
    say(head(explain(odd), 3));
    if (copies > 2) say("    (the many are not always right: repair would undo what rank 0 did, sync spreads it)\n");
    Traffic const start = comm.traffic();
    sync(module.tensors(), comm, SyncOptions{.root = 0});
    auto const moved = demo::gather_records(comm, std::vector<Index>{(comm.traffic() - start).bytes_sent});
    ReplicaReport const synced = verify_replicas(module.tensors(), comm, reporting);
    good = good && synced.equal() && digest_of_model(comm, module) != digest;
    say(errors::concat("    sync: ", std::accumulate(moved.begin(), moved.end(), Index{0}), " bytes sent, ", moved[0],
                       " of them by rank 0\n", head(explain(synced), 3)));
    if (!good) errors::raise(ErrorCode::user, "a case did not end as it should. Fix: this is a bug, please report it.");
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    demo::Options const app("Replicas of a model: different, equal by construction, and made equal");
    app.add("--ranks", arguments.ranks, "threads (default 6), or what mpirun started").positive();
    app.add("--layers", arguments.layers, "layers of the model").within(1, 24);
    app.add("--scale", arguments.scale, "divides the model's sizes").positive();
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    return demo::run_ranks("reshard_init_and_sync", arguments.ranks, 6,
                           [&](CommunicatorRef comm) { run(comm, arguments); });
}
