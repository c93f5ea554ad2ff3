// SPDX-License-Identifier: Apache-2.0
// How algebra/notation.hpp is done.
#pragma once

#include <reshard/algebra/notation.hpp>

namespace reshard::inline v0 {

namespace detail {

inline void print_list(std::string& text, Index const* values, Index count) {
    for (Index i = 0; i < count; ++i) {
        if (i != 0) text += ',';
        text += std::to_string(values[i]);
    }
}

RESHARD_INLINE AxisList printed_order(Signature const& signature) {
    AxisList result;
    if (signature.shards < 2) return result;
    unsigned done = 0;
    unsigned wanted = 0;
    InlineList<AxisList, max_rank> lists;
    for (int dim = 0; dim < signature.rank; ++dim) {
        AxisList const cuts = signature.cuts(dim);
        bool ascending = true;
        for (int i = 0; i + 1 < cuts.size(); ++i) ascending = ascending && cuts[i] < cuts[i + 1];
        if (ascending) continue;
        lists.push_back(cuts);
        for (int axis : cuts) wanted |= 1U << axis;
    }
    while (done != wanted) {  // the smallest axis whose predecessors in its dimension are all printed
        int best = max_axes;
        for (auto const& cuts : lists) {
            for (int axis : cuts) {
                if (((done >> axis) & 1U) != 0) continue;
                best = smaller(best, axis);
                break;
            }
        }
        result.push_back(static_cast<std::int8_t>(best));
        done |= 1U << best;
    }
    return result;
}

/// Reads the notation left to right; every complaint shows the text and the position.
class NotationReader {
public:
    using Numbers = std::vector<Index>;

    explicit NotationReader(std::string_view text) : text_(text) {}

    [[nodiscard]] bool at_end() {
        skip();
        return position_ == text_.size();
    }
    [[nodiscard]] bool take(std::string_view token) {
        if (!stands(token)) return false;
        position_ += token.size();
        return true;
    }
    void expect(std::string_view token) {
        if (!take(token)) fail(concat("expected '", token, "'"));
    }
    [[nodiscard]] Index number() {
        skip();
        std::size_t const start = position_;
        Index value = 0;
        while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
            Index const digit = text_[position_++] - '0';
            if (!multiply_fits(value, 10, value) || value > INT64_MAX - digit) fail("a number does not fit 64 bits");
            value += digit;
        }
        if (position_ == start) fail("expected a number");
        return value;
    }
    [[nodiscard]] bool stands(std::string_view token) {
        skip();
        return text_.substr(position_, token.size()) == token;
    }
    [[noreturn]] void fail(
        std::string const& what,
        std::string_view fix = "write for example (2,4):(R,S0), (8):(P+) or (2,4):(S0,S0)@1,0.") const {
        raise(ErrorCode::notation,
              concat("reshard::parse: ", what, " at position ", position_, " of '", text_, "'. Fix: ", fix));
    }

private:
    void skip() {
        while (position_ < text_.size() && text_[position_] == ' ') ++position_;
    }

    std::string_view text_;
    std::size_t position_ = 0;
};

inline IndexList read_numbers(NotationReader& reader, std::string_view close) {
    NotationReader::Numbers values;
    do {
        values.push_back(reader.number());
    } while (reader.take(","));
    reader.expect(close);
    return IndexList(values.data(), static_cast<Index>(values.size()));
}

inline Placement read_placement(NotationReader& reader) {
    for (std::string_view const torch : {"Shard", "Replicate", "Partial"}) {
        if (!reader.stands(torch)) continue;
        reader.fail("a placement is spelt as in PyTorch",
                    "write S0 for Shard(0), R for Replicate() and P+ for Partial(), as in R,S0.");
    }
    if (reader.take("R")) return Placement::replicate();
    if (reader.take("P")) {
        std::string symbols;
        for (int i = 0; i < reduce_count; ++i) {
            Reduce const op = static_cast<Reduce>(i);
            if (reader.take(symbol(op))) return Placement::partial(op);
            symbols += concat(symbol(op), " ");
        }
        reader.fail(concat("expected one of ", symbols, "after P"));
    }
    reader.expect("S");
    if (reader.stands("-")) {
        reader.fail("a dimension is counted from the end", "count from 0: the last of two dimensions is S1.");
    }
    Index const dim = reader.number();
    if (dim >= max_rank) reader.fail("a tensor has at most 8 dimensions");
    SplitRule rule;
    for (int i = split_count - 1; i > 0 && rule.kind == SplitKind::chunk; --i) {  // chunk is what is left
        SplitKind const kind = static_cast<SplitKind>(i);
        if (reader.take(symbol(kind))) rule.kind = kind;
    }
    if (rule.kind == SplitKind::cyclic) rule.block = reader.number();
    if (rule.kind == SplitKind::boundaries) rule.boundaries = read_numbers(reader, "]");
    return Placement::shard(static_cast<int>(dim), rule);
}

/// `R,S0` or `(R,S0)`, then an optional order.
inline void read_placements(NotationReader& reader, Placements& placements, AxisList& order) {
    bool const bracketed = reader.take("(");
    do {
        if (placements.size() == max_axes) reader.fail("a mesh has at most 8 axes");
        placements.push_back(read_placement(reader));
    } while (reader.take(","));
    if (bracketed) reader.expect(")");
    if (reader.take("@")) {
        do {
            Index const axis = reader.number();
            if (axis >= placements.size() || order.size() == max_axes)
                reader.fail("the order names no axis of the mesh");
            order.push_back(static_cast<std::int8_t>(axis));
        } while (reader.take(","));
    }
    if (!reader.at_end()) reader.fail("unexpected text");
}

}  // namespace detail

RESHARD_INLINE std::string to_string(Placement const& placement) {
    if (placement.is_replicate()) return "R";
    if (placement.is_partial()) return concat("P", symbol(placement.op()));
    SplitRule const& rule = placement.rule();
    std::string text = concat("S", placement.dim(), symbol(rule.kind));
    if (rule.kind == SplitKind::cyclic) text += concat(rule.block);
    if (rule.kind == SplitKind::boundaries) {
        detail::print_list(text, rule.boundaries.data(), rule.boundaries.size());
        text += ']';
    }
    return text;
}
RESHARD_INLINE std::string to_string(DynamicMesh const& mesh) {
    std::string text = "(";
    detail::print_list(text, mesh.extents().begin(), mesh.axes());
    text += ')';
    if (mesh.is_listed()) {
        RankList const list = mesh.ranks();
        text += '[';
        detail::print_list(text, list.ranks.data(), list.ranks.size());
        text += ']';
    } else if (mesh.rank_at(0) != 0) {
        text += concat("+", mesh.rank_at(0));
    }
    return text;
}
RESHARD_INLINE std::string to_string(DynamicDistribution const& distribution) {
    std::string text = to_string(distribution.mesh());
    text += ":(";
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        if (axis != 0) text += ',';
        text += to_string(distribution.placement(axis));
    }
    text += ')';
    AxisList const order = detail::printed_order(distribution.signature());
    for (int i = 0; i < order.size(); ++i) text += concat(i == 0 ? "@" : ",", static_cast<int>(order[i]));
    return text;
}
RESHARD_INLINE DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape,
                                                std::string_view placements) {
    detail::NotationReader reader(placements);
    Placements list;
    AxisList order;
    detail::read_placements(reader, list, order);
    return DynamicDistribution(mesh, shape, list, order);
}
RESHARD_INLINE DynamicDistribution parse(std::string_view text, DynamicShape const& shape) {
    detail::NotationReader reader(text);
    reader.expect("(");
    IndexList const extents = detail::read_numbers(reader, ")");
    if (extents.size() > max_axes) reader.fail("a mesh has at most 8 axes");
    RankList ranks;
    if (reader.take("+")) {
        ranks.first = reader.number();
    } else if (reader.take("[")) {
        ranks.ranks = detail::read_numbers(reader, "]");
    }
    reader.expect(":");
    Indices list;
    for (Index extent : extents) list.push_back(extent);
    Placements placements;
    AxisList order;
    detail::read_placements(reader, placements, order);
    return DynamicDistribution(DynamicMesh(list, ranks), shape, placements, order);
}
RESHARD_INLINE DynamicShape parse_shape(std::string_view text) {
    detail::NotationReader reader(text);
    reader.expect("[");
    Indices extents;
    if (!reader.take("]")) {
        IndexList const list = detail::read_numbers(reader, "]");
        if (list.size() > max_rank) reader.fail("a tensor has at most 8 dimensions");
        for (Index extent : list) extents.push_back(extent);
    }
    if (!reader.at_end()) reader.fail("unexpected text");
    return DynamicShape(extents);
}

}  // namespace reshard::inline v0
