// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/distribution.hpp
/// \brief  Mesh + shape + placements (+ axis order): which box of a tensor each rank holds.
/// \depends mesh, box, signature; <vector> for lists of ranks. constexpr; no communicator, no tensor memory.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/algebra/mesh.hpp>
#include <reshard/algebra/signature.hpp>

#include <vector>  // vector

namespace reshard::inline v0 {

/// A distribution as a value. Every question is answered in closed form from the rank number alone.
///
/// Throws PlacementError when there is not one placement per mesh axis, a dimension is out of range, two reductions
/// meet, boundaries do not ascend from 0 to the extent they cut, or a block-cyclic cut is not the last of its
/// dimension.
class DynamicDistribution {
public:
    constexpr DynamicDistribution() { signature_.placements.push_back({}); }
    constexpr DynamicDistribution(DynamicMesh const& mesh, DynamicShape const& shape, Placements const& placements,
                                  AxisList const& order = {})
        : mesh_(mesh), shape_(shape) {
        signature_.placements = placements;
        if (placements.size() != mesh.axes()) raise_count(placements.size(), mesh.axes());
        SignatureFault const fault = arrange(signature_, shape.rank(), order);
        if (fault != SignatureFault::none) raise_fault(fault);
        for (int dim = 0; dim < shape.rank(); ++dim) check_rules(dim);
    }

    [[nodiscard]] constexpr DynamicMesh const& mesh() const& noexcept { return mesh_; }
    [[nodiscard]] constexpr DynamicShape const& shape() const& noexcept { return shape_; }
    [[nodiscard]] constexpr Signature const& signature() const& noexcept { return signature_; }
    [[nodiscard]] constexpr Placement const& placement(int axis) const& noexcept { return signature_.placements[axis]; }
    /// The axes that cut a dimension, first cut first.
    [[nodiscard]] constexpr AxisList const& cuts(int dim) const& noexcept { return signature_.cuts[dim]; }
    // Of a temporary, by value: references would outlive it.
    [[nodiscard]] constexpr DynamicMesh mesh() && noexcept { return mesh_; }
    [[nodiscard]] constexpr DynamicShape shape() && noexcept { return shape_; }
    [[nodiscard]] constexpr Signature signature() && noexcept { return signature_; }
    [[nodiscard]] constexpr Placement placement(int axis) && noexcept { return signature_.placements[axis]; }
    [[nodiscard]] constexpr AxisList cuts(int dim) && noexcept { return signature_.cuts[dim]; }
    [[nodiscard]] constexpr bool contains(Index rank) const noexcept { return mesh_.contains(rank); }

    /// What the rank at these mesh coordinates holds along one dimension. An empty part lies at the extent's end.
    [[nodiscard]] constexpr IndexSet index_set(Indices const& coordinates, int dim) const noexcept {
        Interval span{0, shape_.extent(dim)};
        for (int axis : signature_.cuts[dim]) {
            if (span.empty()) break;
            SplitRule const& rule = placement(axis).rule();
            Index const parts = mesh_.extent(axis);
            if (rule.kind == SplitKind::cyclic && parts > 1) {  // one part is an interval, however it is dealt
                return IndexSet(span, rule.block, parts, coordinates[axis]);
            }
            Interval const cut = part(rule, span.size(), parts, coordinates[axis]);
            span = cut.empty() ? Interval{shape_.extent(dim), shape_.extent(dim)}
                               : Interval{span.begin + cut.begin, span.begin + cut.end};
        }
        return IndexSet(span);
    }

    /// The box a rank holds. Throws MeshError when the rank is not in the mesh, and PlacementError when it holds
    /// several boxes (block-cyclic): ask boxes(rank) then.
    [[nodiscard]] constexpr Box box(Index rank) const {
        Indices const coordinates = mesh_.coordinates(rank);
        Box result;
        for (int dim = 0; dim < shape_.rank(); ++dim) {
            IndexSet const set = index_set(coordinates, dim);
            if (set.is_interval()) {
                result.push_back(set.span());
            } else if (set.segments() == 0) {
                result.push_back({shape_.extent(dim), shape_.extent(dim)});
            } else if (set.segments() == 1) {
                result.push_back(set.segment(0));
            } else {
                raise_many(rank, dim, set.segments());
            }
        }
        return result;
    }

    /// All boxes a rank holds, in the row-major order of its local memory; none when it holds nothing.
    /// (A template, like holders(), so that only its users compile it.)
    template <class Boxes = std::vector<Box>>
    [[nodiscard]] constexpr Boxes boxes(Index rank) const {
        Indices const coordinates = mesh_.coordinates(rank);
        Index count = 1;
        for (int dim = 0; dim < shape_.rank(); ++dim) count *= index_set(coordinates, dim).segments();
        Boxes result(static_cast<std::size_t>(count));
        Index repeats = count;  // boxes in a row that share their interval of this dimension
        for (int dim = 0; dim < shape_.rank() && count != 0; ++dim) {
            IndexSet const set = index_set(coordinates, dim);
            repeats /= set.segments();
            for (Index i = 0; i < count; ++i) {
                result[static_cast<std::size_t>(i)].push_back(set.segment(i / repeats % set.segments()));
            }
        }
        return result;
    }

    /// Extents of the rank's local tensor. Throws MeshError when the rank is not in the mesh.
    [[nodiscard]] constexpr DynamicShape local_shape(Index rank) const {
        Indices const coordinates = mesh_.coordinates(rank);
        Indices extents;
        for (int dim = 0; dim < shape_.rank(); ++dim) extents.push_back(index_set(coordinates, dim).size());
        return DynamicShape(extents);
    }

    /// Global index of the local tensor's first element; along an empty dimension the whole tensor's extent, so
    /// that it is never the offset of somebody else's shard (pytorch/pytorch#150862).
    [[nodiscard]] constexpr Indices offset(Index rank) const {
        Indices const coordinates = mesh_.coordinates(rank);
        Indices result;
        for (int dim = 0; dim < shape_.rank(); ++dim) {
            IndexSet const set = index_set(coordinates, dim);
            result.push_back(set.segments() == 0 ? shape_.extent(dim) : set.segment(0).begin);
        }
        return result;
    }

    /// Whether a rank of the mesh holds every element of a box (an addend of it, where axes are Partial).
    [[nodiscard]] constexpr bool holds(Index rank, Box const& box) const {
        Indices const coordinates = mesh_.coordinates(rank);
        if (box.rank() != shape_.rank()) raise_rank(box.rank());
        if (box.empty()) return true;
        for (int dim = 0; dim < shape_.rank(); ++dim) {
            IndexSet const set = index_set(coordinates, dim);
            Index const held = set.local_index(box.end(dim)) - set.local_index(box.begin(dim));
            if (held != box.extent(dim)) return false;
        }
        return true;
    }

    /// The ranks that hold every element of a box, ascending by position in the mesh. Cost: the ranks of the mesh.
    template <class Ranks = std::vector<Index>>
    [[nodiscard]] constexpr Ranks holders(Box const& box) const {
        if (box.rank() != shape_.rank()) raise_rank(box.rank());
        Ranks result;
        for (Index ordinal = 0; ordinal < mesh_.size(); ++ordinal) {
            if (holds(mesh_.rank_at(ordinal), box)) result.push_back(mesh_.rank_at(ordinal));
        }
        return result;
    }
    /// The ranks that hold one element.
    template <class Ranks = std::vector<Index>>
    [[nodiscard]] constexpr Ranks holders(Indices const& index) const {
        Box box;
        for (Index i : index) box.push_back({i, i + 1});
        return holders<Ranks>(box);
    }

    /// Same mesh, shape, placements, rules and cutting order. Numeric coincidences (chunk and balanced cuts of a
    /// divisible extent) are not equality.
    [[nodiscard]] friend constexpr bool operator==(DynamicDistribution const& a,
                                                   DynamicDistribution const& b) noexcept {
        return a.mesh_ == b.mesh_ && a.shape_ == b.shape_ && a.signature_.placements == b.signature_.placements &&
               a.signature_.cuts == b.signature_.cuts;
    }

private:
    constexpr void check_rules(int dim) const {
        // `extent` is what the next axis cuts; -1 once the pieces differ in size.
        Index extent = shape_.extent(dim);
        for (int axis : signature_.cuts[dim]) {
            SplitRule const& rule = placement(axis).rule();
            Index const parts = mesh_.extent(axis);
            if (rule.kind == SplitKind::cyclic && rule.block < 1) raise_block(axis, rule.block);
            if (rule.kind == SplitKind::boundaries) {
                check_boundaries(rule.boundaries, axis, parts, extent);
                Index const first = rule.boundaries[1];
                for (Index i = 1; i < parts; ++i) {
                    if (rule.boundaries[i + 1] - rule.boundaries[i] != first) extent = -1;
                }
                if (extent >= 0) extent = first;
            } else if (extent >= 0) {
                extent = extent % parts == 0 ? extent / parts : -1;
            }
        }
    }
    constexpr void check_boundaries(IndexList const& boundaries, int axis, Index parts, Index extent) const {
        if (boundaries.size() != parts + 1) raise_boundary_count(axis, boundaries.size(), parts);
        if (extent < 0) raise_uneven_parent(axis);
        for (Index i = 0; i < parts; ++i) {
            if (boundaries[i + 1] < boundaries[i]) raise_boundaries(axis, extent);
        }
        if (boundaries[0] != 0 || boundaries[parts] != extent) raise_boundaries(axis, extent);
    }

    [[noreturn]] static void raise_count(int given, int axes);
    [[noreturn]] void raise_fault(SignatureFault fault) const;
    [[noreturn]] static void raise_many(Index rank, int dim, Index segments);
    [[noreturn]] void raise_rank(int rank) const;
    [[noreturn]] static void raise_block(int axis, Index block);
    [[noreturn]] static void raise_boundary_count(int axis, Index given, Index parts);
    [[noreturn]] static void raise_uneven_parent(int axis);
    [[noreturn]] static void raise_boundaries(int axis, Index extent);

    DynamicMesh mesh_;
    DynamicShape shape_;
    Signature signature_;
};

namespace detail {

template <class P>
constexpr Placement placement_of_type(P const& placement) {
    return placement.placement(dynamic, dynamic);
}
template <int Dim, class Rule>
constexpr Placement placement_of_type(Shard<Dim, Rule> const& placement) {
    // Only the built-in rules are the same object for every extent; a user's rule is known by its type alone.
    SplitRule rule;
    if constexpr (std::same_as<Rule, Chunk> || std::same_as<Rule, Balanced> || std::same_as<Rule, BlockCyclic>) {
        rule = placement.split.rule(dynamic, dynamic);
    } else {
        rule.kind = SplitKind::boundaries;
    }
    return Placement::shard(Dim, rule);
}

template <class One>
constexpr Placement placement_of(One const& placement, Index extent, Index parts) {
    Placement const result = placement.placement(extent, parts);
    if constexpr (requires { typename One::rule_type; }) {
        if (result.rule().kind == SplitKind::cyclic && !std::same_as<typename One::rule_type, BlockCyclic>) {
            raise(ErrorCode::placement,
                  "reshard::distribution: a split rule of your own deals out blocks. "
                  "Fix: return boundaries, or use reshard::BlockCyclic.");
        }
    }
    return result;
}
/// What placements are on this mesh and shape. In cutting order, because a rule is asked about the piece that it cuts,
/// not about the whole extent. \pre `types` is arranged, of as many placements.
template <class... P>
constexpr Placements placements_of(Signature const& types, DynamicMesh const& mesh, DynamicShape const& shape,
                                   P const&... placements) {
    Placements result = types.placements;
    for (int dim = 0; dim < shape.rank(); ++dim) {
        Index extent = shape.extent(dim);  // of the first piece; boundaries check that all are alike
        for (int axis : types.cuts[dim]) {
            Index const parts = mesh.extent(axis);
            int next = 0;
            ((next++ == axis ? static_cast<void>(result[axis] = placement_of(placements, extent, parts)) : void()),
             ...);
            extent = part(result[axis].rule(), extent, parts, 0).size();
        }
    }
    return result;
}
/// Placements that are types, on a mesh or of a shape that is none.
template <class... P>
constexpr DynamicDistribution of_types(DynamicMesh const& mesh, DynamicShape const& shape, AxisList const& order,
                                       P const&... placements) {
    Signature types;
    (types.placements.push_back(placement_of_type(placements)), ...);
    bool const fits =
        types.placements.size() == mesh.axes() && arrange(types, shape.rank(), order) == SignatureFault::none;
    return DynamicDistribution(mesh, shape, fits ? placements_of(types, mesh, shape, placements...) : types.placements,
                               order);
}

struct Typed {};

struct StaticSignature {
    Signature signature;
    SignatureFault fault = SignatureFault::none;
};

template <class M, class S, class Order, class... P>
consteval StaticSignature static_signature() {
    StaticSignature result;
    (result.signature.placements.push_back(placement_of_type(P{})), ...);
    for (int axis = 0; axis < M::axes(); ++axis) {
        if (M::static_extent(axis) == 1) result.signature.ones |= 1U << axis;
    }
    result.fault = arrange(result.signature, S::rank(), Order::list());
    return result;
}

template <std::size_t placements_given, std::size_t mesh_axes>
consteval bool check_placement_count() {
    static_assert(placements_given == mesh_axes,
                  "reshard::distribution: give exactly one placement per mesh axis. "
                  "Fix: add reshard::Replicate for every axis that does not touch this tensor.");
    return placements_given == mesh_axes;
}

template <class M, class S, class Order, class... P>
consteval bool check_distribution() {
    if constexpr (check_placement_count<sizeof...(P), static_cast<std::size_t>(M::axes())>()) {
        constexpr SignatureFault fault = static_signature<M, S, Order, P...>().fault;
        static_assert(fault != SignatureFault::dimension,
                      "reshard::distribution: a placement shards a dimension the tensor does not have. "
                      "Fix: dimensions count from 0 to the rank of the shape minus one.");
        static_assert(fault != SignatureFault::two_ops,
                      "reshard::distribution: two different reductions in one tensor. "
                      "Fix: use one Partial op on all partial axes, or reduce one of them first.");
        static_assert(fault != SignatureFault::order,
                      "reshard::distribution: AxisOrder names an axis twice, an axis the mesh does not have, or only "
                      "some of the axes that cut a dimension. Fix: list all axes of that dimension, first cut first.");
        static_assert(fault != SignatureFault::cyclic_inside,
                      "reshard::distribution: a block-cyclic cut is not the last of its dimension. "
                      "Fix: let the other axes of that dimension cut first (AxisOrder).");
    }
    return true;  // whatever was wrong has been said
}

}  // namespace detail

/// A distribution whose placements are part of the type: a DynamicDistribution that adds what the compiler can know.
/// Made by distribution<...>(mesh, shape).
template <class M, class S, class Order, PlacementType... P>
class Distribution : public DynamicDistribution {
    static_assert(detail::check_distribution<M, S, Order, P...>());

public:
    using mesh_type = M;
    using shape_type = S;
    static constexpr Signature static_signature = detail::static_signature<M, S, Order, P...>().signature;

    constexpr Distribution() requires(M::is_static&& S::is_static) : Distribution(M{}, S{}, P{}...) {}
    constexpr Distribution(M const& mesh, S const& shape, P const&... placements)
        : DynamicDistribution(mesh, shape, detail::placements_of(static_signature, mesh, shape, placements...),
                              Order::list()) {}
    /// For functions that know the type of what they made. \pre the value is what the type says.
    constexpr Distribution(detail::Typed, DynamicDistribution const& value) : DynamicDistribution(value) {}

    [[nodiscard]] constexpr DynamicDistribution const& value() const& noexcept { return *this; }
    [[nodiscard]] constexpr DynamicDistribution value() && noexcept { return *this; }

    [[nodiscard]] friend constexpr bool operator==(Distribution const& a, Distribution const& b) noexcept {
        return a.value() == b.value();
    }
};

namespace detail {
template <class T>
inline constexpr bool is_typed_distribution = false;
template <class M, class S, class Order, class... P>
inline constexpr bool is_typed_distribution<Distribution<M, S, Order, P...>> = true;
}  // namespace detail

/// A distribution made of types, or the run-time value.
template <class T>
concept TypedDistribution = detail::is_typed_distribution<std::remove_cvref_t<T>>;
template <class T>
concept AnyDistribution = TypedDistribution<T> || std::same_as<std::remove_cvref_t<T>, DynamicDistribution>;

/// `distribution<Replicate, Shard<0>>(mesh, shape)`: one placement per mesh axis, the first axis cuts first.
template <PlacementType... P, Index... E, Index... X>
    requires(sizeof...(P) > 0)
[[nodiscard]] constexpr auto distribution(Mesh<E...> const& mesh, Shape<X...> const& shape) {
    return Distribution<Mesh<E...>, Shape<X...>, AxisOrder<>, P...>(mesh, shape, P{}...);
}
/// The same with another cutting order: `distribution<Shard<0>, Shard<0>>(mesh, shape, AxisOrder<1, 0>{})`.
template <PlacementType... P, Index... E, Index... X, int... Axes>
    requires(sizeof...(P) > 0)
[[nodiscard]] constexpr auto distribution(Mesh<E...> const& mesh, Shape<X...> const& shape,
                                          AxisOrder<Axes...> /*order*/) {
    return Distribution<Mesh<E...>, Shape<X...>, AxisOrder<Axes...>, P...>(mesh, shape, P{}...);
}
/// Placements as arguments, for rules that carry numbers: `Shard<0, Boundaries>{{0, 3, 9}}`.
template <Index... E, Index... X, PlacementType First, PlacementType... P>
[[nodiscard]] constexpr auto distribution(Mesh<E...> const& mesh, Shape<X...> const& shape, First const& first,
                                          P const&... rest) {
    return Distribution<Mesh<E...>, Shape<X...>, AxisOrder<>, First, P...>(mesh, shape, first, rest...);
}
/// Order first, then placements as arguments: `distribution(mesh, shape, AxisOrder<1, 0>{}, Shard<0>{}, Shard<0>{})`.
template <Index... E, Index... X, int... Axes, PlacementType First, PlacementType... P>
[[nodiscard]] constexpr auto distribution(Mesh<E...> const& mesh, Shape<X...> const& shape,
                                          AxisOrder<Axes...> /*order*/, First const& first, P const&... rest) {
    return Distribution<Mesh<E...>, Shape<X...>, AxisOrder<Axes...>, First, P...>(mesh, shape, first, rest...);
}
/// The same on a mesh or of a shape that is known at run time: a DynamicDistribution, so that what can only be seen
/// then is thrown then.
template <PlacementType... P>
    requires(sizeof...(P) > 0)
[[nodiscard]] constexpr DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape) {
    return detail::of_types(mesh, shape, {}, P{}...);
}
template <PlacementType... P, int... Axes>
    requires(sizeof...(P) > 0)
[[nodiscard]] constexpr DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape,
                                                         AxisOrder<Axes...> /*order*/) {
    return detail::of_types(mesh, shape, AxisOrder<Axes...>::list(), P{}...);
}
template <PlacementType First, PlacementType... P>
[[nodiscard]] constexpr DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape,
                                                         First const& first, P const&... rest) {
    return detail::of_types(mesh, shape, {}, first, rest...);
}
template <int... Axes, PlacementType First, PlacementType... P>
[[nodiscard]] constexpr DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape,
                                                         AxisOrder<Axes...> /*order*/, First const& first,
                                                         P const&... rest) {
    return detail::of_types(mesh, shape, AxisOrder<Axes...>::list(), first, rest...);
}
/// Placements known at run time.
[[nodiscard]] constexpr DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape,
                                                         Placements const& placements, AxisList const& order = {}) {
    return DynamicDistribution(mesh, shape, placements, order);
}

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/algebra/distribution.ipp>
#endif
