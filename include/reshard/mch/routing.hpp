// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/routing.hpp
/// \brief  Which part of a table a raw id is looked up in, and which part owns a slot: one value for host and kernels.
/// \depends core/divider, mch/table. The router allocates nothing and is constexpr; only its making can throw.
///
/// The rule for ids is that of fbgemm's _block_bucketize_sparse_features as TorchRec's RwSparseFeaturesDist calls it
/// (github.com/pytorch/FBGEMM, fbgemm_gpu/src/sparse_ops): unsigned arithmetic, so that negative ids are large ones.
#pragma once

#include <reshard/core/divider.hpp>
#include <reshard/mch/table.hpp>

namespace reshard::inline v0_1 {

/// Which part of the cut owns a slot: a closed form for the chunk and the balanced rule, a search in the offsets for
/// others. Offsets that say the chunk rule are treated as such.
class SlotRouter {
public:
    constexpr SlotRouter() = default;
    /// `slots` as check_table() wants it. `offsets`: W + 1 of them, where the search reads, for kernels that cannot
    /// read the host's; null: those in `slots`, copied up to 8 parts, else in memory that lives as long as the program.
    constexpr explicit SlotRouter(DynamicDistribution const& slots, Index const* offsets = nullptr)
        : parts_(static_cast<std::int32_t>(slots.mesh().size())) {
        Index const extent = slots.shape().extent(0);
        Placement const& placement = slots.placement(0);
        if (parts_ == 1 || !placement.is_shard()) return;
        SplitRule const& rule = placement.rule();
        Index const chunk = detail::larger<Index>(detail::ceil_div(extent, parts_), 1);
        if (rule.kind == SplitKind::chunk || is_chunked(rule, extent, chunk)) {
            long_ = short_ = detail::Divider(static_cast<std::uint64_t>(chunk));
        } else if (rule.kind == SplitKind::balanced) {
            Index const quotient = extent / parts_;
            longer_ = extent % parts_;
            begin_of_short_ = longer_ * (quotient + 1);
            long_ = detail::Divider(static_cast<std::uint64_t>(quotient + 1));
            short_ = detail::Divider(static_cast<std::uint64_t>(detail::larger<Index>(quotient, 1)));
        } else {
            search_ = true;
            many_ = offsets;
            if (many_ != nullptr) return;
            if (rule.boundaries.size() > IndexList::inline_capacity) {
                many_ = rule.boundaries.data();  // interned
            } else {
                for (Index p = 0; p <= parts_; ++p) few_[p] = rule.boundaries[p];
            }
        }
    }

    /// The part that owns a slot. `nearer`: a copy of table(), where that is nearer. \pre 0 <= slot < Z.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr std::int32_t operator()(Index slot,
                                                                        Index const* nearer = nullptr) const noexcept {
        if (search_) return detail::part_at(nearer != nullptr ? nearer : table(), parts_, slot);
        if (parts_ == 1) return 0;
        if (slot < begin_of_short_) return static_cast<std::int32_t>(long_(static_cast<std::uint64_t>(slot)));
        Index const rest = slot - begin_of_short_;
        return static_cast<std::int32_t>(longer_ + detail::as_index(short_(static_cast<std::uint64_t>(rest))));
    }

    /// The slots of a part, and beyond the table's last slot perhaps more.
    struct Range {
        std::uint64_t first = 0;
        std::uint64_t count = 0;
        [[nodiscard]] RESHARD_HOST_DEVICE constexpr bool has(Index slot) const noexcept {
            return static_cast<std::uint64_t>(slot) - first < count;
        }
    };
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Range range(std::int32_t part) const noexcept {
        if (search_) {
            auto const first = static_cast<std::uint64_t>(table()[part]);
            return {first, static_cast<std::uint64_t>(table()[part + 1]) - first};
        }
        if (parts_ == 1) return {0, INT64_MAX};
        auto const p = static_cast<std::uint64_t>(part);
        auto const longer = static_cast<std::uint64_t>(longer_);
        if (p < longer) return {p * long_.divisor(), long_.divisor()};
        return {static_cast<std::uint64_t>(begin_of_short_) + (p - longer) * short_.divisor(), short_.divisor()};
    }
    /// W + 1 offsets, where they are searched.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index const* table() const noexcept {
        return many_ != nullptr ? many_ : few_;
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int table_size() const noexcept { return search_ ? parts_ + 1 : 0; }

private:
    [[nodiscard]] constexpr bool is_chunked(SplitRule const& rule, Index extent, Index chunk) const noexcept {
        if (rule.kind != SplitKind::boundaries) return false;
        for (Index p = 0; p <= parts_; ++p) {
            Index chunked = 0;
            if (!detail::multiply_fits(chunk, p, chunked) || chunked > extent) chunked = extent;
            if (rule.boundaries[p] != chunked) return false;
        }
        return true;
    }

    detail::Divider long_;  ///< parts before begin_of_short_ have this many slots
    detail::Divider short_;
    Index begin_of_short_ = 0;
    Index longer_ = 0;
    Index const* many_ = nullptr;
    Index few_[IndexList::inline_capacity]{};
    std::int32_t parts_ = 1;
    bool search_ = false;
};

/// Both questions of one table. A part is a place in the table's mesh: `table.slots.mesh().rank_at(part)` is the rank.
/// Trivially copyable.
class Router {
public:
    constexpr Router() = default;
    /// Throws what check_table() throws. `offsets` as for SlotRouter.
    explicit Router(MchTable const& table, Index const* offsets = nullptr) {
        check_table(table);
        *this = Router(table.slots, table.hash_size, table.buckets,
                       table.layout == MchLayout::buckets ? table.size() / table.buckets : 0, offsets);
    }
    /// \pre a number of buckets of at least 1, a hash size of 0 (none: as 1) or more, and a whole number of buckets per
    /// part unless `bucket_slots`, the slots of one bucket, is given.
    constexpr Router(DynamicDistribution const& slots, Index hash_size, Index buckets, Index bucket_slots = 0,
                     Index const* offsets = nullptr)
        : slots_(slots, offsets), bucket_slots_(bucket_slots), buckets_(static_cast<std::uint64_t>(buckets)) {
        auto const local = static_cast<std::uint64_t>(detail::larger<Index>(buckets / slots.mesh().size(), 1));
        auto const block = static_cast<std::uint64_t>(detail::ceil_div(detail::larger<Index>(hash_size, 1), buckets));
        limit_ = block * buckets_;  // < hash_size + buckets: fits 64 bits, not 63
        by_block_ = detail::Divider(block);
        by_span_ = detail::Divider(block * local);
        by_buckets_ = detail::Divider(buckets_);
        by_local_ = detail::Divider(local);
    }

    /// The part that looks an id up. With blocks of ceil(H / nb) ids and l = nb / W buckets a part, ids are counted off
    /// in blocks up to nb of them and dealt out by `id mod nb` beyond, as unsigned numbers:
    /// `id < block * nb ? id / (block * l) : (id mod nb) / l`. `nearer`: a copy of table(), where that is nearer.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr std::int32_t part_of_id(Index raw,
                                                                        Index const* nearer = nullptr) const noexcept {
        if (bucket_slots_ != 0) return slots_(bucket_of_id(raw) * bucket_slots_, nearer);
        auto const id = static_cast<std::uint64_t>(raw);
        if (id < limit_) return static_cast<std::int32_t>(by_span_(id));
        return static_cast<std::int32_t>(by_local_(id - by_buckets_(id) * buckets_));
    }
    /// Whether that is `part`, which has `slots`: by comparing, where a part among many is divided for.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr bool looks_up(std::int32_t part, SlotRouter::Range slots,
                                                              Index raw) const noexcept {
        if (bucket_slots_ != 0) return slots.has(bucket_of_id(raw) * bucket_slots_);
        auto const id = static_cast<std::uint64_t>(raw);
        auto const p = static_cast<std::uint64_t>(part);
        if (id < limit_) return id - p * by_span_.divisor() < by_span_.divisor();
        return id - by_buckets_(id) * buckets_ - p * by_local_.divisor() < by_local_.divisor();
    }
    /// The part that looks up all ids from `first` to `last`, as unsigned numbers; -1 where that may be several or
    /// `last` comes before `first`.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr std::int32_t part_of_ids(Index first, Index last) const noexcept {
        auto const low = static_cast<std::uint64_t>(first);
        auto const high = static_cast<std::uint64_t>(last);
        if (bucket_slots_ != 0 || low > high || high >= limit_) return -1;
        std::int32_t const part = part_of_id(first);
        return part == part_of_id(last) ? part : -1;
    }
    /// Ids below this, as unsigned numbers, are counted off; the others are dealt out by remainder.
    [[nodiscard]] constexpr std::uint64_t counted_off() const noexcept { return limit_; }
    /// The bucket an id falls into, 0 to nb - 1.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index bucket_of_id(Index raw) const noexcept {
        auto const id = static_cast<std::uint64_t>(raw);
        return detail::as_index(id < limit_ ? by_block_(id) : id - by_buckets_(id) * buckets_);
    }
    /// Whether look-ups find an id that part `part` holds at `slot`: where that part looks it up; in a hash table,
    /// whose slots bind, within the bucket it falls into, which is of one part.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr bool finds(Index raw, Index slot, Index part) const noexcept {
        if (bucket_slots_ == 0) return part_of_id(raw) == part;
        Index const within = slot - bucket_of_id(raw) * bucket_slots_;
        return within >= 0 && within < bucket_slots_;
    }
    /// The part that owns a slot. \pre 0 <= slot < Z.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr std::int32_t part_of_slot(
        Index slot, Index const* nearer = nullptr) const noexcept {
        return slots_(slot, nearer);
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr SlotRouter::Range slots_of(std::int32_t part) const noexcept {
        return slots_.range(part);
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index const* table() const noexcept { return slots_.table(); }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int table_size() const noexcept { return slots_.table_size(); }

private:
    SlotRouter slots_;
    Index bucket_slots_ = 0;
    std::uint64_t limit_ = 1;  ///< ids below it are counted off
    std::uint64_t buckets_ = 1;
    detail::Divider by_block_;
    detail::Divider by_span_;  ///< the ids of one part
    detail::Divider by_buckets_;
    detail::Divider by_local_;
};

}  // namespace reshard::inline v0_1
