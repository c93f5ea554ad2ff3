// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/redistribute.hpp
/// \brief  Carries the ids of a managed-collision table to another number of ranks: all of them, or none.
/// \depends mch/{state,routing,partition,merge,slot_bitmap}, comm/collectives, exec/prepare (agreements).
///
///     load the saved columns by position, as a checkpoint gives them: rank p gets entries [o, o + z) of all
///     MchChange change = redistribute(saved, current, state, comm);
///     apply_row_moves(change.moves, current, weights, comm);          // and once for each optimizer state
///
/// An id is looked up on the rank that the routing names, in that rank's shard alone, and its row is read there. So an
/// id whose slot stays on another rank is never found again, although nothing crashes: github.com/alibaba/TorchEasyRec
/// pull request 467 moves entries to the owner of their slot, and of ids without a pattern that leaves W1 / W2 findable
/// when a table grows. Mode `route` sends every id where it will be looked up and gives it a slot there.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/exec/prepare.hpp>
#include <reshard/mch/detail/incoming.hpp>
#include <reshard/mch/reach.hpp>

namespace reshard::inline v0 {

enum class MchMode : std::uint8_t {
    route,       ///< ids go to where they are looked up; slots are given anew there, and rows follow (MchChange::moves)
    slot_owner,  ///< ids go to the owner of their slot; rows stay
};

struct MchOptions {
    MchMode mode = MchMode::route;
    /// slot_owner: ids that no look-up will find are left out. They are never hit and, with high counts, never evicted.
    bool drop_unreachable = true;
};

/// A row of the table's weights that goes with its id: global row numbers, which are slots.
struct MchRowMove {
    Index from = 0;
    Index to = 0;
    friend constexpr bool operator==(MchRowMove const&, MchRowMove const&) = default;
};

/// What became of one rank's shard.
struct MchChange {
    Index live_before = 0;          ///< ids among the entries it was loaded with
    Index live_after = 0;           ///< ids in its shard now
    Index sent = 0;                 ///< entries that went to other ranks
    Index received = 0;             ///< entries that came from other ranks
    Index unreachable = 0;          ///< ids that look-ups do not find, of those it has now
    std::vector<Index> left_out;    ///< ids it had and sent nowhere: unreachable ones that were to be dropped
    std::vector<Index> evicted;     ///< ids that found no slot on it, lowest score first
    std::vector<MchRowMove> moves;  ///< into its slots, by ascending id
    Index bytes_sent = 0;           ///< to other ranks: headers and entries
};

namespace detail {

/// What every pair of ranks tells each other before entries move.
struct MchArrival {
    Index entries = 0;
    Index iteration = 0;
};

/// Entries of the shard and where they go: -1 for empties and what is left out.
class MchOutgoing {
public:
    MchOutgoing(MchTable const& saved, MchTable const& current, MchShard const& shard, MchOptions const& options)
        : router_(current), shard_(shard), mode_(options.mode), empty_(empty_id(current.layout)) {
        std::vector<Index> const bounds = saved.offsets();
        auto const part_behind = [&](Index position) {  // of the saved cut
            return std::upper_bound(bounds.begin() + 1, bounds.end() - 1, position) - bounds.begin();
        };
        Index end = shard.offset;
        Interval range{};
        for (Index i = 0; i < shard.entries; ++i) {
            Index const position = shard.offset + i;
            if (position >= end) {
                auto const part = part_behind(position);
                range = {bounds[static_cast<std::size_t>(part - 1)], bounds[static_cast<std::size_t>(part)]};
                end = range.end;
            }
            if (shard.ids[i] == empty_) continue;
            ++live_;
            if (!range.contains(shard.slots[i])) {
                refuse_table(
                    ErrorCode::mismatch, current,
                    concat("position ", position, " of the saved columns has id ", shard.ids[i], " with slot ",
                           shard.slots[i], ", outside its saved shard of slots ", range.begin, " to ", range.end,
                           ". Fix: load the columns by position, and give the offsets they were saved with."));
            }
            if (options.mode == MchMode::slot_owner && options.drop_unreachable &&
                router_.part_of_id(shard.ids[i]) != router_.part_of_slot(shard.slots[i])) {
                left_out_.push_back(i);
            }
        }
    }

    /// The part an entry goes to; called from several threads.
    [[nodiscard]] auto rule() const noexcept {
        return [this](Index i) -> Index {
            Index const id = shard_.ids[i];
            if (id == empty_) return -1;
            if (mode_ == MchMode::route) return router_.part_of_id(id);
            Index const part = router_.part_of_slot(shard_.slots[i]);
            bool const dropped = !left_out_.empty() && router_.part_of_id(id) != part;
            return dropped ? -1 : part;
        };
    }
    [[nodiscard]] Index live() const noexcept { return live_; }
    [[nodiscard]] std::vector<Index> left_out() const {
        std::vector<Index> ids;
        for (Index i : left_out_) ids.push_back(shard_.ids[i]);
        return ids;
    }

private:
    Router router_;
    MchShard const& shard_;
    MchMode mode_;
    Index empty_;
    Index live_ = 0;
    std::vector<Index> left_out_;  ///< positions
};

/// Agrees where there is somebody to agree with: a world of one rank makes no collective call.
template <Communicator C, class Work>
void agree_after(C& comm, std::uint64_t digest, Work&& work) {
    Verdict mine = verdict_of(work);
    if (comm.size() == 1) {
        if (!mine.ok()) raise(mine.code, std::move(mine.reason));
        return;
    }
    mine.digest = digest;
    agree_or_raise(comm, std::move(mine));
}

}  // namespace detail

/// Collective over `comm`. `state` is this rank's shard of the `current` table, loaded by position from columns that
/// were saved as `saved`: entries [o, o + z) of the saved shards, one behind the other. Afterwards it is a sound shard
/// of the current table: sorted, empties behind, the last slot free for misses, segments and iteration as they should
/// be on every rank. The two tables are the same on all ranks and differ in their ranks only.
///
/// One exchange of headers, one of entries, and agreements before each and before anything is written; with one rank,
/// no collective call. All or nothing: every buffer is as it
/// was when any rank throws, and all throw alike: MismatchError for tables that differ in more than ranks, ids or slots
/// held twice, slots outside the shard they were saved in; BufferError and DTypeError for buffers, as shard_of();
/// OutOfMemory. In mode `route` a slot held twice is noticed where both ids arrive at one rank; validate() notices it
/// before. Bucketed tables keep their places, which are slots: nothing moves, and nothing is written.
///
/// Where more ids come than a shard has slots (all small ids are looked up on rank 0), those of the lowest score are
/// evicted, as the policy would; they are listed.
template <Communicator C>
MchChange redistribute(MchTable const& saved, MchTable const& current, MchState const& state, C& comm,
                       MchOptions const& options = {}) {
    int const rank = comm.rank();
    auto const ranks = static_cast<std::size_t>(comm.size());
    Traffic const before = comm.traffic();
    MchChange change;
    MchShard shard;
    std::vector<detail::MchOutgoing> outgoing;
    std::vector<Partition> partition;
    std::vector<std::byte> partition_memory;
    std::vector<std::byte> sent;
    std::vector<PartitionColumn> columns;
    Digest digest;
    reshard::digest(digest, saved);
    reshard::digest(digest, current);
    digest.add(static_cast<std::uint64_t>(options.mode)).add(options.drop_unreachable ? 1 : 0);
    bool const bucketed = current.layout == MchLayout::buckets;
    detail::agree_after(comm, digest.value(), [&] {
        check_table(saved);
        check_same_content(saved, current);
        if (current.slots.mesh().last_rank() >= comm.size()) {
            detail::refuse_table(
                ErrorCode::mesh, current,
                concat("the mesh ", to_string(current.slots.mesh()), " has rank ", current.slots.mesh().last_rank(),
                       ", the communicator only ", comm.size(), " ranks. Fix: use a mesh of ranks that exist."));
        }
        shard = shard_of(current, state, rank);
        if (bucketed) return;
        outgoing.emplace_back(saved, current, shard, options);
        columns = detail::columns_of(current, shard);
        partition.emplace_back(shard.entries, current.parts());
        partition_memory.resize(static_cast<std::size_t>(partition[0].workspace_bytes()));
        partition[0].count(outgoing[0].rule(), partition_memory);
        sent.resize(static_cast<std::size_t>(partition[0].lay_out(columns)));
        partition[0].scatter(outgoing[0].rule(), columns, sent);
    });
    if (bucketed) {
        Reach const here = reach(current, state, rank);
        change.live_before = change.live_after = here.live;
        change.unreachable = here.unreachable;
        return change;
    }
    change.live_before = outgoing[0].live();
    change.left_out = outgoing[0].left_out();

    // Headers: how much comes from whom.
    Index const iteration = shard.iteration != nullptr ? *shard.iteration : 0;
    std::vector<detail::MchArrival> to(ranks, {0, iteration});
    std::vector<detail::MchArrival> from(ranks);
    for (Index part = 0; part < current.parts(); ++part) {
        to[static_cast<std::size_t>(current.slots.mesh().rank_at(part))].entries =
            partition[0].counts()[static_cast<std::size_t>(part)];
    }
    if (ranks == 1) {
        from = to;
    } else {
        all_to_all(comm, std::as_bytes(std::span(to)), std::as_writable_bytes(std::span(from)));
    }

    detail::MchIncoming incoming(current, shard);
    detail::agree_after(comm, digest.value(), [&] {
        for (std::size_t r = 0; r < ranks; ++r)
            incoming.expect(static_cast<int>(r), from[r].entries, from[r].iteration);
        incoming.allocate();
    });
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (std::size_t r = 0; r < ranks; ++r) {
        Index const part = current.slots.mesh().ordinal(static_cast<Index>(r));
        if (part < 0 || to[r].entries == 0) continue;
        Index const begin = partition[0].blocks()[static_cast<std::size_t>(part)];
        Index const bytes = partition[0].blocks()[static_cast<std::size_t>(part) + 1] - begin;
        sends.push_back({static_cast<int>(r), sent.data() + begin, detail::byte_box(bytes)});
        if (static_cast<int>(r) != rank) change.sent += to[r].entries;
    }
    for (std::size_t r = 0; r < ranks; ++r) {
        if (from[r].entries == 0) continue;
        receives.push_back({static_cast<int>(r), incoming.block(static_cast<int>(r)),
                            detail::byte_box(incoming.block_bytes(static_cast<int>(r)))});
        if (static_cast<int>(r) != rank) change.received += from[r].entries;
    }
    if (ranks == 1) {
        if (!sends.empty()) std::memcpy(receives[0].base, sends[0].base, static_cast<std::size_t>(sent.size()));
    } else {
        comm.exchange(sends, receives).wait();
    }
    sent = {};

    detail::agree_after(comm, digest.value(), [&] {
        incoming.order();
        incoming.assign(options.mode == MchMode::route, change.evicted, change.moves);
    });
    incoming.commit();
    change.live_after = incoming.live();
    Router const router(current);
    Index const part = current.slots.mesh().ordinal(rank);
    for (Index i = 0; i < change.live_after; ++i) change.unreachable += router.part_of_id(shard.ids[i]) != part ? 1 : 0;
    change.bytes_sent = (comm.traffic() - before).bytes_sent;
    return change;
}

}  // namespace reshard::inline v0
