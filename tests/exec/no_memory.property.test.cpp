// SPDX-License-Identifier: Apache-2.0
// Whichever allocation one rank is refused in a collective call: all ranks throw the same OutOfMemory, and none waits.
#include <reshard/exec/batch.hpp>
#include <reshard/exec/boxes.hpp>
#include <reshard/exec/calibrate.hpp>
#include <reshard/exec/collectives.hpp>
#include <reshard/exec/global_tensor.hpp>
#include <reshard/exec/redistribute.hpp>
#include <reshard/exec/sync.hpp>
#include <reshard/plan/relay.hpp>

#include <doctest/doctest.h>

#include "support/scarce.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
using test::Plenty;
using test::Thrown;

constexpr int ranks = 3;

/// What a rank passes is there before the call.
struct Memory {
    std::vector<float> a = std::vector<float>(96, 1.0F);
    std::vector<float> b = std::vector<float>(96, 2.0F);
    std::vector<float> c = std::vector<float>(96, 3.0F);
};
DynamicView view(std::vector<float>& memory, DynamicShape const& shape) {
    return TensorView<float>(memory.data(), shape);
}
Plan<> of(char const* from, char const* to, DynamicShape const& shape) {
    return plan(parse(from, shape), parse(to, shape));
}

template <class Call>
void check(Call const& call) {
    for (int poor = 0; poor < ranks; ++poor) {
        CAPTURE(poor);
        int const failed = test::without_memory(
            ranks, poor, [&](auto& comm) { return [&, memory = std::make_unique<Memory>()] { call(comm, *memory); }; },
            [](Thrown const&) {});
        CHECK((failed > 0 || test::fewer_seeds()));  // few are tried there, and a small call asks for less
    }
}

}  // namespace

TEST_SUITE("exec/no_memory") {
    TEST_CASE("prepare and redistribute") {
        Plan<> const sums = of("(3):(P+)", "(3):(R)", Shape{12, 4});
        check([&](auto& comm, Memory& m) {
            auto job = prepare(sums, comm, view(m.a, Shape{12, 4}), view(m.b, Shape{12, 4}));
            job.run();
        });
        Plan<> const turn = of("(3):(S0)", "(3):(S1)", Shape{12, 6});
        for (Plan<> const& p : {turn, turn.relayed(2)}) {
            check([&](auto& comm, Memory& m) {
                redistribute(p, comm, view(m.a, p.from().local_shape(comm.rank())),
                             view(m.b, p.to().local_shape(comm.rank())));
            });
        }
        auto const typed =
            plan(distribution<Shard<0>>(Mesh{3}, Shape{12, 6}), distribution<Shard<1>>(Mesh{3}, Shape{12, 6}));
        check([&](auto& comm, Memory& m) {
            auto const result = redistribute(typed, comm, TensorView<float>(m.a.data(), Shape{4, 6}));
            Plenty const plenty;
            CHECK(result.size() == 24);
        });
    }

    TEST_CASE("a batch") {
        Plan<> const whole = of("(3):(P+)", "(3):(R)", Shape{12, 4});
        Plan<> const parts = of("(3):(P+)", "(3):(S0)", Shape{12, 4});
        check([&](auto& comm, Memory& m) {
            Batch batch;
            {
                Plenty const plenty;
                batch.add(whole, view(m.a, Shape{12, 4}), view(m.b, Shape{12, 4}), "whole");
                batch.add(parts, view(m.a, Shape{12, 4}), view(m.c, Shape{4, 4}), "parts");
            }
            redistribute(batch, comm);
        });
    }

    TEST_CASE("lists of boxes") {
        auto const rows = parse("(3):(S0)", Shape{12, 6});
        auto const columns = parse("(3):(S1)", Shape{12, 6});
        BoxTable const from(rows);
        BoxTable const to(columns);
        check([&](auto& comm, Memory& m) {
            ConstDynamicView const source = view(m.a, Shape{4, 6});
            DynamicView const destination = view(m.b, Shape{12, 2});
            redistribute(from, to, DType::f32, comm, std::span(&source, 1), std::span(&destination, 1));
        });
        BoxTable const alike(parse("(3):(R)", Shape{12, 6}));
        check([&](auto& comm, Memory& m) {
            ConstDynamicView const source = view(m.a, Shape{12, 6});
            DynamicView const destination = view(m.b, Shape{12, 2});
            redistribute(alike, to, DType::f32, comm, std::span(&source, 1), std::span(&destination, 1), Reduce::sum);
        });
    }

    TEST_CASE("collectives by name") {
        check([](auto& comm, Memory& m) { all_reduce(view(m.a, Shape{12, 4}), comm, Mesh{3}, 0); });
        check([](auto& comm, Memory& m) {
            reduce_scatter(view(m.a, Shape{12, 4}), view(m.b, Shape{4, 4}), comm, Mesh{3}, 0);
        });
        check([](auto& comm, Memory& m) {
            all_gather(view(m.a, Shape{4, 4}), view(m.b, Shape{12, 4}), comm, Mesh{3}, 0);
        });
        check([](auto& comm, Memory& m) { broadcast(view(m.a, Shape{12, 4}), comm, Mesh{3}, 0); });
    }
    TEST_CASE("collectives by name that are tried again: a rank outside, or more dimensions than beside other axes") {
        check([](auto& comm, Memory& m) {
            all_reduce(comm.rank() < 2 ? view(m.a, Shape{12, 4}) : DynamicView(), comm, Mesh{2}, 0);
        });
        check([](auto& comm, Memory& m) {
            all_reduce(view(m.a, Shape{1, 1, 1, 1, 1, 1, 1, 48}), comm, Mesh{1, 3}, 1);
        });
    }

    TEST_CASE("collectives by name, prepared: also where ranks are outside the mesh") {
        check([](auto& comm, Memory& m) {
            PreparedPlan sums = prepare_all_reduce(view(m.a, Shape{12, 4}), comm, Mesh{3}, 0);
            PreparedPlan parts =
                prepare_reduce_scatter(view(m.a, Shape{12, 4}), view(m.b, Shape{4, 4}), comm, Mesh{3}, 0);
            PreparedPlan whole = prepare_all_gather(view(m.b, Shape{4, 4}), view(m.c, Shape{12, 4}), comm, Mesh{3}, 0);
            PreparedPlan copies = prepare_broadcast(view(m.c, Shape{12, 4}), comm, Mesh{3}, 0);
            sums.run();
            parts.run();
            whole.run();
            copies.run();
        });
        check([](auto& comm, Memory& m) {
            bool const inside = comm.rank() < 2;
            DynamicView const all = inside ? view(m.a, Shape{12, 4}) : DynamicView();
            PreparedPlan sums = prepare_all_reduce(all, comm, Mesh{2}, 0);
            PreparedPlan parts =
                prepare_reduce_scatter(all, inside ? view(m.b, Shape{6, 4}) : DynamicView(), comm, Mesh{2}, 0);
            sums.run();
            parts.run();
        });
    }

    TEST_CASE("sync") {
        auto const copied = parse("(3):(R)", Shape{12, 4});
        check([&](auto& comm, Memory& m) {
            LocalTensor list[2];
            {
                Plenty const plenty;
                list[0] = {"a", copied, view(m.a, Shape{12, 4})};
                list[1] = {"b", copied, view(m.b, Shape{12, 4})};
            }
            sync(std::span<LocalTensor const>(list), comm);
        });
    }

    TEST_CASE("whole tensors from shards, and back") {
        auto const cut = parse("(3):(S0)", Shape{12, 4});
        check([&](auto& comm, Memory& m) {
            distribute(cut, comm, 0, TensorView<float>(m.a.data(), Shape{12, 4}),
                       TensorView<float>(m.b.data(), Shape{4, 4}));
        });
        check([&](auto& comm, Memory& m) {
            gather(cut, comm, 1, TensorView<float>(m.b.data(), Shape{4, 4}),
                   TensorView<float>(m.a.data(), Shape{12, 4}));
        });
        check([&](auto& comm, Memory& m) {
            auto const whole = full_tensor(cut, comm, TensorView<float>(m.a.data(), Shape{4, 4}));
            Plenty const plenty;
            CHECK(whole.size() == 48);
        });
        check([](auto& comm, Memory&) {
            auto const whole = from_local(Mesh{3}, "S0", comm, DynamicShape(Shape{4, 4}));
            Plenty const plenty;
            CHECK(whole.shape().size() == 48);
        });
    }

    TEST_CASE("calibrate") {
        std::vector<Tier> const tiers{{"node", 0}};
        CalibrateOptions options;
        options.large_bytes = 1024;
        options.repeats = 2;
        check([&](auto& comm, Memory&) {
            std::vector<Tier> mine;
            {
                Plenty const plenty;
                mine = tiers;
            }
            static_cast<void>(calibrate(comm, std::move(mine), options));
        });
    }
}
