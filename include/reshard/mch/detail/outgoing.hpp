// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/outgoing.hpp
/// \brief  Entries that leave a shard: checked, counted by destination, and packed into one block for each.
/// \depends mch/{state,routing,partition}, memory/scratch.
#pragma once

#include <reshard/mch/partition.hpp>
#include <reshard/mch/routing.hpp>
#include <reshard/mch/state.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // upper_bound

namespace reshard::inline v0 {

namespace detail {

/// The columns of a shard as they travel: ids, slots, metadata in the table's order.
[[nodiscard]] inline std::vector<PartitionColumn> columns_of(MchTable const& table, MchShard const& shard) {
    std::vector<PartitionColumn> columns{{reinterpret_cast<std::byte const*>(shard.ids), 8},
                                         {reinterpret_cast<std::byte const*>(shard.slots), 8}};
    for (std::size_t c = 0; c < table.metadata.size(); ++c) {
        columns.push_back({shard.metadata[c], table.metadata[c].bytes});
    }
    return columns;
}

/// Where an entry goes. A value that kernels copy.
struct MchDestination {
    Router router;
    Index const* ids = nullptr;
    Index const* slots = nullptr;
    Index empty = 0;
    bool by_slot = false;           ///< to the owner of its slot, else to where its id is looked up
    bool drop_unreachable = false;  ///< by_slot: nowhere, when its id is looked up elsewhere

    /// A part of the table's mesh; -1 for empties and what is left out.
    [[nodiscard]] Index operator()(Index i) const noexcept {
        Index const id = ids[i];
        if (id == empty) return -1;
        if (!by_slot) return router.part_of_id(id);
        Index const part = router.part_of_slot(slots[i]);
        return drop_unreachable && router.part_of_id(id) != part ? -1 : part;
    }
};

/// One shard's entries on their way out.
class MchOutgoing {
public:
    /// \pre `current` outlives this. `parts` as Partition's.
    MchOutgoing(MchTable const& saved, MchTable const& current, MchShard const& shard, bool by_slot,
                bool drop_unreachable, int parts)
        : current_(&current),
          shard_(shard),
          bounds_(saved.offsets()),
          destination_{
              Router(current), shard.ids, shard.slots, empty_id(current.layout), by_slot, drop_unreachable,
          },
          partition_(shard.entries, current.parts(), parts) {}

    /// Throws MismatchError for entries that are not of the saved shard they lie in. Writes nothing of the caller's.
    template <class Team>
    void count(Team&& team) {
        check(team);
        memory_.resize(static_cast<std::size_t>(partition_.workspace_bytes()));
        partition_.count(destination_, memory_, team);
    }
    template <class Team>
    void pack(Team&& team) {
        auto const columns = columns_of(*current_, shard_);
        packed_ = Scratch(partition_.lay_out(columns));
        partition_.scatter(destination_, columns, packed_.bytes(), team);
    }

    [[nodiscard]] Router const& router() const noexcept { return destination_.router; }
    /// Ids in the shard, whether they go anywhere or not.
    [[nodiscard]] Index live() const noexcept { return live_; }
    [[nodiscard]] Index entries_for(Index part) const noexcept {
        return partition_.counts()[static_cast<std::size_t>(part)];
    }
    /// What pack() made for a part of the mesh.
    [[nodiscard]] std::byte* block(Index part) const noexcept {
        return packed_.data() + partition_.blocks()[static_cast<std::size_t>(part)];
    }
    [[nodiscard]] Index block_bytes(Index part) const noexcept {
        auto const p = static_cast<std::size_t>(part);
        return partition_.blocks()[p + 1] - partition_.blocks()[p];
    }
    /// Ids that go nowhere, ascending with their positions.
    [[nodiscard]] std::vector<Index> left_out() const {
        std::vector<Index> ids;
        ids.reserve(static_cast<std::size_t>(live_ - partition_.kept()));
        for (Index i = 0; i < shard_.entries && live_ != partition_.kept(); ++i) {
            if (shard_.ids[i] != destination_.empty && destination_(i) < 0) ids.push_back(shard_.ids[i]);
        }
        return ids;
    }

private:
    struct Findings {
        Index live = 0;
        Index wrong = -1;  ///< the first position whose slot is not of its saved shard
    };

    template <class Team>
    void check(Team&& team) {
        std::vector<Findings> found(static_cast<std::size_t>(partition_.parts()));
        team(partition_.parts(), [&](int part) {
            found[static_cast<std::size_t>(part)] = look(part_begin(shard_.entries, partition_.parts(), part),
                                                         part_begin(shard_.entries, partition_.parts(), part + 1));
        });
        live_ = 0;
        Index wrong = -1;
        for (Findings const& one : found) {
            live_ += one.live;
            if (wrong < 0) wrong = one.wrong;
        }
        if (live_ > 1 && all_zero()) {
            refuse_table(ErrorCode::mismatch, *current_,
                         concat("all ", shard_.entries, " ids and slots from position ", shard_.offset,
                                " on are zero: the state was never loaded. Fix: load it first."));
        }
        if (wrong < 0) return;
        Interval const range = saved_range(shard_.offset + wrong);
        refuse_table(
            ErrorCode::mismatch, *current_,
            concat("position ", shard_.offset + wrong, " of the saved columns has id ", shard_.ids[wrong],
                   " with slot ", shard_.slots[wrong], ", outside its saved shard of slots ", range.begin, " to ",
                   range.end, ". Fix: load the columns by position, and give the offsets they were saved with."));
    }
    [[nodiscard]] Findings look(Index begin, Index end) const noexcept {
        Findings found;
        while (begin < end) {
            Interval const range = saved_range(shard_.offset + begin);
            Index const stop = smaller(end, range.end - shard_.offset);
            auto const slots = static_cast<std::uint64_t>(range.size());
            bool sound = true;
            for (Index i = begin; i < stop; ++i) {
                bool const live = shard_.ids[i] != destination_.empty;
                found.live += live ? 1 : 0;
                sound = sound &&
                        (!live ||
                         static_cast<std::uint64_t>(shard_.slots[i]) - static_cast<std::uint64_t>(range.begin) < slots);
            }
            for (Index i = begin; !sound && found.wrong < 0 && i < stop; ++i) {
                if (shard_.ids[i] != destination_.empty && !range.contains(shard_.slots[i])) found.wrong = i;
            }
            begin = stop;
        }
        return found;
    }
    /// The saved shard that a position of the saved columns lies in.
    [[nodiscard]] Interval saved_range(Index position) const noexcept {
        auto const behind = std::upper_bound(bounds_.begin() + 1, bounds_.end() - 1, position);
        return {*(behind - 1), *behind};
    }
    [[nodiscard]] bool all_zero() const noexcept {
        for (Index i = 0; i < shard_.entries; ++i)
            if (shard_.ids[i] != 0 || shard_.slots[i] != 0) return false;
        return true;
    }

    MchTable const* current_;
    MchShard shard_;
    std::vector<Index> bounds_;
    MchDestination destination_;
    Partition partition_;
    Index live_ = 0;
    std::vector<std::byte> memory_;  ///< of the partition
    Scratch packed_;
};

}  // namespace detail

}  // namespace reshard::inline v0
