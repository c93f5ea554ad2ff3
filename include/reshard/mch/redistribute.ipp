// SPDX-License-Identifier: Apache-2.0
// How mch/redistribute.hpp is done.
#pragma once

#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/detail/carry.hpp>
#include <reshard/mch/detail/incoming.hpp>
#include <reshard/mch/detail/outgoing.hpp>
#include <reshard/mch/redistribute.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// One table on its way.
class MchHostTable : public MchMovingTable {
public:
    /// \pre `transition` outlives this.
    MchHostTable(MchTransition const& transition, MchOptions const& options, int rank, MemoryPolicy const* memory)
        : MchMovingTable{transition.saved, transition.current,
                         MchBuffers(transition.current, rank, memory).shard(transition.state),
                         transition.current.slots.mesh().ordinal(rank)},
          incoming(current, shard, options.threads) {
        refuse_zeros(current, shard);
        if (stays()) {
            Reach const here = reach(current, transition.state, rank);
            numbers.live_before = numbers.live_after = here.live;
            numbers.unreachable = here.unreachable;
            return;
        }
        if (shard.iteration != nullptr) iteration = *shard.iteration;
        outgoing.emplace(saved, current, shard, part, options);
    }
    [[nodiscard]] Index entries_for(Index p) const noexcept { return outgoing->entries_for(p); }
    [[nodiscard]] std::byte* block(Index p) const noexcept { return outgoing->block(p); }
    [[nodiscard]] Index block_bytes(Index p) const noexcept { return outgoing->block_bytes(p); }
    [[nodiscard]] MchIncoming& arrivals() noexcept { return incoming; }
    [[nodiscard]] MchChange& change() noexcept { return numbers; }

    std::optional<MchOutgoing> outgoing;
    MchIncoming incoming;
    MchChange numbers;
};

/// The tables of one call: what of it does not communicate. See carry().
class MchHostTables : public MchTerms {
public:
    MchHostTables(MchTerms const& terms, MemoryPolicy const* memory) noexcept : MchTerms(terms), memory_(memory) {}

    /// Throws what redistribute() documents, before anything is allocated for entries.
    void begin(int rank, int ranks) {
        check_threads(options);
        list_.reserve(tables.size());
        for (std::size_t t = 0; t < tables.size(); ++t) {
            check_transition(tables, t, ranks);
            list_.emplace_back(tables[t], options, rank, memory_);
            if (!list_.back().stays()) list_.back().outgoing->count();
        }
        check_apart(tables, rank);
    }
    [[nodiscard]] std::vector<MchHostTable>& list() noexcept { return list_; }
    static void list_headers(std::span<MchArrival const> told, std::span<MchArrival> heard, CommunicatorRef comm,
                             TransferLists& lists) {
        list_all_to_all(std::as_bytes(told), std::as_writable_bytes(heard), comm.size(), lists);
    }
    static void hear(std::vector<MchArrival>&) noexcept {}
    void pack(std::span<MchArrival const> heard, int rank, int ranks) {
        for (std::size_t t = 0; t < list_.size(); ++t) {
            MchHostTable& one = list_[t];
            if (one.stays()) continue;
            one.outgoing->pack();
            for (int r = 0; r < ranks; ++r) {
                MchArrival const& from = heard[as_size(r) * list_.size() + t];
                one.incoming.expect(r, r == rank ? 0 : from.entries, from.iteration, nullptr);
            }
            if (one.part >= 0) one.incoming.keep(rank, &one.outgoing->own());
            one.incoming.allocate();
            one.numbers.live_before = one.outgoing->live();
            one.numbers.left_out = one.outgoing->left_out();
        }
    }
    void arrange() {
        for (MchHostTable& one : list_) {
            if (one.stays()) continue;
            one.outgoing->unpack();
            one.incoming.arrange(options.mode, one.numbers);
            one.incoming.list_rows(one.saved, one.part, one.numbers.live_before, one.numbers);
        }
        result_.reserve(list_.size());
    }
    /// Writes the shards. \pre all ranks have agreed.
    [[nodiscard]] std::vector<MchChange> commit() {
        for (MchHostTable& one : list_) {
            if (!one.stays()) {
                one.incoming.commit();
                one.numbers.live_after = one.incoming.live();
                if (one.outgoing->rule().leaves_strays()) {
                    one.numbers.unreachable = one.incoming.strays(one.outgoing->rule().router, one.part);
                }
            }
            result_.push_back(std::move(one.numbers));
        }
        return std::move(result_);
    }

private:
    MemoryPolicy const* memory_;
    std::vector<MchHostTable> list_;
    std::vector<MchChange> result_;
};

}  // namespace detail

RESHARD_INLINE std::vector<MchChange> redistribute(std::span<MchTransition const> tables, CommunicatorRef comm,
                                                   MchOptions const& options) {
    detail::MchHostTables moving({tables, options, "on hosts"}, comm.memory());
    return detail::carry(moving, comm);
}

RESHARD_INLINE MchChange redistribute(MchTable const& saved, MchTable const& current, MchState const& state,
                                      CommunicatorRef comm, MchOptions const& options) {
    std::vector<MchTransition> table;
    detail::attempt_before_agreement(comm, [&] { table.push_back({saved, current, state}); });
    return std::move(redistribute(std::span<MchTransition const>(table), comm, options)[0]);
}

}  // namespace reshard::inline v0_1
