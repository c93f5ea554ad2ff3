// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/detail/box_folds.hpp: boxes that overlap are addends. What every element becomes is
// folded element by element from all boxes that have it.
#include <reshard/exec/boxes.hpp>
#include <reshard/memory/fold.hpp>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"
#include "support/thrown.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace {
using namespace reshard;
using test::check_same;
using test::thrown_by;

struct Kind {
    DType dtype;
    Reduce op;
};
constexpr Kind kinds[] = {{DType::f32, Reduce::sum},  {DType::f32, Reduce::avg},  {DType::f16, Reduce::sum},
                          {DType::bf16, Reduce::avg}, {DType::i64, Reduce::bxor}, {DType::u8, Reduce::sum},
                          {DType::f64, Reduce::max}};

/// Element `number` of the tensor in the box at `place` of a table.
void write_value(std::uint64_t seed, std::size_t place, Index number, DType dtype, std::byte* to) {
    std::uint64_t word = seed + place * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(number) * 0xD1B54A32D192ED03U;
    word = (word ^ (word >> 29U)) * 0xBF58476D1CE4E5B9U;
    word ^= word >> 32U;
    if (dtype == DType::f16) word = 0x3C00U | (word & 0x3FFU);  // 1 to 2
    if (dtype == DType::bf16) word = 0x3F80U | (word & 0x7FU);
    auto const small = static_cast<float>(word % 1000U) / 7.0F;
    auto const wide = static_cast<double>(small);
    if (dtype == DType::f32) std::memcpy(to, &small, 4);
    if (dtype == DType::f64) std::memcpy(to, &wide, 8);
    if (dtype != DType::f32 && dtype != DType::f64) std::memcpy(to, &word, static_cast<std::size_t>(bytes(dtype)));
}

/// f(number of the element in the tensor, its number in the box)
template <class F>
void for_each_element(DynamicShape const& shape, Box const& box, F const& f) {
    Indices const global = row_major_strides(shape);
    Indices const local = row_major_strides(box.shape());
    for (Index k = 0; k < box.size(); ++k) {
        Index number = 0;
        for (int d = 0; d < shape.rank(); ++d) number += (box.begin(d) + k / local[d] % box.extent(d)) * global[d];
        f(number, k);
    }
}

/// Memory for one rank's boxes, `apart` elements from one of the innermost to the next.
struct Memory {
    std::vector<std::vector<std::byte>> boxes;
    std::vector<DynamicView> views;

    Memory(BoxTable const& table, Index rank, DType dtype, Index apart) {
        for (HeldBox const& held : table.boxes_of(rank)) {
            auto& bytes_of = boxes.emplace_back(static_cast<std::size_t>(held.box.size() * apart * bytes(dtype)));
            Indices strides = row_major_strides(held.box.shape());
            for (Index& stride : strides) stride *= apart;
            views.emplace_back(bytes_of.data(), dtype, held.box.shape(), strides);
        }
    }
};

Box random_box(test::Random& random, DynamicShape const& shape) {
    Box box;
    for (int d = 0; d < shape.rank(); ++d) {
        Index const begin = random.between(0, shape.extent(d));
        box.push_back({begin, random.between(begin, shape.extent(d))});
    }
    return box;
}
/// Boxes that hold all of a tensor, and more that overlap them.
std::vector<HeldBox> overlapping(test::Random& random, DynamicShape const& shape, int ranks) {
    std::vector<HeldBox> boxes;
    for (Box const& box : test::guillotine(random, Box(shape), static_cast<int>(random.between(0, 4))))
        boxes.push_back({random.between(0, ranks - 1), box});
    for (Index n = random.between(0, 5); n > 0; --n)
        boxes.push_back({random.between(0, ranks - 1), random_box(random, shape)});
    return boxes;
}

/// Two halves, and the row between them on both ranks.
BoxTable with_margins() {
    return {Shape{4, 2}, {{0, Box{{0, 2}, {0, 2}}}, {0, Box{{2, 3}, {0, 2}}}, {1, Box{{2, 4}, {0, 2}}}}};
}
BoxTable halves() { return {Shape{4, 2}, {{0, Box{{0, 2}, {0, 2}}}, {1, Box{{2, 4}, {0, 2}}}}}; }

}  // namespace

TEST_CASE("boxes that overlap: every element becomes the fold of all that have it, in the order of ranks") {
    for (std::uint64_t const seed : test::seeds(400)) {
        CAPTURE(seed);
        test::Random random(seed, {.max_dims = 3, .max_extent = 9, .max_elements = 200});
        DynamicShape const shape = random.shape();
        int const ranks = static_cast<int>(random.between(1, 4));
        auto const [dtype, op] = kinds[static_cast<std::size_t>(random.between(0, std::ssize(kinds) - 1))];
        BoxTable const from(shape, overlapping(random, shape, ranks));
        std::vector<HeldBox> wanted = overlapping(random, shape, ranks);
        bool const in_place = random.chance(50);
        if (in_place) {  // the destinations of a rank are its sources
            wanted.assign(from.boxes().begin(), from.boxes().end());
        }
        BoxTable const to(shape, wanted);
        Index const apart[] = {random.between(1, 2), random.between(1, 2)};
        std::vector<char> equal(static_cast<std::size_t>(ranks), 0);
        run_on_threads(ranks, [&, &dtype = dtype, &op = op](ThreadCommunicator& comm) {
            Memory mine(from, comm.rank(), dtype, apart[0]);
            Memory own(to, comm.rank(), dtype, apart[1]);
            Memory& needed = in_place ? mine : own;
            auto const fill = [&] {
                auto const first = static_cast<std::size_t>(from.boxes_of(comm.rank()).data() - from.boxes().data());
                for (std::size_t i = 0; i < mine.boxes.size(); ++i) {
                    Index const step = apart[0] * bytes(dtype);
                    for_each_element(shape, from.boxes()[first + i].box, [&](Index number, Index k) {
                        write_value(seed, first + i, number, dtype, mine.boxes[i].data() + k * step);
                    });
                }
            };
            std::vector<ConstDynamicView> const source(mine.views.begin(), mine.views.end());
            PreparedPlan prepared = prepare(from, to, dtype, comm, source, needed.views, op);
            bool all = true;
            for (int run = 0; run < 2; ++run) {
                fill();
                prepared.run();
                std::size_t i = 0;
                for (HeldBox const& held : to.boxes_of(comm.rank())) {
                    Index const step = apart[in_place ? 0 : 1] * bytes(dtype);
                    for_each_element(shape, held.box, [&](Index number, Index k) {
                        std::vector<std::byte> addends;
                        Index count = 0;
                        for (std::size_t place = 0; place < from.boxes().size(); ++place) {
                            for_each_element(shape, from.boxes()[place].box, [&](Index other, Index) {
                                if (other != number) return;
                                addends.resize(static_cast<std::size_t>(++count * bytes(dtype)));
                                write_value(seed, place, number, dtype, addends.data() + (count - 1) * bytes(dtype));
                            });
                        }
                        transport::StridedBox one;
                        one.element_bytes = bytes(dtype);
                        std::array<std::byte, 8> wants{};
                        transport::fold(op, dtype, addends.data(), bytes(dtype), count, one, wants.data(), one,
                                        op == Reduce::avg ? count : 1);
                        all = all && std::memcmp(wants.data(), needed.boxes[i].data() + k * step,
                                                 static_cast<std::size_t>(bytes(dtype))) == 0;
                    });
                    ++i;
                }
            }
            equal[static_cast<std::size_t>(comm.rank())] = all ? 1 : 0;
        });
        REQUIRE(std::count(equal.begin(), equal.end(), 1) == ranks);
    }
}

TEST_CASE("what was computed for ghosts is added to their owners, where these lie") {
    run_on_threads(2, [](ThreadCommunicator& comm) {
        std::vector<float> field{1, 2, 3, 4, 5, 6};
        DynamicView const owned(field.data(), DType::f32, Shape{2, 2});
        std::vector<ConstDynamicView> source{owned};
        if (comm.rank() == 0) source.emplace_back(field.data() + 4, DType::f32, Shape{1, 2});
        std::vector<DynamicView> const destination{owned};
        redistribute(with_margins(), halves(), DType::f32, comm, source, destination, Reduce::sum);
        CHECK(field ==
              (comm.rank() == 0 ? std::vector<float>{1, 2, 3, 4, 5, 6} : std::vector<float>{6, 8, 3, 4, 5, 6}));
    });
}

TEST_CASE("folds and copies in one exchange") {
    run_on_threads(2, [](ThreadCommunicator& comm) {
        std::vector<float> field{1, 2, 3, 4, 5, 6};
        std::vector<std::int64_t> ids{comm.rank(), 7};
        std::vector<std::int64_t> all(4, -1);
        DynamicView const owned(field.data(), DType::f32, Shape{2, 2});
        std::vector<ConstDynamicView> sources{owned};
        if (comm.rank() == 0) sources.emplace_back(field.data() + 4, DType::f32, Shape{1, 2});
        std::vector<DynamicView> const destinations{owned};
        BoxTable const parts(Shape{4}, {{0, Box{{0, 2}}}, {1, Box{{2, 4}}}});
        BoxTable const whole(Shape{4}, {{0, Box{{0, 4}}}, {1, Box{{0, 4}}}});
        std::vector<ConstDynamicView> const part{TensorView<std::int64_t const>(ids.data(), Shape{2})};
        std::vector<DynamicView> const together{TensorView<std::int64_t>(all.data(), Shape{4})};
        BoxTable const from = with_margins();
        BoxTable const to = halves();
        redistribute({{{parts, whole, DType::i64, part, together, "ids"},
                       {from, to, DType::f32, sources, destinations, "field", Reduce::max}}},
                     comm);
        CHECK(all == std::vector<std::int64_t>{0, 7, 1, 7});
        CHECK(field ==
              (comm.rank() == 0 ? std::vector<float>{1, 2, 3, 4, 5, 6} : std::vector<float>{5, 6, 3, 4, 5, 6}));
    });
}

TEST_CASE("what is wrong with a fold of boxes is said on every rank") {
    auto const thrown = [](auto const& change) {
        return thrown_by(2, [&](ThreadCommunicator& comm) {
            std::vector<float> field{1, 2, 3, 4, 5, 6};
            DynamicView const owned(field.data(), DType::f32, Shape{2, 2});
            BoxTable from = with_margins();
            BoxTable to = halves();
            std::vector<ConstDynamicView> source{owned};
            if (comm.rank() == 0) source.emplace_back(field.data() + 4, DType::f32, Shape{1, 2});
            std::vector<DynamicView> destination{owned};
            std::optional<BoxFold> fold = Reduce::sum;
            change(comm.rank(), from, to, source, destination, fold);
            redistribute(from, to, DType::f32, comm, source, destination, fold);
        });
    };
    std::vector<float> others(8);
    check_same(thrown([&](int rank, auto&, auto&, auto&, auto& destination, auto& fold) {
                   destination = {DynamicView(others.data() + 4 * rank, DType::f32, Shape{2, 2})};
                   fold.reset();
               }),
               ErrorCode::placement, {"rank 1 needs [2:4,0:2]", "which overlap", "or fold them"});
    check_same(thrown([](int, auto&, auto&, auto&, auto&, auto& fold) { fold = Reduce::band; }), ErrorCode::dtype,
               {"band is not defined for F32", "Fix: use an op that it has"});
    check_same(thrown([](int rank, auto&, auto&, auto&, auto&, auto& fold) {
                   if (rank == 1) fold = Reduce::avg;
               }),
               ErrorCode::mismatch, {"rank 1 of 2: moves 3 boxes", "F32, folded by avg, but rank 0", "folded by sum"});
    check_same(thrown([](int rank, BoxTable& from, auto&, auto& source, auto&, auto&) {
                   from = BoxTable(Shape{4, 2}, {{0, Box{{0, 2}, {0, 2}}}, {0, Box{{2, 3}, {0, 2}}}});
                   if (rank == 1) source.clear();
               }),
               ErrorCode::placement, {"rank 1 needs [2:4,0:2]", "[3:4,0:2] of it no rank holds"});
    check_same(thrown([](int rank, auto&, auto&, auto& source, auto& destination, auto&) {
                   if (rank == 0) source[1] = ConstDynamicView(destination[0].data() + 8, DType::f32, Shape{1, 2});
               }),
               ErrorCode::buffer, {"on rank 0 view 0 of the destination overlaps view 1 of the source"});
}
