// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/peers.hpp
/// \brief  Lists of transfers, sorted by peer, taken peer by peer; which ranks a split brings together.
/// \depends core/{sorting,transfer}.hpp, <span>, <vector>.
#pragma once

#include <reshard/core/sorting.hpp>
#include <reshard/core/transfer.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// The transfers of `sorted` whose peer is `peer`.
template <class T>
[[nodiscard]] std::span<T const> transfers_with(std::span<T const> sorted, int peer) noexcept {
    auto const begin =
        first_where<std::size_t>(0, sorted.size(), [&](std::size_t i) { return sorted[i].peer >= peer; });
    std::size_t end = begin;
    while (end < sorted.size() && sorted[end].peer == peer) ++end;
    return sorted.subspan(begin, end - begin);
}

/// Ranks that split() brings together with `me`, in their new order: those of its colour, or none but itself where that
/// is negative. at(r): the colour and the key that rank r gave.
template <class At>
[[nodiscard]] std::vector<int> ranks_of_part(int me, int ranks, At const& at) {
    std::vector<int> part;
    for (int r = 0; r < ranks; ++r)
        if (r == me || (at(me).colour >= 0 && at(r).colour == at(me).colour)) part.push_back(r);
    sort_list(part, [&](int a, int b) { return at(a).key < at(b).key; });
    return part;
}

/// Bytes of all of them on the wire.
template <class T>
[[nodiscard]] Index payload_of(std::span<T const> transfers) noexcept {
    Index bytes = 0;
    for (T const& transfer : transfers) bytes += transfer.payload_bytes();
    return bytes;
}

/// The way around the peers.
enum class Way { up, down };

/// Calls body(peer, transfers) once per peer: from `start` up and around, or from the one below it down and around.
template <Way W = Way::up, class T, class Body>
void for_each_peer(std::span<T const> sorted, int start, Body&& body) {
    std::size_t const size = sorted.size();
    std::size_t turn = 0;
    while (turn < size && sorted[turn].peer < start) ++turn;
    for (std::size_t done = 0; done < size;) {
        std::size_t first = W == Way::up ? turn + done : turn + (size - 1 - done);
        if (first >= size) first -= size;
        int const peer = sorted[first].peer;
        std::size_t last = first + 1;
        while (first > 0 && sorted[first - 1].peer == peer) --first;
        while (last < size && sorted[last].peer == peer) ++last;
        body(peer, sorted.subspan(first, last - first));
        done += last - first;
    }
}

/// Calls body(peer, sends, receives) once per peer that either list names, ascending.
template <class Body>
void for_each_pair(std::span<Send const> sends, std::span<Receive const> receives, Body&& body) {
    while (!sends.empty() || !receives.empty()) {
        bool const sends_first = receives.empty() || (!sends.empty() && sends[0].peer < receives[0].peer);
        int const peer = sends_first ? sends[0].peer : receives[0].peer;
        auto const take = [peer](auto& list) {  // goes on also where somebody has not sorted them
            std::size_t n = 0;
            while (n < list.size() && list[n].peer == peer) ++n;
            auto const taken = list.first(n);
            list = list.subspan(n);
            return taken;
        };
        auto const mine = take(sends);
        body(peer, mine, take(receives));
    }
}

}  // namespace reshard::inline v0_1::detail
