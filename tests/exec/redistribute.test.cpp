// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/redistribute.hpp. Random transitions are in redistribute.property.test.cpp.
#include <reshard/exec/redistribute.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/core/complex.hpp>

#include "support/fake_cuda.hpp"
#include "support/oracle.hpp"

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace {
using namespace reshard;

Plan<> of(char const* from, char const* to, DynamicShape const& shape) {
    return plan(parse(from, shape), parse(to, shape));
}

/// What rank `rank` holds of the tensor 0, 1, 2, ...
std::vector<int> counted(DynamicDistribution const& distribution, Index rank) {
    std::vector<int> result;
    if (!distribution.contains(rank)) return result;
    for (Index i : oracle::elements(distribution, rank)) result.push_back(static_cast<int>(i));
    return result;
}
DynamicShape local_shape(DynamicDistribution const& distribution, Index rank) {
    return distribution.contains(rank) ? distribution.local_shape(rank) : DynamicShape(Shape<0>{});
}
template <class T>
TensorView<T> view(std::vector<T>& memory, DynamicShape const& shape) {
    return {memory.data(), shape};
}

/// Carries out a local plan on one rank: `before` is its source, the result its destination.
template <class T>
std::vector<T> locally(Plan<> const& plan, std::vector<T> before, int rank) {
    DynamicShape const shape = plan.to().local_shape(rank);
    std::vector<T> after(static_cast<std::size_t>(shape.size()), T(99));
    redistribute(plan, view(before, plan.from().local_shape(rank)), view(after, shape), rank);
    return after;
}

}  // namespace

TEST_SUITE("exec/redistribute") {
    // ---- Without a communicator ------------------------------------------------------------------------------------

    TEST_CASE("local R -> P+: coordinate 0 keeps the values, the others hold -0.0, which changes no sum") {
        Plan<> const p = of("(3):(R)", "(3):(P+)", Shape{4});
        std::vector<float> const values{1.5F, -0.0F, 0.0F, -2.0F};
        auto const bits = [](std::vector<float> const& floats) {
            std::vector<std::uint32_t> result;
            for (float f : floats) result.push_back(std::bit_cast<std::uint32_t>(f));
            return result;
        };
        CHECK(bits(locally(p, values, 0)) == bits(values));
        for (int rank : {1, 2}) CHECK(bits(locally(p, values, rank)) == std::vector<std::uint32_t>(4, 0x80000000U));
        std::vector<float> sum = locally(p, values, 0);
        for (int rank : {1, 2}) {
            auto const addend = locally(p, values, rank);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
        }
        CHECK(bits(sum) == bits(values));
    }

    TEST_CASE("local R -> P: the identity of every op") {
        Shape const shape{2};
        std::vector<int> const values{6, -3};
        CHECK(locally(of("(2):(R)", "(2):(P*)", shape), values, 1) == std::vector<int>{1, 1});
        CHECK(locally(of("(2):(R)", "(2):(P^)", shape), values, 1) == std::vector<int>{0, 0});
        // Copies may owe these themselves.
        CHECK(locally(of("(2):(R)", "(2):(P>)", shape), values, 1) == values);
        CHECK(locally(of("(2):(R)", "(2):(P&)", shape), values, 1) == values);
    }

    TEST_CASE("local S -> P: the shard in its place, the identity around it") {
        Plan<> const sum = of("(2):(S0)", "(2):(P+)", Shape{5});
        CHECK(locally(sum, std::vector<int>{1, 2, 3}, 0) == std::vector<int>{1, 2, 3, 0, 0});
        CHECK(locally(sum, std::vector<int>{4, 5}, 1) == std::vector<int>{0, 0, 0, 4, 5});
        Plan<> const least = of("(2):(S1)", "(2):(P<)", Shape{2, 2});
        int const top = std::numeric_limits<int>::max();
        CHECK(locally(least, std::vector<int>{1, 2}, 1) == std::vector<int>{top, 1, top, 2});
        Plan<> const cyclic = of("(2):(S0:cyc1)", "(2):(P|)", Shape{4});
        CHECK(locally(cyclic, std::vector<int>{7, 8}, 1) == std::vector<int>{0, 7, 0, 8});
    }

    TEST_CASE("local P+ <-> Pavg: a factor, rounded once") {
        CHECK(locally(of("(4):(P+)", "(4):(Pavg)", Shape{3}), std::vector<float>{1, 2, -3}, 2) ==
              std::vector<float>{4, 8, -12});
        CHECK(locally(of("(4):(Pavg)", "(4):(P+)", Shape{3}), std::vector<float>{4, 8, -12}, 2) ==
              std::vector<float>{1, 2, -3});
        CHECK(locally(of("(2,3):(P+,P+)", "(2,3):(Pavg,Pavg)", Shape{1}), std::vector<double>{1}, 5) ==
              std::vector<double>{6});
        CHECK_THROWS_AS(locally(of("(4):(P+)", "(4):(Pavg)", Shape{3}), std::vector<int>{1, 2, 3}, 0), DTypeError);
    }

    TEST_CASE("local R -> block-cyclic: the rank's blocks, side by side") {
        Plan<> const p = of("(2):(R)", "(2):(S0:cyc2)", Shape{7});
        CHECK(locally(p, std::vector<int>{0, 1, 2, 3, 4, 5, 6}, 0) == std::vector<int>{0, 1, 4, 5});
        CHECK(locally(p, std::vector<int>{0, 1, 2, 3, 4, 5, 6}, 1) == std::vector<int>{2, 3, 6});
    }

    TEST_CASE("local copies of views: the same window, in memory of its own") {
        Plan<> const p = of("(2,2):(R,R)", "(2,2):(S0,S1)", Shape{4, 6});
        std::vector<int> const whole = counted(p.from(), 0);
        for (int rank = 0; rank < 4; ++rank) CHECK(locally(p, whole, rank) == counted(p.to(), rank));
    }

    TEST_CASE("typed local plans need no communicator, axes of one included") {
        auto const fill =
            plan(distribution<Shard<0>>(Mesh<2>{}, Shape<4>{}), distribution<Partial<>>(Mesh<2>{}, Shape<4>{}));
        std::vector<int> const shard{5, 6};
        std::vector<int> whole(4, -1);
        redistribute(fill, TensorView<int const>(shard.data(), Shape{2}), view(whole, Shape{4}), 1);
        CHECK(whole == std::vector<int>{0, 0, 5, 6});

        auto const ones = [](auto from, auto to) { return plan(from, to); };
        using S = Shard<0>;
        using R = Replicate;
        Shape<4> const four;
        auto const check = [&](auto const& p, int rank, std::vector<int> source, std::vector<int> const& wanted) {
            std::vector<int> result(wanted.size(), -1);
            redistribute(p, view(source, p.from().local_shape(rank)), view(result, p.to().local_shape(rank)), rank);
            CHECK(result == wanted);
        };
        Mesh<1, 2> const mesh;
        check(ones(distribution<S, R>(mesh, four), distribution<R, S>(mesh, four)), 1, {1, 2, 3, 4}, {3, 4});
        check(ones(distribution<Partial<>, R>(mesh, four), distribution<R, R>(mesh, four)), 1, {1, 2, 3, 4},
              {1, 2, 3, 4});
        check(ones(distribution<Partial<Reduce::max>, S>(mesh, four), distribution<R, Partial<>>(mesh, four)), 1,
              {3, 4}, {0, 0, 3, 4});
        check(ones(distribution<S, S>(mesh, four), distribution<Partial<>, S>(mesh, four)), 0, {1, 2}, {1, 2});
        check(ones(distribution<R, R>(mesh, four), distribution<Partial<>, Partial<>>(mesh, four)), 1, {1, 2, 3, 4},
              {0, 0, 0, 0});
        check(ones(distribution<R, R>(mesh, four), distribution<Partial<>, Partial<>>(mesh, four)), 0, {1, 2, 3, 4},
              {1, 2, 3, 4});
    }

    TEST_CASE("local plans of the last rank that a mesh can have") {
        std::vector<int> const source{1, 2};
        std::vector<int> result(2, -1);
        Plan<> const p = of("(1)+2147483647:(R)", "(1)+2147483647:(R)", Shape{2});
        redistribute(p, TensorView<int const>(source.data(), Shape{2}), view(result, Shape{2}), INT32_MAX);
        CHECK(result == source);
    }

    TEST_CASE("without a communicator a collective is refused, and nothing is written") {
        Plan<> const p = of("(2):(S0)", "(2):(R)", Shape{4});
        std::vector<int> source{1, 2};
        std::vector<int> destination(4, -1);
        CHECK_THROWS_WITH_AS(
            redistribute(p, view(source, Shape{2}), view(destination, Shape{4}), 0),
            "reshard::redistribute: (2):(S0) -> (2):(R) needs communication. Fix: pass a communicator.",
            TransitionError);
        CHECK(destination == std::vector<int>(4, -1));
        auto const across = plan_across(p.from(), p.from());
        CHECK_THROWS_AS(redistribute(across, view(source, Shape{2}), view(destination, Shape{2}), 0), TransitionError);
    }

    TEST_CASE("without a communicator the arguments are checked too") {
        Plan<> const p = of("(2):(S0)", "(2):(P+)", Shape{4});
        std::vector<int> source{1, 2};
        std::vector<int> destination(4, -1);
        CHECK_THROWS_AS(redistribute(p, view(source, Shape{1}), view(destination, Shape{4}), 0), BufferError);
        CHECK_THROWS_AS(redistribute(p, view(source, Shape{2}), view(destination, Shape{3}), 0), BufferError);
        CHECK_THROWS_AS(redistribute(p, view(source, Shape{2}), TensorView<int>(nullptr, Shape{4}), 0), BufferError);
        CHECK_THROWS_AS(
            redistribute(p, TensorView<int>(destination.data() + 1, Shape{2}), view(destination, Shape{4}), 0),
            BufferError);
        ConstDynamicView const bits(source.data(), DType::f4, Shape{2});
        CHECK_THROWS_AS(redistribute(p, bits, DynamicView(destination.data(), DType::f4, Shape{4}), 0), DTypeError);
        CHECK_THROWS_AS(redistribute(p, ConstDynamicView(view(source, Shape{2})),
                                     DynamicView(destination.data(), DType::u32, Shape{4}), 0),
                        MismatchError);
        Plan<> const band = of("(2):(S0)", "(2):(P&)", Shape{4});
        CHECK_THROWS_AS(redistribute(band, ConstDynamicView(source.data(), DType::f32, Shape{2}),
                                     DynamicView(destination.data(), DType::f32, Shape{4}), 0),
                        DTypeError);
        CHECK(destination == std::vector<int>(4, -1));
        if (test::FakeCuda const cuda; cuda.works()) {
            cuda.claim(source.data(), 8);
            CHECK_THROWS_WITH_AS(redistribute(p, view(source, Shape{2}), view(destination, Shape{4}), 0),
                                 doctest::Contains("the source lies in memory of a CUDA device"), BufferError);
            CHECK(destination == std::vector<int>(4, -1));
        }
        // Types are checked as values are: what they can be multiplied with, and where elements lie.
        auto const typed =
            plan(distribution<Replicate>(Mesh<2>{}, Shape<2>{}), distribution<Shard<0>>(Mesh<2>{}, Shape<2>{}));
        CHECK_THROWS_AS(
            redistribute(typed, view(source, Shape{2}), view(destination, Shape{1}), 0, PrepareOptions{.factor = 0.5}),
            DTypeError);
        std::vector<std::complex<float>> complex(3);
        CHECK_THROWS_AS(redistribute(typed, TensorView<std::complex<float>>(complex.data(), Shape{2}),
                                     TensorView<std::complex<float>>(complex.data() + 2, Shape{1}), 0,
                                     host_memory().policy, PrepareOptions{.factor = 0.5}),
                        DTypeError);
        Plan<> const nothing = of("(2):(R)", "(2):(S0)", Shape{0, 4});
        for (Index const stride : {Index{1} << 62, -(Index{1} << 62), INT64_MIN, INT64_MAX / 2}) {
            TensorView<int> const far(source.data(), Shape{2}, {stride});
            CHECK_THROWS_WITH_AS(redistribute(p, far, view(destination, Shape{4}), 0),
                                 doctest::Contains("reach beyond 64 bits"), BufferError);
            TensorView<int> const none(source.data(), Shape{0, 4}, {stride, 1});  // plans multiply its strides too
            CHECK_THROWS_WITH_AS(redistribute(nothing, none, none, 0), doctest::Contains("reach beyond 64 bits"),
                                 BufferError);
        }
        CHECK(destination == std::vector<int>(4, -1));
        // A rank outside the mesh has nothing to do.
        redistribute(p, view(source, Shape{2}), view(destination, Shape{4}), 7);
        CHECK(destination == std::vector<int>(4, -1));
    }

    // ---- With a communicator ---------------------------------------------------------------------------------------

    TEST_CASE("new memory for the result: the owning overload, also on ranks that get nothing") {
        Plan<> const p = plan_across(parse("(2):(S0)", Shape{5}), parse("(3)+1:(S0)", Shape{5}));
        run_on_threads(5, [&](ThreadCommunicator& comm) {
            std::vector<int> source = counted(p.from(), comm.rank());
            Tensor<int> const result =
                redistribute(p, comm, TensorView<int const>(source.data(), local_shape(p.from(), comm.rank())));
            std::vector<int> const wanted = counted(p.to(), comm.rank());
            if (p.to().contains(comm.rank())) {
                CHECK(result.shape() == p.to().local_shape(comm.rank()));
                CHECK(std::vector<int>(result.data(), result.data() + result.size()) == wanted);
            } else {
                CHECK(result.data() == nullptr);
                CHECK(result.size() == 0);
            }
        });
    }

    TEST_CASE("ranks outside the mesh take part without data") {
        Shape const shape{4, 4};
        DynamicMesh const inner = Mesh{2}.on({0, {1, 3}});
        Plan<> const p = plan(distribution(inner, shape, "S0"), distribution(inner, shape, "S1"));
        run_on_threads(5, [&](ThreadCommunicator& comm) {
            std::vector<int> source = counted(p.from(), comm.rank());
            std::vector<int> result(p.to().contains(comm.rank()) ? 8 : 0);
            redistribute(p, comm, view(source, local_shape(p.from(), comm.rank())),
                         view(result, local_shape(p.to(), comm.rank())));
            CHECK(result == counted(p.to(), comm.rank()));
        });
    }

    TEST_CASE("a rank outside the meshes that gives views without a type hears what to give") {
        Plan<> const p = plan_across(parse("(2):(S0)", Shape{4}), parse("(1)+1:(R)", Shape{4}));
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            std::vector<float> source(2, 1.0F);
            std::vector<float> result(4);
            bool const outside = comm.rank() == 2;
            DynamicView const from = outside ? DynamicView() : DynamicView(view(source, Shape{2}));
            DynamicView const none(nullptr, DType::f32, Shape{0});
            DynamicView const to = comm.rank() == 1 ? DynamicView(view(result, Shape{4})) : none;
            std::string said;
            try {
                redistribute(p, comm, from, outside ? DynamicView() : to);
            } catch (MismatchError const& error) {
                said = error.message();
            }
            CHECK(said.find("[4] U8 (outside the meshes only the type of the views counts") != std::string::npos);
            CHECK(said.find("but rank 0 prepared") != std::string::npos);
            redistribute(p, comm, from, to);
            if (comm.rank() == 1) CHECK(result == std::vector<float>(4, 1.0F));
        });
    }

    TEST_CASE("two halves of a communicator run plans of their own at the same time") {
        Shape const shape{8};
        run_on_threads(4, [&](ThreadCommunicator& world) {
            auto comm = world.split(world.rank() % 2, 0);
            Plan<> const p =
                world.rank() % 2 == 0 ? of("(2):(S0)", "(2):(R)", shape) : of("(2):(P+)", "(2):(R)", shape);
            for (int round = 0; round < 20; ++round) {
                std::vector<int> source(world.rank() % 2 == 0 ? 4 : 8, comm.rank() + 1);
                std::vector<int> result(8);
                redistribute(p, comm, view(source, p.from().local_shape(comm.rank())),
                             view(result, DynamicShape(shape)));
                CHECK(result ==
                      (world.rank() % 2 == 0 ? std::vector<int>{1, 1, 1, 1, 2, 2, 2, 2} : std::vector<int>(8, 3)));
            }
        });
    }

    TEST_CASE("every rank can be the root of distribute and gather, evenly and unevenly") {
        for (char const* text : {"(4):(S0)", "(4):(S1:bal)", "(2,2):(S0,R)", "(2,2):(S1,S0)", "(4):(R)",
                                 "(4)[3,1,0,2]:(S0:cyc1)", "(2)+1:(S0)"}) {
            CAPTURE(text);
            Shape const shape{5, 3};
            auto const parts = parse(text, shape);
            std::vector<int> const whole = counted(parse("(1):(R)", shape), 0);
            for (int root = 0; root < 4; ++root) {
                CAPTURE(root);
                run_on_threads(4, [&](ThreadCommunicator& comm) {
                    std::vector<int> source = comm.rank() == root ? whole : std::vector<int>{};
                    DynamicShape const own = comm.rank() == root ? DynamicShape(shape) : DynamicShape(Shape<0>{});
                    DynamicShape const local = local_shape(parts, comm.rank());
                    std::vector<int> mine(static_cast<std::size_t>(local.size()), -1);
                    distribute(parts, comm, root, view(source, own), view(mine, local));
                    CHECK(mine == counted(parts, comm.rank()));
                    std::vector<int> back(source.size(), -1);
                    gather(parts, comm, root, view(mine, local), view(back, own));
                    CHECK(back == source);
                });
            }
        }
    }

    TEST_CASE("distribute to a Partial gives the root its values, gather adds up") {
        Shape const shape{3};
        auto const owed = parse("(4):(P+)", shape);
        for (int root = 0; root < 4; ++root) {
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                std::vector<int> source{7, 8, 9};
                std::vector<int> mine(3, -1);
                Traffic const before = comm.traffic();
                distribute(owed, comm, root, view(source, DynamicShape(shape)), view(mine, DynamicShape(shape)));
                CHECK((comm.traffic() - before).bytes_received == 0);
                CHECK(mine == (comm.rank() == root ? source : std::vector<int>(3, 0)));
                for (int& element : mine) element += comm.rank();
                std::vector<int> total(3, -1);
                gather(owed, comm, root, view(mine, DynamicShape(shape)), view(total, DynamicShape(shape)));
                CHECK(total == (comm.rank() == root ? std::vector<int>{13, 14, 15} : std::vector<int>(3, -1)));
            });
        }
    }

    TEST_CASE("distribute and gather take views whose element type is a value") {
        auto const parts = parse("(2):(S0)", Shape{4});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<int> source{1, 2, 3, 4};
            std::vector<int> mine(2, -1);
            std::vector<int> back(4, -1);
            Tensor<float> cast(Shape{2});
            DynamicView const local(mine.data(), DType::i32, Shape{2});
            distribute(parts, comm, 0, ConstDynamicView(source.data(), DType::i32, Shape{4}), local);
            CHECK(mine[1] == 2 * comm.rank() + 2);
            gather(parts, comm, 1, local, DynamicView(back.data(), DType::i32, Shape{4}));
            CHECK(back == (comm.rank() == 1 ? source : std::vector<int>(4, -1)));
            distribute(parts, comm, 0, view(source, Shape{4}), cast, Casting{});
            CHECK(cast(0) == static_cast<float>(2 * comm.rank() + 1));
            distribute(parts, comm, 0, DynamicView(source.data(), DType::i32, Shape{4}), cast, Casting{});
            CHECK(cast(1) == static_cast<float>(2 * comm.rank() + 2));
        });
    }

    TEST_CASE("a root that is no rank of the communicator is a MeshError on every rank") {
        auto const parts = parse("(2):(S0)", Shape{4});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<int> memory(4);
            for (int root : {-1, 2}) {
                CHECK_THROWS_WITH_AS(
                    distribute(parts, comm, root, view(memory, Shape{4}), view(memory, Shape{2})),
                    doctest::Contains("is not one of the communicator's 2 ranks. Fix: roots count from 0."), MeshError);
                CHECK_THROWS_AS(gather(parts, comm, root, view(memory, Shape{2}), view(memory, Shape{4})), MeshError);
            }
            std::vector<int> mine(2);
            int const root = comm.rank() == 0 ? 0 : 7;  // what one rank gets wrong, all are told
            CHECK_THROWS_WITH_AS(distribute(parts, comm, root, view(memory, Shape{4}), view(mine, Shape{2})),
                                 doctest::Contains("rank 1 of 2: reshard: root 7"), MeshError);
            CHECK_THROWS_AS(gather(parts, comm, root, view(mine, Shape{2}), view(memory, Shape{4})), MeshError);
            gather(parts, comm, 1, view(mine, Shape{2}), view(memory, Shape{4}));
        });
    }

    TEST_CASE("a result that there is no memory for is OutOfMemory on all ranks") {
        Shape const huge{Index{1} << 50};
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            auto const move = plan(
                distribution<Shard<0, Boundaries>>(Mesh{2}, huge, Shard<0, Boundaries>{{0, 0, huge.size()}}),
                distribution<Shard<0, Boundaries>>(Mesh{2}, huge, Shard<0, Boundaries>{{0, huge.size(), huge.size()}}));
            float none = 0;
            TensorView<float const> const source(&none, Shape{comm.rank() == 0 ? 0 : huge.size()});
            CHECK_THROWS_WITH_AS(static_cast<void>(redistribute(move, comm, source)),
                                 doctest::Contains("rank 0 of 2: "), OutOfMemory);
            barrier(comm);
        });
    }

    TEST_CASE("scalars and empty tensors") {
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            double source = comm.rank() + 1.0;
            double total = -1;
            redistribute(of("(3):(P+)", "(3):(R)", DynamicShape()), comm, TensorView<double>(&source, DynamicShape()),
                         TensorView<double>(&total, DynamicShape()));
            CHECK(total == 6.0);
            Plan<> const nothing = of("(3):(P+)", "(3):(S0)", Shape{0, 4});
            redistribute(nothing, comm, TensorView<double>(nullptr, Shape{0, 4}),
                         TensorView<double>(nullptr, Shape{0, 4}));
        });
    }

    // ---- Determinism -----------------------------------------------------------------------------------------------

    TEST_CASE("float sums have the same bits every time: those of a fold in ascending rank order") {
        constexpr int ranks = 5;
        std::uint64_t const seed = 7;
        CAPTURE(seed);
        std::mt19937_64 rng(seed);
        Shape const shape{37};
        std::vector<std::vector<float>> addends(ranks, std::vector<float>(37));
        for (auto& addend : addends)
            for (float& element : addend) {
                element = std::ldexp(static_cast<float>(static_cast<int>(rng() % 2001) - 1000),
                                     static_cast<int>(rng() % 40) - 20);
            }
        std::vector<float> wanted = addends[0];
        for (std::size_t r = 1; r < ranks; ++r)
            for (std::size_t i = 0; i < 37; ++i) wanted[i] += addends[r][i];
        std::vector<float> other_order = addends[4];
        for (std::size_t r : {3U, 2U, 1U, 0U})
            for (std::size_t i = 0; i < 37; ++i) other_order[i] += addends[r][i];
        CHECK(wanted != other_order);  // the order matters for these numbers

        for (char const* to : {"(5):(R)", "(5):(S0)", "(5):(S0:bal)"}) {
            Plan<> const p = of("(5):(P+)", to, shape);
            for (unsigned round = 0; round < 8; ++round) {
                run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                    auto const rank = static_cast<unsigned>(comm.rank());
                    for (unsigned i = 0; i < (rank * 7U + round * 3U) % 5U * 50U; ++i) std::this_thread::yield();
                    std::vector<float> source = addends[rank];
                    DynamicShape const local = p.to().local_shape(comm.rank());
                    std::vector<float> result(static_cast<std::size_t>(local.size()));
                    redistribute(p, comm, view(source, DynamicShape(shape)), view(result, local));
                    std::vector<float> expected;
                    for (Index i : oracle::elements(p.to(), comm.rank()))
                        expected.push_back(wanted[static_cast<std::size_t>(i)]);
                    bool const same = std::memcmp(result.data(), expected.data(), expected.size() * sizeof(float)) == 0;
                    CHECK(same);
                });
            }
        }
    }

    TEST_CASE("ranks listed in another order fold in the order of the mesh") {
        Shape const shape{2};
        Plan<> const p = of("(3)[2,0,1]:(P+)", "(3)[2,0,1]:(R)", shape);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            // In the order 2, 0, 1: (1e8 - 1e8) + 1; in the order 0, 1, 2 the one would be lost.
            float const own = comm.rank() == 2 ? 1e8F : comm.rank() == 0 ? -1e8F : 1.0F;
            std::vector<float> source(2, own);
            std::vector<float> result(2);
            redistribute(p, comm, view(source, DynamicShape(shape)), view(result, DynamicShape(shape)));
            CHECK(result == std::vector<float>(2, 1.0F));
        });
        Plan<> const cuts = of("(3)[2,0,1]:(S0)", "(3)[2,0,1]:(R)", Shape{3});
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            std::vector<int> source{comm.rank()};
            std::vector<int> result(3);
            redistribute(cuts, comm, view(source, Shape{1}), view(result, Shape{3}));
            CHECK(result == std::vector<int>{2, 0, 1});
        });
    }

    TEST_CASE("bf16 sums are folded in float and rounded once") {
        Shape const shape{4};
        Plan<> const p = of("(3):(P+)", "(3):(R)", shape);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            // 256 + 1 is 256 in bf16, so a fold in bf16 would lose both ones.
            std::vector<BFloat16> source(4, BFloat16(comm.rank() == 0 ? 256.0F : 1.0F));
            std::vector<BFloat16> result(4);
            redistribute(p, comm, view(source, DynamicShape(shape)), view(result, DynamicShape(shape)));
            for (BFloat16 element : result) CHECK(static_cast<float>(element) == 258.0F);
        });
        Plan<> const average = of("(3):(Pavg)", "(3):(R)", shape);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            std::vector<BFloat16> source(4, BFloat16(comm.rank() == 0 ? 257.0F * 3.0F : 0.0F));
            std::vector<BFloat16> result(4);
            redistribute(average, comm, view(source, DynamicShape(shape)), view(result, DynamicShape(shape)));
            BFloat16 const once(static_cast<float>(source[0]) / 3.0F);
            if (comm.rank() == 0) CHECK(result[0] == once);
        });
    }

    TEST_CASE("P(a) -> P(b): folded by the first op, owed by the second") {
        Shape const shape{3};
        Plan<> const p = of("(3):(P>)", "(3):(P+)", shape);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            std::vector<int> source(3, 10 * comm.rank() - 5);
            std::vector<int> result(3, -1);
            redistribute(p, comm, view(source, DynamicShape(shape)), view(result, DynamicShape(shape)));
            std::vector<int> total(3);
            redistribute(of("(3):(P+)", "(3):(R)", shape), comm, view(result, DynamicShape(shape)),
                         view(total, DynamicShape(shape)));
            CHECK(total == std::vector<int>(3, 15));
        });
    }

    TEST_CASE("one rank: the same calls on SelfCommunicator") {
        SelfCommunicator comm;
        std::vector<int> source{1, 2, 3};
        Plan<> const p = of("(1):(P+)", "(1):(R)", Shape{3});
        Tensor<int> const result = redistribute(p, comm, TensorView<int const>(source.data(), Shape{3}));
        CHECK(std::vector<int>(result.data(), result.data() + 3) == source);
        std::vector<int> parts(3);
        distribute(parse("(1):(S0)", Shape{3}), comm, 0, view(source, Shape{3}), view(parts, Shape{3}));
        CHECK(parts == source);
        gather(parse("(1):(P+)", Shape{3}), comm, 0, view(parts, Shape{3}), view(source, Shape{3}));
        CHECK(source == parts);
        CHECK(comm.traffic().bytes_received == 0);
    }

    TEST_CASE("a tensor that owns its memory stands for its view, as source, as destination and as both") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            auto const rows = distribution<Shard<0>>(Mesh{2}, Shape{2, 2});
            auto const columns = distribution<Shard<1>>(Mesh{2}, Shape{2, 2});
            Tensor<int> mine(rows.local_shape(comm.rank()));
            for (Index i = 0; i < 2; ++i) mine.data()[i] = static_cast<int>(2 * comm.rank() + i);
            Tensor<int> turned(columns.local_shape(comm.rank()));
            auto const right = [&](Tensor<int> const& found) {
                return found.data()[0] == comm.rank() && found.data()[1] == 2 + comm.rank();
            };
            redistribute(plan(rows, columns), comm, mine, turned);
            CHECK(right(turned));
            Tensor<int> const& given = mine;
            CHECK(right(redistribute(plan(rows, columns), comm, given)));
            turned.data()[0] = -1;
            auto job = prepare(Plan<>(plan(rows, columns)), comm, given, turned, PrepareOptions{});
            job.run();
            CHECK(right(turned));
            Tensor<float> wide(columns.local_shape(comm.rank()));
            redistribute(plan(rows, columns), comm, given, wide, Casting{});
            CHECK(wide.data()[1] == static_cast<float>(2 + comm.rank()));
            turned.data()[0] = -1;
            redistribute(plan(rows, columns), comm, given, turned.view());  // beside a view that is a temporary
            CHECK(right(turned));
        });
    }
    TEST_CASE("a tensor that owns its memory stands for its view without a communicator, too") {
        auto const whole = distribution<Replicate>(Mesh{2}, Shape{2, 2});
        auto const rows = distribution<Shard<0>>(Mesh{2}, Shape{2, 2});
        Tensor<int> all(Shape{2, 2});
        for (Index i = 0; i < 4; ++i) all.data()[i] = static_cast<int>(i);
        Tensor<int> const& given = all;
        Tensor<int> mine(Shape{1, 2});
        redistribute(plan(whole, rows), given, mine, 1);
        CHECK(mine.data()[0] == 2);
        redistribute(Plan<>(plan(whole, rows)), given, mine.view(), 0);
        CHECK(mine.data()[0] == 0);
        Tensor<float> wide(Shape{1, 2});
        redistribute(plan(whole, rows), given, wide, 1, Casting{});
        CHECK(wide.data()[1] == 3);
    }
    TEST_CASE("the gradient of an average is that of the sum, divided by the extent") {
        DynamicShape const shape = Shape{8};
        for (char const* used : {"(4):(S0)", "(4):(R)"}) {
            CAPTURE(used);
            Plan<> const average = of("(4):(Pavg)", used, shape);
            Plan<> const backward = of("(4):(P+)", used, shape).adjoint();
            std::vector<double> forth(4);  // <A x, y> and <x, At y>, a part of each rank
            std::vector<double> back(4);
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                auto const rank = static_cast<std::size_t>(comm.rank());
                std::mt19937 random(static_cast<unsigned>(rank));
                auto const numbers = [&](Index count) {
                    Tensor<double> result(Shape{count});
                    for (Index i = 0; i < count; ++i) result.data()[i] = static_cast<double>(random() % 64) - 32;
                    return result;
                };
                auto const product = [](Tensor<double> const& a, Tensor<double> const& b) {
                    return std::inner_product(a.data(), a.data() + a.shape().size(), b.data(), 0.0);
                };
                Index const part = average.to().local_shape(comm.rank()).size();
                Tensor<double> const x = numbers(8);
                Tensor<double> const y = numbers(part);
                Tensor<double> moved(Shape{part});
                redistribute(average, comm, x, moved);
                Tensor<double> gradient(Shape{8});
                redistribute(backward, comm, y, gradient, PrepareOptions{.factor = 0.25});
                forth[rank] = product(moved, y);
                back[rank] = product(x, gradient);
            });
            CHECK(std::reduce(forth.begin(), forth.end()) == std::reduce(back.begin(), back.end()));
        }
    }
}
