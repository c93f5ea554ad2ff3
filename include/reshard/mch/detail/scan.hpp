// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/scan.hpp
/// \brief  What one rank can see of the faults of its own shard.
/// \depends mch/{report,routing,state}, mch/detail/{score,taken_slots}.
#pragma once

#include <reshard/mch/detail/score.hpp>
#include <reshard/mch/detail/taken_slots.hpp>
#include <reshard/mch/report.hpp>
#include <reshard/mch/routing.hpp>

#include <algorithm>  // find, sort

namespace reshard::inline v0_1::detail {

/// An id that this rank holds and another one looks up.
struct MchStray {
    Index id = 0;
    Index position = 0;
};

class MchScan {
public:
    MchScan(MchTable const& table, MchShard const& shard, Index rank)
        : table_(table), shard_(shard), rank_(rank), empty_(empty_id(table.layout)) {}

    /// All faults of the shard. Strays, by the part that looks them up, if somebody wants them.
    [[nodiscard]] MchReport run(std::vector<std::vector<MchStray>>* strays = nullptr) {
        if (is_zero()) {
            add(MchFault::never_loaded, 0, 0, 0);
            return report_;
        }
        if (table_.layout == MchLayout::sorted) {
            scan_order();
            scan_slots();
            scan_segments();
        } else {
            sort_and_scan_repeats();
        }
        scan_counts();
        scan_access();
        scan_empties();
        scan_routes(strays);
        report_.sort();
        return report_;
    }

private:
    void add(MchFault fault, Index position, Index value, Index other) {
        report_.add({fault, rank_, position, value, other});
    }
    [[nodiscard]] bool is_live(Index i) const noexcept { return shard_.ids[i] != empty_; }
    [[nodiscard]] bool is_sorted() const noexcept { return table_.layout == MchLayout::sorted; }

    /// One bucketed id may be 0.
    [[nodiscard]] bool is_zero() const noexcept {
        bool const one = shard_.entries == 1 && is_sorted();
        return never_loaded(shard_.ids, shard_.slots, shard_.entries) ||
               (one && shard_.ids[0] == 0 && shard_.slots[0] == 0);
    }
    void scan_order() {
        bool ascend = true;
        for (Index i = 1; i < shard_.entries; ++i) {
            if (shard_.ids[i] >= shard_.ids[i - 1]) continue;
            ascend = false;
            add(MchFault::id_order, i, shard_.ids[i], shard_.ids[i - 1]);
        }
        if (!ascend) return sort_and_scan_repeats();
        Index live = 0;
        while (live < shard_.entries && is_live(live)) ++live;
        scan_repeats(live, [this](Index i) { return MchStray{shard_.ids[i], i}; });
    }
    void sort_and_scan_repeats() {
        std::vector<MchStray> live;
        for (Index i = 0; i < shard_.entries; ++i)
            if (is_live(i)) live.push_back({shard_.ids[i], i});
        std::sort(live.begin(), live.end(), [](MchStray const& a, MchStray const& b) {
            return a.id != b.id ? a.id < b.id : a.position < b.position;
        });
        scan_repeats(as_index(live.size()), [&](Index i) { return live[as_size(i)]; });
    }
    /// Of entries one(i), i of [0, count), whose ids ascend.
    template <class One>
    void scan_repeats(Index count, One const& one) {
        Index first = 0;
        for (Index i = 1; i < count; ++i) {
            if (one(i).id != one(first).id) {
                first = i;
            } else {
                add(MchFault::id_repeated, one(i).position, one(i).id, one(first).position);
            }
        }
    }
    void scan_slots() {
        Index const z = shard_.entries;
        if (z == 0) return;
        Interval const range = shard_.range();
        MchTakenSlots taken(range);
        bool repeats = false;
        for (Index i = 0; i < z; ++i) {
            Index const slot = shard_.slots[i];
            if (!range.contains(slot)) {
                add(MchFault::slot_range, i, slot, range.begin);
                continue;
            }
            repeats = !taken.take(slot) || repeats;
        }
        if (repeats) scan_repeated_slots();
        Index const last = shard_.slots[z - 1];
        if (is_live(z - 1)) add(MchFault::reserved_live, z - 1, shard_.ids[z - 1], last);
        if (last == range.end - 1) return;
        Index const* const holder = std::find(shard_.slots, shard_.slots + z, range.end - 1);
        add(MchFault::reserved_slot, z - 1, last, holder == shard_.slots + z ? -1 : holder - shard_.slots);
    }
    void scan_repeated_slots() {
        Interval const range = shard_.range();
        constexpr Index nowhere = -1;
        std::vector<Index> holder(as_size(shard_.entries), nowhere);
        for (Index i = 0; i < shard_.entries; ++i) {
            Index const slot = shard_.slots[i];
            if (!range.contains(slot)) continue;
            Index& first = holder[as_size(slot - range.begin)];
            if (first == nowhere) {
                first = i;
            } else {
                add(MchFault::slot_repeated, i, slot, first);
            }
        }
    }
    void scan_segments() {
        for (Index i = 0; i < shard_.segment_count; ++i) {
            Index const expected = table_.segment(i);
            if (shard_.segments[i] != expected) add(MchFault::stale_segments, i, shard_.segments[i], expected);
        }
    }
    /// A scored column as integers; null where the table has none.
    [[nodiscard]] Index const* integers(int column) const noexcept {
        return column < 0 ? nullptr : reinterpret_cast<Index const*>(shard_.metadata[as_size(column) - 2]);
    }
    void scan_counts() {
        Index const* const counts = integers(MchScored(table_).counts);
        for (Index i = 0; counts != nullptr && i < shard_.entries; ++i) {
            if (counts[i] < 0) add(MchFault::count_negative, i, counts[i], shard_.ids[i]);
            if (counts[i] == INT64_MAX && is_live(i)) add(MchFault::count_pinned, i, counts[i], shard_.ids[i]);
        }
    }
    void scan_access() {
        Index const* const access = shard_.iteration == nullptr ? nullptr : integers(MchScored(table_).access);
        for (Index i = 0; access != nullptr && i < shard_.entries; ++i) {
            if (access[i] < 0 || access[i] > *shard_.iteration)
                add(MchFault::access_late, i, access[i], *shard_.iteration);
        }
    }
    /// TorchRec itself writes the best of all scores beside the miss row, so that it is never evicted; a bucketed table
    /// keeps what an evicted id left.
    void scan_empties() {
        if (!is_sorted()) return;
        for (std::size_t c = 0; c < table_.metadata.size(); ++c) {
            MchColumn const& column = table_.metadata[c];
            for (Index i = 0; i + 1 < shard_.entries; ++i) {
                if (is_live(i)) continue;
                std::byte const* const entry = shard_.metadata[c] + i * column.bytes;
                Index b = 0;
                while (b < column.bytes && entry[b] == std::byte{column.empty}) ++b;
                if (b == column.bytes) continue;
                add(MchFault::stale_metadata, i, as_index(c), static_cast<Index>(entry[0]));
            }
        }
    }
    void scan_routes(std::vector<std::vector<MchStray>>* strays) {
        Router const router(table_);
        DynamicMesh const& mesh = table_.slots.mesh();
        Index const mine = mesh.ordinal(rank_);
        for (Index i = 0; i < shard_.entries; ++i) {
            if (!is_live(i)) continue;
            if (router.finds(shard_.ids[i], shard_.offset + i, mine)) continue;
            std::int32_t const part = router.part_of_id(shard_.ids[i]);
            add(MchFault::unreachable, i, shard_.ids[i], mesh.rank_at(part));
            if (strays != nullptr && part != mine) (*strays)[as_size(part)].push_back({shard_.ids[i], i});
        }
    }

    MchTable const& table_;
    MchShard const& shard_;
    Index rank_;
    Index empty_;
    MchReport report_;
};

}  // namespace reshard::inline v0_1::detail
