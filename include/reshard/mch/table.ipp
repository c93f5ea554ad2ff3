// SPDX-License-Identifier: Apache-2.0
// How mch/table.hpp is done.
#pragma once

#include <reshard/mch/table.hpp>
#include <reshard/plan/plan.hpp>

#include <algorithm>  // all_of
#include <bit>        // bit_cast
#include <charconv>   // to_chars
#include <limits>     // numeric_limits

namespace reshard::inline v0_1 {

namespace detail {

inline void check_table_slots(MchTable const& table) {
    DynamicDistribution const& slots = table.slots;
    if (slots.shape().rank() != 1) {
        refuse_table(ErrorCode::shape, table, "its slots have shape ", to_string(slots.shape()),
                     ". Fix: a distribution of one dimension, the slots.");
    }
    bool const whole = slots.mesh().size() == 1;
    if (slots.mesh().axes() != 1 || slots.placement(0).is_partial() || (slots.placement(0).is_replicate() && !whole)) {
        refuse_table(ErrorCode::placement, table, "slots on ", to_string(slots),
                     " do not have one owner each. Fix: shard them on a mesh of one axis; split the communicator for "
                     "copies of a table.");
    }
    if (slots.placement(0).is_shard() && interleaves(slots.placement(0).split()) && !whole) {
        refuse_table(ErrorCode::placement, table, "slots on ", to_string(slots),
                     " interleave, but a shard is one range of slots. Fix: use the chunk rule, or Boundaries.");
    }
}

inline void check_table_buckets(MchTable const& table) {
    Index const nb = table.buckets;
    auto const refuse = [&](auto const&... parts) { refuse_table(ErrorCode::mismatch, table, parts...); };
    bool const sorted = table.layout == MchLayout::sorted;
    if (table.hash_size < (sorted ? 1 : 0)) {
        refuse("hash size ", table.hash_size, ". Fix: give TorchRec's input_hash_size (the default of its ",
               sorted ? "MCH" : "HashZCH", " module is ", sorted ? INT64_MAX : 0, ").");
    }
    if (nb < 1 || nb > INT32_MAX) refuse(nb, " buckets. Fix: one per rank, or the number the table was made with.");
    if (table.layout == MchLayout::sorted) {
        if (nb % table.parts() != 0) {
            refuse(nb, " buckets cannot be shared by ", table.parts(), " ranks. Fix: a multiple of the ranks.");
        }
        return;
    }
    if (table.size() % nb != 0) {
        refuse(table.size(), " slots cannot be cut into ", nb, " equal buckets. Fix: a multiple of the buckets.");
    }
    for (Index p = 1; p < table.parts(); ++p) {
        Index const begin = table.part_range(p).begin;
        if (table.size() == 0 || begin % (table.size() / nb) == 0) continue;
        refuse("part ", p, " begins at slot ", begin, ", inside a bucket of ", table.size() / nb,
               " slots. Fix: cut the slots where buckets end.");
    }
}

}  // namespace detail

RESHARD_INLINE std::vector<MchColumn> columns_of(MchEviction eviction) {
    std::vector<MchColumn> columns;
    bool const counts = eviction == MchEviction::lfu || eviction == MchEviction::distance_lfu;
    bool const access = eviction == MchEviction::lru || eviction == MchEviction::distance_lfu;
    if (counts) columns.push_back({std::string(mch_counts), 8, 0});
    if (access) columns.push_back({std::string(mch_last_access), 8, 0});
    return columns;
}

RESHARD_INLINE Interval MchTable::part_range(Index p) const noexcept {
    Interval const range = slots.index_set(Indices{p}, 0).span();
    Placement const& placement = slots.placement(0);
    if (!range.empty() || !placement.is_shard() || placement.rule().kind != SplitKind::boundaries) return range;
    Index const at = placement.rule().boundaries[p];
    return {at, at};
}

RESHARD_INLINE Interval MchTable::range(Index rank) const noexcept {
    Index const p = slots.mesh().ordinal(rank);
    return p < 0 ? Interval{size(), size()} : part_range(p);
}

RESHARD_INLINE Index MchTable::segment(Index i) const noexcept {
    return i < parts() ? part_range(i).begin : i == parts() ? size() : -1;
}

RESHARD_INLINE std::vector<Index> MchTable::offsets() const {
    std::vector<Index> result;
    for (Index i = 0; i <= parts(); ++i) result.push_back(segment(i));
    return result;
}

RESHARD_INLINE MchTable MchTable::on(DynamicDistribution const& other) const {
    MchTable result = *this;
    result.slots = other;
    result.save.clear();
    if (layout == MchLayout::sorted) result.buckets = result.parts();
    return result;
}

RESHARD_INLINE MchTable mch_table(std::string name, DynamicMesh const& mesh, Index slots, MchEviction eviction) {
    MchTable table;
    table.name = std::move(name);
    table.slots = mch_slots(mesh, slots);
    table.buckets = mesh.size();
    table.eviction = eviction;
    table.metadata = columns_of(eviction);
    return table;
}

RESHARD_INLINE std::string to_string(MchTable const& table) {
    std::string text = errors::concat(
        "'", table.name, "' of ", table.size(), " slots ", to_string(table.slots), " ", name(table.layout), " ",
        name(table.eviction),
        table.decay_exponent == 1 ? std::string() : errors::concat("^", detail::number_text(table.decay_exponent)),
        ", hash size ", table.hash_size,
        table.hash_function.empty() ? std::string() : errors::concat(" by ", table.hash_function), ", buckets ",
        table.buckets);
    for (MchColumn const& column : table.metadata) {
        text += errors::concat(&column == table.metadata.data() ? ", columns " : " ", column.name, ":", column.bytes);
        if (column.empty != 0) text += errors::concat("=", static_cast<int>(column.empty));
    }
    return text;
}

RESHARD_INLINE void digest(detail::Digest& digest, MchTable const& table) {
    digest.add_text(table.name);
    detail::digest(digest, table.slots);
    digest.add_signed(table.hash_size).add_signed(table.buckets).add_text(table.hash_function);
    digest.add(static_cast<std::uint64_t>(table.eviction)).add(static_cast<std::uint64_t>(table.layout));
    digest.add(std::bit_cast<std::uint64_t>(table.decay_exponent + 0.0));  // -0 equals 0
    digest.add(table.metadata.size());
    for (MchColumn const& column : table.metadata) {
        digest.add_text(column.name).add_signed(column.bytes).add(column.empty);
    }
}

RESHARD_INLINE std::uint64_t digest(MchTable const& table) {
    detail::Digest result;
    digest(result, table);
    return result.value();
}

RESHARD_INLINE MchColumn const* find_column(MchTable const& table, std::string_view name) noexcept {
    return detail::find_named(table.metadata, name);
}

RESHARD_INLINE void detail::refuse_table(ErrorCode code, MchTable const& table, std::initializer_list<Part> what) {
    std::string text = concat("reshard::mch: table '", table.name, "': ");
    append(text, what);
    raise(code, std::move(text));
}

RESHARD_INLINE std::string detail::number_text(double number) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, number + 0.0).ptr};
}

RESHARD_INLINE void check_table(MchTable const& table) {
    detail::check_table_slots(table);
    detail::check_table_buckets(table);
    auto const refuse = [&](auto const&... parts) { detail::refuse_table(ErrorCode::mismatch, table, parts...); };
    if (!(table.decay_exponent >= 0) || table.decay_exponent > std::numeric_limits<double>::max()) {
        refuse("decay exponent ", detail::number_text(table.decay_exponent),
               ". Fix: a number from 0 on, as its policy was made with.");
    }
    for (MchColumn const& column : table.metadata) {
        if (column.bytes < 1) {
            refuse("column '", column.name, "' has ", column.bytes, " bytes an entry. Fix: at least one.");
        }
        if (find_column(table, column.name) != &column) {
            refuse("two columns are called '", column.name, "'. Fix: one name each.");
        }
    }
    for (MchColumn const& needed : columns_of(table.eviction)) {
        MchColumn const* const column = find_column(table, needed.name);
        if (column == nullptr) {
            refuse(name(table.eviction), " needs a column '", needed.name,
                   "', which the table does not have. Fix: add it, or name the policy the table was saved with.");
        } else if (column->bytes != needed.bytes) {
            refuse("column '", needed.name, "' has ", column->bytes, " bytes an entry, ", name(table.eviction),
                   " reads 8-byte integers. Fix: widen it.");
        }
    }
}

RESHARD_INLINE void check_same_content(MchTable const& saved, MchTable const& current) {
    if (saved.size() != current.size()) {
        detail::refuse_table(ErrorCode::mismatch, current, "the number of slots differs: saved ", saved.size(),
                             ", current ", current.size(), ". Fix: configure the size the table was saved with",
                             current.layout == MchLayout::sorted
                                 ? ", or load it with load_redistributed() and MchLoadOptions::resize."
                                 : ": positions of ids follow from it.");
    }
    detail::check_same_ids(saved, current);
}

RESHARD_INLINE void detail::check_same_ids(MchTable const& saved, MchTable const& current) {
    auto const compare = [&](bool same, std::string_view what, auto const& was, auto const& is, char const* remedy) {
        if (same) return;
        refuse_table(ErrorCode::mismatch, current, what, ": saved ", was, ", current ", is, ". Fix: ", remedy);
    };
    bool const buckets = current.layout == MchLayout::buckets;
    auto const routing_size = [&](MchTable const& table) {  // 0 and 1 cut the same blocks: none
        return buckets ? larger<Index>(table.hash_size, 1) : table.hash_size;
    };
    // In one order by all of LRU's exponents but 0, by which all ids are worth the same.
    double const before = saved.decay_exponent;
    double const now = current.decay_exponent;
    bool const exponents_differ =
        saved.eviction == current.eviction && ((current.eviction == MchEviction::distance_lfu && before != now) ||
                                               (current.eviction == MchEviction::lru && (before == 0) != (now == 0)));
    auto const has_columns = [](MchTable const& table, MchTable const& of) {
        return std::all_of(of.metadata.begin(), of.metadata.end(), [&](MchColumn const& column) {
            MchColumn const* const same = find_column(table, column.name);
            return same != nullptr && *same == column;
        });
    };
    bool const same_columns = has_columns(saved, current) && has_columns(current, saved);
    compare(saved.layout == current.layout, "the layout differs", name(saved.layout), name(current.layout),
            "use the module the table was saved by.");
    compare(routing_size(saved) == routing_size(current),
            "the hash size differs, so that ids would be looked up elsewhere", saved.hash_size, current.hash_size,
            "configure the input hash size the table was saved with.");
    compare(saved.hash_function == current.hash_function,
            "the hash function differs, so that ids would be looked up under other numbers",
            concat("'", saved.hash_function, "'"), concat("'", current.hash_function, "'"),
            "configure the function the table was saved with.");
    compare(!buckets || saved.buckets == current.buckets, "the number of buckets differs", saved.buckets,
            current.buckets, "configure the number of buckets the table was made with.");
    compare(!exponents_differ, "the decay exponent differs, so that other ids would be evicted", number_text(before),
            number_text(now), "configure the exponent the table was saved with.");
    compare(
        saved.eviction == current.eviction, "the eviction policy differs", name(saved.eviction), name(current.eviction),
        same_columns ? "configure the policy the table was saved with, or give a copy of the table with it here, and "
                       "go on with the other: it needs no other columns."
                     : "configure the policy the table was saved with, or fill the columns it lacks and say so.");
    auto const text = [](MchColumn const* column) {
        return column == nullptr ? std::string("none") : concat(column->bytes, " bytes");
    };
    for (MchTable const* one : {&saved, &current}) {
        for (MchColumn const& column : one->metadata) {
            MchColumn const* const was = find_column(saved, column.name);
            MchColumn const* const is = find_column(current, column.name);
            compare(was != nullptr && is != nullptr && *was == *is, concat("column '", column.name, "' differs"),
                    text(was), text(is), "give both tables the same metadata columns.");
        }
    }
}

RESHARD_INLINE void check_ids(MchTable const& table, Index const* ids, Index count) {
    for (Index i = 0; i < count; ++i) {
        if (ids[i] != empty_id(table.layout)) continue;
        detail::refuse_table(ErrorCode::mismatch, table, "id ", ids[i], " at position ", i,
                             " is what an empty place holds. Fix: map it to another id first.");
    }
}

}  // namespace reshard::inline v0_1
