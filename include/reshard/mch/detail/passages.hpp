// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/passages.hpp
/// \brief  The tables of one call of redistribute() on one rank: all of it that does not communicate.
/// \depends mch/detail/{host_shard,incoming,outgoing,refusals}, mch/{reach,transition,workers}, comm/collectives
/// (byte_box).
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/mch/detail/host_shard.hpp>
#include <reshard/mch/detail/incoming.hpp>
#include <reshard/mch/detail/outgoing.hpp>
#include <reshard/mch/detail/refusals.hpp>
#include <reshard/mch/reach.hpp>
#include <reshard/mch/transition.hpp>
#include <reshard/mch/workers.hpp>

#include <algorithm>  // stable_sort

namespace reshard::inline v0 {

namespace detail {

/// Threads, if there are any to work with.
struct MchTeam {
    std::optional<Workers>& workers;
    template <class Body>
    void operator()(int parts, Body&& body) const {
        if (workers) return (*workers)(parts, body);
        InOrder{}(parts, body);
    }
};

/// One table on its way.
class MchPassage {
public:
    /// \pre `transition` outlives this.
    MchPassage(MchTransition const& transition, MchOptions const& options, int rank)
        : current(transition.current),
          shard(host_shard_of(current, transition.state, rank)),
          part(current.slots.mesh().ordinal(rank)),
          incoming(current, shard, options.threads) {
        if (stays()) {
            Reach const here = reach(current, transition.state, rank);
            change.live_before = change.live_after = here.live;
            change.unreachable = here.unreachable;
            return;
        }
        outgoing.emplace(transition.saved, current, shard, part, options.mode == MchMode::slot_owner,
                         options.drop_unreachable, options.threads, refuses_strays(options, transition.saved));
    }
    /// The slots of a bucketed table are places, which a load by position keeps.
    [[nodiscard]] bool stays() const noexcept { return current.layout == MchLayout::buckets; }

    MchTable const& current;
    MchShard shard;
    Index part;  ///< of the mesh, -1 outside
    std::optional<MchOutgoing> outgoing;
    MchIncoming incoming;
    MchChange change;
};

/// The tables of one call: what of it does not communicate.
class MchPassages {
public:
    /// Throws what redistribute() documents, before anything is allocated for entries.
    void begin(std::span<MchTransition const> tables, MchOptions const& options, int rank, int ranks) {
        if (options.threads != 1) workers_.emplace(options.threads);
        list_.reserve(tables.size());
        for (std::size_t t = 0; t < tables.size(); ++t) {
            check_transition(tables, t, ranks);
            list_.emplace_back(tables[t], options, rank);
            if (!list_.back().stays()) list_.back().outgoing->count(team());
        }
    }
    /// What rank r is to hear, a header a table.
    [[nodiscard]] std::vector<MchArrival> headers(std::size_t ranks) const {
        std::vector<MchArrival> result(ranks * list_.size());
        for (std::size_t t = 0; t < list_.size(); ++t) {
            MchPassage const& one = list_[t];
            Index const iteration = one.shard.iteration != nullptr ? *one.shard.iteration : 0;
            for (std::size_t r = 0; r < ranks; ++r) result[r * list_.size() + t].iteration = iteration;
            for (Index part = 0; !one.stays() && part < one.current.parts(); ++part) {
                auto const r = static_cast<std::size_t>(one.current.slots.mesh().rank_at(part));
                result[r * list_.size() + t].entries = one.outgoing->entries_for(part);
            }
        }
        return result;
    }
    /// Packs what leaves, makes room for what comes.
    void pack(std::span<MchArrival const> arrivals, int rank, int ranks) {
        for (std::size_t t = 0; t < list_.size(); ++t) {
            MchPassage& one = list_[t];
            if (one.stays()) continue;
            one.outgoing->pack(team());
            for (int r = 0; r < ranks; ++r) {
                MchArrival const& from = arrivals[static_cast<std::size_t>(r) * list_.size() + t];
                one.incoming.expect(r, r == rank ? 0 : from.entries, from.iteration, nullptr);
            }
            if (one.part >= 0) one.incoming.keep(rank, &one.outgoing->own());
            one.incoming.allocate();
            one.change.live_before = one.outgoing->live();
            one.change.left_out = one.outgoing->left_out();
        }
    }
    /// All tables in one message per pair of ranks.
    void list_transfers(int rank, std::vector<Send>& sends, std::vector<Receive>& receives) {
        for (MchPassage& one : list_) {
            if (one.stays()) continue;
            for (Index part = 0; part < one.current.parts(); ++part) {
                Index const bytes = one.outgoing->block_bytes(part);
                if (part == one.part || bytes == 0) continue;
                auto const to = static_cast<int>(one.current.slots.mesh().rank_at(part));
                sends.push_back({to, one.outgoing->block(part), byte_box(bytes)});
                one.change.sent += one.outgoing->entries_for(part);
                one.change.bytes_sent += bytes;
            }
            for (MchBlock const& block : one.incoming.blocks()) {
                if (block.rank == rank) continue;
                receives.push_back({block.rank, one.incoming.memory(block), byte_box(block.bytes)});
                one.change.received += block.entries;
            }
        }
        auto const by_peer = [](auto const& a, auto const& b) { return a.peer < b.peer; };
        std::stable_sort(sends.begin(), sends.end(), by_peer);
        std::stable_sort(receives.begin(), receives.end(), by_peer);
    }
    void arrange(MchMode mode) {
        for (MchPassage& one : list_) {
            if (one.stays()) continue;
            one.outgoing->unpack();
            one.incoming.arrange(mode, one.change, team(), [&] { return one.outgoing->pack_own(team()); });
        }
        result_.reserve(list_.size());
    }
    /// Writes the shards. \pre all ranks have agreed.
    [[nodiscard]] std::vector<MchChange> commit(MchOptions const& options) {
        bool const all_reachable = options.mode == MchMode::route || options.drop_unreachable;
        for (MchPassage& one : list_) {
            if (!one.stays()) {
                one.incoming.commit(team());
                one.change.live_after = one.incoming.live();
                if (!all_reachable) one.change.unreachable = unreachable(one);
            }
            result_.push_back(std::move(one.change));
        }
        return std::move(result_);
    }

private:
    /// Ids are in order: of most blocks the ends say where all are looked up.
    [[nodiscard]] static Index unreachable(MchPassage const& one) noexcept {
        constexpr Index block = 64;
        Router const& router = one.outgoing->router();
        Index count = 0;
        for (Index begin = 0; begin < one.change.live_after; begin += block) {
            Index const end = smaller(begin + block, one.change.live_after);
            std::int32_t const same = router.part_of_ids(one.shard.ids[begin], one.shard.ids[end - 1]);
            for (Index i = begin; same < 0 && i < end; ++i) {
                count += router.part_of_id(one.shard.ids[i]) != one.part ? 1 : 0;
            }
            if (same >= 0 && same != one.part) count += end - begin;
        }
        return count;
    }
    [[nodiscard]] MchTeam team() noexcept { return {workers_}; }

    std::optional<Workers> workers_;
    std::vector<MchPassage> list_;
    std::vector<MchChange> result_;
};

}  // namespace detail

}  // namespace reshard::inline v0
