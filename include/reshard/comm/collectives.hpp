// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/collectives.hpp
/// \brief  Small collectives every transport gets for free: barrier, broadcast, all_gather, all_to_all of bytes.
/// \depends comm/{agree,any_communicator}.hpp, core/sorting.hpp, <vector>. For headers and counts; tensors move through
/// plans.
///
/// All are collective and block. They throw what agree() and exchange() throw, OutOfMemory, of which the others hear as
/// of any failure of a rank, and BufferError for buffers that do not fit: on the rank that has them, before it has said
/// anything to the others, since no agreement is made for it. All ranks that have them wrong alike can go on; where
/// one alone may have, it checks its sizes in agree_on_errors() first.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/core/sorting.hpp>

#include <numeric>  // accumulate
#include <vector>   // vector

namespace reshard::inline v0_1 {

namespace detail {

/// So many bytes in a row.
[[nodiscard]] inline StridedBox byte_box(Index bytes) noexcept {
    StridedBox box;
    box.dims.push_back({bytes, 1});
    return box;
}

/// `whole` must hold one block of `block` bytes per rank.
inline void check_blocks(std::string_view operation, std::size_t whole, std::size_t block, int ranks) {
    if (whole == block * as_size(ranks)) return;
    raise(ErrorCode::buffer, "reshard::", operation, ": a buffer of ", whole, " bytes for ", ranks, " blocks of ",
          block, " bytes. Fix: give it one block per rank.");
}

[[nodiscard]] inline bool share_bytes(std::span<std::byte const> a, std::span<std::byte const> b) noexcept {
    return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

/// Sends and receives that are added in any order of peers and move in one exchange. Who makes room for them where all
/// ranks agree next is not missed later, in the middle of a call, for a lack of memory.
struct TransferLists {
    std::vector<Send> sends;
    std::vector<Receive> receives;
    std::vector<std::size_t> room;  ///< to sort in

    void make_room(std::size_t most_sends, std::size_t most_receives) {
        sends.reserve(most_sends);
        receives.reserve(most_receives);
        room.reserve(2 * larger(most_sends, most_receives));
    }
    void make_room(int ranks) { make_room(as_size(ranks), as_size(ranks)); }
    /// Nothing is sent of nothing. Several to one peer arrive in the order they were added.
    template <class T>
    void send(int peer, std::span<T> values) {
        auto const bytes = std::as_bytes(values);
        if (!bytes.empty()) sends.push_back({peer, bytes.data(), byte_box(as_index(bytes.size()))});
    }
    template <class T>
    void receive(int peer, std::span<T> values) {
        auto const bytes = std::as_writable_bytes(values);
        if (!bytes.empty()) receives.push_back({peer, bytes.data(), byte_box(as_index(bytes.size()))});
    }
    void clear() noexcept {
        sends.clear();
        receives.clear();
    }
    /// Collective: every rank calls it, whether or not it has messages; the lists are empty again.
    void deliver(CommunicatorRef comm) {
        auto const by_peer = [](auto const& a, auto const& b) { return a.peer < b.peer; };
        sort_list(sends, by_peer, room);
        sort_list(receives, by_peer, room);
        comm.exchange(sends, receives).wait();
        clear();
    }
};

/// Whether a broadcast goes round in shares: a rank each gets one from the root and passes it on to all others, so that
/// the root sends the bytes twice and not to every rank (van de Geijn's scatter and all-gather).
[[nodiscard]] constexpr bool goes_in_shares(Index bytes, int ranks) noexcept {
    return ranks > 4 && bytes / ranks >= Index{64} << 10;
}

/// Collective where it fails: room for a message from and to every rank. Others already wait for a rank without memory.
[[nodiscard]] inline TransferLists lists_for(CommunicatorRef comm) {
    TransferLists lists;
    or_abort(comm, [&] { lists.make_room(comm.size()); });
    return lists;
}

inline void broadcast(CommunicatorRef comm, std::span<std::byte> bytes, int root, TransferLists& lists) {
    int const ranks = comm.size();
    if (root < 0 || root >= ranks) {
        raise(ErrorCode::mesh, "reshard::broadcast: root ", root, " of ", ranks, " ranks. Fix: roots count from 0.");
    }
    auto const size = as_index(bytes.size());
    bool const in_shares = goes_in_shares(size, ranks);
    auto const share_of = [&](int rank) {
        if (!in_shares) return bytes;
        auto const begin = as_size(size / ranks * rank);
        return bytes.subspan(begin, rank + 1 == ranks ? bytes.size() - begin : bytes.size() / as_size(ranks));
    };
    lists.clear();
    for (int r = 0; r < ranks && comm.rank() == root; ++r)
        if (r != root) lists.send(r, share_of(r));
    if (comm.rank() != root) lists.receive(root, share_of(comm.rank()));
    lists.deliver(comm);
    if (!in_shares) return;
    for (int r = 0; r < ranks; ++r) {
        if (r == comm.rank()) continue;
        if (r != root) lists.send(r, share_of(comm.rank()));
        if (comm.rank() != root) lists.receive(r, share_of(r));
    }
    lists.deliver(comm);
}

inline void all_gather(CommunicatorRef comm, std::span<std::byte const> mine, std::span<std::byte> all,
                       TransferLists& lists) {
    check_blocks("all_gather", all.size(), mine.size(), comm.size());
    std::byte const* const own_block = all.data() + as_size(comm.rank()) * mine.size();
    if (mine.data() != own_block && share_bytes(mine, all)) {
        raise(ErrorCode::buffer,
              "reshard::all_gather: both sides overlap. Fix: send from memory of its own, or from block ", comm.rank(),
              " of what is received, which is this rank's.");
    }
    lists.clear();
    for (int r = 0; r < comm.size(); ++r) {
        if (r == comm.rank() && mine.data() == own_block) continue;  // it is there, and peers read it
        lists.send(r, mine);
        lists.receive(r, all.subspan(as_size(r) * mine.size(), mine.size()));
    }
    lists.deliver(comm);
}

inline void check_apart_in_all_to_all(std::span<std::byte const> from, std::span<std::byte const> to) {
    if (share_bytes(from, to))
        raise(ErrorCode::buffer, "reshard::all_to_all: both sides overlap. Fix: receive into memory of its own.");
}

/// Lists what all_to_all() moves, for who must not run out of memory when others already wait.
inline void list_all_to_all(std::span<std::byte const> from, std::span<std::byte> to, int ranks, TransferLists& lists) {
    std::size_t const block = to.size() / as_size(ranks);
    check_blocks("all_to_all", to.size(), block, ranks);
    check_blocks("all_to_all", from.size(), block, ranks);
    check_apart_in_all_to_all(from, to);
    for (int r = 0; r < ranks; ++r) {
        lists.send(r, from.subspan(as_size(r) * block, block));
        lists.receive(r, to.subspan(as_size(r) * block, block));
    }
}

/// add(rank, its bytes) for each rank: `counts[rank]` rows, those of one rank behind those of the one before. `what`
/// they are: sent or received.
template <class Byte, class Add>
void for_each_block(char const* what, std::span<Byte> bytes, std::span<Index const> counts, Index row_bytes, int ranks,
                    Add&& add) {
    Index all = 0;
    bool fits = std::ssize(counts) == ranks && row_bytes >= 0;
    for (Index const count : counts) fits = fits && count >= 0 && add_fits(all, row_bytes, count);
    if (!fits || all > as_index(bytes.size())) {
        raise(ErrorCode::buffer, "reshard::all_to_all: ", bytes.size(), " bytes for what is ", what, ", ",
              counts.size(), " counts of rows of ", row_bytes, " bytes, and ", ranks,
              " ranks. Fix: give a count for each rank, none below 0, and memory for all of their rows.");
    }
    std::span<Byte> rest = bytes;
    for (int r = 0; r < ranks; ++r) {
        std::size_t const block = as_size(counts[as_size(r)] * row_bytes);
        add(r, rest.first(block));
        rest = rest.subspan(block);
    }
}

/// Lists of all ranks, one after the other, and what it takes to bring them together.
template <class T>
struct GatheredLists {
    TransferLists lists;
    std::vector<Index> sizes;  ///< of each rank's
    std::vector<T> all;

    /// Local, where all ranks agree next.
    void make_room(int ranks) {
        lists.make_room(ranks);
        sizes.resize(as_size(ranks));
    }
    /// Collective: an all-gather of sizes and one of the lists; between them an agreement about what is pending and
    /// about memory for them.
    void gather(CommunicatorRef comm, std::span<T const> mine, PendingVerdict& pending) {
        Index const size = pending.ok() ? as_index(mine.size()) : 0;
        all_gather(comm, std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)), lists);
        pending.attempt([&] { all.resize(as_size(std::accumulate(sizes.begin(), sizes.end(), Index{0}))); });
        pending.agree(comm);
        std::span<T> rest(all);
        for (int r = 0; r < comm.size(); ++r) {
            auto const theirs = as_size(sizes[as_size(r)]);
            lists.send(r, mine);
            lists.receive(r, rest.first(theirs));
            rest = rest.subspan(theirs);
        }
        lists.deliver(comm);
    }
    [[nodiscard]] std::span<T> of(int rank) {
        Index const begin = std::accumulate(sizes.begin(), sizes.begin() + rank, Index{0});
        return std::span(all).subspan(as_size(begin), as_size(sizes[as_size(rank)]));
    }
};

}  // namespace detail

/// Returns when every rank has called it. MismatchError on all where one is in another call that agrees.
inline void barrier(CommunicatorRef comm) {
    detail::agree_or_raise(comm, detail::verdict_of([] {}, "barrier"));
}

/// `bytes` of rank `root` to every rank; the same size everywhere. Throws MeshError for a root that does not exist.
inline void broadcast(CommunicatorRef comm, std::span<std::byte> bytes, int root) {
    detail::TransferLists lists = detail::lists_for(comm);
    detail::broadcast(comm, bytes, root, lists);
}

/// Block r of rank s goes to block s of rank r: equal blocks of `to.size() / comm.size()` bytes.
inline void all_to_all(CommunicatorRef comm, std::span<std::byte const> from, std::span<std::byte> to) {
    detail::TransferLists lists = detail::lists_for(comm);
    detail::list_all_to_all(from, to, comm.size(), lists);
    lists.deliver(comm);
}

/// The same of rows of `row_bytes` bytes, as many as each pair says (MPI_Alltoallv): the first `sent[0]` rows of `from`
/// go to rank 0, the next `sent[1]` to rank 1; `to` gets `received[0]` rows of rank 0 first. Both may be longer. What a
/// rank receives, an all_to_all() of `sent` tells it. MismatchError on both ranks of a pair that do not say the same,
/// PeerFailed on the others.
inline void all_to_all(CommunicatorRef comm, std::span<std::byte const> from, std::span<Index const> sent,
                       std::span<std::byte> to, std::span<Index const> received, Index row_bytes) {
    detail::TransferLists lists = detail::lists_for(comm);
    detail::check_apart_in_all_to_all(from, to);
    auto const send = [&](int rank, std::span<std::byte const> block) { lists.send(rank, block); };
    auto const receive = [&](int rank, std::span<std::byte> block) { lists.receive(rank, block); };
    detail::for_each_block("sent", from, sent, row_bytes, comm.size(), send);
    detail::for_each_block("received", to, received, row_bytes, comm.size(), receive);
    lists.deliver(comm);
}

/// `mine` of every rank, in rank order, to every rank; the same size everywhere. `all` holds comm.size() blocks.
/// `mine` may be this rank's block of it; BufferError where they overlap in any other way.
inline void all_gather(CommunicatorRef comm, std::span<std::byte const> mine, std::span<std::byte> all) {
    detail::TransferLists lists = detail::lists_for(comm);
    detail::all_gather(comm, mine, all, lists);
}

}  // namespace reshard::inline v0_1
