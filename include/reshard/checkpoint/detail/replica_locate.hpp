// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_locate.hpp
/// \brief  Where two replicas differ first: hashes of blocks, then the one block in which it is.
/// \depends replica_compare.
#pragma once

#include <reshard/checkpoint/detail/replica_compare.hpp>

namespace reshard::inline v0::detail {

/// Elements of a block: whole ones, at least one.
[[nodiscard]] constexpr Index block_elements(DType dtype, Index block_bytes) noexcept {
    return larger<Index>(block_bytes / bytes(dtype), 1);
}

/// The first element in which two dense blocks differ, -1 for none, and how many do.
struct BlockDifference {
    Index first = -1;
    Index count = 0;
};
[[nodiscard]] inline BlockDifference compare_blocks(DType dtype, std::span<std::byte const> a,
                                                    std::span<std::byte const> b, bool canonical) noexcept {
    BlockDifference result;
    auto const element = static_cast<std::size_t>(bytes(dtype));
    auto const is_same = [&](std::size_t at) {
        if (std::memcmp(a.data() + at, b.data() + at, element) == 0) return true;
        if (!canonical) return false;
        std::byte values[2][8]{};
        std::memcpy(values[0], a.data() + at, element);
        std::memcpy(values[1], b.data() + at, element);
        for (auto& value : values) canonicalise(dtype, std::span(value).first(element));
        return std::memcmp(values[0], values[1], element) == 0;
    };
    for (std::size_t at = 0; at < a.size(); at += element) {
        if (is_same(at)) continue;
        if (result.count++ == 0) result.first = static_cast<Index>(at / element);
    }
    return result;
}

/// One rank's part in finding where a difference begins: that of spot.rank, which sends, or of spot.reference.
struct Search {
    std::size_t difference = 0;
    bool compares = false;
    std::vector<Hash128> mine;
    std::vector<Hash128> theirs;  // the one that compares
    Index block = -1;             // the first that differs
    Index blocks = 0;             // how many do
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
        Search search;
        search.difference = d;
        search.compares = rank == spot.reference;
        search.mine = hasher.block_hashes(view, block_elements(view.dtype(), block_bytes));
        if (search.compares) search.theirs.resize(search.mine.size());
        searches.push_back(std::move(search));
    }
    return searches;
}
/// Collective: both sides learn which block differs first. `mail` has room for a message of each search.
inline void search_blocks(CommunicatorRef comm, std::span<ReplicaDifference const> differences,
                          std::span<Search> searches, ReplicaMail& mail) {
    for (Search& search : searches) {
        ReplicaSpot const& spot = differences[search.difference].spot;
        if (search.compares) {
            mail.receive(spot.rank, std::span(search.theirs));
        } else {
            mail.send(spot.reference, std::span<Hash128 const>(search.mine));
        }
    }
    mail.deliver(comm);
    for (Search& search : searches) {
        ReplicaSpot const& spot = differences[search.difference].spot;
        for (std::size_t b = 0; b < search.theirs.size(); ++b) {
            if (search.theirs[b] == search.mine[b]) continue;
            if (search.blocks++ == 0) search.block = static_cast<Index>(b);
        }
        if (search.compares) {
            mail.send(spot.rank, std::span<Index const>(&search.block, 1));
        } else {
            mail.receive(spot.reference, std::span<Index>(&search.block, 1));
        }
    }
    mail.deliver(comm);
}

/// What spot.reference found, as numbers; see parse_spots().
inline constexpr std::size_t words_per_spot = 8;

[[nodiscard]] inline Index bits_at(std::span<std::byte const> block, Index element, DType dtype) noexcept {
    return static_cast<Index>(load_bits(block.data() + element * bytes(dtype), dtype));
}

inline void parse_spots(std::span<Index const> words, std::span<LocalTensor const> tensors,
                        std::vector<ReplicaDifference>& differences) {
    for (std::size_t at = 0; at < words.size(); at += words_per_spot) {
        ReplicaDifference& difference = differences[static_cast<std::size_t>(words[at])];
        ReplicaSpot& spot = difference.spot;
        DynamicDistribution const& distribution = tensors[difference.tensor].distribution;
        spot.found = words[at + 1] >= 0;
        if (!spot.found) continue;
        spot.local_index = unravel(distribution.local_shape(spot.rank), words[at + 1]);
        spot.index = global_index(distribution, spot.rank, spot.local_index);
        spot.value = static_cast<std::uint64_t>(words[at + 2]);
        spot.reference_value = static_cast<std::uint64_t>(words[at + 3]);
        spot.distance = value_distance(difference.dtype, spot.value, spot.reference_value);
        spot.elements = words[at + 4];
        spot.block_size = words[at + 5];
        spot.blocks = words[at + 6];
        spot.blocks_total = words[at + 7];
    }
}

/// Collective. Fills in the spot of every difference, on every rank. Moves 16 bytes per block, and one block, of every
/// difference; the blocks of one tensor at a time, so that a rank needs memory for two: for all of that before the
/// first exchange.
inline void locate(CommunicatorRef comm, std::span<LocalTensor const> tensors,
                   std::vector<ReplicaDifference>& differences, ReplicaHasher& hasher, Index block_bytes) {
    std::vector<Search> searches;
    std::vector<Index> words;
    std::vector<std::byte> mine;
    std::vector<std::byte> theirs;
    ReplicaMail mail;
    ListJoin join;
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
        join.make_room(comm);
    });
    pending.agree(comm);
    search_blocks(comm, differences, searches, mail);
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
        ReplicaSpot const& spot = differences[search.difference].spot;
        DynamicView const& view = tensors[tensor].view;
        Index const block = block_elements(view.dtype(), block_bytes);
        Index const begin = larger<Index>(search.block, 0) * block;
        Index const end = search.block < 0 ? begin : begin + smaller(block, view.size() - begin);
        mine.resize(static_cast<std::size_t>((end - begin) * bytes(view.dtype())));
        gather(view, begin, end, mine.data());
        if (search.compares) {
            theirs.resize(mine.size());
            mail.receive(spot.rank, std::span(theirs));
        } else {
            mail.send(spot.reference, std::span<std::byte const>(mine));
        }
        mail.deliver(comm);
        if (!search.compares) continue;

        BlockDifference const found = compare_blocks(view.dtype(), mine, theirs, hasher.is_canonical());
        std::size_t const size = words.size();
        words.resize(size + words_per_spot, 0);
        words[size] = static_cast<Index>(search.difference);
        words[size + 1] = found.first < 0 ? -1 : begin + found.first;
        if (found.first < 0) continue;
        words[size + 2] = bits_at(theirs, found.first, view.dtype());
        words[size + 3] = bits_at(mine, found.first, view.dtype());
        words[size + 4] = found.count;
        words[size + 5] = end - begin;
        words[size + 6] = search.blocks;
        words[size + 7] = static_cast<Index>(search.mine.size());
    }
    parse_spots(join.run(comm, words, pending), tensors, differences);
}

}  // namespace reshard::inline v0::detail
