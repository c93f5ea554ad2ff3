// SPDX-License-Identifier: Apache-2.0
// From a trainer's mesh to an inference mesh over one communicator: disjoint and overlapping ranks, other placements,
// gradients that are still partial; directly, and with every byte leaving the trainer once. Every value is verified.
//
//     reshard_trainer_to_inference                    12 ranks, as threads
//     mpirun -n 12 reshard_trainer_to_inference       or as processes; of more than 12 the others hold nothing
#include <reshard/plan/relay.hpp>
#include <reshard/reshard.hpp>

#include "support/options.hpp"
#include "support/ranks.hpp"

#include <cstdio>
#include <vector>

namespace {
using namespace reshard;

constexpr int ranks_needed = 12;

struct Case {
    char const* what;
    char const* trainer;
    char const* inference;
};
/// Trainers have ranks 0 to 7; the notation after the extents, +8, is a mesh's first rank.
constexpr Case cases[] = {
    {"FSDP to four replicas", "(8):(S0)", "(4)+8:(R)"},
    {"FSDP x TP to two replicas of TP 2", "(2,4):(S0,S1)", "(2,2)+8:(R,S1)"},
    {"DP x TP to four replicas", "(2,4):(R,S0)", "(4)+8:(R)"},
    {"partial gradients, DP x TP, to four replicas", "(2,4):(P+,S1)", "(4)+8:(R)"},
    {"FSDP x TP to replicas on four of its own ranks", "(2,4):(S0,S1)", "(4)+4:(R)"},
    {"FSDP to TP 3 on ranks of both", "(8):(S0)", "(3)+6:(S1)"},
};

/// What the tensor holds: small whole numbers, so that sums of addends are exact.
float value_at(Index i) { return static_cast<float>(i % 4093 - 2000); }
/// The addend of the replica at `coordinate` of `count`: they differ, and add up.
float addend_at(Index i, Index coordinate, Index count) {
    float const shift = static_cast<float>(i % 7 + 1);
    if (count == 1) return value_at(i);
    return coordinate == 0 ? value_at(i) - shift * static_cast<float>(count - 1) : shift;
}

/// Calls `visit(element of the local tensor, its index in the whole tensor)` for a rank of a matrix's distribution.
template <class Visit>
void for_each_element(DynamicDistribution const& side, Index rank, std::vector<float>& local, Visit&& visit) {
    Box const box = side.box(rank);
    std::size_t next = 0;
    for (Index row = box.begin(0); row < box.end(0); ++row)
        for (Index column = box.begin(1); column < box.end(1); ++column) {
            visit(local[next++], row * side.shape().extent(1) + column);
        }
}

/// One way to carry out a case, over all ranks. In bytes.
struct Figures {
    int phases = 0;
    Index messages = 0;
    Index leaving = 0;          ///< the trainer's mesh, behind the fold
    Index leaving_busiest = 0;  ///< the busiest rank's part of it
    Index received = 0;         ///< by the inference rank that receives most
    Index bound = 0;            ///< and what it cannot avoid receiving
};
Figures figures_of(Plan<> const& plan) {
    Figures result;
    bool folds = false;
    for (auto const& placement : plan.from().signature().placements) folds = folds || placement.is_partial();
    for (Index rank = 0; rank < ranks_needed; ++rank) {
        Cost const cost = plan.cost(rank);
        result.phases = cost.phases;
        result.messages += cost.messages_sent;
        Index leaving = 0;
        for (auto const& message : plan.exchange(rank, folds ? 1 : 0).sends) leaving += message.elements() * 4;
        result.leaving += leaving;
        result.leaving_busiest = detail::larger(result.leaving_busiest, leaving);
        if (!plan.to().contains(rank)) continue;
        Index received = 0;
        for (int phase = folds ? 1 : 0; phase < cost.phases; ++phase) {
            for (auto const& message : plan.exchange(rank, phase).receives) received += message.elements() * 4;
        }
        result.received = detail::larger(result.received, received);
        Bound const bound = receive_bound(plan.from(), plan.to(), rank, true);
        if (bound.known) result.bound = detail::larger(result.bound, bound.elements * 4);
    }
    return result;
}

void print(char const* how, Figures const& figures) {
    auto const mib = [](Index bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::printf("  %-8s %6d %9lld %11.2f %11.2f %13.2f %8.2f\n", how, figures.phases,
                static_cast<long long>(figures.messages), mib(figures.leaving), mib(figures.leaving_busiest),
                mib(figures.received), mib(figures.bound));
}

/// Carries out a plan; throws when a value or a byte count is not what it must be.
void run(Plan<> const& plan, CommunicatorRef comm) {
    Index const rank = comm.rank();
    auto const shape_of = [&](DynamicDistribution const& side) {
        return side.contains(rank) ? side.local_shape(rank) : DynamicShape(Shape<0, 0>{});
    };
    std::vector<float> source(static_cast<std::size_t>(shape_of(plan.from()).size()));
    std::vector<float> destination(static_cast<std::size_t>(shape_of(plan.to()).size()));
    if (plan.from().contains(rank)) {
        Indices const coordinates = plan.from().mesh().coordinates(rank);
        Index addend = 0;
        Index addends = 1;
        for (int axis = 0; axis < coordinates.size(); ++axis) {
            if (!plan.from().placement(axis).is_partial()) continue;
            addend = addend * plan.from().mesh().extent(axis) + coordinates[axis];
            addends *= plan.from().mesh().extent(axis);
        }
        for_each_element(plan.from(), rank, source,
                         [&](float& element, Index i) { element = addend_at(i, addend, addends); });
    }
    auto job = prepare(plan, comm, TensorView<float>(source.data(), shape_of(plan.from())),
                       TensorView<float>(destination.data(), shape_of(plan.to())));
    Traffic const before = comm.traffic();
    job.run();
    Traffic const moved = comm.traffic() - before;
    Cost const cost = plan.cost(rank);
    if (moved.bytes_sent != cost.sent * 4 || moved.bytes_received != cost.received * 4) {
        errors::raise(ErrorCode::user, "rank ", rank, " sent ", moved.bytes_sent, " and received ",
                      moved.bytes_received, " bytes, planned ", cost.sent * 4, " and ", cost.received * 4);
    }
    if (!plan.to().contains(rank)) return;
    for_each_element(plan.to(), rank, destination, [&](float& element, Index i) {
        if (element != value_at(i)) errors::raise(ErrorCode::user, "rank ", rank, ": element ", i, " is wrong");
    });
}

void run_all(CommunicatorRef comm, DynamicShape const& shape) {
    if (comm.size() < ranks_needed) {
        errors::raise(ErrorCode::mesh, "the meshes have ", ranks_needed, " ranks, the communicator has ", comm.size(),
                      ". Fix: mpirun -n ", ranks_needed,
                      " reshard_trainer_to_inference; of more ranks the others hold nothing.");
    }
    bool const speaks = comm.rank() == 0;
    if (speaks) {
        std::printf("%s F32 (%.2f MiB) over %s; MiB below\n\n", to_string(shape).c_str(),
                    static_cast<double>(shape.size() * 4) / (1 << 20), demo::ranks_text(comm).c_str());
    }
    for (Case const& one : cases) {
        Plan<> const direct = plan_across(parse(one.trainer, shape), parse(one.inference, shape));
        Plan<> const relayed = direct.relayed(all_ranks);
        run(direct, comm);
        run(relayed, comm);
        std::byte const done[1] = {};
        static_cast<void>(demo::gather_records(comm, std::vector<std::byte>(done, done + 1)));
        if (!speaks) continue;
        std::printf("%s: %s -> %s\n", one.what, one.trainer, one.inference);
        std::printf("  %-8s %6s %9s %11s %11s %13s %8s\n", "", "phases", "messages", "leaving", "per rank",
                    "received/rank", "bound");
        print("direct", figures_of(direct));
        print("relayed", figures_of(relayed));
    }
    if (speaks) std::printf("\nEvery value of every case arrived; bytes counted = bytes planned.\n");
}

}  // namespace

int main(int argc, char** argv) {
    int ranks = 0;
    Index rows = 2050;
    Index columns = 1023;
    demo::Options const app("Moves a matrix from a trainer's mesh to inference meshes, directly and with relays.");
    app.add("--ranks", ranks, "number of threads (default 12; under mpirun the launcher decides)").within(1, 1024);
    app.add("--rows", rows, "rows of the matrix").within(1, 1 << 20).show_default();
    app.add("--columns", columns, "columns of the matrix").within(1, 1 << 20).show_default();
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    return demo::run_ranks("reshard_trainer_to_inference", ranks, ranks_needed, [&](CommunicatorRef comm) {
        run_all(comm, DynamicShape(Shape{rows, columns}));
    });
}
