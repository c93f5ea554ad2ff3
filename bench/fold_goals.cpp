// SPDX-License-Identifier: Apache-2.0
// Question: what do reductions cost on threads: their scratch memory, halves beside floats, and calls that make their
// result beside prepared ones? One line per goal, as in goals.cpp, with the same arguments.
#include "support/goal_lines.hpp"
#include "support/team.hpp"

#include <reshard/comm/threads.hpp>
#include <reshard/reshard.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

namespace {

using namespace reshard;
using namespace reshard::bench;

constexpr int ranks = 4;
constexpr Index large = Index{64} << 20;  // bytes of float32

[[nodiscard]] Plan<> plan_of(char const* from, char const* to, Index elements) {
    Mesh const mesh{ranks};
    Shape const shape{elements / 1024, 1024};
    return plan(distribution(mesh, shape, from), distribution(mesh, shape, to));
}

/// Bytes of scratch memory of a rank, in MiB.
void fold_scratch(Goals& goals) {
    Index most = 0;
    for (char const* to : {"R", "S0"}) {
        most = detail::larger(most, workspace_bytes(plan_of("P+", to, large / 4), 0, DType::f32));
    }
    goals.at_most("fold_scratch", static_cast<double>(most) / (1 << 20), 4);
}

/// Tensors of one rank as a plan has them, both touched.
template <class T>
struct Sides {
    Tensor<T> source;
    Tensor<T> destination;
    Sides(Plan<> const& plan, int rank)
        : source(plan.from().local_shape(rank)), destination(plan.to().local_shape(rank)) {
        std::fill_n(source.data(), source.size(), static_cast<T>(1.0F));
        std::fill_n(destination.data(), destination.size(), static_cast<T>(0.0F));
    }
};

/// Sums of as many halves as floats: floats' time by theirs, the smaller of both types.
void half_fold(Goals& goals) {
    Plan<> const move = plan_of("P+", "S0", large / 4);
    std::array<Paired, 2> pairs;
    TeamClock clock(ranks);
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        auto const prepared = [&](auto& sides) {
            return prepare(move, comm, ConstDynamicView(sides.source.view()), DynamicView(sides.destination.view()));
        };
        Sides<float> floats(move, comm.rank());
        auto of_floats = prepared(floats);
        auto const beside = [&](auto sides) {
            auto of_halves = prepared(sides);
            return paired([&] { return clock([&] { of_floats.run(); }); },
                          [&] { return clock([&] { of_halves.run(); }); });
        };
        Paired const f16 = beside(Sides<Float16>(move, comm.rank()));
        Paired const bf16 = beside(Sides<BFloat16>(move, comm.rank()));
        if (comm.rank() == 0) pairs = {f16, bf16};
    });
    std::printf("P+ -> S0 of 16 M elements on %d threads: F32 %.1f ms, F16 %.1f ms, BF16 %.1f ms\n", ranks,
                1e3 * pairs[0].first, 1e3 * pairs[0].second, 1e3 * pairs[1].second);
    goals.at_least("half_fold", detail::smaller(pairs[0].ratio, pairs[1].ratio), 1.0);
}

/// Calls that prepare and make their result, as DTensor's do, beside run() of what was prepared: the largest ratio.
[[nodiscard]] double one_shot(Index bytes, int calls) {
    double worst = 0;
    for (auto const& [from, to] : {std::pair("P+", "R"), {"P+", "S0"}, {"S0", "R"}, {"S0", "S1"}}) {
        Plan<> const move = plan_of(from, to, bytes / 4);
        Paired pair;
        TeamClock clock(ranks);
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            Sides<float> sides(move, comm.rank());
            ConstDynamicView const source(sides.source.view());
            auto job = prepare(move, comm, source, DynamicView(sides.destination.view()));
            auto const made = [&] {
                Tensor<float> result(move.to().local_shape(comm.rank()));
                redistribute(move, comm, source, DynamicView(result.view()));
            };
            Paired const mine =
                paired([&] { return clock(calls, made); }, [&] { return clock(calls, [&] { job.run(); }); });
            if (comm.rank() == 0) pair = mine;
        });
        std::printf("  %s -> %s, %lld KiB: the call %.1f us, prepared %.1f us, ratio %.2f\n", from, to,
                    static_cast<long long>(bytes >> 10), 1e6 * pair.first, 1e6 * pair.second, pair.ratio);
        worst = detail::larger(worst, pair.ratio);
    }
    return worst;
}
void one_shot_vs_prepared(Goals& goals) {
    goals.at_most("one_shot_vs_prepared", one_shot(large, 1), 2.0);
    goals.at_most("one_shot_vs_prepared_small", one_shot(Index{64} << 10, 200), 1.5);
}

struct Goal {
    char const* name;
    void (*measure)(Goals&);
};
constexpr Goal all_goals[] = {
    {"fold_scratch", fold_scratch}, {"half_fold", half_fold}, {"one_shot_vs_prepared", one_shot_vs_prepared}};

}  // namespace

int main(int argc, char** argv) { return measure_goals(all_goals, argc, argv); }
