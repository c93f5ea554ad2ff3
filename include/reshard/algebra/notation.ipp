// SPDX-License-Identifier: Apache-2.0
// How algebra/notation.hpp is done.
#pragma once

#include <reshard/algebra/notation.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// Up to the bracket that ends it.
inline void print_list(std::string& text, Index const* values, Index count) {
    for (Index i = 0; i < count; ++i) append(text, {i == 0 ? "" : ",", values[i]});
    append(text, {"]"});
}

RESHARD_INLINE AxisList printed_order(Signature const& signature) {
    AxisList result;
    if (signature.shards < 2) return result;
    unsigned done = 0;
    unsigned wanted = 0;
    InlineList<AxisList, max_dims> lists;
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
    explicit NotationReader(std::string_view text,
                            std::string_view fix = "write for example (2,4):(R,S0), (8):(P+) or (2,4):(S0,S0)@1,0.")
        : text_(text), fix_(fix) {}

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
    /// Letters, digits and `_`, a letter or `_` first; empty if none stands here.
    [[nodiscard]] std::string_view identifier() {
        skip();
        std::size_t const start = position_;
        while (position_ < text_.size() && is_name_character(text_[position_], position_ == start)) ++position_;
        return text_.substr(start, position_ - start);
    }
    [[nodiscard]] bool stands(std::string_view token) {
        skip();
        return text_.substr(position_, token.size()) == token;
    }
    [[noreturn]] void fail(std::string const& what, std::string_view fix = {}) const {
        raise(ErrorCode::notation, "reshard::parse: ", what, " at position ", position_, " of '", text_,
              "'. Fix: ", fix.empty() ? fix_ : fix);
    }

private:
    void skip() {
        while (position_ < text_.size() && text_[position_] == ' ') ++position_;
    }

    std::string_view text_;
    std::string_view fix_;
    std::size_t position_ = 0;
};

/// Up to the bracket that ends them.
inline IndexList read_numbers(NotationReader& reader) {
    std::vector<Index> values;
    do {
        values.push_back(reader.number());
    } while (reader.take(","));
    reader.expect("]");
    return values;
}

/// An axis by its name or its number.
inline std::int8_t read_axis(NotationReader& reader, DynamicMesh const& mesh) {
    std::string_view const name = reader.identifier();
    Index axis = name.empty() ? reader.number() : 0;
    while (!name.empty() && axis < mesh.axes() && mesh.axis_name(static_cast<int>(axis)) != name) ++axis;
    if (axis >= mesh.axes()) {
        reader.fail(concat("the mesh ", brief(mesh), " has no axis ", name.empty() ? concat(axis) : concat(name)));
    }
    return static_cast<std::int8_t>(axis);
}

inline Placement read_placement(NotationReader& reader, int dims) {
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
    if (!reader.take("S")) reader.fail("expected R, S or P");
    bool const from_end = reader.take("-");
    Index dim = reader.number();
    if (from_end ? dim == 0 || dim > dims : dim >= max_dims) {
        reader.fail(concat("no dimension S", from_end ? "-" : "", dim, " in a tensor of ", dims),
                    "S-1 is the last dimension, S0 the first.");
    }
    if (from_end) dim = dims - dim;
    SplitRule rule;
    for (int i = split_count - 1; i > 0 && rule.kind == SplitKind::chunk; --i) {  // chunk is what is left
        SplitKind const kind = static_cast<SplitKind>(i);
        if (reader.take(symbol(kind))) rule.kind = kind;
    }
    if (rule.kind == SplitKind::chunk && reader.stands(":")) {
        reader.fail("no such split rule", "write S0:bal, S0:cycN, S0:strN, S0[0,3,9] or S0 alone.");
    }
    if (interleaves(rule.kind)) rule.block = reader.number();
    if (rule.kind == SplitKind::boundaries) rule.boundaries = read_numbers(reader);
    return Placement::shard(static_cast<int>(dim), rule);
}

/// Which axes cut each dimension, first cut first, as in JAX's PartitionSpec: `[tp,-]`, `[(dp,tp)]`, `[1,0]`.
inline void read_cuts(NotationReader& reader, DynamicMesh const& mesh, int dims, PlacementsRead& result) {
    auto& [placements, order] = result;
    for (int axis = 0; axis < mesh.axes(); ++axis) placements.push_back(Placement::replicate());
    if (reader.take("]")) return;
    int dim = 0;
    do {
        if (dim == dims) reader.fail(concat("more than the ", dims, " dimensions of the tensor"));
        if (!reader.take("-")) {
            bool const several = reader.take("(");
            do {
                std::int8_t const axis = read_axis(reader, mesh);
                if (!placements[axis].is_replicate()) reader.fail("an axis cuts twice", "let each axis cut once.");
                placements[axis] = Placement::shard(dim);
                order.push_back(axis);
            } while (several && reader.take(","));
            if (several) reader.expect(")");
        }
        ++dim;
    } while (reader.take(","));
    reader.expect("]");
}

/// `R,S0` or `(R,S0)`, then an optional order; or the axes of each dimension in square brackets.
inline PlacementsRead read_placements(NotationReader& reader, DynamicMesh const& mesh, int dims) {
    PlacementsRead result;
    auto& [placements, order] = result;
    if (reader.take("[")) {
        read_cuts(reader, mesh, dims, result);
    } else {
        bool const bracketed = reader.take("(");
        do {
            if (placements.size() == max_axes) reader.fail("a mesh has at most 8 axes");
            placements.push_back(read_placement(reader, dims));
        } while (reader.take(","));
        if (bracketed) reader.expect(")");
        if (reader.take("@")) {
            do {
                if (order.size() == max_axes) reader.fail("the order names an axis twice");
                order.push_back(read_axis(reader, mesh));
            } while (reader.take(","));
        }
    }
    if (!reader.at_end()) reader.fail("unexpected text");
    return result;
}
RESHARD_INLINE PlacementsRead read_placements(std::string_view text, DynamicMesh const& mesh, int dims) {
    NotationReader reader(text);
    if (text.find(":(") != std::string_view::npos || text.find(":[") != std::string_view::npos) {
        reader.fail("the placements begin with a mesh",
                    "give placements alone, such as R,S0; parse() reads all of it.");
    }
    return read_placements(reader, mesh, dims);
}

}  // namespace detail

RESHARD_INLINE std::string to_string(Placement const& placement) {
    if (placement.is_replicate()) return "R";
    if (placement.is_partial()) return errors::concat("P", symbol(placement.op()));
    SplitRule const& rule = placement.rule();
    std::string text = errors::concat("S", placement.dim(), symbol(rule.kind));
    if (interleaves(rule.kind)) detail::append(text, {rule.block});
    if (rule.kind == SplitKind::boundaries) {
        detail::print_list(text, rule.boundaries.data(), rule.boundaries.size());
    }
    return text;
}
RESHARD_INLINE std::string detail::text_of(DynamicMesh const& mesh, Index most) {
    std::string text = "(";
    for (int axis = 0; axis < mesh.axes(); ++axis) {
        std::string_view const name = mesh.axis_name(axis);
        append(text, {axis == 0 ? "" : ",", name, name.empty() ? "" : "=", mesh.extent(axis)});
    }
    append(text, {mesh.is_listed() ? ")[" : ")"});
    if (mesh.is_listed()) {
        RankList const list = mesh.ranks();
        print_list(text, list.ranks.data(), smaller(most, mesh.size()));
        if (most < mesh.size()) {
            text.back() = ',';
            append(text, {"... (", mesh.size(), " ranks)]"});
        }
    } else if (mesh.rank_at(0) != 0) {
        append(text, {"+", mesh.rank_at(0)});
    }
    return text;
}
RESHARD_INLINE std::string detail::text_of(DynamicDistribution const& distribution, Index most) {
    std::string text = text_of(distribution.mesh(), most);
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        append(text, {axis == 0 ? ":(" : ",", to_string(distribution.placement(axis))});
    }
    append(text, {")"});
    AxisList const order = printed_order(distribution.signature());
    for (int i = 0; i < order.size(); ++i) append(text, {i == 0 ? "@" : ",", order[i]});
    return text;
}
RESHARD_INLINE DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape,
                                                std::string_view placements) {
    auto const read = detail::read_placements(placements, mesh, shape.rank());
    return DynamicDistribution(mesh, shape, read.placements, read.order);
}
RESHARD_INLINE DynamicDistribution parse(std::string_view text, DynamicShape const& shape) {
    detail::NotationReader reader(text);
    reader.expect("(");
    Indices extents;
    InlineList<AxisName, max_axes> names;
    bool named = false;
    do {
        if (extents.size() == max_axes) reader.fail("a mesh has at most 8 axes");
        names.push_back(AxisName(reader.identifier()));
        if (!names.back().view().empty()) {
            named = true;
            reader.expect("=");
        }
        extents.push_back(reader.number());
    } while (reader.take(","));
    reader.expect(")");
    RankList ranks;
    if (reader.take("+")) {
        ranks.first = reader.number();
    } else if (reader.take("[")) {
        ranks.ranks = detail::read_numbers(reader);
    }
    reader.expect(":");
    DynamicMesh mesh(extents, ranks);
    if (named) mesh.name_axes(names);
    auto const read = detail::read_placements(reader, mesh, shape.rank());
    return DynamicDistribution(mesh, shape, read.placements, read.order);
}
RESHARD_INLINE DynamicShape parse_shape(std::string_view text) {
    detail::NotationReader reader(text, "write for example [8192,1024], or [] for a scalar.");
    reader.expect("[");
    Indices extents;
    if (!reader.take("]")) {
        IndexList const list = detail::read_numbers(reader);
        if (list.size() > max_dims) reader.fail("a tensor has at most 8 dimensions");
        for (Index extent : list) extents.push_back(extent);
    }
    if (!reader.at_end()) reader.fail("unexpected text");
    return DynamicShape(extents);
}

}  // namespace reshard::inline v0_1
