// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/table.hpp
/// \brief  MchTable: what all ranks know of one managed-collision table, as a value: slots, routing, policy, columns.
/// \depends algebra/notation, core/error, <tuple>, <vector>. Opt-in: not part of the umbrella.
///
/// Managed collision maps raw ids to slots (rows) of an embedding table and evicts ids that are not worth a slot.
/// The layouts are those of TorchRec (github.com/pytorch/torchrec): torchrec/modules/mc_modules.py and
/// hash_mc_modules.py.
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/core/error.hpp>
#include <reshard/mch/detail/mode.hpp>

#include <tuple>   // tie
#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace enums {
/// How a shard keeps its ids.
enum class MchLayout : std::uint8_t {
    sorted,   ///< MCHManagedCollisionModule: ids ascending, beside each the slot it has; the last slot is the miss row
    buckets,  ///< HashZchManagedCollisionModule: the position of an id is its slot, within the bucket it hashes to
};
/// Which ids go first when a shard is full, lowest score first; e is the table's decay exponent.
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
}  // namespace enums
using enums::MchEviction;
using enums::MchLayout;

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
[[nodiscard]] std::vector<MchColumn> columns_of(MchEviction eviction);

/// Z slots cut by TorchRec's row-wise rule: the chunk rule, on a mesh of one axis.
[[nodiscard]] constexpr DynamicDistribution mch_slots(DynamicMesh const& mesh, Index slots) {
    return DynamicDistribution(mesh, DynamicShape(Indices{slots}), Placements{Placement::shard(0)});
}
/// Slots cut where a saved table says: W + 1 offsets, 0 first, Z last. Throws PlacementError for others.
[[nodiscard]] constexpr DynamicDistribution mch_slots(DynamicMesh const& mesh, IndexList const& offsets) {
    Index const slots = offsets.empty() ? 0 : offsets.back();
    return DynamicDistribution(mesh, DynamicShape(Indices{detail::larger<Index>(slots, 0)}),
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
    double decay_exponent = 1;  ///< e: TorchRec's, which is in none of its checkpoints; 1 unless it was configured
    MchLayout layout = MchLayout::sorted;
    std::vector<MchColumn> metadata = columns_of(MchEviction::lfu);
    /// The id of the save, in tables of an MchCheckpoint: redistribute() refuses ranks whose saved tables have
    /// different ones, or none. Does not make tables differ, and nothing else asks for it. Clear it on all ranks where
    /// some make the table by hand, or have trained since.
    std::string save;

    /// Z.
    [[nodiscard]] Index size() const noexcept { return slots.shape().extent(0); }
    /// W.
    [[nodiscard]] Index parts() const noexcept { return slots.mesh().size(); }
    /// The slots of part p. An empty part lies where it is cut: behind the part before it.
    [[nodiscard]] Interval part_range(Index p) const noexcept;
    /// The slots of a rank: none, at Z, for a rank outside the mesh.
    [[nodiscard]] Interval range(Index rank) const noexcept;
    /// Number i of TorchRec's list of segments, which may be any longer: where part i begins, then Z, then -1.
    [[nodiscard]] Index segment(Index i) const noexcept;
    /// Where parts begin, and Z: W + 1 numbers, as TorchRec's output segments.
    [[nodiscard]] std::vector<Index> offsets() const;

    /// The same table on other ranks. TorchRec gives a sorted table one bucket per rank, also after the change.
    [[nodiscard]] MchTable on(DynamicDistribution const& other) const;

    [[nodiscard]] friend bool operator==(MchTable const& a, MchTable const& b) {
        auto const all = [](MchTable const& t) {
            return std::tie(t.name, t.slots, t.hash_size, t.buckets, t.hash_function, t.eviction, t.decay_exponent,
                            t.layout, t.metadata);
        };
        return all(a) == all(b);
    }
};

/// A sorted table with the columns of its policy, cut by TorchRec's row-wise rule over the ranks of a mesh of one axis.
[[nodiscard]] MchTable mch_table(std::string name, DynamicMesh const& mesh, Index slots, MchEviction eviction);

/// `'user' of 10 slots (4):(S0) sorted LFU, hash size 100, buckets 4, columns counts:8`.
[[nodiscard]] std::string to_string(MchTable const& table);

/// Equal tables have equal digests: what ranks compare.
void digest(detail::Digest& digest, MchTable const& table);
[[nodiscard]] std::uint64_t digest(MchTable const& table);

/// The column of that name, or null.
[[nodiscard]] MchColumn const* find_column(MchTable const& table, std::string_view name) noexcept;

namespace detail {

[[noreturn]] void refuse_table(ErrorCode code, MchTable const& table, std::initializer_list<Part> what);
template <class... Parts>
[[noreturn]] void refuse_table(ErrorCode code, MchTable const& table, Parts... parts) {
    refuse_table(code, table, {parts...});
}
/// The one of that name in a list, or null.
template <class List>
[[nodiscard]] constexpr typename List::value_type const* find_named(List const& list, std::string_view name) noexcept {
    for (auto const& one : list)
        if (one.name == name) return &one;
    return nullptr;
}
/// The shortest text that is read back as an equal number: -0 is 0.
[[nodiscard]] std::string number_text(double number);
/// check_same_content() of tables that may have different numbers of slots.
void check_same_ids(MchTable const& saved, MchTable const& current);

}  // namespace detail

/// Throws, naming the table: ShapeError for slots that are not one dimension; PlacementError for slots without exactly
/// one owner or dealt out in blocks; MismatchError for a hash size below 1 (bucketed: 0), buckets that do not fit the
/// ranks or the slots, a column of no bytes or named twice, and a column that the eviction policy needs and the table
/// lacks, and for a decay exponent that is not a number from 0 on.
void check_table(MchTable const& table);

/// Whether the state of one table can become that of another: same slots in all, same routing, same columns. Names and
/// ranks may differ, and so may the buckets of a sorted table, which follow the ranks. Throws MismatchError that gives
/// the saved value and the current one.
void check_same_content(MchTable const& saved, MchTable const& current);

/// Throws MismatchError for an id that has the value of an empty place and so can be neither kept nor found. For who
/// fills tables; look-ups of such an id miss.
void check_ids(MchTable const& table, Index const* ids, Index count);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/table.ipp>
#endif
