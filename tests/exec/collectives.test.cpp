// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/collectives.hpp.
#include <reshard/exec/collectives.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/exec/batch.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"
#include "support/thrown.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

namespace {
using namespace reshard;

/// What the rank holds at element i: sums of these are exact.
float value(Index rank, Index i) { return static_cast<float>((rank * 31 + i * 7) % 101 - 50); }

std::vector<float> held(Index rank, Index size) {
    std::vector<float> result;
    for (Index i = 0; i < size; ++i) result.push_back(value(rank, i));
    return result;
}

/// The ranks along an axis of `mesh` through `rank`, by coordinate.
std::vector<Index> along(DynamicMesh const& mesh, int axis, Index rank) {
    std::vector<Index> ranks;
    Index const first = mesh.ordinal(rank) - mesh.coordinates(rank)[axis] * mesh.stride(axis);
    for (Index i = 0; i < mesh.extent(axis); ++i) ranks.push_back(mesh.rank_at(first + i * mesh.stride(axis)));
    return ranks;
}

std::vector<float> summed(DynamicMesh const& mesh, int axis, Index rank, Index size) {
    std::vector<float> sums(static_cast<std::size_t>(size), 0.0F);
    for (Index other : along(mesh, axis, rank))
        for (Index i = 0; i < size; ++i) sums[static_cast<std::size_t>(i)] += value(other, i);
    return sums;
}

/// What a call works on, and the same for what is prepared in its place.
struct Both {
    explicit Both(DynamicShape const& extents)
        : shape(extents), called(static_cast<std::size_t>(extents.size()), -1.0F), ran(called) {}
    /// Sums of these depend on the order.
    void fill(Index rank, int round) {
        for (std::size_t i = 0; i < called.size(); ++i) {
            auto const part = static_cast<float>(3 + (rank * 31 + static_cast<Index>(i) * 7 + round * 13) % 101);
            called[i] = ran[i] = (rank % 2 == 0 ? 1e5F : 1.0F) / part;
        }
    }
    [[nodiscard]] DynamicView call() { return TensorView<float>(called.data(), shape); }
    [[nodiscard]] DynamicView run() { return TensorView<float>(ran.data(), shape); }
    [[nodiscard]] bool same() const {
        return std::ranges::equal(std::as_bytes(std::span(called)), std::as_bytes(std::span(ran)));
    }

    DynamicShape shape;
    std::vector<float> called;
    std::vector<float> ran;
};

/// Calls `body(comm, mesh, axis, coordinate)` on every rank of some meshes, for each axis.
template <class Body>
void on_meshes(Body&& body) {
    std::vector<DynamicMesh> const meshes{Mesh{1}, Mesh{4}, Mesh{2, 3}.named("dp", "tp"), Mesh{2, 1, 2},
                                          Mesh{2, 2}.on({0, {3, 1, 0, 2}})};
    for (DynamicMesh const& mesh : meshes) {
        for (int axis = 0; axis < mesh.axes(); ++axis) {
            CAPTURE(to_string(mesh));
            CAPTURE(axis);
            run_on_threads(static_cast<int>(mesh.size()), [&](ThreadCommunicator& comm) {
                body(comm, mesh, axis, mesh.coordinates(comm.rank())[axis]);
            });
        }
    }
}

}  // namespace

TEST_SUITE("exec/collectives") {
    TEST_CASE("all_reduce: every rank along the axis has the sum, in place and elsewhere") {
        on_meshes([](ThreadCommunicator& comm, DynamicMesh const& mesh, int axis, Index) {
            Shape const shape{5, 3};
            auto memory = held(comm.rank(), 15);
            auto const want = summed(mesh, axis, comm.rank(), 15);
            std::vector<float> other(15, -1.0F);
            TensorView<float> const view(memory.data(), shape);
            all_reduce(view, TensorView<float>(other.data(), shape), comm, mesh, axis);
            CHECK(other == want);
            CHECK(memory == held(comm.rank(), 15));
            all_reduce(view, comm, mesh, axis);
            CHECK(memory == want);
        });
    }

    TEST_CASE("tensors that own their memory are taken as their views are") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            Mesh const mesh{2};
            Tensor<float> source(Shape{2});
            Tensor<float> sum(Shape{2});
            Tensor<float> part(Shape{1});
            for (float* element : {&source(0), &source(1)}) *element = static_cast<float>(comm.rank() + 1);
            all_reduce(std::as_const(source), sum, comm, mesh, 0);
            CHECK(sum(1) == 3.0F);
            reduce_scatter(source, part, comm, mesh, 0);
            CHECK(part(0) == 3.0F);
            all_gather(part, sum, comm, mesh, 0);
            CHECK(sum(1) == 3.0F);
            prepare_all_reduce(source, comm, mesh, 0).run();
            CHECK(source(0) == 3.0F);
            broadcast(source, comm, mesh, 0, 1);
            all_reduce(source, comm, mesh, 0);
            CHECK(source(0) == 6.0F);
        });
    }

    TEST_CASE("ranks outside the mesh give nothing, or what they like, and what they give is not touched") {
        DynamicMesh const mesh = Mesh{2, 2}.on({0, {4, 1, 0, 2}});
        for (MeshAxes const& axes : {MeshAxes{0}, MeshAxes{0, 1}}) {
            for (bool const nothing : {true, false}) {
                CAPTURE(axes.size());
                CAPTURE(nothing);
                run_on_threads(6, [&](ThreadCommunicator& comm) {
                    bool const inside = mesh.contains(comm.rank());
                    Index const ranks = axes.size() == 1 ? 2 : 4;
                    DynamicShape const whole = inside ? DynamicShape(Shape{8}) : DynamicShape(Shape{3, 5});
                    std::vector<float> memory(inside ? 8 : 15, 1.0F);
                    std::vector<float> part(inside ? static_cast<std::size_t>(8 / ranks) : 15, 1.0F);
                    DynamicView all;
                    DynamicView mine;
                    if (inside || !nothing) {
                        all = TensorView<float>(memory.data(), whole);
                        mine = TensorView<float>(part.data(), inside ? DynamicShape(Shape{8 / ranks}) : whole);
                    }
                    all_reduce(all, comm, mesh, axes);
                    reduce_scatter(all, mine, comm, mesh, axes);
                    all_gather(mine, all, comm, mesh, axes);
                    broadcast(all, comm, mesh, axes, 1);
                    auto const sum = static_cast<float>(inside ? ranks * ranks : 1);
                    CHECK(memory == std::vector<float>(memory.size(), sum));
                });
            }
        }
    }

    TEST_CASE("reduce_scatter and all_gather: parts as Shard cuts them, uneven and empty ones too") {
        on_meshes([](ThreadCommunicator& comm, DynamicMesh const& mesh, int axis, Index coordinate) {
            for (int dim : {0, 1}) {
                Shape const shape{5, 3};
                auto memory = held(comm.rank(), 15);
                auto const sums = summed(mesh, axis, comm.rank(), 15);
                Indices extents = shape.extents();
                SplitRule chunk;
                Interval const mine = detail::part(chunk, extents[dim], mesh.extent(axis), coordinate);
                extents[dim] = mine.size();
                Tensor<float> shard{DynamicShape(extents)};
                reduce_scatter(TensorView<float const>(memory.data(), shape), shard.view(), comm, mesh, axis, dim);
                std::vector<float> want;
                for (Index i = 0; i < 15; ++i) {
                    Index const at = dim == 0 ? i / 3 : i % 3;
                    if (at >= mine.begin && at < mine.end) want.push_back(sums[static_cast<std::size_t>(i)]);
                }
                CHECK(std::vector<float>(shard.data(), shard.data() + shard.size()) == want);
                Tensor<float> whole{DynamicShape(shape)};
                all_gather(shard.view(), whole.view(), comm, mesh, axis, dim);
                CHECK(std::vector<float>(whole.data(), whole.data() + 15) == sums);
            }
        });
    }

    TEST_CASE("broadcast: every rank along the axis has what the root's coordinate held") {
        on_meshes([](ThreadCommunicator& comm, DynamicMesh const& mesh, int axis, Index) {
            int const root = static_cast<int>(mesh.extent(axis)) - 1;
            auto memory = held(comm.rank(), 6);
            broadcast(TensorView<float>(memory.data(), Shape{6}), comm, mesh, axis, root);
            CHECK(memory == held(along(mesh, axis, comm.rank()).back(), 6));
        });
    }

    TEST_CASE("along several axes: their ranks in the order of the axes given") {
        auto const mesh = Mesh{2, 3, 2}.named("pp", "dp", "tp");
        run_on_threads(12, [&](ThreadCommunicator& comm) {
            int const pp = comm.rank() / 6;
            std::vector<float> memory{static_cast<float>(comm.rank())};
            std::vector<float> all(6);
            TensorView<float> const view(memory.data(), Shape{1});
            all_gather(view, TensorView<float>(all.data(), Shape{6}), comm, mesh, {"tp", "dp"});
            std::vector<float> want;
            for (int t = 0; t < 2; ++t)
                for (int d = 0; d < 3; ++d) want.push_back(static_cast<float>(pp * 6 + d * 2 + t));
            CHECK(all == want);
            std::vector<float> part(1);
            reduce_scatter(TensorView<float const>(all.data(), Shape{6}), TensorView<float>(part.data(), Shape{1}),
                           comm, mesh, {"tp", "dp"});
            CHECK(part[0] == 6 * memory[0]);
            broadcast(TensorView<float>(part.data(), Shape{1}), comm, mesh, {2, 1}, 4);  // tp 1, dp 1
            CHECK(part[0] == static_cast<float>(6 * (pp * 6 + 3)));
            all_reduce(view, comm, mesh, {"dp", "pp", "tp"});
            CHECK(memory[0] == 66);
        });
    }

    TEST_CASE("tensors may have all dimensions, whatever other axes the mesh has") {
        run_on_threads(4, [](ThreadCommunicator& comm) {
            std::vector<float> memory(2, static_cast<float>(comm.rank()));
            all_reduce(TensorView<float>(memory.data(), Shape{1, 1, 1, 1, 1, 1, 1, 2}), comm, Mesh{2, 2}, 0);
            CHECK(memory == std::vector<float>(2, static_cast<float>(2 * (comm.rank() % 2) + 2)));
        });
    }

    TEST_CASE("an axis may be named; others are refused") {
        auto const mesh = Mesh{2, 2}.named("dp", "tp");
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            std::vector<float> memory{static_cast<float>(comm.rank())};
            DynamicView const view = TensorView<float>(memory.data(), Shape{1});
            all_reduce(view, comm, mesh, "dp", Reduce::max);
            CHECK(memory[0] == static_cast<float>(2 + comm.rank() % 2));
            CHECK_THROWS_WITH_AS(all_reduce(view, comm, mesh, "pp"), doctest::Contains("pp"), MeshError);
            CHECK_THROWS_WITH_AS(all_reduce(view, comm, mesh, 2), doctest::Contains("2"), MeshError);
            CHECK_THROWS_WITH_AS(broadcast(view, comm, mesh, 0, 2),
                                 doctest::Contains("root 2 of 2 ranks along the axes"), MeshError);
            DynamicView const deep = TensorView<float>(memory.data(), Shape{1, 1, 1, 1, 1, 1, 1, 1});
            float const sum = memory[0] * 2;
            all_reduce(deep, comm, mesh, 0);  // too many dimensions for one tensor of all ranks
            CHECK(memory[0] == sum);
            CHECK_THROWS_WITH_AS(reduce_scatter(view, view, comm, mesh, 0, 1),
                                 doctest::Contains("a tensor of 1 dimensions has no dimension 1 to cut along"),
                                 PlacementError);
            CHECK_THROWS_WITH_AS(
                reduce_scatter(view, view, comm, mesh, 0, -1),
                doctest::Contains("has no dimension -1 to cut along. Fix: dimensions count from 0 to 0."),
                PlacementError);
            std::vector<float> four(4);
            DynamicView const all = TensorView<float>(four.data(), Shape{4});
            CHECK_THROWS_WITH_AS(
                reduce_scatter(all, all, comm, mesh, "dp"),
                doctest::Contains("the destination of rank 0 has shape [4], but beside a source of [4] "
                                  "it is [2]. Fix: give the source first, the destination second"),
                BufferError);
            // As torch has it: the result in front.
            DynamicView const two = TensorView<float>(four.data(), Shape{2});
            CHECK_THROWS_WITH_AS(
                all_gather(all, two, comm, mesh, "dp"),
                doctest::Contains("the source of rank 0 has shape [4], but beside a destination of [2] "
                                  "it is [1]. Fix: give the source first, the destination second"),
                BufferError);
        });
    }

    TEST_CASE("what one rank gets wrong is an error of all, without waiting for a deadline") {
        auto const mesh = Mesh{2, 2}.named("dp", "tp");
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            std::vector<float> memory{1.0F};
            DynamicView const flat = TensorView<float>(memory.data(), Shape{1});
            DynamicView const deep = TensorView<float>(memory.data(), Shape{1, 1, 1, 1, 1, 1, 1, 1});
            bool const culprit = comm.rank() == 2;
            DynamicView const& view = culprit ? deep : flat;
            auto const words = doctest::Contains("rank 1 of 2: prepared (2):");
            CHECK_THROWS_WITH_AS(all_reduce(view, comm, mesh, 0), words, MismatchError);
            std::vector<float> more(2);
            DynamicView const both = TensorView<float>(more.data(), Shape{2});
            CHECK_THROWS_AS(all_gather(view, culprit ? deep : both, comm, mesh, 0), Error);
            CHECK_THROWS_AS(reduce_scatter(culprit ? deep : both, view, comm, mesh, 0), Error);
            CHECK_THROWS_WITH_AS(broadcast(view, comm, mesh, 0), doctest::Contains("rank 1 of 2: prepared ("),
                                 MismatchError);
            CHECK_THROWS_WITH_AS(all_reduce(flat, comm, mesh, culprit ? 1 : 0),
                                 doctest::Contains("rank 2 of 4: prepared"), MismatchError);
            CHECK_THROWS_WITH_AS(broadcast(flat, comm, mesh, 0, culprit ? 7 : 0),
                                 doctest::Contains("rank 2 of 4: reshard::broadcast: root 7"), MeshError);
            all_reduce(flat, comm, mesh, 0);  // nothing is broken
            CHECK(memory[0] == 2.0F);
        });
    }

    TEST_CASE("what a rank gets wrong among others with shapes of their own is told with the ranks of its line") {
        run_on_threads(4, [](ThreadCommunicator& comm) {
            std::vector<float> memory(5, 1.0F);
            std::vector<float> sums(5);
            DynamicShape const wrong = Shape{Index{comm.rank() == 3 ? 5 : 4}};
            CHECK_THROWS_WITH_AS(all_reduce(TensorView<float>(memory.data(), Shape{4}),
                                            TensorView<float>(sums.data(), wrong), comm, Mesh{2, 2}, 0),
                                 doctest::Contains("among (2)[1,3]: rank 1 of 2: reshard::prepare: the destination of "
                                                   "rank 1 has shape [5]"),
                                 BufferError);
        });
    }

    TEST_CASE("strides beyond 64 bits are refused, and multiplied by nothing before") {
        SelfCommunicator comm;
        std::vector<float> memory(4);
        for (Index const stride : {Index{1} << 62, -(Index{1} << 62), INT64_MIN, INT64_MAX}) {
            TensorView<float> const far(memory.data(), Shape{4}, {stride});
            CHECK_THROWS_WITH_AS(all_reduce(far, comm, Mesh{1, 1}, 0), doctest::Contains("reach beyond 64 bits"),
                                 BufferError);
            CHECK_THROWS_WITH_AS(broadcast(far, comm, Mesh{1, 1}, 0), doctest::Contains("reach beyond 64 bits"),
                                 BufferError);
        }
    }

    TEST_CASE("broadcast along an axis of one rank refuses what it refuses along others") {
        run_on_threads(4, [](ThreadCommunicator& comm) {
            std::byte bits[2] = {};
            for (int axis : {0, 1}) {
                CAPTURE(axis);
                CHECK_THROWS_WITH_AS(broadcast(DynamicView(bits, DType::f4, Shape{4}), comm, Mesh{1, 4}, axis),
                                     doctest::Contains("elements of F4 are smaller than a byte"), DTypeError);
                DynamicView const none(nullptr, DType::f32, Shape{4});
                CHECK_THROWS_WITH_AS(broadcast(none, comm, Mesh{1, 4}, axis), doctest::Contains("is null"),
                                     BufferError);
                CHECK_THROWS_WITH_AS(broadcast(DynamicView(), comm, Mesh{1, 5}, axis),
                                     doctest::Contains("the communicator only 4 ranks"), MeshError);
            }
        });
    }

    TEST_CASE("ranks that give other axes, or another mesh, get the same error, and go on") {
        auto const mesh = Mesh{2, 2}.named("dp", "tp");
        run_on_threads(4, {.deadline = std::chrono::seconds(20)}, [&](ThreadCommunicator& comm) {
            std::vector<float> memory{1.0F};
            DynamicView const view = TensorView<float>(memory.data(), Shape{1});
            bool const culprit = comm.rank() == 1;
            auto const reduce = [&](DynamicMesh const& given, MeshAxes const& axes) {
                CHECK_THROWS_AS(all_reduce(view, comm, given, axes), Error);
            };
            reduce(mesh, culprit ? MeshAxes{"dp", "tp"} : MeshAxes{"dp"});
            reduce(mesh, culprit ? MeshAxes{} : MeshAxes{"dp"});
            reduce(culprit ? DynamicMesh(Mesh{4}) : DynamicMesh(mesh), 0);
            reduce(culprit ? DynamicMesh(Mesh{2}) : DynamicMesh(mesh), 0);
            DynamicMesh const listed = mesh.on({0, {3, 1, 0, 2}});
            reduce(culprit ? listed : DynamicMesh(mesh), {0, 1});
            CHECK_THROWS_WITH_AS(all_reduce(view, comm, mesh, MeshAxes{}),
                                 doctest::Contains("a collective along no axis"), MeshError);
            all_reduce(view, comm, mesh, {"tp", "dp"});  // nothing is broken
            CHECK(memory[0] == 4.0F);
        });
    }

    TEST_CASE("sums are folded in the order of the ranks, whichever axis is first, and whatever others hold") {
        auto const mesh = Mesh{2, 2}.named("dp", "tp");
        for (MeshAxes const& axes : {MeshAxes{"dp", "tp"}, MeshAxes{"tp", "dp"}}) {
            run_on_threads(5, [&](ThreadCommunicator& comm) {  // the fifth is outside, and gives nothing
                std::vector<float> const values{1e8F, 1.0F, -1e8F, 1.0F, 0.0F};
                std::vector<float> memory(4, values[static_cast<std::size_t>(comm.rank())]);
                bool const inside = comm.rank() < 4;
                DynamicView const view = TensorView<float>(memory.data(), Shape{4});
                all_reduce(inside ? view : DynamicView(), comm, mesh, axes);
                CHECK(memory == std::vector<float>(4, inside ? 1.0F : 0.0F));  // ((1e8 + 1) - 1e8) + 1
                memory.assign(4, values[static_cast<std::size_t>(comm.rank())]);
                std::vector<float> part{-1.0F};
                DynamicView const mine = TensorView<float>(part.data(), Shape{1});
                reduce_scatter(inside ? view : DynamicView(), inside ? mine : DynamicView(), comm, mesh, axes);
                CHECK(part[0] == (inside ? 1.0F : -1.0F));
            });
        }
    }

    TEST_CASE("averages, and types without them, where ranks outside the mesh give nothing") {
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            std::vector<float> memory{static_cast<float>(comm.rank() + 1)};
            DynamicView const view = TensorView<float>(memory.data(), Shape{1});
            bool const inside = comm.rank() < 2;
            all_reduce(inside ? view : DynamicView(), comm, Mesh{2}, 0, Reduce::avg);
            CHECK(memory[0] == (inside ? 1.5F : static_cast<float>(comm.rank() + 1)));
            std::vector<Index> numbers{1};
            DynamicView const wrong = TensorView<Index>(numbers.data(), Shape{1});
            CHECK_THROWS_WITH_AS(all_reduce(inside ? wrong : DynamicView(), comm, Mesh{2}, 0, Reduce::avg),
                                 doctest::Contains("avg is not defined for I64"), DTypeError);
        });
    }

    TEST_CASE("lines of ranks may have shapes of their own: what another axis cuts unevenly") {
        auto const mesh = Mesh{2, 3}.named("dp", "tp");
        auto const cut = distribution(mesh, Shape{7, 3}, "R,S0");  // rows 3, 3, 1
        run_on_threads(6, [&](ThreadCommunicator& comm) {
            DynamicShape const shape = cut.local_shape(comm.rank());
            auto memory = held(comm.rank(), shape.size());
            auto const want = summed(mesh, 0, comm.rank(), shape.size());
            DynamicView const mine(reinterpret_cast<std::byte*>(memory.data()), DType::f32, shape);
            all_reduce(mine, comm, mesh, "dp");
            CHECK(memory == want);
            Indices half = shape.extents();
            half[0] = detail::part(SplitRule{}, shape.extent(0), 2, comm.rank() / 3).size();
            Tensor<float> shard{DynamicShape(half)};
            reduce_scatter(mine, shard.view(), comm, mesh, "dp");
            Tensor<float> whole{shape};
            all_gather(shard.view(), whole.view(), comm, mesh, "dp");
            for (Index i = 0; i < shape.size(); ++i) CHECK(whole.data()[i] == 2 * want[static_cast<std::size_t>(i)]);
            memory.assign(memory.size(), static_cast<float>(comm.rank()));
            broadcast(mine, comm, mesh, "dp", 1);
            CHECK(memory == std::vector<float>(memory.size(), static_cast<float>(3 + comm.rank() % 3)));
        });
    }

    TEST_CASE("prepared: each run leaves what the call leaves, to the bit, of the values that are there then") {
        on_meshes([](ThreadCommunicator& comm, DynamicMesh const& mesh, int axis, Index coordinate) {
            int const root = static_cast<int>(mesh.extent(axis)) - 1;
            for (int dim : {0, 1}) {
                Shape const shape{5, 3};
                Indices extents = shape.extents();
                extents[dim] = detail::part(SplitRule{}, extents[dim], mesh.extent(axis), coordinate).size();
                Both whole{DynamicShape(shape)};
                Both averages(whole);
                Both shard{DynamicShape(extents)};
                Both gathered(whole);
                Both copied(whole);
                PreparedPlan jobs[] = {
                    prepare_all_reduce(whole.run(), averages.run(), comm, mesh, axis, Reduce::avg),
                    prepare_reduce_scatter(whole.run(), shard.run(), comm, mesh, axis, dim, Reduce::max),
                    prepare_all_gather(shard.run(), gathered.run(), comm, mesh, axis, dim),
                    prepare_broadcast(copied.run(), comm, mesh, axis, root),
                    prepare_all_reduce(whole.run(), comm, mesh, axis),
                };
                for (int round : {0, 1, 2}) {
                    whole.fill(comm.rank(), round);
                    copied.fill(comm.rank(), round);
                    all_reduce(whole.call(), averages.call(), comm, mesh, axis, Reduce::avg);
                    reduce_scatter(whole.call(), shard.call(), comm, mesh, axis, dim, Reduce::max);
                    all_gather(shard.call(), gathered.call(), comm, mesh, axis, dim);
                    broadcast(copied.call(), comm, mesh, axis, root);
                    all_reduce(whole.call(), comm, mesh, axis);
                    for (PreparedPlan& job : jobs) job.run();
                    CHECK(whole.same());
                    CHECK(averages.same());
                    CHECK(shard.same());
                    CHECK(gathered.same());
                    CHECK(copied.same());
                }
            }
        });
    }

    TEST_CASE("prepared along several axes, larger than a one-shot fold is") {
        auto const mesh = Mesh{2, 3, 2}.named("pp", "dp", "tp");
        run_on_threads(12, [&](ThreadCommunicator& comm) {
            Both whole{DynamicShape(Shape{6, 500})};  // 12 KB
            Both shard{DynamicShape(Shape{1, 500})};
            PreparedPlan parts = prepare_reduce_scatter(whole.run(), shard.run(), comm, mesh, {"tp", "dp"});
            PreparedPlan sums = prepare_all_reduce(whole.run(), comm, mesh, {"dp", "pp"});
            PreparedPlan copies = prepare_broadcast(shard.run(), comm, mesh, {2, 1}, 4);
            for (int round : {0, 1}) {
                whole.fill(comm.rank(), round);
                reduce_scatter(whole.call(), shard.call(), comm, mesh, {"tp", "dp"});
                all_reduce(whole.call(), comm, mesh, {"dp", "pp"});
                parts.run();
                sums.run();
                CHECK(shard.same());
                CHECK(whole.same());
                broadcast(shard.call(), comm, mesh, {2, 1}, 4);
                copies.run();
                CHECK(shard.same());
            }
        });
    }

    TEST_CASE("prepared for lines of ranks with shapes of their own, and ranks outside: wherever the plan is moved") {
        auto const mesh = Mesh{2, 3}.named("dp", "tp");
        auto const cut = distribution(mesh, Shape{7, 3}, "R,S0");  // rows 3, 3, 1
        for (int const ranks : {6, 7}) {
            CAPTURE(ranks);
            run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                bool const inside = comm.rank() < 6;  // the seventh gives nothing
                DynamicShape const shape = cut.local_shape(inside ? comm.rank() : 0);
                Indices half = shape.extents();
                half[0] = detail::part(SplitRule{}, shape.extent(0), 2, inside ? comm.rank() / 3 : 0).size();
                Both whole(shape);
                Both shard{DynamicShape(half)};
                Both gathered(shape);
                Both copied(shape);
                auto const given = [&](DynamicView const& view) { return inside ? view : DynamicView(); };
                {
                    std::vector<PreparedPlan> jobs;  // it grows: what is in it moves
                    jobs.push_back(prepare_all_reduce(given(whole.run()), comm, mesh, "dp"));
                    jobs.push_back(prepare_reduce_scatter(given(whole.run()), given(shard.run()), comm, mesh, "dp"));
                    jobs.push_back(prepare_all_gather(given(shard.run()), given(gathered.run()), comm, mesh, "dp"));
                    jobs.push_back(prepare_broadcast(given(copied.run()), comm, mesh, "dp", 1));
                    PreparedPlan copies = std::move(jobs.back());
                    jobs.pop_back();
                    for (int round : {0, 1, 2}) {
                        whole.fill(comm.rank(), round);
                        copied.fill(comm.rank(), round);
                        all_reduce(given(whole.call()), comm, mesh, "dp");
                        reduce_scatter(given(whole.call()), given(shard.call()), comm, mesh, "dp");
                        all_gather(given(shard.call()), given(gathered.call()), comm, mesh, "dp");
                        broadcast(given(copied.call()), comm, mesh, "dp", 1);
                        RunRequest summing = jobs[0].start();
                        RunRequest copying = copies.start();  // two are under way
                        summing.wait();
                        copying.wait();
                        jobs[1].run();
                        jobs[2].run();
                        CHECK(whole.same());
                        CHECK(shard.same());
                        CHECK(gathered.same());
                        CHECK(copied.same());
                    }
                    PreparedPlan const sums = std::move(jobs[0]);
                    CHECK_THROWS_WITH_AS(jobs[0].run(), doctest::Contains("it was moved from"), TransportError);
                }
                all_reduce(given(whole.call()), comm, mesh, "dp");  // what is left is whole
            });
        }
    }

    TEST_CASE("prepared for lines of ranks with shapes of their own: ranks wait in any order, and destroy in any") {
        auto const mesh = Mesh{2, 2}.named("dp", "tp");
        run_on_threads(4, {.deadline = std::chrono::seconds(60)}, [&](ThreadCommunicator& comm) {
            // Exchanges of a line along dp and of its neighbour: 1 and 1; 2 and 1; the same, 1 and 1; 6 and 2.
            std::vector<DynamicShape> const shapes{Shape{3, 3}, Shape{3, 1500}, Shape{4, 3}, Shape{3, 300'000}};
            std::vector<Both> tensors;
            std::vector<PreparedPlan> jobs;
            for (DynamicShape const& shape : shapes)
                tensors.emplace_back(distribution(mesh, shape, "R,S0").local_shape(comm.rank()));
            for (Both& tensor : tensors) jobs.push_back(prepare_all_reduce(tensor.run(), comm, mesh, "dp"));
            auto const turn = static_cast<std::size_t>(comm.rank());
            for (int round : {0, 1, 2}) {
                for (Both& tensor : tensors) {
                    tensor.fill(comm.rank(), round);
                    all_reduce(tensor.call(), comm, mesh, "dp");
                }
                std::vector<RunRequest> runs;
                for (PreparedPlan& job : jobs) runs.push_back(job.start());
                for (std::size_t i = 0; i < 4; ++i) {
                    RunRequest& run = runs[turn < 2 ? (turn + i) % 4 : (turn + 4 - i) % 4];
                    while (round == 1 && !run.test()) {
                    }
                    run.wait();
                }
                for (Both const& tensor : tensors) CHECK(tensor.same());
            }
            for (std::size_t i = 0; i < 4; ++i) jobs[(turn + i) % 4] = PreparedPlan();
            all_reduce(tensors[0].call(), comm, mesh, "dp");  // what is left is whole
        });
    }

    TEST_CASE("prepared for lines of ranks with shapes of their own, and run in different orders: a MismatchError") {
        auto const mesh = Mesh{2, 2}.named("dp", "tp");
        auto const cut = distribution(mesh, Shape{3, 3}, "R,S0");  // rows 2, 1
        auto const run_one = [&](ThreadCommunicator& comm) {
            Both one(cut.local_shape(comm.rank()));
            Both two(one);
            PreparedPlan first = prepare_all_reduce(one.run(), comm, mesh, "dp");
            PreparedPlan second = prepare_all_reduce(two.run(), comm, mesh, "dp");
            (comm.rank() >= 2 ? second : first).run();  // the second along dp
        };
        test::check_same(test::thrown_by(4, run_one), ErrorCode::mismatch,
                         {" has not started; that one started another. Fix: "});
    }

    TEST_CASE("prepared: what a call refuses is refused before it runs, in the same words, on all ranks") {
        auto const mesh = Mesh{2, 2}.named("dp", "tp");
        auto const refused = [](ErrorCode code, auto const& call, auto const& prepared) {
            auto const thrown = [](auto const& body) {
                return test::thrown_by(4, [&](ThreadCommunicator& comm) {
                    std::vector<float> memory(6);
                    body(comm, TensorView<float>(memory.data(), Shape{4}),
                         TensorView<float>(memory.data() + 4, Shape{2}));
                });
            };
            auto const of_call = thrown(call);
            test::check_same(of_call, code, {});
            CHECK(thrown(prepared) == of_call);
        };
        refused(
            ErrorCode::mesh,
            [&](auto& comm, DynamicView const& all, DynamicView const&) { broadcast(all, comm, mesh, "dp", 2); },
            [&](auto& comm, DynamicView const& all, DynamicView const&) {
                static_cast<void>(prepare_broadcast(all, comm, mesh, "dp", 2));
            });
        refused(
            ErrorCode::mesh,
            [&](auto& comm, DynamicView const& all, DynamicView const&) { all_reduce(all, comm, mesh, "pp"); },
            [&](auto& comm, DynamicView const& all, DynamicView const&) {
                static_cast<void>(prepare_all_reduce(all, comm, mesh, "pp"));
            });
        refused(
            ErrorCode::placement,
            [&](auto& comm, DynamicView const& all, DynamicView const& part) {
                reduce_scatter(all, part, comm, mesh, "dp", 1);
            },
            [&](auto& comm, DynamicView const& all, DynamicView const& part) {
                static_cast<void>(prepare_reduce_scatter(all, part, comm, mesh, "dp", 1));
            });
        refused(
            ErrorCode::buffer,
            [&](auto& comm, DynamicView const& all, DynamicView const&) { reduce_scatter(all, all, comm, mesh, "dp"); },
            [&](auto& comm, DynamicView const& all, DynamicView const&) {
                static_cast<void>(prepare_reduce_scatter(all, all, comm, mesh, "dp"));
            });
        refused(
            ErrorCode::mismatch,
            [&](auto& comm, DynamicView const& all, DynamicView const& part) {
                all_gather(part, all, comm, mesh, comm.rank() == 2 ? 1 : 0);
            },
            [&](auto& comm, DynamicView const& all, DynamicView const& part) {
                static_cast<void>(prepare_all_gather(part, all, comm, mesh, comm.rank() == 2 ? 1 : 0));
            });
    }

    TEST_CASE("windows of one tensor may be source and destination, also beside other axes") {
        auto const mesh = Mesh{2, 2};
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            std::vector<float> memory(4 * 6, static_cast<float>(comm.rank() + 1));
            Indices const strides{6, 1};
            DynamicView const left(reinterpret_cast<std::byte*>(memory.data()), DType::f32, Shape{4, 2}, strides);
            DynamicView const right(reinterpret_cast<std::byte*>(memory.data() + 2), DType::f32, Shape{4, 4}, strides);
            all_gather(left, right, comm, mesh, 1, 1);
            auto const first = static_cast<float>(comm.rank() / 2 * 2 + 1);
            for (std::size_t row = 0; row < 4; ++row) {
                CHECK(memory[6 * row + 2] == first);
                CHECK(memory[6 * row + 5] == first + 1);
            }
            DynamicView const across(reinterpret_cast<std::byte*>(memory.data() + 1), DType::f32, Shape{4, 4}, strides);
            CHECK_THROWS_WITH_AS(all_gather(left, across, comm, mesh, 1, 1), doctest::Contains("overlap"), BufferError);
        });
    }

    TEST_CASE(
        "law: a plan that only folds leaves the same bits in place, alone and in a batch, at once and in chunks") {
        int folded = 0;
        for (std::uint64_t seed : test::seeds(200)) {
            test::Limits limits;
            limits.max_ranks = 8;
            limits.max_elements = 500;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            auto const from = random.distribution(mesh, random.shape());
            Placements placements = from.placements();
            bool any = false;
            for (Placement& placement : placements) {
                if (!placement.is_partial() || random.chance(20)) continue;
                placement = Placement::replicate();
                any = true;
            }
            if (!any) continue;
            DynamicDistribution const to(mesh, from.shape(), placements, from.signature().order());
            Plan<> const whole = plan(from, to);
            Plan<> const inside = random.chance(50) ? whole.one_shot_fold() : whole;
            INFO(test::reproduction(seed, from, to));
            auto const sources = oracle::scatter(random.values<float>(from.shape().size()), from, random.engine());
            PrepareOptions options;
            if (random.chance(66)) options.fold_elements = random.between(1, 60);
            run_on_threads(static_cast<int>(oracle::rank_limit(from)), [&](ThreadCommunicator& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                bool const takes = from.contains(comm.rank());
                DynamicShape const shape = takes ? from.local_shape(comm.rank()) : DynamicShape(Shape<0>{});
                std::vector<float> const source = takes ? sources[r] : std::vector<float>{};
                std::vector<float> apart(source.size());
                auto alone = source;
                auto batched = source;
                redistribute(whole, comm, TensorView<float const>(source.data(), shape),
                             TensorView<float>(apart.data(), shape), options);
                TensorView<float> const here(alone.data(), shape);
                redistribute(inside, comm, here, here, options);
                Batch batch;
                TensorView<float> const there(batched.data(), shape);
                batch.add(inside, there, there, "folded", options);
                redistribute(batch, comm);
                auto const bits = [](std::vector<float> const& values) { return std::as_bytes(std::span(values)); };
                bool const same =
                    std::ranges::equal(bits(alone), bits(apart)) && std::ranges::equal(bits(batched), bits(apart));
                REQUIRE(same);
            });
            ++folded;
        }
        CHECK(folded > 0);
    }

    TEST_CASE("where types know that there is one addend, a plan that only folds may be in place as well") {
        auto const in_place = [](auto const& folds, CommunicatorRef comm, DynamicShape const& local) {
            std::vector<float> const before = held(comm.rank(), local.size());
            std::vector<float> values = before;
            TensorView<float> const here(values.data(), local);
            redistribute(folds, comm, here, here);
            CHECK(values == before);
        };
        constexpr Shape<4, 2> shape{};
        SelfCommunicator self;
        in_place(plan(distribution<Partial<>>(Mesh<1>{}, shape), distribution<Replicate>(Mesh<1>{}, shape)), self,
                 Shape{4, 2});
        in_place(plan(distribution<Partial<>>(Mesh{1}, shape), distribution<Replicate>(Mesh{1}, shape)), self,
                 Shape{4, 2});
        constexpr Mesh<1, 2> two{};
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            in_place(plan(distribution<Partial<>, Shard<0>>(two, shape), distribution<Replicate, Shard<0>>(two, shape)),
                     comm, Shape{2, 2});
        });
    }
}
