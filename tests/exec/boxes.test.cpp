// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/boxes.hpp: every element is its number in the tensor, so that ranks know what they
// should have.
#include <reshard/exec/batch.hpp>
#include <reshard/exec/boxes.hpp>

#include <reshard/comm/agree.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"
#include "support/thrown.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
using test::check_same;
using test::thrown_by;

/// Memory for one rank's boxes, each a tensor of its own; `gap` elements between rows.
struct Boxes {
    std::vector<std::vector<Index>> memory;
    std::vector<Index> rows;  ///< elements from one of the innermost to the next
    std::vector<Box> boxes;

    Boxes(BoxTable const& table, Index rank, Index gap) {
        for (HeldBox const& held : table.boxes_of(rank)) {
            boxes.push_back(held.box);
            memory.emplace_back(static_cast<std::size_t>(held.box.size() * (1 + gap)), -1);
            rows.push_back(1 + gap);
        }
    }
    template <class View>
    [[nodiscard]] std::vector<View> views() {
        std::vector<View> result;
        for (std::size_t i = 0; i < boxes.size(); ++i) {
            Indices strides = row_major_strides(boxes[i].shape());
            for (Index& stride : strides) stride *= rows[i];
            result.emplace_back(reinterpret_cast<std::byte*>(memory[i].data()), DType::i64, boxes[i].shape(), strides);
        }
        return result;
    }
    /// f(element, its number in the tensor)
    template <class F>
    void for_each(DynamicShape const& shape, F&& f) {
        Indices const global = row_major_strides(shape);
        for (std::size_t i = 0; i < boxes.size(); ++i) {
            Indices const local = row_major_strides(boxes[i].shape());
            for (Index k = 0; k < boxes[i].size(); ++k) {
                Index number = 0;
                for (int d = 0; d < shape.rank(); ++d)
                    number += (boxes[i].begin(d) + k / local[d] % boxes[i].extent(d)) * global[d];
                f(memory[i][static_cast<std::size_t>(k * rows[i])], number);
            }
        }
    }
    void fill(DynamicShape const& shape) {
        for_each(shape, [](Index& element, Index number) { element = number; });
    }
    [[nodiscard]] bool arrived(DynamicShape const& shape) {
        bool all = true;
        for_each(shape, [&](Index& element, Index number) { all = all && element == number; });
        return all;
    }
};

std::vector<HeldBox> cut(test::Random& random, DynamicShape const& shape, int ranks) {
    std::vector<HeldBox> boxes;
    for (Box const& box : test::guillotine(random, Box(shape), static_cast<int>(random.between(0, 10)))) {
        boxes.push_back({random.between(0, ranks - 1), box});
        while (random.chance(30)) boxes.push_back({random.between(0, ranks - 1), box});
    }
    return boxes;
}

BoxTable halves() { return {Shape{4, 2}, {{0, Box{{0, 2}, {0, 2}}}, {1, Box{{2, 4}, {0, 2}}}}}; }
BoxTable swapped() { return {Shape{4, 2}, {{1, Box{{0, 2}, {0, 2}}}, {0, Box{{2, 4}, {0, 2}}}}}; }

DynamicView view(std::vector<float>& memory, DynamicShape const& shape) {
    return TensorView<float>(memory.data(), shape);
}

}  // namespace

TEST_CASE("boxes of any sizes on any ranks, with copies: all elements arrive, run after run") {
    for (std::uint64_t const seed : test::seeds(300)) {
        CAPTURE(seed);
        test::Random random(seed, {.max_dims = 3, .max_extent = 12, .max_elements = 300});
        DynamicShape const shape = random.shape();
        int const ranks = static_cast<int>(random.between(1, 5));
        BoxTable const from(shape, cut(random, shape, ranks));
        BoxTable const to(shape, cut(random, shape, ranks));
        Index const gaps[] = {random.between(0, 1), random.between(0, 1)};
        std::vector<char> arrived(static_cast<std::size_t>(ranks), 0);
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            Boxes mine(from, comm.rank(), gaps[0]);
            Boxes needed(to, comm.rank(), gaps[1]);
            auto const source = mine.views<ConstDynamicView>();
            auto const destination = needed.views<DynamicView>();
            mine.fill(shape);
            PreparedPlan prepared = prepare(from, to, DType::i64, comm, source, destination);
            bool all = true;
            for (int run = 0; run < 2; ++run) {
                for (auto& memory : needed.memory) std::fill(memory.begin(), memory.end(), -1);
                prepared.run();
                all = all && needed.arrived(shape);
            }
            arrived[static_cast<std::size_t>(comm.rank())] = all ? 1 : 0;
        });
        REQUIRE(std::count(arrived.begin(), arrived.end(), 1) == ranks);
    }
}

TEST_CASE("from a distribution to boxes and back, whatever blocks it deals out") {
    for (std::uint64_t const seed : test::seeds(300)) {
        test::Random random(seed, {.max_ranks = 6,
                                   .max_dims = 3,
                                   .max_extent = 12,
                                   .max_elements = 300,
                                   .plain_ranks = true,
                                   .partial = false});
        DynamicMesh const mesh = random.mesh();
        DynamicShape const shape = random.shape();
        auto const held = random.distribution(mesh, shape);
        INFO(test::reproduction(seed, held));
        int const ranks = static_cast<int>(mesh.last_rank()) + 1;
        BoxTable const parts(held);
        BoxTable const table(shape, cut(random, shape, ranks));
        std::vector<char> equal(static_cast<std::size_t>(ranks), 0);
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            Boxes boxes(table, comm.rank(), 0);
            DynamicShape const local =
                held.contains(comm.rank()) ? held.local_shape(comm.rank()) : DynamicShape(Shape{0});
            std::vector<Index> back(static_cast<std::size_t>(local.size()), -1);
            DynamicView const shard(reinterpret_cast<std::byte*>(back.data()), DType::i64, local);
            boxes.fill(shape);
            redistribute(table, parts, DType::i64, comm, boxes.views<ConstDynamicView>(),
                         box_views(held, comm.rank(), shard));
            Boxes again(table, comm.rank(), 0);
            redistribute(parts, table, DType::i64, comm, box_views(held, comm.rank(), ConstDynamicView(shard)),
                         again.views<DynamicView>());
            bool const filled = std::count(back.begin(), back.end(), -1) == 0;
            equal[static_cast<std::size_t>(comm.rank())] = filled && again.arrived(shape) ? 1 : 0;
        });
        REQUIRE(std::count(equal.begin(), equal.end(), 1) == ranks);
    }
}

TEST_CASE("a tensor is seen as the boxes of its distribution, as its view is") {
    auto const rows = distribution(Mesh{2}, Shape{4, 2}, "S0");
    Tensor<float> local(Shape{2, 2});
    std::vector<DynamicView> const views = box_views(rows, 1, local);
    std::vector<ConstDynamicView> const read_only = box_views(rows, 1, std::as_const(local));
    REQUIRE(views.size() == 1);
    REQUIRE(read_only.size() == 1);
    CHECK(static_cast<void*>(views[0].data()) == local.data());
    CHECK(read_only[0].data() == views[0].data());
    CHECK(box_views(rows, 1, DynamicView(local))[0].data() == views[0].data());
    CHECK(box_views(rows, 1, local.view())[0].data() == views[0].data());
}

TEST_CASE("many tensors in one exchange: as each by itself, with a message a peer") {
    for (std::uint64_t const seed : test::seeds(60)) {
        CAPTURE(seed);
        test::Random random(seed, {.max_dims = 3, .max_extent = 8, .max_elements = 100});
        int const ranks = static_cast<int>(random.between(1, 4));
        std::vector<BoxTable> from;
        std::vector<BoxTable> to;
        for (Index n = random.between(0, 5); n > 0; --n) {
            DynamicShape const shape = random.shape();
            from.emplace_back(shape, cut(random, shape, ranks));
            to.emplace_back(shape, cut(random, shape, ranks));
        }
        std::vector<char> arrived(static_cast<std::size_t>(ranks), 0);
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            std::vector<Boxes> mine;
            std::vector<Boxes> needed;
            std::vector<std::vector<ConstDynamicView>> sources;
            std::vector<std::vector<DynamicView>> destinations;
            std::vector<BoxMove> moves;
            for (std::size_t t = 0; t < from.size(); ++t) {
                mine.emplace_back(from[t], comm.rank(), 0);
                needed.emplace_back(to[t], comm.rank(), 0);
                mine[t].fill(from[t].shape());
                sources.push_back(mine[t].views<ConstDynamicView>());
                destinations.push_back(needed[t].views<DynamicView>());
            }
            for (std::size_t t = 0; t < from.size(); ++t)
                moves.push_back({from[t], to[t], DType::i64, sources[t], destinations[t], errors::concat("table ", t)});
            redistribute(moves, comm);
            bool all = true;
            for (std::size_t t = 0; t < from.size(); ++t) all = all && needed[t].arrived(from[t].shape());
            arrived[static_cast<std::size_t>(comm.rank())] = all ? 1 : 0;
        });
        REQUIRE(std::count(arrived.begin(), arrived.end(), 1) == ranks);
    }
}

TEST_CASE("one rank by itself") {
    SelfCommunicator comm;
    std::vector<float> a{1, 2, 3, 4};
    std::vector<float> b(4, 0.0F);
    BoxTable const whole(Shape{4}, {{0, Box{{0, 4}}}});
    BoxTable const parts(Shape{4}, {{0, Box{{2, 4}}}, {0, Box{{0, 2}}}});
    std::vector<ConstDynamicView> const source{view(a, Shape{4})};
    std::vector<DynamicView> const destination{TensorView<float>(b.data(), Shape{2}),
                                               TensorView<float>(b.data() + 2, Shape{2})};
    redistribute(whole, parts, DType::f32, comm, source, destination);
    CHECK(b == std::vector<float>{3, 4, 1, 2});
}

TEST_SUITE("exec/boxes: the same error on every rank") {
    struct Two {
        std::vector<float> a = std::vector<float>(8, 1.0F);
        std::vector<float> b = std::vector<float>(8, 2.0F);
        std::vector<ConstDynamicView> source{view(a, Shape{2, 2})};
        std::vector<DynamicView> destination{view(b, Shape{2, 2})};
    };
    template <class Change>
    void refuses(ErrorCode code, std::vector<std::string> const& parts, Change const& change) {
        auto const thrown = thrown_by(2, [&](ThreadCommunicator& comm) {
            Two mine;
            BoxTable from = halves();
            BoxTable to = swapped();
            DType dtype = DType::f32;
            change(comm.rank(), mine, from, to, dtype);
            redistribute(from, to, dtype, comm, mine.source, mine.destination);
        });
        check_same(thrown, code, parts);
    }

    TEST_CASE("arguments of one rank") {
        refuses(ErrorCode::buffer, {"rank 1", "1 boxes of the destination, and gives 0"},
                [](int rank, Two& mine, auto&, auto&, auto&) {
                    if (rank == 1) mine.destination.clear();
                });
        refuses(ErrorCode::buffer, {"a view of shape [4,1] for [0:2,0:2] of the source"},
                [](int rank, Two& mine, auto&, auto&, auto&) {
                    if (rank == 0) mine.source = {view(mine.a, Shape{4, 1})};
                });
        refuses(ErrorCode::buffer, {"null view for [2:4,0:2] of the destination"},
                [](int rank, Two& mine, auto&, auto&, auto&) {
                    if (rank == 0) mine.destination = {TensorView<float>(nullptr, Shape{2, 2})};
                });
        refuses(ErrorCode::buffer, {"on rank 1 view 0 of the destination overlaps view 0 of the source"},
                [](int rank, Two& mine, auto&, auto&, auto&) {
                    if (rank == 1) mine.destination = {view(mine.a, Shape{2, 2})};
                });
        refuses(ErrorCode::buffer, {"view 0 of the destination has strides [0,1] that overlap"},
                [](int rank, Two& mine, auto&, auto&, auto&) {
                    Indices strides;
                    strides.push_back(0);
                    strides.push_back(1);
                    DynamicView const& first = mine.destination[0];
                    if (rank == 1)
                        mine.destination = {DynamicView(first.data(), first.dtype(), first.shape(), strides)};
                });
        refuses(ErrorCode::buffer, {"a view of F32 elements", "but I32 was to move"},
                [](int, Two&, auto&, auto&, DType& dtype) { dtype = DType::i32; });
        refuses(ErrorCode::dtype, {"smaller than a byte"},
                [](int, Two&, auto&, auto&, DType& dtype) { dtype = DType::f4; });
    }
    TEST_CASE("tables") {
        refuses(ErrorCode::mesh, {"rank 2 has a box"}, [](int, Two&, BoxTable& from, auto&, auto&) {
            from =
                BoxTable(Shape{4, 2}, {{0, Box{{0, 2}, {0, 2}}}, {1, Box{{2, 4}, {0, 2}}}, {2, Box{{0, 0}, {0, 2}}}});
        });
        refuses(ErrorCode::placement, {"rank 1 needs [0:2,0:2]", "[0:2,0:2] of it no rank holds"},
                [](int rank, Two& mine, BoxTable& from, auto&, auto&) {
                    from = BoxTable(Shape{4, 2}, {{1, Box{{2, 4}, {0, 2}}}});
                    if (rank == 0) mine.source.clear();
                });
        refuses(
            ErrorCode::mismatch,
            {"rank 1 of 2: lists [1:3,0:2] of rank 0 as box 0 of those that are written", "but rank 0 lists [2:4,0:2]"},
            [](int rank, Two&, auto&, BoxTable& to, auto&) {
                if (rank == 1) to = BoxTable(Shape{4, 2}, {{1, Box{{0, 2}, {0, 2}}}, {0, Box{{1, 3}, {0, 2}}}});
            });
        run_on_threads(2, [](ThreadCommunicator& comm) {  // others are in a call that lists other things, or nothing
            Two mine;
            auto const boxes = [&] {
                redistribute(halves(), swapped(), DType::f32, comm, mine.source, mine.destination);
            };
            auto const batch = [&] { redistribute(Batch(), comm); };
            auto const nothing = [&] { agree_on_errors(comm, [] {}); };
            for (int turn = 0; turn < 4; ++turn) {
                std::string words;
                try {
                    if (comm.rank() == turn % 2) {
                        boxes();
                    } else {
                        turn < 2 ? batch() : nothing();
                    }
                } catch (MismatchError const& error) {
                    words = error.what();
                }
                INFO(words);
                CHECK(words.find("is in prepare(BoxMove)") != words.npos);
                CHECK(words.find(turn < 2 ? "is in prepare(Batch)" : "is in agree_on_errors()") != words.npos);
                boxes();  // the communicator is whole
            }
        });
        run_on_threads(2, [](ThreadCommunicator& comm) {  // one table, read and written
            BoxTable const first = halves();
            BoxTable const second = swapped();
            std::vector<float> memory(8);
            std::vector const source{ConstDynamicView(memory.data(), DType::f32, Shape{2, 2})};
            std::vector const destination{DynamicView(memory.data() + 4, DType::f32, Shape{2, 2})};
            BoxTable const& to = comm.rank() == 0 ? first : second;
            CHECK_THROWS_WITH_AS(redistribute(first, to, DType::f32, comm, source, destination),
                                 doctest::Contains("but rank 0 moves 2 boxes of [4,2] into boxes of [4,2] (the same)"),
                                 MismatchError);
        });
        refuses(ErrorCode::mismatch, {"rank 1 of 2: moves 2 boxes of [4,2] into boxes of [4,2], I32", "F32"},
                [](int rank, Two& mine, auto&, auto&, DType& dtype) {
                    if (rank == 0) return;
                    dtype = DType::i32;
                    mine.source = {ConstDynamicView(mine.source[0].data(), dtype, Shape{2, 2})};
                    mine.destination = {DynamicView(mine.destination[0].data(), dtype, Shape{2, 2})};
                });
    }
    TEST_CASE("one of several tensors is named") {
        BoxTable const from = halves();
        BoxTable const to = swapped();
        auto const thrown = [&](auto const& change) {
            return thrown_by(2, [&](ThreadCommunicator& comm) {
                Two one;
                Two other;
                std::vector<BoxMove> moves{{from, to, DType::f32, one.source, one.destination, {}},
                                           {from, to, DType::f32, other.source, other.destination, "wide"}};
                change(comm.rank(), one, moves);
                redistribute(moves, comm);
            });
        };
        check_same(thrown([](int rank, Two&, auto& moves) {
                       if (rank == 1) moves[1].source = {};
                   }),
                   ErrorCode::buffer, {"rank 1 of 2: tensor 1 'wide': ", "1 boxes of the source, and gives 0"});
        check_same(thrown([](int rank, Two& one, auto& moves) {
                       if (rank == 0) moves[1].destination = one.destination;
                   }),
                   ErrorCode::buffer, {"view 0 of the destination of tensor 1 'wide' overlaps", "of tensor 0"});
        check_same(thrown([](int rank, Two&, auto& moves) {
                       if (rank == 1) moves[1].name = "narrow";
                   }),
                   ErrorCode::mismatch, {"of tensor 1 'narrow', but rank 0", "of tensor 1 'wide'"});
        BoxTable const alike = halves();  // what a table holds counts, not where it lies
        CHECK(
            thrown([&](int rank, Two&, auto& moves) {
                BoxMove const second = moves[1];
                moves.pop_back();
                moves.push_back({rank == 0 ? alike : from, to, DType::f32, second.source, second.destination, "wide"});
            }) == std::vector<test::Thrown>(2));
        BoxTable const other = BoxTable(Shape{4, 2}, {{0, Box{{2, 4}, {0, 2}}}, {1, Box{{0, 2}, {0, 2}}}});
        check_same(
            thrown([&](int rank, Two&, auto& moves) {
                BoxMove const second = moves[1];
                moves.pop_back();
                moves.push_back({rank == 0 ? other : from, to, DType::f32, second.source, second.destination, "wide"});
            }),
            ErrorCode::mismatch,
            {"rank 1 of 2: moves 2 boxes of [4,2] (as read for tensor 0) into boxes of [4,2] (as written for tensor "
             "0), "
             "F32 of tensor 1 'wide', but rank 0 moves 2 boxes of [4,2] (as written for tensor 0) into boxes of [4,2] "
             "(the same)"});
        check_same(thrown([](int rank, Two&, auto& moves) {
                       if (rank == 1) moves.pop_back();
                   }),
                   ErrorCode::mismatch, {"moves 1 tensors, and lists no more boxes"});
    }
    TEST_CASE("a view that is no part of its distribution") {
        auto const rows = parse("(2):(S0)", Shape{4, 2});
        refuses(ErrorCode::buffer, {"rank 1 has a view of shape [4,2] for [2:4,0:2] of the source"},
                [&](int rank, Two& mine, BoxTable& from, auto&, auto&) {
                    from = BoxTable(rows);
                    DynamicView const shard = view(mine.a, rank == 1 ? Shape{4, 2} : Shape{2, 2});
                    mine.source = box_views(rows, rank, ConstDynamicView(shard));
                });
        std::vector<float> memory(8, 0.0F);
        CHECK(box_views(rows, 7, TensorView<float>(memory.data(), Shape{4, 2})).empty());
        CHECK(box_views(rows, 1, TensorView<float const>(memory.data(), Shape{2, 2})).size() == 1);
    }
}
