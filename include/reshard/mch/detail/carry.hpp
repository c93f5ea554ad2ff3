// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/carry.hpp
/// \brief  What redistribute() does wherever columns lie: who hears what, which bytes move, and when ranks agree.
/// \depends mch/detail/arrival, comm/collectives, exec/agree_tensors.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/exec/agree_tensors.hpp>
#include <reshard/mch/detail/arrival.hpp>

namespace reshard::inline v0_1::detail {

/// One table on its way, on one rank: the base of those that know where its columns lie. They add `arrivals()`, which
/// is MchExpected with `memory(block)`, and of the entries for a part `entries_for(part)` (those that stay on this rank
/// included), `block(part)` and `block_bytes(part)` of what is packed.
struct MchMovingTable {
    MchTable const& saved;
    MchTable const& current;
    MchShard shard;
    Index part;  ///< of the mesh, -1 outside
    Index iteration = 0;

    /// The slots of a bucketed table are places, which a load by position keeps.
    [[nodiscard]] bool stays() const noexcept { return current.layout == MchLayout::buckets; }
    [[nodiscard]] int rank_of(Index p) const noexcept { return static_cast<int>(current.slots.mesh().rank_at(p)); }
};

/// What all ranks have to have in common: the base of MchHostTables and MchDeviceTables. `where`: their columns lie.
struct MchTerms {
    std::span<MchTransition const> tables;
    MchOptions const& options;
    std::string_view where;

    [[nodiscard]] BatchDigest digest() const {
        Digest words;
        words.add_text(where).add(static_cast<std::uint64_t>(options.mode));
        words.add(options.drop_unreachable ? 1 : 0).add(options.accept_strays ? 1 : 0);
        BatchDigest result{words.value(), {}};
        for (MchTransition const& one : tables) {
            Digest table;
            reshard::digest(table, one.saved);
            table.add_text(one.saved.save);
            reshard::digest(table, one.current);
            result.tensors.push_back(table.value());
        }
        return result;
    }
    /// Completes "rank 3 ..., but rank 0 ...". `place` as first_difference() gives it.
    [[nodiscard]] std::string text(Index place) const {
        if (place < 0) {
            return concat("redistributes ", where,
                          options.mode == MchMode::route ? " by route" : " by the owner of slots",
                          options.drop_unreachable ? ", dropping what is unreachable" : "",
                          options.accept_strays ? ", accepting strays" : "");
        }
        auto const i = as_size(place);
        if (i >= tables.size()) return concat("redistributes ", tables.size(), " tables");
        std::string const& save = tables[i].saved.save;
        return concat("redistributes table ", i, " ", to_string(tables[i].saved), save.empty() ? "" : " of save ", save,
                      " to ", to_string(tables[i].current));
    }
};

/// What rank r is to hear, a header a table.
template <class Tables>
[[nodiscard]] std::vector<MchArrival> headers_of(Tables const& list, std::size_t ranks) {
    std::vector<MchArrival> result(ranks * list.size());
    for (std::size_t t = 0; t < list.size(); ++t) {
        auto const& one = list[t];
        for (std::size_t r = 0; r < ranks; ++r) result[r * list.size() + t].iteration = one.iteration;
        for (Index part = 0; !one.stays() && part < one.current.parts(); ++part) {
            result[as_size(one.rank_of(part)) * list.size() + t].entries = one.entries_for(part);
        }
    }
    return result;
}

/// All tables in one message per pair of ranks.
template <class Tables>
void list_entries(Tables& list, int rank, TransferLists& lists) {
    for (auto& one : list) {
        if (one.stays()) continue;
        for (Index part = 0; part < one.current.parts(); ++part) {
            Index const bytes = one.block_bytes(part);
            if (part == one.part || bytes == 0) continue;
            lists.send(one.rank_of(part), std::span(one.block(part), as_size(bytes)));
            one.change().sent += one.entries_for(part);
            one.change().bytes_sent += bytes;
        }
        for (MchBlock const& block : one.arrivals().blocks()) {
            if (block.rank == rank) continue;
            lists.receive(block.rank, std::span(one.arrivals().memory(block), as_size(block.bytes)));
            one.change().received += block.entries;
        }
    }
}

/// Carries tables. `moving` are MchTerms, and of them nothing but this communicates:
///
///     begin(rank, ranks)                 looks at all tables, and counts what leaves
///     list()                             a table each
///     list_headers(told, heard, comm, lists)     in memory that the communicator moves
///     hear(heard)                        brings there what was received elsewhere
///     pack(heard, rank, ranks)           what leaves; makes room for what comes
///     arrange()                          works the shards out
///     commit()                           writes them, and returns what became of each table; may not fail
template <class Tables>
auto carry(Tables& moving, CommunicatorRef comm) {
    int const rank = comm.rank();
    int const ranks = comm.size();
    TransferLists lists;
    BatchDigest digest;
    std::vector<MchArrival> told;
    std::vector<MchArrival> heard;
    agree_on_work(
        comm,
        [&] {
            digest = moving.digest();
            moving.begin(rank, ranks);
            heard = told = headers_of(moving.list(), as_size(ranks));
            if (ranks != 1) moving.list_headers(told, heard, comm, lists);
        },
        [&](Verdict mine) {
            mine.call = "redistribute";
            agree_on_batch(comm, std::move(mine), digest, [&](Index place) { return moving.text(place); });
        });
    if (ranks != 1) lists.deliver(comm);

    agree_after(comm, digest.whole(), [&] {
        if (ranks != 1) moving.hear(heard);
        moving.pack(heard, rank, ranks);
        list_entries(moving.list(), rank, lists);
        lists.make_room(lists.sends.size(), lists.receives.size());  // to sort in: those of a table follow another's
    });
    if (ranks != 1) lists.deliver(comm);

    agree_after(comm, digest.whole(), [&] { moving.arrange(); });
    return moving.commit();
}

}  // namespace reshard::inline v0_1::detail
