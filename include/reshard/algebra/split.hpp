// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/split.hpp
/// \brief  How one extent is cut into parts: chunk, balanced, explicit boundaries, block-cyclic, strided.
/// \depends core only. constexpr; no memory, no I/O.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index_list.hpp>

namespace reshard::inline v0_1 {

/// Half-open: begin is in, end is not.
struct Interval {
    Index begin = 0;
    Index end = 0;

    [[nodiscard]] constexpr Index size() const noexcept { return end - begin; }
    [[nodiscard]] constexpr bool empty() const noexcept { return end <= begin; }
    [[nodiscard]] constexpr bool contains(Index i) const noexcept { return begin <= i && i < end; }
    friend constexpr bool operator==(Interval const&, Interval const&) = default;
};

/// What both hold; empty (size 0) when they do not meet.
[[nodiscard]] constexpr Interval intersect(Interval a, Interval b) noexcept {
    Index const begin = detail::larger(a.begin, b.begin);
    Index const end = detail::smaller(a.end, b.end);
    return {begin, detail::larger(begin, end)};
}

inline constexpr int split_count = 5;

namespace enums {
enum class SplitKind : std::uint8_t { chunk, balanced, boundaries, cyclic, strided };
/// Whether parts lie in one another: several intervals each. Such a cut is the last of its dimension.
[[nodiscard]] constexpr bool interleaves(SplitKind kind) noexcept {
    return kind == SplitKind::cyclic || kind == SplitKind::strided;
}

/// How the notation writes it after `S0`; the number, or the boundaries and `]`, follow.
[[nodiscard]] constexpr std::string_view symbol(SplitKind kind) noexcept {
    constexpr std::string_view symbols[split_count] = {"", ":bal", "[", ":cyc", ":str"};
    return symbols[static_cast<int>(kind)];
}
}  // namespace enums
using enums::SplitKind;

/// A split rule as a value. The default is chunk. Rules of the user's own become boundaries (see `Boundaries`).
///
/// kind       | part i of an extent N cut into n                                          | source
/// -----------|---------------------------------------------------------------------------|-------------------
/// chunk      | [c i, c (i + 1)) clipped to N, c = ceil(N / n): trailing parts short, empty | torch.chunk
/// balanced   | the first N mod n parts get one more                                      | torch.tensor_split
/// boundaries | [b_i, b_(i+1)), 0 = b_0 <= ... <= b_n = N                                 | MLIR shard dialect
/// cyclic     | blocks i, i + n, i + 2n, ... of `block` elements, the last one clipped     | ScaLAPACK
/// strided    | `block` pieces as chunk cuts them, and of each piece part i as chunk cuts it | torch._StridedShard
struct SplitRule {
    SplitKind kind = SplitKind::chunk;
    Index block = 0;       ///< cyclic: elements per block; strided: pieces (split_factor). At least 1; 0: not yet known
    IndexList boundaries;  ///< boundaries only: n + 1 positions; empty when not yet known

    friend constexpr bool operator==(SplitRule const&, SplitRule const&) = default;
};

/// A rule and where its numbers lie, which must outlive it: what parts are computed from.
struct RuleRef {
    SplitKind kind = SplitKind::chunk;
    Index const* numbers = nullptr;  ///< cyclic, strided: the block; boundaries: the positions

    constexpr RuleRef() = default;
    constexpr RuleRef(SplitKind rule, Index const* values) noexcept : kind(rule), numbers(values) {}
    constexpr RuleRef(SplitRule const& rule) noexcept
        : kind(rule.kind), numbers(interleaves(kind) ? &rule.block : rule.boundaries.data()) {}
    /// As SplitRule::block. \pre it interleaves
    [[nodiscard]] constexpr Index block() const noexcept { return *numbers; }
};

namespace detail {
/// Part `i` of `extent` cut into `parts`, relative to the extent. Not for rules that interleave: no intervals.
[[nodiscard]] constexpr Interval part(RuleRef rule, Index extent, Index parts, Index i) noexcept {
    switch (rule.kind) {
        case SplitKind::balanced: {
            Index const quotient = extent / parts;
            Index const longer = extent % parts;
            Index const begin = i * quotient + smaller(i, longer);
            return {begin, begin + quotient + (i < longer ? 1 : 0)};
        }
        case SplitKind::boundaries: return {rule.numbers[i], rule.numbers[i + 1]};
        case SplitKind::chunk:
        case SplitKind::cyclic:
        case SplitKind::strided: break;
    }
    Index const chunk = ceil_div(extent, parts);
    Index const begin = smaller(chunk * i, extent);
    return {begin, begin + smaller(chunk, extent - begin)};  // begin + chunk may not fit 64 bits
}

/// Parts come in two lengths, that of the first and that of the last: how many of those before part `i` are as long as
/// the first. For chunk and balanced. \pre part i is not empty.
[[nodiscard]] constexpr Index parts_as_first(RuleRef rule, Index extent, Index parts, Index i) noexcept {
    return rule.kind == SplitKind::balanced ? smaller(extent % parts, i) : i;
}

/// The part that holds element `position`. \pre 0 <= position < extent.
[[nodiscard]] constexpr Index part_of(RuleRef rule, Index extent, Index parts, Index position) noexcept {
    switch (rule.kind) {
        case SplitKind::balanced: {
            Index const quotient = extent / parts;
            Index const longer = extent % parts;
            Index const in_longer = longer * quotient + longer;  // quotient + 1 may not fit 64 bits: of one part
            if (position < in_longer) return position / (quotient + 1);
            return longer + (position - in_longer) / quotient;
        }
        case SplitKind::boundaries: return detail::part_at(rule.numbers, parts, position);
        case SplitKind::cyclic: return position / rule.block() % parts;
        case SplitKind::strided: {
            Index const pitch = ceil_div(extent, rule.block());
            return position % pitch / ceil_div(smaller(pitch, extent - position / pitch * pitch), parts);
        }
        case SplitKind::chunk: break;
    }
    return position / ceil_div(extent, parts);
}
}  // namespace detail

/// What one rank holds along one dimension: an interval, or a regular section: the same interval of every round of
/// `pitch` indices of a span, and in the last round, which is not whole, another one, or that clipped.
class IndexSet {
public:
    constexpr IndexSet() = default;
    constexpr explicit IndexSet(Interval interval) noexcept : span_(interval) {}
    /// `each` relative to a round's begin; `last` within the span, behind all whole rounds.
    constexpr IndexSet(Interval span, Index pitch, Interval each, Interval last) noexcept
        : span_(span), pitch_(pitch), each_(each), last_(last) {}
    /// Part `i` of `parts` of a span by a rule that interleaves; an interval where it is one, empty at the span's end.
    constexpr IndexSet(Interval span, RuleRef rule, Index parts, Index i) noexcept : span_(span) {
        Index const size = span.size();
        if (rule.kind == SplitKind::cyclic) {
            Index const block = rule.block();
            Index const begin = i > size / block ? size : i * block;
            each_ = {begin, begin + detail::smaller(block, size - begin)};
            if (!detail::multiply_fits(block, parts, pitch_) || pitch_ > size) pitch_ = detail::larger<Index>(size, 1);
            last_ = clipped();
        } else {
            pitch_ = detail::larger<Index>(detail::ceil_div(size, rule.block()), 1);
            each_ = detail::part({}, pitch_, parts, i);
            Interval const rest = detail::part({}, span.end - whole_end(), parts, i);
            last_ = {whole_end() + rest.begin, whole_end() + rest.end};
        }
        if (each_.size() == pitch_) {
            *this = IndexSet(span);
        } else if (segments() == 0) {
            *this = IndexSet(Interval{span.end, span.end});
        } else if (each_.empty() || size <= pitch_) {
            *this = IndexSet(segment(0));
        }
    }

    [[nodiscard]] constexpr bool is_interval() const noexcept { return pitch_ == 0; }
    /// How far one round is from the next; 0 for an interval.
    [[nodiscard]] constexpr Index period() const noexcept { return pitch_; }
    /// The interval the rounds are taken from (the set itself when it is an interval).
    [[nodiscard]] constexpr Interval span() const noexcept { return span_; }
    /// Up to where the set goes on as it began: the span's end, or where the last round begins.
    [[nodiscard]] constexpr Index regular_end() const noexcept {
        return is_interval() || last_ == clipped() ? span_.end : whole_end();
    }
    /// What it has of the last round, where it is not whole.
    [[nodiscard]] constexpr Interval last() const noexcept { return last_; }

    /// Number of intervals, none of them empty.
    [[nodiscard]] constexpr Index segments() const noexcept {
        if (is_interval()) return span_.empty() ? 0 : 1;
        return whole_segments() + (last_.empty() ? 0 : 1);
    }
    /// Interval k of segments(), ascending.
    [[nodiscard]] constexpr Interval segment(Index k) const noexcept {
        if (is_interval()) return span_;
        if (k >= whole_segments()) return last_;
        Index const begin = span_.begin + k * pitch_;
        return {begin + each_.begin, begin + each_.end};
    }
    [[nodiscard]] constexpr Index size() const noexcept {
        if (is_interval()) return span_.size();
        return rounds() * each_.size() + last_.size();
    }
    /// How many elements of the set lie before `position`: where that index sits in local memory.
    [[nodiscard]] constexpr Index local_index(Index position) const noexcept {
        Index const from_begin = detail::smaller(detail::larger(position, span_.begin), span_.end) - span_.begin;
        if (is_interval()) return from_begin;
        Index const round = from_begin / pitch_;
        if (round == rounds()) return round * each_.size() + intersect(last_, {span_.begin, position}).size();
        return round * each_.size() + intersect(each_, {0, from_begin % pitch_}).size();
    }
    /// The element that local_index() tells this of. \pre 0 <= local < size()
    [[nodiscard]] constexpr Index global_index(Index local) const noexcept {
        Index const k = each_.empty() ? 0 : detail::smaller(local / each_.size(), whole_segments());
        return segment(k).begin + (local - k * each_.size());  // begin + local may not fit 64 bits
    }
    /// The segment that holds `position`, else the next one; where none follows, the empty one at the span's end.
    [[nodiscard]] constexpr Interval segment_from(Index position) const noexcept {
        Interval const none{span_.end, span_.end};
        if (position >= span_.end) return none;
        if (is_interval()) return span_;
        Index const from_begin = detail::larger<Index>(position - span_.begin, 0);
        Index const k = from_begin / pitch_ + (from_begin % pitch_ >= each_.end ? 1 : 0);
        if (k < whole_segments()) return segment(k);
        return last_.empty() || position >= last_.end ? none : last_;
    }
    [[nodiscard]] constexpr bool contains(Index position) const noexcept {
        return segment_from(position).contains(position);
    }
    /// The gaps: in every round what lies before the set's interval, and what lies behind it. \pre no interval
    [[nodiscard]] constexpr IndexSet before_each() const noexcept {
        return {span_, pitch_, {0, each_.begin}, {whole_end(), last_.begin}};
    }
    [[nodiscard]] constexpr IndexSet behind_each() const noexcept {
        return {span_, pitch_, {each_.end, pitch_}, {last_.end, span_.end}};
    }
    friend constexpr bool operator==(IndexSet const&, IndexSet const&) = default;

private:
    /// Whole ones.
    [[nodiscard]] constexpr Index rounds() const noexcept { return span_.size() / pitch_; }
    [[nodiscard]] constexpr Index whole_end() const noexcept { return span_.begin + rounds() * pitch_; }
    [[nodiscard]] constexpr Index whole_segments() const noexcept { return each_.empty() ? 0 : rounds(); }
    /// The interval of each round, as far as the last round goes.
    [[nodiscard]] constexpr Interval clipped() const noexcept {
        Index const rest = span_.end - whole_end();
        return {whole_end() + detail::smaller(each_.begin, rest), whole_end() + detail::smaller(each_.end, rest)};
    }

    Interval span_;
    Index pitch_ = 0;
    Interval each_;
    Interval last_;
};

// Rules as types, for `Shard<Dim, Rule>`. A rule is any type with
//     constexpr SplitRule rule(extent, parts) const    the rule for cutting `extent` into `parts`
//     static constexpr bool is_static                  whether two objects of it are always the same rule; where it is
//                                                      not said, those are that hold nothing
// so a rule of your own is a struct that computes boundaries.

/// torch.chunk: the default.
struct Chunk {
    static constexpr bool is_static = true;
    [[nodiscard]] constexpr SplitRule rule(Index /*extent*/, Index /*parts*/) const noexcept { return {}; }
};

/// torch.tensor_split: parts differ by at most one.
struct Balanced {
    static constexpr bool is_static = true;
    [[nodiscard]] constexpr SplitRule rule(Index /*extent*/, Index /*parts*/) const noexcept {
        return {.kind = SplitKind::balanced, .block = 0, .boundaries = {}};
    }
};

/// Explicit positions: `Boundaries{0, 3, 9}` cuts 9 rows into 3 and 6. Equal neighbours make an empty part.
struct Boundaries {
    static constexpr bool is_static = false;
    IndexList positions;

    constexpr Boundaries() = default;
    constexpr Boundaries(std::initializer_list<Index> list) : positions(list) {}
    constexpr explicit Boundaries(IndexList list) : positions(static_cast<IndexList&&>(list)) {}
    [[nodiscard]] constexpr SplitRule rule(Index /*extent*/, Index /*parts*/) const {
        return {.kind = SplitKind::boundaries, .block = 0, .boundaries = positions};
    }
};

/// Blocks dealt out in turn: `BlockCyclic{64}`. At most one per tensor dimension, and its last cut.
struct BlockCyclic {
    static constexpr bool is_static = false;
    Index block = 0;
    [[nodiscard]] constexpr SplitRule rule(Index /*extent*/, Index /*parts*/) const {
        return {.kind = SplitKind::cyclic, .block = block, .boundaries = {}};
    }
};

/// torch._StridedShard(dim, split_factor) where that is no order of the axes: pieces cut as torch.chunk does, and each
/// of them again, a part per rank. At most one cut per tensor dimension interleaves, the last.
struct Strided {
    static constexpr bool is_static = false;
    Index pieces = 0;
    [[nodiscard]] constexpr SplitRule rule(Index /*extent*/, Index /*parts*/) const {
        return {.kind = SplitKind::strided, .block = pieces, .boundaries = {}};
    }
};

template <class T>
concept SplitRuleType = requires(T const& t, Index n) {
    { t.rule(n, n) } -> std::convertible_to<SplitRule>;
};

namespace detail {
/// For messages: compilers explain a concept at length.
template <class T>
inline constexpr bool is_split_rule = SplitRuleType<T>;

template <class Rule>
consteval bool is_static_rule() {
    if constexpr (requires { Rule::is_static; }) {
        return Rule::is_static;
    } else {
        return std::is_empty_v<Rule>;
    }
}
}  // namespace detail

static_assert(SplitRuleType<Chunk> && SplitRuleType<Balanced> && SplitRuleType<Boundaries> &&
              SplitRuleType<BlockCyclic> && SplitRuleType<Strided>);

}  // namespace reshard::inline v0_1
