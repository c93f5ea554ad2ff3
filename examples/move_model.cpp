// SPDX-License-Identifier: Apache-2.0
// Moves every tensor of a model from FSDP shards to tensor-parallel ones, one by one and as a batch, and says what each
// way cost. Names and shapes are those of a public model, its sizes divided by --scale. Every element is verified.
//
//     reshard_move_model                           Qwen1.5-MoE-A2.7B, 4,659 tensors, on 4 ranks that are threads
//     mpirun -n 4 reshard_move_model --scale 16    the same on four processes, four times as many bytes
//     mpirun -n 4 reshard_move_model --apart       with messages, as between the nodes of a cluster
//     reshard_move_model --model Qwen3-0.6B        another one
#include "support/model_lists.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"

#include <reshard/exec/batch.hpp>
#include <reshard/reshard.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {
using namespace reshard;

struct Arguments {
    std::string model = "Qwen1.5-MoE-A2.7B";
    int ranks = 0;
    int layers = 0;
    Index scale = 32;
    int repeat = 5;
    bool apart = false;
};

demo::ModelConfig config_of(Arguments const& arguments) {
    demo::ModelConfig config = demo::model_called(arguments.model);
    if (arguments.layers != 0) config.layers = std::min(config.layers, arguments.layers);
    return demo::scaled(config, arguments.scale);
}

// ---- Where tensors live ------------------------------------------------------------------------------------------

/// Tensor parallelism, by name: layers that widen keep rows of their weights [out, in], those that lead back keep
/// columns, and what is small everybody has.
char const* kept_of(std::string_view name) {
    for (char const* end : {"norm.weight", "mlp.gate.weight", "shared_expert_gate.weight"})
        if (name.ends_with(end)) return "R";
    for (char const* end : {"o_proj.weight", "down_proj.weight"})
        if (name.ends_with(end)) return "S1";
    return "S0";
}

/// FSDP cuts the rows of everything among all ranks. Inference takes two replicas of the model, each cut among half of
/// the ranks, if these are four or more and even; else one, cut among all of them.
struct Sides {
    DynamicMesh mesh;
    bool two;

    explicit Sides(int ranks) : mesh(Mesh{ranks}), two(ranks >= 4 && ranks % 2 == 0) {
        if (two) mesh = Mesh{2, ranks / 2};
    }
    [[nodiscard]] DynamicDistribution trainer(DynamicShape const& shape) const {
        return distribution(mesh, shape, two ? "S0,S0" : "S0");
    }
    [[nodiscard]] DynamicDistribution inference(DynamicShape const& shape, std::string const& kept) const {
        return distribution(mesh, shape, two ? "R," + kept : kept);
    }
};

// ---- One rank's part of the model --------------------------------------------------------------------------------

/// What the model holds: two bytes that tell where in the model they belong, up to one mistake in 65536.
std::uint16_t element_at(std::size_t tensor, Index i) {
    std::uint64_t x = (static_cast<std::uint64_t>(tensor) << 40U) + static_cast<std::uint64_t>(i);  // splitmix64
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return static_cast<std::uint16_t>(x >> 48U);
}

/// Calls `visit(place in the local tensor, index in the whole one, elements)` for each row of a rank's box.
template <class Visit>
void for_each_row(DynamicDistribution const& side, Index rank, Visit&& visit) {
    Box const box = side.box(rank);
    int const last = side.shape().rank() - 1;
    Index const width = box.extent(last);
    for (Index row = 0; row < (last == 0 ? 1 : box.extent(0)); ++row) {
        Index const first = last == 0 ? 0 : (box.begin(0) + row) * side.shape().extent(1);
        visit(row * width, first + box.begin(last), width);
    }
}

class ModelPart {
public:
    ModelPart(std::vector<TensorSpec> const& list, int rank, int ranks) : rank_(rank) {
        Sides const sides(ranks);
        Index sources = 0;
        Index destinations = 0;
        items_.reserve(list.size());
        for (TensorSpec const& tensor : list) {
            if (bytes(tensor.dtype) != 2) errors::raise(ErrorCode::dtype, "'", tensor.name, "' is not of two bytes");
            Plan<> const move = plan(sides.trainer(tensor.shape), sides.inference(tensor.shape, kept_of(tensor.name)));
            items_.push_back({tensor.name, move, tensor.dtype, sources, destinations});
            sources += move.from().local_shape(rank).size();
            destinations += move.to().local_shape(rank).size();
        }
        sources_.resize(static_cast<std::size_t>(sources));
        destinations_.resize(static_cast<std::size_t>(destinations));
        for (std::size_t i = 0; i < items_.size(); ++i) {
            for_each_row(items_[i].plan.from(), rank, [&](Index place, Index whole, Index count) {
                for (Index k = 0; k < count; ++k) {
                    sources_[static_cast<std::size_t>(items_[i].source + place + k)] = element_at(i, whole + k);
                }
            });
        }
    }

    [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }
    [[nodiscard]] Plan<> const& plan_of(std::size_t i) const noexcept { return items_[i].plan; }
    [[nodiscard]] std::string const& name_of(std::size_t i) const noexcept { return items_[i].name; }
    [[nodiscard]] ConstDynamicView source(std::size_t i) const {
        return {reinterpret_cast<std::byte const*>(sources_.data() + items_[i].source), items_[i].dtype,
                items_[i].plan.from().local_shape(rank_)};
    }
    [[nodiscard]] DynamicView destination(std::size_t i) {
        return {reinterpret_cast<std::byte*>(destinations_.data() + items_[i].destination), items_[i].dtype,
                items_[i].plan.to().local_shape(rank_)};
    }

    void forget() { std::fill(destinations_.begin(), destinations_.end(), std::uint16_t{0xdead}); }
    /// Throws for the first element that is not what it must be.
    void verify(char const* how) const {
        for (std::size_t i = 0; i < items_.size(); ++i) {
            for_each_row(items_[i].plan.to(), rank_, [&](Index place, Index whole, Index count) {
                for (Index k = 0; k < count; ++k) {
                    if (destinations_[static_cast<std::size_t>(items_[i].destination + place + k)] ==
                        element_at(i, whole + k)) {
                        continue;
                    }
                    errors::raise(ErrorCode::user, how, ": element ", whole + k, " of '", items_[i].name, "' is wrong");
                }
            });
        }
    }

private:
    struct Item {
        std::string name;
        Plan<> plan;
        DType dtype{};
        Index source = 0;  ///< of its first element
        Index destination = 0;
    };

    int rank_;
    std::vector<Item> items_;
    std::vector<std::uint16_t> sources_;
    std::vector<std::uint16_t> destinations_;
};

// ---- Moving it ---------------------------------------------------------------------------------------------------

/// One way to move the model, all ranks together.
struct Figures {
    Index agreements = 0;
    Index exchanges = 0;
    Index messages = 0;
    Index bytes = 0;
    double prepare = 0.0;  ///< seconds
    double run = 0.0;      ///< seconds, the median of several
};

/// Seconds until all ranks are through `body`.
template <class Body>
double seconds_of(CommunicatorRef comm, Body&& body) {
    barrier(comm);
    auto const start = std::chrono::steady_clock::now();
    body();
    barrier(comm);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs once, verifies, and counts.
template <class Run>
void run_and_verify(CommunicatorRef comm, ModelPart& part, char const* how, Run&& run, Figures& figures) {
    part.forget();
    Traffic const before = comm.traffic();
    run();
    Traffic const moved = comm.traffic() - before;
    part.verify(how);
    for (Traffic const& each : demo::gather_records(comm, std::vector<Traffic>{moved})) {
        figures.messages += each.messages_sent;
        figures.bytes += each.bytes_sent;
    }
}

void print(char const* how, Figures const& figures) {
    std::printf("  %-10s %10lld %9lld %8lld %9.1f MB %10.1f ms %8.1f ms %7.2f\n", how,
                static_cast<long long>(figures.agreements), static_cast<long long>(figures.exchanges),
                static_cast<long long>(figures.messages), static_cast<double>(figures.bytes) / 1e6,
                figures.prepare * 1e3, figures.run * 1e3, static_cast<double>(figures.bytes) / figures.run / 1e9);
}

void print_heading(Arguments const& arguments, demo::ModelConfig const& config, ModelPart const& part, Index bytes,
                   std::string const& who) {
    std::printf("%s, %d layers, sizes / %lld: %zu tensors, %.1f MB, over %s\n", config.name.c_str(), config.layers,
                static_cast<long long>(arguments.scale), part.size(), static_cast<double>(bytes) / 1e6, who.c_str());
    for (std::string_view const kept : {"S0", "S1", "R"}) {
        Index tensors = 0;
        std::string move;
        for (std::size_t i = 0; i < part.size(); ++i) {
            if (kept != kept_of(part.name_of(i))) continue;
            ++tensors;
            move = errors::concat(to_string(part.plan_of(i).from()), " -> ", to_string(part.plan_of(i).to()));
        }
        std::printf("  %5lld x %s\n", static_cast<long long>(tensors), move.c_str());
    }
    std::printf("\n  %-10s %10s %9s %8s %12s %13s %11s %7s\n", "", "agreements", "exchanges", "messages", "bytes",
                "prepare", "run", "GB/s");
}

void run_all(Arguments const& arguments, CommunicatorRef comm) {
    demo::ModelConfig const config = config_of(arguments);
    auto const list = demo::model_list(config);
    ModelPart part(list, comm.rank(), comm.size());

    Figures apart;
    using Job = decltype(prepare(part.plan_of(0), comm, part.source(0), part.destination(0)));
    std::vector<Job> jobs;
    jobs.reserve(part.size());
    apart.prepare = seconds_of(comm, [&] {
        for (std::size_t i = 0; i < part.size(); ++i) {
            jobs.push_back(prepare(part.plan_of(i), comm, part.source(i), part.destination(i)));
        }
    });
    auto const run_apart = [&] {
        for (Job& job : jobs) job.run();
    };
    apart.agreements = static_cast<Index>(part.size());
    for (std::size_t i = 0; i < part.size(); ++i) apart.exchanges += part.plan_of(i).cost(comm.rank()).phases;

    Figures together;
    Batch batch;
    batch.reserve(part.size());
    std::vector<PreparedPlan> prepared;
    together.prepare = seconds_of(comm, [&] {
        for (std::size_t i = 0; i < part.size(); ++i) {
            batch.add(part.plan_of(i), part.source(i), part.destination(i), part.name_of(i));
        }
        prepared.push_back(prepare(batch, comm));
    });
    auto const run_together = [&] { prepared[0].run(); };
    together.agreements = 1;
    together.exchanges = static_cast<Index>(rounds(batch, comm.rank()).size());  // nothing folds: one phase each

    run_and_verify(comm, part, "one by one", run_apart, apart);
    run_and_verify(comm, part, "batch", run_together, together);
    std::vector<double> times[2];
    for (int turn = 0; turn < arguments.repeat; ++turn) {  // in turns, so that a noisy moment meets both
        times[0].push_back(seconds_of(comm, run_apart));
        times[1].push_back(seconds_of(comm, run_together));
    }
    for (auto& each : times) std::sort(each.begin(), each.end());
    apart.run = times[0][times[0].size() / 2];
    together.run = times[1][times[1].size() / 2];

    if (comm.rank() != 0) return;
    print_heading(arguments, config, part, demo::total_bytes(list), demo::ranks_text(comm));
    print("one by one", apart);
    print("batch", together);
    std::printf("\nEvery element of every tensor arrived, both ways.\n");
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    demo::Options const app(
        "Moves every tensor of a model from FSDP shards to tensor-parallel ones, one by one and as a batch.");
    app.add("--model", arguments.model, "whose names and shapes").show_default();
    app.add("--scale", arguments.scale, "divides the sizes of all layers; 1: the model as it is")
        .within(1, 1024)
        .show_default();
    app.add("--layers", arguments.layers, "at most so many layers (default: all)").within(1, 1024);
    app.add("--ranks", arguments.ranks, "number of threads (default 4; under mpirun the launcher decides)")
        .within(1, 1024);
    app.add("--repeat", arguments.repeat, "runs per way, of which the median is shown").within(1, 1000).show_default();
    app.add("--apart", arguments.apart, "under mpirun: as if every process had a node of its own");
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    demo::RankOptions options;
    options.apart = arguments.apart;
    return demo::run_ranks("reshard_move_model", arguments.ranks, 4, options,
                           [&](CommunicatorRef comm) { run_all(arguments, comm); });
}
