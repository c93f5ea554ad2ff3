// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/placement.hpp
/// \brief  What one mesh axis does to a tensor: cut a dimension, keep copies, or owe a reduction.
/// \depends core, split. constexpr; no memory, no I/O.
/// Meaning as in PyTorch DTensor (torch/distributed/tensor/placement_types.py).
#pragma once

#include <reshard/algebra/split.hpp>
#include <reshard/core/reduce.hpp>

namespace reshard::inline v0_1 {

enum class PlacementKind : std::uint8_t { replicate, shard, partial };

/// What a placement does, without the numbers of its rule: all that the algebra of transitions asks.
class PlacementForm {
public:
    [[nodiscard]] constexpr PlacementKind kind() const noexcept { return kind_; }
    [[nodiscard]] constexpr bool is_replicate() const noexcept { return kind_ == PlacementKind::replicate; }
    [[nodiscard]] constexpr bool is_shard() const noexcept { return kind_ == PlacementKind::shard; }
    [[nodiscard]] constexpr bool is_partial() const noexcept { return kind_ == PlacementKind::partial; }
    [[nodiscard]] constexpr int dim() const noexcept { return dim_; }            ///< shard: tensor dimension
    [[nodiscard]] constexpr SplitKind split() const noexcept { return split_; }  ///< shard: the kind of cut
    [[nodiscard]] constexpr Reduce op() const noexcept { return op_; }           ///< partial: what is owed

    friend constexpr bool operator==(PlacementForm const&, PlacementForm const&) = default;

protected:
    std::int16_t dim_ = 0;  // a tensor has a few; what is far beyond stays beyond
    PlacementKind kind_ : 2 = PlacementKind::replicate;
    SplitKind split_ : 3 = SplitKind::chunk;
    Reduce op_ : 4 = Reduce::sum;
};

/// A placement as a value: what run-time code works with.
class Placement : public PlacementForm {
public:
    constexpr Placement() = default;  ///< replicate
    /// A placement without numbers. \pre a rule without numbers, or else not yet known.
    constexpr explicit Placement(PlacementForm form) noexcept : PlacementForm(form) { rule_.kind = split_; }
    [[nodiscard]] static constexpr Placement replicate() noexcept { return {}; }
    [[nodiscard]] static constexpr Placement shard(int dim, SplitRule const& rule = {}) {
        Placement placement;
        placement.kind_ = PlacementKind::shard;
        placement.dim_ = static_cast<std::int16_t>(detail::smaller(detail::larger(dim, INT16_MIN), INT16_MAX));
        placement.split_ = placement.rule_.kind = rule.kind;
        // What a rule does not use must not make it another rule.
        if (interleaves(rule.kind)) placement.rule_.block = rule.block;
        if (rule.kind == SplitKind::boundaries) placement.rule_.boundaries = rule.boundaries;
        return placement;
    }
    [[nodiscard]] static constexpr Placement partial(Reduce op) noexcept {
        Placement placement;
        placement.kind_ = PlacementKind::partial;
        placement.op_ = op;
        return placement;
    }

    [[nodiscard]] constexpr SplitRule const& rule() const& noexcept { return rule_; }  ///< shard: how it is cut
    [[nodiscard]] constexpr SplitRule rule() && noexcept { return rule_; }

    friend constexpr bool operator==(Placement const&, Placement const&) = default;

private:
    SplitRule rule_;
};

/// Every rank along the axis holds the same values.
struct Replicate {
    static constexpr PlacementKind kind = PlacementKind::replicate;
    [[nodiscard]] constexpr Placement placement(Index /*extent*/, Index /*parts*/) const noexcept { return {}; }
};

namespace detail {
struct DimensionAsValue {};
}  // namespace detail

/// The axis cuts tensor dimension `Dim` by `Rule`: `Shard<0>`, `Shard<1, Balanced>`, `Shard<0, Boundaries>{{0, 3, 9}}`.
template <int Dim, class Rule = Chunk>
struct Shard {
    static_assert(
        !std::same_as<Rule, detail::DimensionAsValue>,
        "reshard::Shard: the dimension is part of the type. Fix: Shard<0>{}; Placement::shard(0) is a value.");
    static_assert(detail::is_split_rule<Rule>,
                  "reshard::Shard: this is no split rule. Fix: use Chunk, Balanced, Boundaries or BlockCyclic, or give "
                  "your own `constexpr SplitRule rule(Index extent, Index parts) const`.");
    static_assert(Dim >= 0, "reshard::Shard: the dimension is negative. Fix: count dimensions from 0.");
    static_assert(!detail::is_static_rule<Rule>() || std::is_empty_v<Rule>,
                  "reshard::Shard: a split rule that holds numbers says is_static, but two objects of it may differ. "
                  "Fix: set is_static to false.");
    static constexpr PlacementKind kind = PlacementKind::shard;
    static constexpr int dim = Dim;
    using rule_type = Rule;

    Rule split{};

    [[nodiscard]] constexpr Placement placement(Index extent, Index parts) const {
        return Placement::shard(Dim, split.rule(extent, parts));
    }
};

/// Shard(0), as PyTorch has it, is told what to write.
template <std::integral Dim>
Shard(Dim) -> Shard<0, detail::DimensionAsValue>;

/// Every rank along the axis holds an addend; the value is their reduction by `Op`.
template <Reduce Op = Reduce::sum>
struct Partial {
    static constexpr PlacementKind kind = PlacementKind::partial;
    static constexpr Reduce op = Op;
    [[nodiscard]] constexpr Placement placement(Index /*extent*/, Index /*parts*/) const noexcept {
        return Placement::partial(Op);
    }
};

/// A placement as a type.
template <class T>
concept PlacementType = requires(T const& t, Index n) {
    { T::kind } -> std::same_as<PlacementKind const&>;
    { t.placement(n, n) } -> std::same_as<Placement>;
};

static_assert(PlacementType<Replicate> && PlacementType<Shard<0>> && PlacementType<Partial<>>);
static_assert(!PlacementType<int> && !PlacementType<Placement> && !PlacementType<Shard<0>&>);

}  // namespace reshard::inline v0_1
