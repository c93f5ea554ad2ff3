// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_repair.hpp
/// \brief  Where two replicas differ first: hashes of blocks, then the one block in which it is. Overwrites those that
///         differ with the bytes of one of them.
/// \depends replica_compare.
#pragma once

#include <reshard/checkpoint/detail/replica_compare.hpp>

#include <utility>  // exchange

namespace reshard::inline v0::detail {

/// Elements of a block: whole ones, at least one.
[[nodiscard]] constexpr Index block_elements(DType dtype, Index block_bytes) noexcept {
    return larger<Index>(block_bytes / bytes(dtype), 1);
}

/// The first element in which two dense blocks differ, -1 for none.
[[nodiscard]] inline Index first_difference(DType dtype, std::span<std::byte const> a, std::span<std::byte const> b,
                                            bool canonical) noexcept {
    auto const element = static_cast<std::size_t>(bytes(dtype));
    for (std::size_t at = 0; at < a.size(); at += element) {
        std::byte values[2][8]{};
        std::memcpy(values[0], a.data() + at, element);
        std::memcpy(values[1], b.data() + at, element);
        for (auto& value : values)
            if (canonical) canonicalise(dtype, std::span(value).first(element));
        if (std::memcmp(values[0], values[1], element) != 0) return static_cast<Index>(at / element);
    }
    return -1;
}

/// One rank's part in finding where a difference begins: that of spot.rank, or of spot.reference, which compares.
struct Search {
    std::size_t difference = 0;
    bool compares = false;
    int peer = -1;
    std::vector<Hash128> mine;  ///< of each block
    std::vector<Hash128> theirs;
};

/// Local: this rank's parts, with the hashes of its blocks.
[[nodiscard]] inline std::vector<Search> list_searches(int rank, std::span<LocalTensor const> tensors,
                                                       std::span<ReplicaDifference const> differences,
                                                       ReplicaHasher& hasher, Index block_bytes) {
    std::vector<Search> searches;
    for (std::size_t d = 0; d < differences.size(); ++d) {
        ReplicaSpot const& spot = differences[d].spot;
        if (rank != spot.rank && rank != spot.reference) continue;
        DynamicView const& view = tensors[differences[d].tensor].view;
        bool const compares = rank == spot.reference;
        auto mine = hasher.block_hashes(view, block_elements(view.dtype(), block_bytes));
        searches.push_back({d, compares, compares ? spot.rank : spot.reference, std::move(mine), {}});
        searches.back().theirs.resize(searches.back().mine.size());
    }
    return searches;
}

/// Collective. Fills in the spot of every difference, on every rank. Two ranks of each swap 16 bytes per block, and one
/// sends the first block that differs; the blocks of one tensor at a time, so that a rank needs memory for two: for all
/// of that before the first exchange.
inline void locate(CommunicatorRef comm, std::span<LocalTensor const> tensors,
                   std::vector<ReplicaDifference>& differences, ReplicaHasher& hasher, Index block_bytes) {
    constexpr std::size_t words_per_spot = 4;  // difference, place in the local tensor or -1, both values
    std::vector<Search> searches;
    std::vector<Index> words;
    std::vector<std::byte> mine;
    std::vector<std::byte> theirs;
    TransferLists mail;
    GatheredLists<Index> spots;
    PendingVerdict pending;
    pending.attempt([&] {
        searches = list_searches(comm.rank(), tensors, differences, hasher, block_bytes);
        words.reserve(searches.size() * words_per_spot);
        for (Search const& search : searches) {
            DType const dtype = tensors[differences[search.difference].tensor].view.dtype();
            auto const most = static_cast<std::size_t>(block_elements(dtype, block_bytes) * bytes(dtype));
            mine.reserve(most);
            theirs.reserve(most);
        }
        mail.make_room(searches.size(), searches.size());
        spots.make_room(comm.size());
    });
    pending.agree(comm);
    for (Search& search : searches) {
        mail.send(search.peer, std::span<Hash128 const>(search.mine));
        mail.receive(search.peer, std::span(search.theirs));
    }
    mail.deliver(comm);
    auto next = searches.begin();
    for (std::size_t d = 0; d < differences.size(); ++d) {
        std::size_t const tensor = differences[d].tensor;
        if (d != 0 && differences[d - 1].tensor == tensor) continue;  // all groups of a tensor at once
        // A rank is in one group of a tensor at most.
        bool const takes_part = next != searches.end() && differences[next->difference].tensor == tensor;
        if (!takes_part) {
            mail.deliver(comm);
            continue;
        }
        Search const& search = *next++;
        DynamicView const& view = tensors[tensor].view;
        Index const block = block_elements(view.dtype(), block_bytes);
        auto const differs = std::mismatch(search.mine.begin(), search.mine.end(), search.theirs.begin()).first;
        Index const begin = smaller((differs - search.mine.begin()) * block, view.size());
        Index const end = begin + smaller(block, view.size() - begin);
        mine.resize(static_cast<std::size_t>((end - begin) * bytes(view.dtype())));
        theirs.resize(mine.size());
        hasher.read(view, begin, end, mine.data());
        if (search.compares) {
            mail.receive(search.peer, std::span(theirs));
        } else {
            mail.send(search.peer, std::span<std::byte const>(mine));
        }
        mail.deliver(comm);
        if (!search.compares) continue;
        Index const at = first_difference(view.dtype(), mine, theirs, hasher.is_canonical());
        auto const bits = [&](std::span<std::byte const> block_of) {
            return static_cast<Index>(load_bits(block_of.data() + at * bytes(view.dtype()), view.dtype()));
        };
        words.push_back(static_cast<Index>(search.difference));
        words.push_back(at < 0 ? -1 : begin + at);
        words.push_back(at < 0 ? 0 : bits(theirs));
        words.push_back(at < 0 ? 0 : bits(mine));
    }
    spots.gather(comm, words, pending);
    words = std::move(spots.all);
    for (std::size_t at = 0; at < words.size(); at += words_per_spot) {
        ReplicaDifference& difference = differences[static_cast<std::size_t>(words[at])];
        ReplicaSpot& spot = difference.spot;
        DynamicDistribution const& distribution = tensors[difference.tensor].distribution;
        spot.found = words[at + 1] >= 0;
        if (!spot.found) continue;
        spot.index = global_index(distribution, spot.rank, unravel(distribution.local_shape(spot.rank), words[at + 1]));
        spot.value = static_cast<std::uint64_t>(words[at + 2]);
        spot.reference_value = static_cast<std::uint64_t>(words[at + 3]);
    }
}

/// Names the source and the receivers of every difference, or says why one has no source. The same on every rank.
/// `source` is a rank, or -1; it matters in ties only.
[[nodiscard]] inline std::string choose_sources(std::vector<ReplicaDifference>& differences,
                                                std::span<LocalTensor const> tensors, int source) {
    for (ReplicaDifference& difference : differences) {
        DynamicDistribution const& distribution = tensors[difference.tensor].distribution;
        std::vector<int> const& ranks = difference.ranks;
        difference.source = difference.spot.reference;
        if (difference.is_tie()) {
            if (source < 0) {
                return concat("'", difference.name, "' cannot be repaired: ", ranks_text(ranks),
                              " hold equally many copies of different contents. Fix: name the rank that is right in "
                              "VerifyOptions::source.");
            }
            if (!distribution.contains(source)) {
                return concat("'", difference.name, "' cannot be repaired from rank ", source,
                              ", which holds nothing of it. Fix: name a rank of the mesh ",
                              to_string(distribution.mesh()), " in VerifyOptions::source.");
            }
            difference.source = same_replica(distribution, ranks.front(), source);
        }
        auto const place = std::find(ranks.begin(), ranks.end(), difference.source) - ranks.begin();
        int const right = difference.contents[static_cast<std::size_t>(place)];
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            if (difference.contents[i] != right) difference.repaired.push_back(ranks[i]);
        }
    }
    return {};
}

/// Visits what choose_sources() decided, one tensor at a time, at most `bucket_bytes` of it between two deliveries:
/// give(send), take(receive), deliver().
template <class Give, class Take, class Deliver>
void for_each_repair(int rank, std::span<LocalTensor const> tensors, std::span<ReplicaDifference const> differences,
                     Index bucket_bytes, Give&& give, Take&& take, Deliver&& deliver) {
    for (std::size_t first = 0; first < differences.size();) {
        LocalTensor const& tensor = tensors[differences[first].tensor];
        Index longest = 0;  // all groups of the tensor take part in its exchanges
        std::size_t last = first;
        for (; last < differences.size() && differences[last].tensor == differences[first].tensor; ++last) {
            longest = larger(longest, tensor.distribution.local_shape(differences[last].source).size());
        }
        Index const bucket = larger<Index>(bucket_bytes / bytes(tensor.view.dtype()), 1);
        for (Index begin = 0; begin < longest;) {
            Index const end = begin + smaller(bucket, longest - begin);
            for (std::size_t d = first; d < last; ++d) {
                ReplicaDifference const& difference = differences[d];
                bool const gives = rank == difference.source;
                bool const takes = std::find(difference.repaired.begin(), difference.repaired.end(), rank) !=
                                   difference.repaired.end();
                if (!gives && !takes) continue;
                for_each_box(tensor.view.shape(), begin, smaller(end, tensor.view.size()), [&](Box const& box) {
                    DynamicView const window = window_of(tensor.view, box);
                    if (takes) take(Receive{difference.source, window.data(), strided_box(window)});
                    for (int receiver : difference.repaired) {
                        if (gives) give(Send{receiver, window.data(), strided_box(window)});
                    }
                });
            }
            deliver();
            begin = end;
        }
        first = last;
    }
}

/// Room for the largest delivery. Local, where all ranks agree next.
[[nodiscard]] inline TransferLists room_for_repair(int rank, std::span<LocalTensor const> tensors,
                                                   std::span<ReplicaDifference const> differences, Index bucket_bytes) {
    std::size_t sends = 0;
    std::size_t receives = 0;
    std::size_t most_sends = 0;
    std::size_t most_receives = 0;
    for_each_repair(
        rank, tensors, differences, bucket_bytes, [&](Send const&) { ++sends; }, [&](Receive const&) { ++receives; },
        [&] {
            most_sends = larger(most_sends, std::exchange(sends, 0));
            most_receives = larger(most_receives, std::exchange(receives, 0));
        });
    TransferLists mail;
    mail.make_room(most_sends, most_receives);
    return mail;
}

/// Collective. `mail` is room_for_repair().
inline void repair(CommunicatorRef comm, std::span<LocalTensor const> tensors,
                   std::span<ReplicaDifference const> differences, Index bucket_bytes, TransferLists& mail) {
    for_each_repair(
        comm.rank(), tensors, differences, bucket_bytes, [&](Send const& send) { mail.sends.push_back(send); },
        [&](Receive const& receive) { mail.receives.push_back(receive); }, [&] { mail.deliver(comm); });
}

}  // namespace reshard::inline v0::detail
