// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/split.hpp
/// \brief  How one extent is cut into parts: chunk, balanced, explicit boundaries, block-cyclic.
/// \depends core only. constexpr; no memory, no I/O.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index_list.hpp>

#include <concepts>     // convertible_to
#include <string_view>  // string_view
#include <type_traits>  // is_empty

namespace reshard::inline v0 {

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
    Index const begin = larger(a.begin, b.begin);
    Index const end = smaller(a.end, b.end);
    return {begin, larger(begin, end)};
}

enum class SplitKind : std::uint8_t { chunk, balanced, boundaries, cyclic };

inline constexpr int split_count = 4;

/// How the notation writes it after `S0`; the block, or the boundaries and `]`, follow.
[[nodiscard]] constexpr std::string_view symbol(SplitKind kind) noexcept {
    constexpr std::string_view symbols[split_count] = {"", ":bal", "[", ":cyc"};
    return symbols[static_cast<int>(kind)];
}

/// A split rule as a value. The default is chunk. Rules of the user's own become boundaries (see `Boundaries`).
///
/// kind       | part i of an extent N cut into n                                          | source
/// -----------|---------------------------------------------------------------------------|-------------------
/// chunk      | [c i, c (i + 1)) clipped to N, c = ceil(N / n): trailing parts short, empty | torch.chunk
/// balanced   | the first N mod n parts get one more                                      | torch.tensor_split
/// boundaries | [b_i, b_(i+1)), 0 = b_0 <= ... <= b_n = N                                 | MLIR shard dialect
/// cyclic     | blocks i, i + n, i + 2n, ... of `block` elements, the last one clipped     | ScaLAPACK
struct SplitRule {
    SplitKind kind = SplitKind::chunk;
    Index block = 0;       ///< cyclic only: elements per block, at least 1; 0 when not yet known
    IndexList boundaries;  ///< boundaries only: n + 1 positions; empty when not yet known

    friend constexpr bool operator==(SplitRule const&, SplitRule const&) = default;
};

/// A rule and where its numbers lie, which must outlive it: what parts are computed from.
struct RuleRef {
    SplitKind kind = SplitKind::chunk;
    Index const* numbers = nullptr;  ///< cyclic: the block; boundaries: the positions

    constexpr RuleRef() = default;
    constexpr RuleRef(SplitKind rule, Index const* values) noexcept : kind(rule), numbers(values) {}
    constexpr RuleRef(SplitRule const& rule) noexcept
        : kind(rule.kind), numbers(kind == SplitKind::cyclic ? &rule.block : rule.boundaries.data()) {}
    /// Elements per block. \pre cyclic
    [[nodiscard]] constexpr Index block() const noexcept { return *numbers; }
};

/// Part `i` of `extent` cut into `parts`, relative to the extent. Not for cyclic: its parts are no intervals.
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
        case SplitKind::cyclic: break;
    }
    Index const chunk = ceil_div(extent, parts);
    Index const begin = smaller(chunk * i, extent);
    return {begin, begin + smaller(chunk, extent - begin)};  // begin + chunk may not fit 64 bits
}

/// Parts come in two lengths, that of the first and that of the last: how many of those before part `i` are as long as
/// the first. Not for boundaries and cyclic. \pre part i is not empty.
[[nodiscard]] constexpr Index parts_as_first(RuleRef rule, Index extent, Index parts, Index i) noexcept {
    return rule.kind == SplitKind::balanced ? smaller(extent % parts, i) : i;
}

/// The part that holds element `position`. \pre 0 <= position < extent.
[[nodiscard]] constexpr Index part_of(RuleRef rule, Index extent, Index parts, Index position) noexcept {
    switch (rule.kind) {
        case SplitKind::balanced: {
            Index const quotient = extent / parts;
            Index const longer = extent % parts;
            Index const in_longer = longer * (quotient + 1);
            if (position < in_longer) return position / (quotient + 1);
            return longer + (position - in_longer) / quotient;
        }
        case SplitKind::boundaries: {
            Index low = 0;
            Index high = parts;  // numbers[low] <= position < numbers[high]
            while (high - low > 1) {
                Index const middle = low + (high - low) / 2;
                (rule.numbers[middle] <= position ? low : high) = middle;
            }
            return low;
        }
        case SplitKind::cyclic: return position / rule.block() % parts;
        case SplitKind::chunk: break;
    }
    return position / ceil_div(extent, parts);
}

/// What one rank holds along one dimension: an interval, or every `parts`-th block of it (block-cyclic).
class IndexSet {
public:
    constexpr IndexSet() = default;
    constexpr explicit IndexSet(Interval interval) noexcept : span_(interval) {}
    constexpr IndexSet(Interval interval, Index block, Index parts, Index part) noexcept
        : span_(interval), block_(block), parts_(parts), part_(part) {}

    [[nodiscard]] constexpr bool is_interval() const noexcept { return block_ == 0; }
    /// The same set, as an interval if it is one: of one part, or with one block or none.
    [[nodiscard]] constexpr IndexSet simplified() const noexcept {
        if (is_interval() || span_.empty()) return IndexSet(span_);
        if (parts_ == 1) return IndexSet(span_);
        if (ceil_div(span_.size(), block_) > parts_) return *this;
        return IndexSet(segments() == 0 ? Interval{span_.end, span_.end} : segment(0));
    }
    /// How far one block is from the next; 0 for an interval. \pre simplified, so that it fits.
    [[nodiscard]] constexpr Index period() const noexcept { return block_ * parts_; }
    /// The interval the blocks are taken from (the set itself when it is an interval).
    [[nodiscard]] constexpr Interval span() const noexcept { return span_; }

    /// Number of intervals, none of them empty.
    [[nodiscard]] constexpr Index segments() const noexcept {
        if (is_interval()) return span_.empty() ? 0 : 1;
        Index const blocks = ceil_div(span_.size(), block_);
        return blocks <= part_ ? 0 : (blocks - part_ - 1) / parts_ + 1;
    }
    /// Interval k of segments(), ascending.
    [[nodiscard]] constexpr Interval segment(Index k) const noexcept {
        if (is_interval()) return span_;
        Index const begin = span_.begin + (k * parts_ + part_) * block_;
        return {begin, begin + smaller(block_, span_.end - begin)};
    }
    [[nodiscard]] constexpr Index size() const noexcept {
        if (is_interval()) return span_.size();
        return local_index(span_.end);
    }
    /// How many elements of the set lie before `position`: where that index sits in local memory.
    [[nodiscard]] constexpr Index local_index(Index position) const noexcept {
        Index const from_begin = smaller(larger(position, span_.begin), span_.end) - span_.begin;
        if (is_interval()) return from_begin;
        Index const blocks = from_begin / block_;  // whole blocks before the position, of all parts
        Index const rounds = blocks / parts_;
        Index const turn = blocks % parts_;  // whose block the position is in
        return rounds * block_ + (turn > part_ ? block_ : turn == part_ ? from_begin % block_ : 0);
    }
    /// The segment that holds `position`, else the next one; where none follows, the empty one at the span's end.
    [[nodiscard]] constexpr Interval segment_from(Index position) const noexcept {
        Interval const none{span_.end, span_.end};
        if (position >= span_.end) return none;
        if (is_interval()) return span_;
        Index const block = larger<Index>(position - span_.begin, 0) / block_;
        Index const turn = block % parts_;
        Index const k = block / parts_ + (turn > part_ ? 1 : 0);
        return k < segments() ? segment(k) : none;
    }
    [[nodiscard]] constexpr bool contains(Index position) const noexcept {
        if (!span_.contains(position)) return false;
        return is_interval() || (position - span_.begin) / block_ % parts_ == part_;
    }
    friend constexpr bool operator==(IndexSet const&, IndexSet const&) = default;

private:
    Interval span_;
    Index block_ = 0;
    Index parts_ = 0;
    Index part_ = 0;
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
              SplitRuleType<BlockCyclic>);

}  // namespace reshard::inline v0
