// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/outgoing.hpp
/// \brief  Entries that leave a shard: checked, counted by destination, and packed into one block for each.
/// \depends mch/{id_bounds,state,routing,partition}, memory/scratch.
#pragma once

#include <reshard/mch/id_bounds.hpp>
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

/// Where entries go, worked out once: a part of the mesh each.
using MchDestination = std::uint16_t;
inline constexpr MchDestination mch_nowhere = 0xffff;  ///< an empty place, or left out
static_assert(Partition::max_destinations <= mch_nowhere);

/// One shard's entries on their way out.
class MchOutgoing {
public:
    /// \pre `current` outlives this. `parts` as Partition's.
    MchOutgoing(MchTable const& saved, MchTable const& current, MchShard const& shard, bool by_slot,
                bool drop_unreachable, int parts)
        : current_(&current),
          shard_(shard),
          bounds_(saved.offsets()),
          router_(current),
          by_slot_(by_slot),
          drop_unreachable_(drop_unreachable),
          partition_(shard.entries, current.parts(), parts) {}

    /// Throws MismatchError for entries that are not of the saved shard they lie in. Writes nothing of the caller's.
    template <class Team>
    void count(Team&& team) {
        check(team);
        memory_.resize(static_cast<std::size_t>(partition_.workspace_bytes()));
        partition_.count(Rule{to_}, memory_, team);
    }
    template <class Team>
    void pack(Team&& team) {
        auto const columns = columns_of(*current_, shard_);
        packed_ = Scratch(partition_.lay_out(columns));
        partition_.scatter(Rule{to_}, columns, packed_.bytes(), team);
    }

    [[nodiscard]] Router const& router() const noexcept { return router_; }
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
            if (to_[i] == mch_nowhere && shard_.ids[i] != empty_id(current_->layout)) ids.push_back(shard_.ids[i]);
        }
        return ids;
    }

private:
    struct Rule {
        MchDestination const* to;
        [[nodiscard]] Index operator()(Index i) const noexcept { return to[i]; }
    };
    struct Findings {
        Index live = 0;
        Index wrong = -1;  ///< the first position whose slot is not of its saved shard
    };

    template <class Team>
    void check(Team&& team) {
        std::vector<Findings> found(static_cast<std::size_t>(partition_.parts()));
        to_memory_ = Scratch(shard_.entries * static_cast<Index>(sizeof(MchDestination)));
        to_ = reinterpret_cast<MchDestination*>(to_memory_.data());
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
        if (never_loaded(shard_.ids, shard_.slots, shard_.entries)) {
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
    /// Entries [begin, end): fills their destinations.
    [[nodiscard]] Findings look(Index begin, Index end) const noexcept {
        auto const part_of_id = [this](Index i) { return router_.part_of_id(shard_.ids[i]); };
        auto const part_of_slot = [this](Index i) { return router_.part_of_slot(shard_.slots[i]); };
        Findings found;
        while (begin < end) {
            Interval const range = saved_range(shard_.offset + begin);
            Index const stop = smaller(end, range.end - shard_.offset);
            bool sound = true;
            if (!by_slot_) {
                sound = look_at(begin, stop, range, found.live, part_of_id);
            } else if (!drop_unreachable_) {
                sound = look_at(begin, stop, range, found.live, part_of_slot);
            } else {
                sound = look_at(begin, stop, range, found.live, [&](Index i) {
                    auto const part = part_of_slot(i);
                    return part_of_id(i) == part ? part : std::int32_t{mch_nowhere};
                });
            }
            for (Index i = begin; !sound && found.wrong < 0 && i < stop; ++i) {
                bool const live = shard_.ids[i] != empty_id(current_->layout);
                if (live && !range.contains(shard_.slots[i])) found.wrong = i;
            }
            begin = stop;
        }
        return found;
    }
    /// Whether slots are of their saved shard. What others lead to is not used.
    template <class Part>
    [[nodiscard]] bool look_at(Index begin, Index end, Interval range, Index& live, Part const& part) const noexcept {
        Index const empty = empty_id(current_->layout);
        auto const first = static_cast<std::uint64_t>(range.begin);
        auto const slots = static_cast<std::uint64_t>(range.size());
        Index count = 0;
        Index wrong = 0;
        for (Index i = begin; i < end; ++i) {
            if (shard_.ids[i] == empty) {
                to_[i] = mch_nowhere;
                continue;
            }
            ++count;
            if (static_cast<std::uint64_t>(shard_.slots[i]) - first >= slots) {
                ++wrong;
                continue;
            }
            to_[i] = static_cast<MchDestination>(part(i));
        }
        live += count;
        return wrong == 0;
    }
    /// The saved shard that a position of the saved columns lies in.
    [[nodiscard]] Interval saved_range(Index position) const noexcept {
        auto const behind = std::upper_bound(bounds_.begin() + 1, bounds_.end() - 1, position);
        return {*(behind - 1), *behind};
    }

    MchTable const* current_;
    MchShard shard_;
    std::vector<Index> bounds_;
    Router router_;
    bool by_slot_;           ///< to the owner of the slot, else to where the id is looked up
    bool drop_unreachable_;  ///< by_slot_: nowhere, when the id is looked up elsewhere
    Partition partition_;
    Scratch to_memory_;
    MchDestination* to_ = nullptr;
    Index live_ = 0;
    std::vector<std::byte> memory_;  ///< of the partition
    Scratch packed_;
};

}  // namespace detail

}  // namespace reshard::inline v0
