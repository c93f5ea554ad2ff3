// SPDX-License-Identifier: Apache-2.0
//
// One algebra, two faces: placements as types and placements as values give the same answers, for every pair of
// distributions over seven placements per axis.
#include <reshard/algebra/transition.hpp>

#include <reshard/algebra/notation.hpp>

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

using namespace reshard;

namespace {

using Options = std::tuple<Replicate, Shard<0>, Shard<1>, Shard<0, Balanced>, Partial<>, Partial<Reduce::max>,
                           Partial<Reduce::avg>>;
constexpr int options = 7;
constexpr char const* texts[options] = {"R", "S0", "S1", "S0:bal", "P+", "P>", "Pavg"};
template <int I>
using Option = std::tuple_element_t<static_cast<std::size_t>(I), Options>;

using Tensor = Shape<5, 7>;

/// Distribution number I over a mesh type of one or two axes: its digits in base seven are its placements.
template <class M, class S, int I>
struct Typed;
template <Index A, class S, int I>
struct Typed<Mesh<A>, S, I> {
    static constexpr bool legal = true;
    using type = Distribution<Mesh<A>, S, AxisOrder<>, Option<I>>;
};
template <Index A, Index B, class S, int I>
struct Typed<Mesh<A, B>, S, I> {
    static constexpr bool legal = !(I / options >= 4 && I % options >= 4 && I / options != I % options);  // two ops
    using type = Distribution<Mesh<A, B>, S, AxisOrder<>, Option<I / options>, Option<I % options>>;
};
template <class M>
constexpr int count = M::axes() == 1 ? options : options* options;

/// The same by value; nothing where two reductions would meet.
std::optional<DynamicDistribution> by_value(DynamicMesh const& mesh, int i) {
    std::string const text =
        mesh.axes() == 1 ? std::string(texts[i]) : errors::concat(texts[i / options], ",", texts[i % options]);
    try {
        return distribution(mesh, Tensor{}, text);
    } catch (PlacementError const&) {
        return std::nullopt;
    }
}

constexpr int illegal = -1;
template <class M, class S, int From, int To>
consteval int kind_by_types() {
    if constexpr (Typed<M, S, From>::legal && Typed<M, S, To>::legal) {
        using A = typename Typed<M, S, From>::type;
        using B = typename Typed<M, S, To>::type;
        if constexpr (!fills_average(A::static_signature, B::static_signature)) {
            return static_cast<int>(transition_kind<A, B>);
        }
    }
    return illegal;
}
template <class M, class S, int... Pair>
constexpr std::array<int, sizeof...(Pair)> table(std::integer_sequence<int, Pair...>) {
    return {kind_by_types<M, S, Pair / count<M>, Pair % count<M>>()...};
}
/// Kinds of all pairs, as the compiler knows them.
template <class M, class S>
constexpr auto kinds = table<M, S>(std::make_integer_sequence<int, count<M> * count<M>>{});

using Known = Shape<dynamic, dynamic>;
constexpr auto const& kinds_of_one_axis = kinds<Mesh<dynamic>, Known>;
constexpr auto const& kinds_of_two_axes = kinds<Mesh<dynamic, dynamic>, Known>;

template <std::size_t N>
void check_kinds(DynamicMesh const& mesh, std::array<int, N> const& expected, int per_side) {
    CAPTURE(to_string(mesh));
    int compared = 0;
    for (int from = 0; from < per_side; ++from) {
        for (int to = 0; to < per_side; ++to) {
            auto const a = by_value(mesh, from);
            auto const b = by_value(mesh, to);
            int const by_types = expected[static_cast<std::size_t>(from * per_side + to)];
            bool const legal = a && b && !fills_average(a->signature(), b->signature());
            REQUIRE(legal == (by_types != illegal));
            if (!legal) continue;
            INFO(to_string(*a), " -> ", to_string(*b));
            CHECK(static_cast<int>(kind_of(*a, *b)) == by_types);
            ++compared;
        }
    }
    CHECK(compared == (per_side == options ? 45 : 1605));
}

/// Boxes of distribution number I: extents in the type, extents as values, placements as values.
template <class M, int I>
void check_boxes(DynamicMesh const& mesh) {
    if constexpr (Typed<M, Tensor, I>::legal) {
        using D = typename Typed<M, Tensor, I>::type;
        constexpr D constant;
        auto const value = by_value(mesh, I);
        REQUIRE(value);
        INFO(to_string(*value));
        CHECK(constant == *value);
        CHECK(to_string(constant) == to_string(*value));
        for (Index rank = 0; rank < mesh.size(); ++rank) {
            CHECK(constant.box(rank) == value->box(rank));
            CHECK(constant.boxes(rank) == value->boxes(rank));
            CHECK(constant.local_shape(rank) == value->local_shape(rank));
            CHECK(constant.offset(rank) == value->offset(rank));
            CHECK(constant.holders(constant.box(rank)) == value->holders(value->box(rank)));
        }
        // The type's own signature names the same axes in the same order.
        CHECK(D::static_signature.order() == value->signature().order());
        for (int axis = 0; axis < mesh.axes(); ++axis) CHECK(D::static_signature[axis] == value->signature()[axis]);
    }
}
template <class M>
void check_all_boxes(M const& mesh) {
    [&]<int... I>(std::integer_sequence<int, I...>) { (check_boxes<M, I>(mesh), ...); }
    (std::make_integer_sequence<int, count<M>>{});
}

template <int... I, Index... E>
void check_run_time_extents(Mesh<E...> const& mesh, std::integer_sequence<int, I...>) {
    auto const check_one = [&]<int J>(std::integral_constant<int, J>) {
        if constexpr (Typed<Mesh<E...>, Known, J>::legal) {
            auto const typed = distribution(mesh, Known{5, 7}, Option<J / options>{}, Option<J % options>{});
            CHECK(typed == *by_value(mesh, J));
            CHECK(typed.box(1) == by_value(mesh, J)->box(1));
        }
    };
    (check_one(std::integral_constant<int, I>{}), ...);
}

// Sizes in the type change nothing unless one of them is 1.
static_assert(kinds<Mesh<2, 2>, Tensor> == kinds_of_two_axes);
static_assert(kinds<Mesh<4>, Tensor> == kinds_of_one_axis);

}  // namespace

TEST_CASE("the kind of every transition is the same by types and by values") {
    check_kinds(Mesh{4}, kinds_of_one_axis, options);
    check_kinds(Mesh{2, 2}, kinds_of_two_axes, options * options);
    check_kinds(Mesh{2, 3}, kinds_of_two_axes, options * options);
    check_kinds(Mesh{1, 4}, kinds_of_two_axes, options * options);
}

TEST_CASE("an axis of size one in the type leaves the kind of the other axis") {
    auto const& with_one = kinds<Mesh<1, 4>, Tensor>;
    int gained = 0;
    for (int from = 0; from < options * options; ++from) {
        for (int to = 0; to < options * options; ++to) {
            int const kind = with_one[static_cast<std::size_t>(from * options * options + to)];
            if (kind == illegal) continue;
            CAPTURE(from);
            CAPTURE(to);
            CHECK(kind == kinds_of_one_axis[static_cast<std::size_t>(from % options * options + to % options)]);
            int const unknown = kinds_of_two_axes[static_cast<std::size_t>(from * options * options + to)];
            CHECK(kind <= unknown);  // knowing more never asks for more
            gained += kind < unknown ? 1 : 0;
        }
    }
    CHECK(gained > 0);
}

TEST_CASE("boxes, shapes, offsets, holders and text are the same by types and by values") {
    check_all_boxes(Mesh<4>{});
    check_all_boxes(Mesh<2, 2>{});
    check_all_boxes(Mesh<2, 3>{});
    check_all_boxes(Mesh<1, 4>{});
    check_run_time_extents(Mesh{2, 3}, std::make_integer_sequence<int, options * options>{});
}
