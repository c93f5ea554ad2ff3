// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/plan.hpp.
#include <reshard/plan/plan.hpp>

#include <reshard/algebra/bound.hpp>

#include <doctest/doctest.h>

#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

namespace {
using namespace reshard;

using R = Replicate;
using S0 = Shard<0>;
using S1 = Shard<1>;
using Sum = Partial<>;
using Avg = Partial<Reduce::avg>;
using Max = Partial<Reduce::max>;

template <class... P>
constexpr auto on2x4 = distribution<P...>(Mesh<2, 4>{}, Shape<64, 32>{});

// ---- Kinds are known to the compiler -----------------------------------------------------------------------------

constexpr auto rows_of_whole = plan(on2x4<R, R>, on2x4<R, S0>);
static_assert(rows_of_whole.kind() == TransitionKind::view && rows_of_whole.is_local() && !rows_of_whole.is_across());
static_assert(plan(on2x4<R, S0>, on2x4<R, Sum>).kind() == TransitionKind::copy);
static_assert(plan(on2x4<Sum, S0>, on2x4<Avg, S0>).kind() == TransitionKind::copy);
static_assert(plan(on2x4<R, S0>, on2x4<S1, R>).kind() == TransitionKind::collective);
static_assert(!plan(on2x4<Sum, R>, on2x4<R, R>).is_local());
static_assert(
    std::is_same_v<decltype(plan(on2x4<R, R>, on2x4<R, S0>))::to_type, std::remove_const_t<decltype(on2x4<R, S0>)>>);
static_assert(std::is_same_v<decltype(plan(on2x4<R, R>, DynamicDistribution(on2x4<R, S0>))), Plan<>>,
              "one value makes a value");

// Plans are plain values.
static_assert(std::is_trivially_copyable_v<Plan<>> && std::is_trivially_destructible_v<Plan<>>);
static_assert(sizeof(Plan<>) <= 512, "they are passed by value");
static_assert(std::is_trivially_copyable_v<decltype(plan(on2x4<R, S0>, on2x4<S1, R>))>);
static_assert(std::is_convertible_v<decltype(plan(on2x4<R, S0>, on2x4<S1, R>)), Plan<>>);

// A view is a constant too.
constexpr float matrix[4 * 6]{};
constexpr auto quarter_of_matrix =
    plan(distribution<R, R>(Mesh<2, 2>{}, Shape<4, 6>{}), distribution<S0, S1>(Mesh<2, 2>{}, Shape<4, 6>{}))
        .view(TensorView<float const>(matrix, Shape<4, 6>{}), 3);
static_assert(quarter_of_matrix.data() == matrix + 2 * 6 + 3 && quarter_of_matrix.extent(0) == 2 &&
              quarter_of_matrix.extent(1) == 3 && quarter_of_matrix.stride(0) == 6 && quarter_of_matrix.stride(1) == 1);

// ---- Helpers -----------------------------------------------------------------------------------------------------

Plan<> of(char const* from, char const* to, DynamicShape const& shape) {
    return plan(parse(from, shape), parse(to, shape));
}
Plan<> across(char const* from, char const* to, DynamicShape const& shape) {
    return plan_across(parse(from, shape), parse(to, shape));
}

/// What really moves, in the words of the table of bounds.
struct Moved {
    Index received = 0;  ///< by the rank that receives most
    Index sent = 0;      ///< by the rank that sends most
    Index total = 0;
    friend bool operator==(Moved const&, Moved const&) = default;
};
std::ostream& operator<<(std::ostream& out, Moved const& moved) {
    return out << moved.received << " received, " << moved.sent << " sent, " << moved.total << " in all";
}
Moved moved(Plan<> const& plan) {
    Moved result;
    Index sent = 0;
    for (Index rank = 0; rank <= detail::larger(plan.from().mesh().last_rank(), plan.to().mesh().last_rank()); ++rank) {
        Cost const cost = plan.cost(rank);
        result.received = detail::larger(result.received, cost.received);
        result.sent = detail::larger(result.sent, cost.sent);
        result.total += cost.received;
        sent += cost.sent;
    }
    CHECK(sent == result.total);
    return result;
}

std::string text(char const* pattern, Index n) {
    std::string result;
    for (char const* c = pattern; *c != 0; ++c) result += *c == 'n' ? std::to_string(n) : std::string(1, *c);
    return result;
}

}  // namespace

TEST_SUITE("plan/plan") {
    TEST_CASE("run-time plans know their kind") {
        DynamicShape const shape = Shape{8, 6};
        CHECK(of("(2):(R)", "(2):(S0)", shape).kind() == TransitionKind::view);
        CHECK(of("(2):(R)", "(2):(S0:cyc2)", shape).kind() == TransitionKind::copy);
        CHECK(of("(2):(R)", "(2):(P>)", shape).kind() == TransitionKind::view);
        CHECK(of("(2):(S0)", "(2):(P+)", shape).is_local());
        CHECK(of("(2):(S0)", "(2):(R)", shape).kind() == TransitionKind::collective);
        CHECK(across("(2):(R)", "(2):(R)", shape).kind() == TransitionKind::collective);
        CHECK(across("(2):(R)", "(2):(R)", shape).is_across());
    }

    // ---- view() --------------------------------------------------------------------------------------------------

    TEST_CASE("a view is a window of the rank's memory: pointer, shape and strides") {
        std::vector<int> memory(6 * 4);
        auto const window =
            of("(2,2):(R,R)", "(2,2):(S0,S1)", Shape{6, 4}).view(TensorView<int>(memory.data(), Shape{6, 4}), 3);
        CHECK(window.data() == memory.data() + 3 * 4 + 2);
        CHECK(window.shape() == DynamicShape(Shape{3, 2}));
        CHECK(window.stride(0) == 4);
        CHECK(window.stride(1) == 1);
    }

    TEST_CASE("a view of what is sharded already starts from the shard") {
        std::vector<int> memory(4 * 4);
        auto const p = of("(2,2):(S0,R)", "(2,2):(S0,S0)", Shape{8, 4});
        for (Index rank = 0; rank < 4; ++rank) {
            auto const window = p.view(TensorView<int>(memory.data(), Shape{4, 4}), rank);
            CHECK(window.data() == memory.data() + rank % 2 * 8);
            CHECK(window.shape() == DynamicShape(Shape{2, 4}));
        }
    }

    TEST_CASE("a view keeps the strides of a tensor that is not contiguous") {
        std::vector<int> memory(1000);
        Indices strides;
        strides.push_back(-2);
        strides.push_back(50);
        TensorView<int> const full(memory.data() + 500, Shape{6, 4}, strides);
        auto const window = of("(3,2):(R,R)", "(3,2):(S0,S1)", Shape{6, 4}).view(full, 5);
        CHECK(window.data() == full.data() - 2 * 4 + 50 * 2);
        CHECK(window.strides() == strides);
        CHECK(&window(1, 1) == &full(5, 3));
    }

    TEST_CASE("the view of an empty shard is empty and still points into the tensor") {
        std::vector<int> memory(5 * 3);
        TensorView<int> const full(memory.data(), Shape{5, 3});
        auto const window = of("(4):(R)", "(4):(S0)", Shape{5, 3}).view(full, 3);
        CHECK(window.data() == memory.data());
        CHECK(window.shape() == DynamicShape(Shape{0, 3}));
        CHECK(window.size() == 0);
        auto const nothing = of("(4):(R)", "(4):(S0)", Shape{0, 3}).view(TensorView<int>(nullptr, Shape{0, 3}), 2);
        CHECK(nothing.data() == nullptr);
        CHECK(nothing.size() == 0);
    }

    TEST_CASE("views of scalars, of the memory itself and of copies that may owe themselves") {
        int scalar = 3;
        CHECK(of("(2):(R)", "(2):(R)", DynamicShape()).view(TensorView<int>(&scalar, DynamicShape()), 1).data() ==
              &scalar);
        std::vector<int> memory(8);
        TensorView<int> const full(memory.data(), Shape{8});
        TensorView<int> const half(memory.data(), Shape{4});
        CHECK(of("(2):(R)", "(2):(P>)", Shape{8}).view(full, 1).data() == memory.data());
        CHECK(of("(2):(S0:cyc2)", "(2):(S0:cyc2)", Shape{8}).view(half, 1).size() == 4);
        CHECK(of("(2,2):(P+,R)", "(2,2):(P+,S0)", Shape{8}).view(full, 3).data() == memory.data() + 4);
    }

    TEST_CASE("views need the rank's whole local tensor and a rank of the mesh") {
        std::vector<int> memory(64);
        auto const p = of("(2,2):(S0,R)", "(2,2):(S0,S0)", Shape{8, 4});
        CHECK_THROWS_WITH_AS(static_cast<void>(p.view(TensorView<int>(memory.data(), Shape{8, 4}), 1)),
                             "reshard::Plan::view: rank 1 holds a tensor of shape [4,4], the view given has [8,4]. "
                             "Fix: pass the rank's whole local tensor.",
                             BufferError);
        CHECK_THROWS_AS(static_cast<void>(p.view(TensorView<int>(memory.data(), Shape{4}), 1)), BufferError);
        CHECK_THROWS_AS(static_cast<void>(p.view(TensorView<int>(memory.data(), Shape{4, 4, 1}), 1)), BufferError);
        CHECK_THROWS_AS(static_cast<void>(
                            of("(2):(R)", "(2):(R)", DynamicShape()).view(TensorView<int>(memory.data(), Shape{1}), 0)),
                        BufferError);
        CHECK_THROWS_AS(static_cast<void>(p.view(TensorView<int>(memory.data(), Shape{4, 4}), 4)), MeshError);
        CHECK_THROWS_AS(static_cast<void>(p.view(TensorView<int>(memory.data(), Shape{4, 4}), -1)), MeshError);
    }

    TEST_CASE("steps of a typed plan know axes of size 1, as its kind does") {
        auto const from = distribution<Shard<0>, Replicate>(Mesh<1, 4>{}, Shape<8, 8>{});
        auto const to = distribution<Replicate, Replicate>(Mesh<1, 4>{}, Shape<8, 8>{});
        auto const window = plan(from, to);
        CHECK(window.kind() == TransitionKind::view);
        CHECK(window.steps().kind == TransitionKind::view);
        CHECK(window.steps().phases() == window.cost(0).phases);
        CHECK(window.steps().list.size() == 1);
        CHECK(Plan<>(window).steps().phases() == 1);
    }
    TEST_CASE("what is no view says what it is and what to do") {
        std::vector<int> memory(8);
        TensorView<int> const half(memory.data(), Shape{4});
        CHECK_THROWS_WITH_AS(static_cast<void>(of("(2):(S0)", "(2):(R)", Shape{8}).view(half, 0)),
                             "reshard::Plan::view: (2):(S0) -> (2):(R) is a collective, not a view. "
                             "Fix: use redistribute(plan, ...) into memory of its own.",
                             TransitionError);
        CHECK_THROWS_WITH_AS(static_cast<void>(of("(2):(S0)", "(2):(P+)", Shape{8}).view(half, 0)),
                             doctest::Contains("(2):(S0) -> (2):(P+) is a copy, not a view."), TransitionError);
        CHECK_THROWS_AS(static_cast<void>(across("(2):(S0)", "(2):(S0)", Shape{8}).view(half, 0)), TransitionError);
    }

    TEST_CASE("views of memory whose element type is a value") {
        std::vector<float> memory(8);
        auto const p = of("(2):(R)", "(2):(S0)", Shape{8});
        DynamicView const window = p.view(DynamicView(memory.data(), DType::f32, Shape{8}), 1);
        CHECK(static_cast<void*>(window.data()) == memory.data() + 4);
        CHECK(window.dtype() == DType::f32);
        CHECK(window.shape() == DynamicShape(Shape{4}));
        ConstDynamicView const whole(memory.data(), DType::f32, Shape{8});
        CHECK(static_cast<void const*>(p.view(whole, 1).data()) == memory.data() + 4);
        CHECK_THROWS_AS(static_cast<void>(p.view(ConstDynamicView(memory.data(), DType::f32, Shape{4}), 1)),
                        BufferError);
        CHECK_THROWS_AS(static_cast<void>(p.view(ConstDynamicView(memory.data(), DType::f32, Shape{8, 1}), 1)),
                        BufferError);
        CHECK(
            of("(4):(R)", "(4):(S0)", Shape{2}).view(ConstDynamicView(memory.data(), DType::f32, Shape{2}), 3).size() ==
            0);
    }

    // ---- What plan() refuses -------------------------------------------------------------------------------------

    TEST_CASE("different meshes: the error names both and plan_across") {
        auto const a = distribution<S0, R>(Mesh{2, 4}, Shape{8});
        auto const b = distribution<S0, R>(Mesh{4, 2}, Shape{8});
        CHECK_THROWS_WITH_AS(static_cast<void>(plan(a, b)),
                             "reshard::plan: meshes differ: (2,4) and (4,2). "
                             "Fix: use plan_across(from, to) to move between meshes.",
                             MismatchError);
        CHECK_THROWS_WITH_AS(static_cast<void>(plan(a, distribution<S0, R>(Mesh{2, 4}.on(first_rank(1)), Shape{8}))),
                             doctest::Contains("(2,4) and (2,4)+1. Fix: use plan_across"), MismatchError);
        CHECK_NOTHROW(static_cast<void>(plan_across(a, b)));
        CHECK_NOTHROW(static_cast<void>(plan(a, distribution<S0, R>(Mesh{2, 4}.named("dp", "tp"), Shape{8}))));
    }

    TEST_CASE("different shapes: the error names both") {
        auto const a = distribution<S0>(Mesh{2}, Shape{8, 3});
        auto const b = distribution<S0>(Mesh{2}, Shape{8, 4});
        CHECK_THROWS_WITH_AS(static_cast<void>(plan(a, b)),
                             "reshard::plan: shapes differ: [8,3] and [8,4]. "
                             "Fix: a plan moves one tensor; reshape or slice it before or after.",
                             MismatchError);
        CHECK_THROWS_AS(
            static_cast<void>(plan(DynamicDistribution(a), DynamicDistribution(distribution<S0>(Mesh{2}, Shape{8})))),
            MismatchError);
        CHECK_THROWS_WITH_AS(static_cast<void>(plan_across(a, b)), doctest::Contains("[8,3] and [8,4]"), MismatchError);
    }

    TEST_CASE("an average has no identity to fill with") {
        DynamicShape const shape = Shape{8};
        CHECK_THROWS_WITH_AS(static_cast<void>(of("(2):(S0)", "(2):(Pavg)", shape)),
                             "reshard::plan: only sums, and copies on one mesh, become Partial<avg>: an average has no "
                             "identity to fill with. Fix: move to Replicate first; copies owe an average as they are.",
                             TransitionError);
        CHECK_THROWS_AS(static_cast<void>(of("(2):(P<)", "(2):(Pavg)", shape)), TransitionError);
        CHECK_THROWS_AS(static_cast<void>(of("(2,2):(P+,S0)", "(2,2):(Pavg,Pavg)", shape)), TransitionError);
        CHECK_NOTHROW(static_cast<void>(of("(2):(R)", "(2):(Pavg)", shape)));
        CHECK_THROWS_AS(static_cast<void>(across("(2):(S0)", "(2):(Pavg)", shape)), TransitionError);
        CHECK_NOTHROW(static_cast<void>(of("(2):(P+)", "(2):(Pavg)", shape)));
        CHECK_NOTHROW(static_cast<void>(of("(2):(Pavg)", "(2):(R)", shape)));
    }

    // ---- Equality, hash, conversion ------------------------------------------------------------------------------

    TEST_CASE("equal plans are equal and hash alike; names of axes do not count") {
        DynamicShape const shape = Shape{8, 8};
        DynamicMesh const plain = Mesh{2, 4};
        DynamicMesh const named = Mesh{2, 4}.named("dp", "tp");
        auto const a = plan(distribution(plain, shape, "S0,R"), distribution(plain, shape, "R,S1"));
        auto const b = plan(distribution(named, shape, "S0,R"), distribution(named, shape, "R,S1"));
        CHECK(a == b);
        CHECK(a.hash() == b.hash());
        DynamicMesh const listed = DynamicMesh(plain.extents(), RankList{0, {0, 1, 2, 3, 4, 5, 6, 7}});
        auto const c = plan(distribution(listed, shape, "S0,R"), distribution(listed, shape, "R,S1"));
        CHECK(a == c);
        CHECK(a.hash() == c.hash());
    }

    TEST_CASE("plans that differ in anything else are different and hash differently") {
        DynamicShape const shape = Shape{16, 16};
        std::vector<Plan<>> const plans{
            of("(2,2):(S0,R)", "(2,2):(R,S0)", shape),
            of("(2,2):(R,S0)", "(2,2):(S0,R)", shape),
            of("(2,2):(S0,R)", "(2,2):(R,S1)", shape),
            of("(2,2):(S0,R)", "(2,2):(R,S0:bal)", shape),
            of("(2,2):(S0,R)", "(2,2):(R,S0:cyc1)", shape),
            of("(2,2):(S0,R)", "(2,2):(R,S0:cyc2)", shape),
            of("(2,2):(S0,R)", "(2,2):(R,S0[0,3,16])", shape),
            of("(2,2):(S0,R)", "(2,2):(R,S0[0,4,16])", shape),
            of("(2,2):(S0,R)", "(2,2):(R,P+)", shape),
            of("(2,2):(S0,R)", "(2,2):(R,P>)", shape),
            of("(2,2):(S0,R)", "(2,2):(S0,S0)", shape),
            of("(2,2):(S0,R)", "(2,2):(S0,S0)@1,0", shape),
            of("(2,2)+1:(S0,R)", "(2,2)+1:(R,S0)", shape),
            of("(2,2)[3,0,1,2]:(S0,R)", "(2,2)[3,0,1,2]:(R,S0)", shape),
            of("(2,2)[3,0,2,1]:(S0,R)", "(2,2)[3,0,2,1]:(R,S0)", shape),
            of("(4,1):(S0,R)", "(4,1):(R,S0)", shape),
            of("(4):(S0)", "(4):(R)", shape),
            of("(2,2):(S0,R)", "(2,2):(R,S0)", Shape{16, 17}),
            of("(2,2):(S0,R)", "(2,2):(R,S0)", Shape{16, 16, 1}),
            across("(2,2):(S0,R)", "(2,2):(R,S0)", shape),
            // the words of both are alike where no list says how long it is
            of("(2)+3:(R)", "(2)+3:(R)", Shape{2, 4, 5, 6}),
            of("(2,3)+5:(R,P*)", "(2,3)+5:(R,P*)", Shape{6}),
        };
        for (std::size_t i = 0; i < plans.size(); ++i) {
            for (std::size_t j = 0; j < plans.size(); ++j) {
                CAPTURE(i);
                CAPTURE(j);
                CHECK((plans[i] == plans[j]) == (i == j));
                CHECK((plans[i].hash() == plans[j].hash()) == (i == j));
            }
        }
    }

    TEST_CASE("a typed plan converts to the run-time plan of the same transition") {
        auto const typed = plan(on2x4<R, S0>, on2x4<S1, R>);
        Plan<> const value = typed;
        CHECK(value == of("(2,4):(R,S0)", "(2,4):(S1,R)", Shape{64, 32}));
        CHECK(value.hash() == typed.hash());
        CHECK(value.kind() == typed.kind());
        CHECK(value.cost(5) == typed.cost(5));
    }

    TEST_CASE("an axis that is one in the type does not count; as a value it does, and then nothing travels either") {
        auto const typed =
            plan(distribution<S0, R>(Mesh<1, 4>{}, Shape<8>{}), distribution<R, S0>(Mesh<1, 4>{}, Shape<8>{}));
        CHECK(typed.kind() == TransitionKind::view);
        std::vector<int> memory(8);
        CHECK(typed.view(TensorView<int>(memory.data(), Shape{8}), 3).data() == memory.data() + 6);
        CHECK(typed.cost(3) == Cost{});
        Plan<> const value = typed;
        CHECK(value.kind() == TransitionKind::collective);
        CHECK(moved(value) == Moved{});
        CHECK(value.cost(3).phases == 1);
    }

    // ---- Adjoints ------------------------------------------------------------------------------------------------

    TEST_CASE("the adjoint swaps the sides, R with P+, and keeps S with its rule and order") {
        DynamicShape const shape = Shape{16, 16};
        auto const adjoint = of("(2,2,2):(S0,R,P+)", "(2,2,2):(R,S1:bal,R)", shape).adjoint();
        CHECK(to_string(adjoint.from()) == "(2,2,2):(P+,S1:bal,P+)");
        CHECK(to_string(adjoint.to()) == "(2,2,2):(S0,P+,R)");
        CHECK(to_string(of("(2,2):(S0,S0)@1,0", "(2,2):(R,R)", shape).adjoint().to()) == "(2,2):(S0,S0)@1,0");
        CHECK(across("(2):(S0)", "(3):(R)", shape).adjoint().is_across());
        CHECK(plan(on2x4<R, S0>, on2x4<S1, R>).adjoint().from().shape() == DynamicShape(Shape{64, 32}));
    }

    TEST_CASE("the adjoint of a distribution is where a backward starts, and its own inverse") {
        for (char const* text : {"(2,2):(R,S0)", "(2,2):(P+,S1:bal)", "(2,2):(S0,S0)@1,0", "(2,2):(P+,R)"}) {
            DynamicDistribution const used = parse(text, Shape{16, 16});
            CHECK(plan(used, used).adjoint().from() == adjoint(used));
            CHECK(adjoint(adjoint(used)) == used);
        }
    }

    TEST_CASE("only sums have adjoints") {
        CHECK_THROWS_AS(static_cast<void>(adjoint(parse("(2):(P*)", Shape{4}))), TransitionError);
        CHECK_THROWS_WITH_AS(static_cast<void>(of("(2):(P>)", "(2):(R)", Shape{4}).adjoint()),
                             "reshard::adjoint: Partial<max> is not a sum, so it has no adjoint. "
                             "Fix: only R, S and P+ are differentiated.",
                             TransitionError);
        CHECK_THROWS_WITH_AS(
            static_cast<void>(of("(2):(Pavg)", "(2):(R)", Shape{4}).adjoint()),
            "reshard::adjoint: Partial<avg> is a sum divided by the extent of its axis, and placements "
            "hold no factor. Fix: take the adjoint with P+ in its place; the gradient of P+ divided by "
            "the extent (PrepareOptions::factor) is that of Pavg.",
            TransitionError);
    }

    // ---- What really moves, beside the table of bounds -----------------------------------------------------------

    TEST_CASE("even tensors move what the table of bounds says") {
        constexpr Index T = 64 * 64;
        DynamicShape const shape = Shape{64, 64};
        for (Index n : {2, 4, 8}) {
            CAPTURE(n);
            auto const row = [&](char const* from, char const* to) {
                return moved(of(text(from, n).c_str(), text(to, n).c_str(), shape));
            };
            CHECK(row("(n):(R)", "(n):(R)") == Moved{});
            CHECK(row("(n):(R)", "(n):(S0)") == Moved{});
            CHECK(row("(n):(R)", "(n):(P+)") == Moved{});
            CHECK(row("(n):(S0)", "(n):(P+)") == Moved{});
            CHECK(row("(n):(S0)", "(n):(R)") == Moved{(n - 1) * T / n, (n - 1) * T / n, (n - 1) * T});
            CHECK(row("(n):(S0)", "(n):(S1)") == Moved{(n - 1) * T / (n * n), (n - 1) * T / (n * n), (n - 1) * T / n});
            CHECK(row("(n):(P+)", "(n):(S1)") == Moved{(n - 1) * T / n, (n - 1) * T / n, (n - 1) * T});
            CHECK(row("(n):(P+)", "(n):(R)") == Moved{2 * (n - 1) * T / n, 2 * (n - 1) * T / n, 2 * (n - 1) * T});
            CHECK(row("(n):(P>)", "(n):(P+)") == Moved{(n - 1) * T / n, (n - 1) * T / n, (n - 1) * T});
        }
    }

    TEST_CASE("from and to one rank, even tensors move what the table of bounds says") {
        constexpr Index T = 64 * 64;
        DynamicShape const shape = Shape{64, 64};
        for (Index n : {2, 4, 8}) {
            for (Index root : {Index{0}, n / 2, n - 1}) {
                CAPTURE(n);
                CAPTURE(root);
                std::string const one = errors::concat("(1)+", root, ":(R)");
                auto const to_root = [&](char const* from) {
                    return across(text(from, n).c_str(), one.c_str(), shape);
                };
                auto const from_root = [&](char const* to) { return across(one.c_str(), text(to, n).c_str(), shape); };
                CHECK(moved(to_root("(n):(S0)")) == Moved{(n - 1) * T / n, T / n, (n - 1) * T / n});
                CHECK(moved(from_root("(n):(S0)")) == Moved{T / n, (n - 1) * T / n, (n - 1) * T / n});
                CHECK(moved(from_root("(n):(R)")) == Moved{T, (n - 1) * T, (n - 1) * T});
                CHECK(moved(from_root("(n):(P+)")) == Moved{});
                CHECK(moved(to_root("(n):(R)")) == Moved{});
                // A reduction to one rank is a reduce-scatter and a gather: less than twice the bound of T.
                CHECK(moved(to_root("(n):(P+)")).received == 2 * (n - 1) * T / n);
                CHECK(to_root("(n):(P+)").cost(root).received < 2 * T);
                CHECK(to_root("(n):(P+)").cost((root + 1) % n).received == (n - 1) * T / n);
            }
        }
    }

    TEST_CASE("uneven tensors move exactly what the bounds say, without padding") {
        DynamicShape const shape = Shape{5, 4};
        auto const exact = [&](char const* from, char const* to) {
            Plan<> const p = of(from, to, shape);
            for (Index rank = 0; rank < p.from().mesh().size(); ++rank) {
                CAPTURE(rank);
                CHECK(p.cost(rank).received == receive_bound(p.from(), p.to(), rank).elements);
            }
        };
        exact("(4):(S0)", "(4):(R)");
        exact("(4):(S0)", "(4):(S1)");
        exact("(4):(S0)", "(4):(S0:bal)");
        exact("(4):(S0)", "(4):(S0:cyc2)");
        exact("(4):(P+)", "(4):(S0)");
        exact("(4):(P+)", "(4):(S0:bal)");
        CHECK(of("(4):(S0)", "(4):(R)", shape).cost(3).received == 20);  // the rank with the empty shard
        CHECK(of("(4):(P+)", "(4):(S0)", shape).cost(0).received == 3 * 8);
        CHECK(of("(4):(P+)", "(4):(S0)", shape).cost(3).received == 0);
        // The balanced cut that P -> R folds in differs by one: 5 rows of 4 on 4 ranks.
        CHECK(moved(of("(4):(P+)", "(4):(R)", shape)).total == 2 * 3 * 20);
    }

    TEST_CASE("a message count is the number of messages, and phases count exchanges") {
        DynamicShape const shape = Shape{16, 4};
        Cost const gather = of("(4):(S0)", "(4):(R)", shape).cost(2);
        CHECK(gather == Cost{1, 3, 3, 48, 48, 0});
        Cost const reduce = of("(4):(P+)", "(4):(R)", shape).cost(2);
        CHECK(reduce == Cost{2, 6, 6, 96, 96, 64});  // a quarter of the tensor in four addends
        Cost const scatter = of("(4):(P+)", "(4):(S0)", shape).cost(2);
        CHECK(scatter == Cost{1, 3, 3, 48, 48, 64});
        CHECK(of("(4):(S0)", "(4):(R)", shape).cost(9) == Cost{});
        CHECK(of("(4):(R)", "(4):(S0)", shape).cost(2) == Cost{});
        Cost const outside = across("(2):(P+)", "(2)+2:(S0)", shape).cost(3);
        CHECK(outside.received == 32);
        CHECK(outside.workspace == 0);
        CHECK(across("(2):(P+)", "(2)+2:(S0)", shape).cost(99) == Cost{});
    }

    TEST_CASE("plans across the same mesh cost what plans within cost") {
        DynamicShape const shape = Shape{12, 5};
        for (char const* to : {"(4):(R)", "(4):(S1)", "(4):(S0:bal)", "(4):(S0)"}) {
            Plan<> const p = across("(4):(S0)", to, shape);
            for (Index rank = 0; rank < 4; ++rank) {
                CHECK(p.cost(rank).received == receive_bound(p.from(), p.to(), rank).elements);
            }
        }
    }

    TEST_CASE("a one-shot fold: one exchange for two, more elements, and nothing else changes") {
        Shape const shape{8, 8};
        Plan<> const two = plan(parse("(4):(P+)", shape), parse("(4):(R)", shape));
        Plan<> const one = two.one_shot_fold();
        CHECK(two.cost(1).phases == 2);
        CHECK(two.cost(1).received == 2 * 3 * 16);
        CHECK(one.cost(1).phases == 1);
        CHECK(one.cost(1).received == 3 * 64);
        CHECK(one.cost(1).sent == 3 * 64);
        CHECK(one.kind() == TransitionKind::collective);
        CHECK(one.ranks_per_node() == 0);
        CHECK(!(one == two));
        CHECK(one.hash() != two.hash());
        CHECK(one.one_shot_fold() == one);
        // Along an axis that stays cut, and beside copies that need not share a fold.
        Plan<> const beside = plan(parse("(2,4):(S0,P+)", shape), parse("(2,4):(S0,R)", shape)).one_shot_fold();
        CHECK(beside.cost(5).phases == 1);
        CHECK(beside.cost(5).received == 3 * 32);
        Plan<> const copied = plan(parse("(2,4):(R,P+)", shape), parse("(2,4):(R,R)", shape)).one_shot_fold();
        CHECK(copied.cost(5).received == 3 * 64);
        // What spreads no fold is as it was.
        for (auto const& [from, to] : {std::pair("(4):(P+)", "(4):(S0)"), std::pair("(4):(S0)", "(4):(R)")}) {
            Plan<> const direct = plan(parse(from, shape), parse(to, shape));
            for (int phase = 0; phase < direct.cost(2).phases; ++phase) {
                planning::Exchange const before = direct.exchange(2, phase);
                planning::Exchange const after = direct.one_shot_fold().exchange(2, phase);
                CHECK(after.sends == before.sends);
                CHECK(after.receives == before.receives);
            }
            CHECK(direct.one_shot_fold().cost(2) == direct.cost(2));
        }
        CHECK_THROWS_WITH_AS(static_cast<void>(one.then(plan(parse("(4):(R)", shape), parse("(4):(S0)", shape)))),
                             doctest::Contains("travel differently"), MismatchError);
    }
}
