// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/transition.hpp>

#include <reshard/algebra/notation.hpp>

#include <doctest/doctest.h>

using namespace reshard;

namespace {

template <class... P>
using On8 = decltype(distribution<P...>(Mesh<8>{}, Shape<64, 64>{}));
template <class... P>
using On2x4 = decltype(distribution<P...>(Mesh<2, 4>{}, Shape<64, 64>{}));
template <class... P>
using On1x4 = decltype(distribution<P...>(Mesh<1, 4>{}, Shape<64, 64>{}));
template <class... P>
using Anywhere = decltype(distribution<P...>(Mesh{2, 4}, Shape{64, 64}));
using Max = Partial<Reduce::max>;
using Avg = Partial<Reduce::avg>;

// The table of the header, row by row.
static_assert(is_view<On8<Replicate>, On8<Replicate>> && is_view<On8<Shard<1>>, On8<Shard<1>>>);
static_assert(is_view<On8<Partial<>>, On8<Partial<>>> && is_view<On8<Avg>, On8<Avg>>);
static_assert(is_view<On8<Replicate>, On8<Shard<0>>> && is_view<On8<Replicate>, On8<Shard<1, Balanced>>>);
static_assert(transition_kind<On8<Replicate>, On8<Shard<0, BlockCyclic>>> == TransitionKind::copy, "several windows");
static_assert(transition_kind<On8<Replicate>, On8<Shard<0, Strided>>> == TransitionKind::copy);
static_assert(transition_kind<On8<Replicate>, On8<Partial<>>> == TransitionKind::copy);
static_assert(transition_kind<On8<Replicate>, On8<Partial<Reduce::product>>> == TransitionKind::copy);
static_assert(transition_kind<On8<Replicate>, On8<Partial<Reduce::bxor>>> == TransitionKind::copy);
static_assert(is_view<On8<Replicate>, On8<Max>> && is_view<On8<Replicate>, On8<Partial<Reduce::min>>> &&
              is_view<On8<Replicate>, On8<Partial<Reduce::band>>> &&
              is_view<On8<Replicate>, On8<Partial<Reduce::bor>>> && is_view<On8<Replicate>, On8<Avg>>);
static_assert(transition_kind<On8<Shard<0>>, On8<Partial<>>> == TransitionKind::copy);
static_assert(transition_kind<On8<Shard<0>>, On8<Max>> == TransitionKind::copy, "the rest is filled with the identity");
static_assert(transition_kind<On8<Partial<>>, On8<Avg>> == TransitionKind::copy);
static_assert(transition_kind<On8<Avg>, On8<Partial<>>> == TransitionKind::copy);
static_assert(!is_local<On8<Shard<0>>, On8<Replicate>> && !is_local<On8<Shard<0>>, On8<Shard<1>>>);
static_assert(!is_local<On8<Shard<0>>, On8<Shard<0, Balanced>>>, "numbers that coincide stay collective");
static_assert(!is_local<On8<Partial<>>, On8<Replicate>> && !is_local<On8<Partial<>>, On8<Shard<0>>> &&
              !is_local<On8<Partial<>>, On8<Max>> && !is_local<On8<Avg>, On8<Replicate>>);

// Boundaries and blocks are numbers the type does not know: only views of whole data are certain.
static_assert(is_view<On8<Replicate>, On8<Shard<0, Boundaries>>>);
static_assert(!is_local<On8<Shard<0, Boundaries>>, On8<Shard<0, Boundaries>>>);

// Two axes on one dimension: what is held must be a prefix of what is needed, in cutting order.
using Nested = On2x4<Shard<0>, Shard<0>>;
using Swapped = decltype(distribution<Shard<0>, Shard<0>>(Mesh<2, 4>{}, Shape<64, 64>{}, AxisOrder<1, 0>{}));
static_assert(is_view<On2x4<Shard<0>, Replicate>, Nested> && !is_local<On2x4<Replicate, Shard<0>>, Nested>);
static_assert(is_view<On2x4<Replicate, Shard<0>>, Swapped> && !is_local<On2x4<Shard<0>, Replicate>, Swapped>);
static_assert(!is_local<Nested, Swapped>, "equal placements in another order: data moves");
static_assert(is_view<Swapped, Swapped>);
static_assert(!is_local<Nested, On2x4<Shard<0>, Replicate>>);
static_assert(is_view<On2x4<Shard<0>, Replicate>, On2x4<Shard<0>, Shard<1>>>);
static_assert(!is_local<On2x4<Shard<0>, Shard<1>>, On2x4<Shard<1>, Shard<0>>>);
// From the tail axes may become Partial; from the front they may not.
static_assert(transition_kind<Nested, On2x4<Shard<0>, Partial<>>> == TransitionKind::copy);
static_assert(!is_local<Nested, On2x4<Partial<>, Shard<0>>>);
static_assert(transition_kind<Swapped, On2x4<Partial<>, Shard<0>>> == TransitionKind::copy);
static_assert(transition_kind<Nested, On2x4<Partial<>, Partial<>>> == TransitionKind::copy);
static_assert(transition_kind<On2x4<Partial<>, Shard<0>>, On2x4<Partial<>, Partial<>>> == TransitionKind::copy);
static_assert(is_view<On2x4<Partial<>, Replicate>, On2x4<Partial<>, Shard<0>>>, "a window of the addend");
static_assert(!is_local<On2x4<Partial<>, Shard<0>>, On2x4<Shard<0>, Partial<>>>);

// An axis statically of size one does nothing.
static_assert(is_view<On1x4<Shard<0>, Replicate>, On1x4<Replicate, Replicate>>);
static_assert(is_view<On1x4<Partial<>, Shard<1>>, On1x4<Replicate, Shard<1>>>);
static_assert(is_view<On1x4<Shard<0>, Shard<0>>, On1x4<Shard<1>, Shard<0>>>);
static_assert(is_view<On1x4<Replicate, Shard<0>>, On1x4<Shard<0>, Shard<0>>>);
static_assert(!is_local<On1x4<Shard<0>, Shard<0>>, On1x4<Shard<0>, Replicate>>);
using Maybe1x4 = decltype(distribution<Shard<0>, Replicate>(Mesh<dynamic, 4>{1, 4}, Shape{8}));
using MaybeR = decltype(distribution<Replicate, Replicate>(Mesh<dynamic, 4>{1, 4}, Shape{8}));
static_assert(!is_local<Maybe1x4, MaybeR>, "an axis that is one only at run time counts");

// References, const and run-time extents are all the same question.
static_assert(is_local<Anywhere<Replicate, Replicate> const&, Anywhere<Replicate, Shard<0>> const>);
static_assert(is_local<On2x4<Replicate, Replicate>, Anywhere<Replicate, Shard<0>>>, "static against dynamic extents");

struct Thirds {
    static constexpr bool is_static = true;
    [[nodiscard]] constexpr SplitRule rule(Index extent, Index /*parts*/) const {
        return {SplitKind::boundaries, 0, {0, extent / 3, extent}};
    }
};
struct Quarters : Thirds {};
struct Silent {
    [[nodiscard]] constexpr SplitRule rule(Index extent, Index /*parts*/) const {
        return {SplitKind::boundaries, 0, {0, extent / 3, extent}};
    }
};
struct Holding : Silent {
    Index number = 0;
};
struct Unlike : Silent {
    static constexpr bool is_static = false;
};
static_assert(is_view<On2x4<Shard<0, Silent>, Replicate>, On2x4<Shard<0, Silent>, Shard<0>>>,
              "a rule that says nothing and holds nothing is static");
static_assert(!is_local<On2x4<Shard<0, Holding>, Replicate>, On2x4<Shard<0, Holding>, Shard<0>>>);
static_assert(!is_local<On2x4<Shard<0, Unlike>, Replicate>, On2x4<Shard<0, Unlike>, Shard<0>>>);
static_assert(is_view<On2x4<Shard<0, Thirds>, Replicate>, On2x4<Shard<0, Thirds>, Shard<0>>>,
              "a rule's type is its identity");
static_assert(!is_local<On2x4<Shard<0, Thirds>, Replicate>, On2x4<Shard<0, Quarters>, Shard<0>>>);

TransitionKind kind(char const* from, char const* to) {
    Shape const shape{64, 64};
    return kind_of(parse(from, shape), parse(to, shape));
}
bool fills(char const* from, char const* to) {
    Shape const shape{64, 64};
    return fills_average(parse(from, shape).signature(), parse(to, shape).signature());
}

}  // namespace

TEST_CASE("values know their numbers: equal boundaries and equal blocks are the same cut") {
    CHECK(kind("(2):(S0[0,3,64])", "(2):(S0[0,3,64])") == TransitionKind::view);
    CHECK(kind("(2):(S0[0,3,64])", "(2):(S0[0,4,64])") == TransitionKind::collective);
    CHECK(kind("(2):(S0:cyc4)", "(2):(S0:cyc4)") == TransitionKind::view);  // the memory itself, however many boxes
    CHECK(kind("(2):(S0:cyc4)", "(2):(S0:cyc8)") == TransitionKind::collective);
    CHECK(kind("(2,2):(S0,R)", "(2,2):(S0,S0:cyc4)") == TransitionKind::copy);
    CHECK(kind("(2,2):(S0,R)", "(2,2):(S0:bal,S0)") == TransitionKind::collective);
    CHECK(kind("(2,2):(S0[0,3,64],R)", "(2,2):(S0[0,3,64],S0)") == TransitionKind::view);
}

TEST_CASE("values of size one count as any other axis: the plan may move zero bytes, the kind does not change") {
    CHECK(kind("(1):(S0)", "(1):(R)") == TransitionKind::collective);
    CHECK(kind("(1):(P+)", "(1):(R)") == TransitionKind::collective);
}

TEST_CASE("only R and P+ become Pavg: an average has no identity to fill with") {
    CHECK(fills("(2):(S0)", "(2):(Pavg)"));
    CHECK(fills("(2):(P>)", "(2):(Pavg)"));
    CHECK(fills("(2,2):(P+,S0)", "(2,2):(Pavg,Pavg)"));
    CHECK_FALSE(fills("(2):(R)", "(2):(Pavg)"));
    CHECK_FALSE(fills("(2,2):(P+,R)", "(2,2):(Pavg,Pavg)"));
    CHECK(kind("(2):(R)", "(2):(Pavg)") == TransitionKind::view);
    CHECK(kind("(2,2):(P+,R)", "(2,2):(Pavg,Pavg)") == TransitionKind::copy);
    CHECK(kind("(2,2):(S0,R)", "(2,2):(R,Pavg)") == TransitionKind::collective);
    CHECK_FALSE(fills("(2):(P+)", "(2):(Pavg)"));
    CHECK_FALSE(fills("(2):(Pavg)", "(2):(Pavg)"));
    CHECK_FALSE(fills("(2,2):(Pavg,R)", "(2,2):(P+,P+)"));
    CHECK_FALSE(fills("(2):(Pavg)", "(2):(R)"));
    CHECK(kind("(2,2):(Pavg,R)", "(2,2):(P+,P+)") == TransitionKind::copy);
}

TEST_CASE("kinds have names") {
    CHECK(name(TransitionKind::view) == "view");
    CHECK(name(TransitionKind::copy) == "copy");
    CHECK(name(TransitionKind::collective) == "collective");
}
