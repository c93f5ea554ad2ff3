// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/table.hpp
/// \brief  MchTable: what all ranks know of one managed-collision table, as a value: slots, routing, policy, columns.
/// \depends algebra/notation, plan/plan (digests), <string>, <vector>. Opt-in: not part of the umbrella.
///
/// Managed collision maps raw ids to slots (rows) of an embedding table and evicts ids that are not worth a slot.
/// The layouts are those of TorchRec (github.com/pytorch/torchrec): torchrec/modules/mc_modules.py and
/// hash_mc_modules.py.
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/plan/plan.hpp>

#include <string>  // string
#include <vector>  // vector

namespace reshard::inline v0 {

/// How a shard keeps its ids.
enum class MchLayout : std::uint8_t {
    sorted,   ///< MCHManagedCollisionModule: ids ascending, beside each the slot it has; the last slot is the miss row
    buckets,  ///< HashZchManagedCollisionModule: the position of an id is its slot, within the bucket it hashes to
};

/// Which ids go first when a shard is full, lowest score first. TorchRec's decay exponent e is taken to be 1, its
/// default: it is in no checkpoint. It changes nothing for LRU; under DistanceLFU another one would evict other ids.
enum class MchEviction : std::uint8_t {
    none,          ///< no metadata is needed
    lfu,           ///< score = counts
    lru,           ///< score = -(now - last_access_iter + 1)^e
    distance_lfu,  ///< score = counts / (now - last_access_iter + 1)^e
};

[[nodiscard]] constexpr std::string_view name(MchLayout layout) noexcept {
    return layout == MchLayout::sorted ? "sorted" : "buckets";
}
[[nodiscard]] constexpr std::string_view name(MchEviction eviction) noexcept {
    constexpr std::string_view names[] = {"no eviction", "LFU", "LRU", "DistanceLFU"};
    return names[static_cast<int>(eviction)];
}

/// What stands in the place of an id where there is none. No raw id may have this value.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Index empty_id(MchLayout layout) noexcept {
    return layout == MchLayout::sorted ? INT64_MAX : -1;
}

/// The columns that policies score by, named as TorchRec's buffers without their prefix; 8-byte integers.
inline constexpr std::string_view mch_counts = "counts";
inline constexpr std::string_view mch_last_access = "last_access_iter";

/// One number, or several, kept beside every id.
struct MchColumn {
    std::string name;
    Index bytes = 8;         ///< of one entry, whatever its elements are
    std::uint8_t empty = 0;  ///< every byte of an empty place: 0, or 0xff where TorchRec fills with -1

    [[nodiscard]] friend bool operator==(MchColumn const&, MchColumn const&) = default;
};

/// The columns a policy cannot do without, in TorchRec's order.
[[nodiscard]] inline std::vector<MchColumn> columns_of(MchEviction eviction) {
    std::vector<MchColumn> columns;
    bool const counts = eviction == MchEviction::lfu || eviction == MchEviction::distance_lfu;
    bool const access = eviction == MchEviction::lru || eviction == MchEviction::distance_lfu;
    if (counts) columns.push_back({std::string(mch_counts), 8, 0});
    if (access) columns.push_back({std::string(mch_last_access), 8, 0});
    return columns;
}

/// Z slots cut by TorchRec's row-wise rule: the chunk rule, on a mesh of one axis.
[[nodiscard]] constexpr DynamicDistribution mch_slots(DynamicMesh const& mesh, Index slots) {
    return DynamicDistribution(mesh, DynamicShape(Indices{slots}), Placements{Placement::shard(0)});
}
/// Slots cut where a saved table says: W + 1 offsets, 0 first, Z last. Throws PlacementError for others.
[[nodiscard]] constexpr DynamicDistribution mch_slots(DynamicMesh const& mesh, IndexList const& offsets) {
    Index const slots = offsets.empty() ? 0 : offsets.back();
    return DynamicDistribution(mesh, DynamicShape(Indices{larger<Index>(slots, 0)}),
                               Placements{Placement::shard(0, {SplitKind::boundaries, 0, offsets})});
}

/// One table. Plain data: check_table() says what is wrong with it.
///
/// `slots` is one-dimensional, of the table's Z slots, cut by one mesh axis: part p of the cut is the shard of rank
/// slots.mesh().rank_at(p). TorchRec's row-wise rule is the chunk rule (blocks of ceil(Z / W), trailing shards short
/// or empty); planners that cut unevenly are `Boundaries`.
struct MchTable {
    std::string name;
    DynamicDistribution slots = mch_slots(DynamicMesh(), 0);
    /// H: TorchRec's input_hash_size. Bucketed: 0, TorchRec's default, deals all ids out by remainder.
    Index hash_size = INT64_MAX;
    Index buckets = 1;          ///< nb: sorted: one per rank, as TorchRec has it; buckets: fixed when the table is made
    std::string hash_function;  ///< what maps ids into [0, H) before they are looked up; empty: nothing does
    MchEviction eviction = MchEviction::lfu;
    MchLayout layout = MchLayout::sorted;
    std::vector<MchColumn> metadata = columns_of(MchEviction::lfu);

    /// Z.
    [[nodiscard]] Index size() const noexcept { return slots.shape().extent(0); }
    /// W.
    [[nodiscard]] Index parts() const noexcept { return slots.mesh().size(); }
    /// The slots of part p. An empty part lies where it is cut: behind the part before it.
    [[nodiscard]] Interval part_range(Index p) const noexcept {
        Indices coordinates;
        coordinates.push_back(p);
        Interval const range = slots.index_set(coordinates, 0).span();
        Placement const& placement = slots.placement(0);
        if (!range.empty() || !placement.is_shard() || placement.rule().kind != SplitKind::boundaries) return range;
        Index const at = placement.rule().boundaries[p];
        return {at, at};
    }
    /// The slots of a rank: none, at Z, for a rank outside the mesh.
    [[nodiscard]] Interval range(Index rank) const noexcept {
        Index const p = slots.mesh().ordinal(rank);
        return p < 0 ? Interval{size(), size()} : part_range(p);
    }
    /// Number i of TorchRec's list of segments, which may be any longer: where part i begins, then Z, then -1.
    [[nodiscard]] Index segment(Index i) const noexcept {
        return i < parts() ? part_range(i).begin : i == parts() ? size() : -1;
    }
    /// Where parts begin, and Z: W + 1 numbers, as TorchRec's output segments.
    [[nodiscard]] std::vector<Index> offsets() const {
        std::vector<Index> result;
        for (Index p = 0; p < parts(); ++p) result.push_back(part_range(p).begin);
        result.push_back(size());
        return result;
    }

    /// The same table on other ranks. TorchRec gives a sorted table one bucket per rank, also after the change.
    [[nodiscard]] MchTable on(DynamicDistribution const& other) const {
        MchTable result = *this;
        result.slots = other;
        if (layout == MchLayout::sorted) result.buckets = result.parts();
        return result;
    }

    [[nodiscard]] friend bool operator==(MchTable const&, MchTable const&) = default;
};

/// A sorted table with the columns of its policy, cut by TorchRec's row-wise rule over the ranks of a mesh of one axis.
[[nodiscard]] inline MchTable mch_table(std::string name, DynamicMesh const& mesh, Index slots, MchEviction eviction) {
    MchTable table;
    table.name = std::move(name);
    table.slots = mch_slots(mesh, slots);
    table.buckets = mesh.size();
    table.eviction = eviction;
    table.metadata = columns_of(eviction);
    return table;
}

/// `'user' of 10 slots (4):(S0) sorted LFU, hash size 100, buckets 4, columns counts:8`.
[[nodiscard]] inline std::string to_string(MchTable const& table) {
    std::string text = concat("'", table.name, "' of ", table.size(), " slots ", to_string(table.slots), " ",
                              name(table.layout), " ", name(table.eviction), ", hash size ", table.hash_size,
                              table.hash_function.empty() ? std::string() : concat(" by ", table.hash_function),
                              ", buckets ", table.buckets);
    for (MchColumn const& column : table.metadata) {
        text += concat(&column == table.metadata.data() ? ", columns " : " ", column.name, ":", column.bytes);
        if (column.empty != 0) text += concat("=", static_cast<int>(column.empty));
    }
    return text;
}

/// Equal tables have equal digests: what ranks compare.
inline void digest(Digest& digest, MchTable const& table) {
    digest.add_text(table.name);
    detail::digest(digest, table.slots);
    digest.add_signed(table.hash_size).add_signed(table.buckets).add_text(table.hash_function);
    digest.add(static_cast<std::uint64_t>(table.eviction)).add(static_cast<std::uint64_t>(table.layout));
    digest.add(table.metadata.size());
    for (MchColumn const& column : table.metadata) {
        digest.add_text(column.name).add_signed(column.bytes).add(column.empty);
    }
}
[[nodiscard]] inline std::uint64_t digest(MchTable const& table) {
    Digest result;
    digest(result, table);
    return result.value();
}

/// The column of that name, or null.
[[nodiscard]] inline MchColumn const* find_column(MchTable const& table, std::string_view name) noexcept {
    for (MchColumn const& column : table.metadata)
        if (column.name == name) return &column;
    return nullptr;
}

namespace detail {

[[noreturn]] inline void refuse_table(ErrorCode code, MchTable const& table, std::string const& what) {
    raise(code, concat("reshard::mch: table '", table.name, "': ", what));
}

inline void check_table_slots(MchTable const& table) {
    DynamicDistribution const& slots = table.slots;
    if (slots.shape().rank() != 1) {
        refuse_table(ErrorCode::shape, table,
                     concat("its slots have shape ", to_string(slots.shape()),
                            ". Fix: a distribution of one dimension, the slots."));
    }
    bool const whole = slots.mesh().size() == 1;
    if (slots.mesh().axes() != 1 || slots.placement(0).is_partial() || (slots.placement(0).is_replicate() && !whole)) {
        refuse_table(ErrorCode::placement, table,
                     concat("slots on ", to_string(slots),
                            " do not have one owner each. Fix: shard them on a mesh of "
                            "one axis; split the communicator for copies of a table."));
    }
    if (slots.placement(0).is_shard() && slots.placement(0).rule().kind == SplitKind::cyclic && !whole) {
        refuse_table(ErrorCode::placement, table,
                     concat("slots on ", to_string(slots),
                            " are dealt out in blocks, but a shard is one range of slots. Fix: use the chunk rule, or "
                            "Boundaries."));
    }
}

inline void check_table_buckets(MchTable const& table) {
    Index const nb = table.buckets;
    auto const refuse = [&](auto const&... parts) { refuse_table(ErrorCode::mismatch, table, concat(parts...)); };
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

/// Throws, naming the table: ShapeError for slots that are not one dimension; PlacementError for slots without exactly
/// one owner or dealt out in blocks; MismatchError for a hash size below 1 (bucketed: 0), buckets that do not fit the
/// ranks or the slots, a column of no bytes or named twice, and a column that the eviction policy needs and the table
/// lacks.
inline void check_table(MchTable const& table) {
    detail::check_table_slots(table);
    detail::check_table_buckets(table);
    auto const refuse = [&](auto const&... parts) {
        detail::refuse_table(ErrorCode::mismatch, table, concat(parts...));
    };
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

/// Whether the state of one table can become that of another: same slots in all, same routing, same columns. Names and
/// ranks may differ, and so may the buckets of a sorted table, which follow the ranks. Throws MismatchError that gives
/// the saved value and the current one.
inline void check_same_content(MchTable const& saved, MchTable const& current) {
    auto const differ = [&](std::string_view what, auto const& was, auto const& is, std::string_view remedy) {
        detail::refuse_table(ErrorCode::mismatch, current,
                             concat(what, ": saved ", was, ", current ", is, ". Fix: ", remedy));
    };
    if (saved.size() != current.size()) {
        differ("the number of slots differs", saved.size(), current.size(),
               "configure the size the table was saved with.");
    }
    if (saved.layout != current.layout) {
        differ("the layout differs", name(saved.layout), name(current.layout),
               "use the module the table was saved by.");
    }
    auto const routing_size = [](MchTable const& table) {  // 0 and 1 cut the same blocks: none
        return table.layout == MchLayout::buckets ? larger<Index>(table.hash_size, 1) : table.hash_size;
    };
    if (routing_size(saved) != routing_size(current)) {
        differ("the hash size differs, so that ids would be looked up elsewhere", saved.hash_size, current.hash_size,
               "configure the input hash size the table was saved with.");
    }
    if (saved.hash_function != current.hash_function) {
        differ("the hash function differs, so that ids would be looked up under other numbers",
               concat("'", saved.hash_function, "'"), concat("'", current.hash_function, "'"),
               "configure the function the table was saved with.");
    }
    if (current.layout == MchLayout::buckets && saved.buckets != current.buckets) {
        differ("the number of buckets differs", saved.buckets, current.buckets,
               "configure the number of buckets the table was made with.");
    }
    if (saved.eviction != current.eviction) {
        differ("the eviction policy differs", name(saved.eviction), name(current.eviction),
               "configure the policy the table was saved with, or fill the columns it lacks and say so.");
    }
    auto const text = [](MchColumn const* column) {
        return column == nullptr ? std::string("none") : concat(column->bytes, " bytes");
    };
    for (MchTable const* one : {&saved, &current}) {
        for (MchColumn const& column : one->metadata) {
            MchColumn const* const was = find_column(saved, column.name);
            MchColumn const* const is = find_column(current, column.name);
            if (was != nullptr && is != nullptr && *was == *is) continue;
            differ(concat("column '", column.name, "' differs"), text(was), text(is),
                   "give both tables the same metadata columns.");
        }
    }
}

/// Throws MismatchError for an id that has the value of an empty place and so can be neither kept nor found. For who
/// fills tables; look-ups of such an id miss.
inline void check_ids(MchTable const& table, Index const* ids, Index count) {
    for (Index i = 0; i < count; ++i) {
        if (ids[i] != empty_id(table.layout)) continue;
        detail::refuse_table(ErrorCode::mismatch, table,
                             concat("id ", ids[i], " at position ", i,
                                    " is what an empty place holds. Fix: map it to another id first."));
    }
}

}  // namespace reshard::inline v0
