// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_compare.hpp
/// \brief  Who differs from whom, by hashes: one per replica group, and one per tensor where these differ.
/// \depends replica_groups, replica_hash, replica_report, comm/collectives.
#pragma once

#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/checkpoint/detail/replica_hash.hpp>
#include <reshard/checkpoint/replica_report.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/plan/message.hpp>

#include <algorithm>  // find_if

namespace reshard::inline v0::detail {

/// The places of the copies of a part: along the Replicate axes. Ranks that differ along a Shard axis hold other
/// elements, along a Partial axis other addends.
[[nodiscard]] inline AxisSubset copies_of(DynamicDistribution const& distribution) {
    unsigned axes = 0;
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis)
        if (distribution.signature()[axis].is_replicate()) axes |= 1U << static_cast<unsigned>(axis);
    return AxisSubset(distribution.mesh(), axes);
}

/// The ranks, ascending, that hold what `rank` holds. \pre the rank is in the mesh.
[[nodiscard]] inline std::vector<int> replica_group(DynamicDistribution const& distribution, Index rank) {
    DynamicMesh const& mesh = distribution.mesh();
    AxisSubset const copies = copies_of(distribution);
    Index const part = mesh.ordinal(rank) - copies.ordinal(copies.index(mesh.ordinal(rank)));
    std::vector<int> ranks;
    ranks.reserve(static_cast<std::size_t>(copies.size()));
    for (Index i = 0; i < copies.size(); ++i) ranks.push_back(static_cast<int>(mesh.rank_at(part + copies.ordinal(i))));
    sort_list(ranks);
    return ranks;
}

/// The member of a replica group that belongs to the same replica as `rank` does: which stands where that stands along
/// the Replicate axes, and where the group stands along the others. \pre both ranks are in the mesh.
[[nodiscard]] inline int same_replica(DynamicDistribution const& distribution, Index member, Index rank) {
    DynamicMesh const& mesh = distribution.mesh();
    AxisSubset const copies = copies_of(distribution);
    Index const place = mesh.ordinal(member);
    Index const ordinal =
        place - copies.ordinal(copies.index(place)) + copies.ordinal(copies.index(mesh.ordinal(rank)));
    return static_cast<int>(mesh.rank_at(ordinal));
}

/// Whether any two ranks hold the same elements of a tensor. The same answer on every rank.
[[nodiscard]] inline bool has_replicas(DynamicDistribution const& distribution) noexcept {
    return distribution.shape().size() != 0 && copies_of(distribution).size() > 1;
}

/// The global index of an element of a rank's local tensor. \pre it has that element.
[[nodiscard]] inline Indices global_index(DynamicDistribution const& distribution, Index rank, Indices const& local) {
    Indices const coordinates = distribution.mesh().coordinates(rank);
    Indices result = local;
    for (int dim = 0; dim < local.size(); ++dim) {
        IndexSet const set = distribution.index_set(coordinates, dim);
        Index const length = set.segment(0).size();  // of all segments but the last
        result[dim] = set.segment(local[dim] / length).begin + local[dim] % length;
    }
    return result;
}

/// Two ranks or more, and the tensors, by number, of which they should hold the same bytes.
struct ReplicaGroup {
    std::vector<int> ranks;  ///< ascending; the first one compares
    std::vector<std::size_t> tensors;

    [[nodiscard]] int leader() const noexcept { return ranks.front(); }
};

/// The groups that a rank belongs to, in the order of their first tensors: ranks that share several list these alike.
[[nodiscard]] inline std::vector<ReplicaGroup> replica_groups(std::span<LocalTensor const> tensors, int rank) {
    std::vector<ReplicaGroup> groups;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        DynamicDistribution const& distribution = tensors[i].distribution;
        if (!has_replicas(distribution) || !distribution.contains(rank)) continue;
        if (distribution.local_shape(rank).size() == 0) continue;
        std::vector<int> ranks = replica_group(distribution, rank);
        auto const known =
            std::find_if(groups.begin(), groups.end(), [&](ReplicaGroup const& group) { return group.ranks == ranks; });
        if (known == groups.end()) {
            groups.push_back({std::move(ranks), {i}});
        } else {
            known->tensors.push_back(i);
        }
    }
    return groups;
}

/// Equal numbers for equal hashes, counting from 0 in order of appearance.
[[nodiscard]] inline std::vector<int> number_contents(std::span<Hash128 const> hashes) {
    std::vector<int> contents;
    int next = 0;
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        auto const known = std::find(hashes.begin(), hashes.begin() + static_cast<std::ptrdiff_t>(i), hashes[i]);
        auto const at = static_cast<std::size_t>(known - hashes.begin());
        contents.push_back(at == i ? next++ : contents[at]);
    }
    return contents;
}

/// Fills in who is odd and which two ranks are compared element by element.
inline void judge(ReplicaDifference& difference) {
    std::vector<int> const& contents = difference.contents;
    std::vector<Index> votes(contents.size(), 0);
    for (int content : contents) ++votes[static_cast<std::size_t>(content)];
    auto const most = std::max_element(votes.begin(), votes.end());
    bool const tie = std::count(votes.begin(), votes.end(), *most) > 1;
    auto const reference = tie ? 0 : static_cast<int>(most - votes.begin());
    for (std::size_t i = contents.size(); i-- > 0;) {
        int& lowest = contents[i] == reference ? difference.spot.reference : difference.spot.rank;
        lowest = difference.ranks[i];
    }
    for (std::size_t i = 0; i < contents.size() && !tie; ++i) {
        if (contents[i] != reference) difference.odd.push_back(difference.ranks[i]);
    }
}

/// What the leaders found, as numbers: tensor, how many ranks, the ranks, the contents of each.
[[nodiscard]] inline std::vector<ReplicaDifference> parse_differences(std::span<Index const> words,
                                                                      std::span<LocalTensor const> tensors) {
    std::vector<ReplicaDifference> result;
    for (std::size_t at = 0; at < words.size();) {
        ReplicaDifference difference;
        difference.tensor = static_cast<std::size_t>(words[at]);
        difference.name = tensors[difference.tensor].name;
        difference.dtype = tensors[difference.tensor].view.dtype();
        auto const count = static_cast<std::size_t>(words[at + 1]);
        for (std::size_t i = 0; i < count; ++i) {
            difference.ranks.push_back(static_cast<int>(words[at + 2 + i]));
            difference.contents.push_back(static_cast<int>(words[at + 2 + count + i]));
        }
        judge(difference);
        result.push_back(std::move(difference));
        at += 2 + 2 * count;
    }
    sort_list(result, [](ReplicaDifference const& a, ReplicaDifference const& b) {
        return a.tensor != b.tensor ? a.tensor < b.tensor : a.ranks.front() < b.ranks.front();
    });
    return result;
}

/// What a rank compares with others, and room for what it finds.
struct ReplicaComparison {
    struct Findings {
        std::vector<Hash128> own;     // of each tensor
        Hash128 whole;                // of all of them
        std::vector<Hash128> wholes;  // the leader: of each rank
    };
    std::vector<ReplicaGroup> groups;
    std::vector<Findings> findings;  ///< of each group
    TransferLists mail;
    GatheredLists<Index> list;  ///< what leaders find

    ReplicaComparison() = default;
    /// Local, where all ranks agree next.
    ReplicaComparison(CommunicatorRef comm, std::span<LocalTensor const> tensors)
        : groups(replica_groups(tensors, comm.rank())), findings(groups.size()) {
        std::size_t most = 0;  // messages at once, either way
        for (std::size_t g = 0; g < groups.size(); ++g) {
            findings[g].own.reserve(groups[g].tensors.size());
            if (comm.rank() == groups[g].leader()) findings[g].wholes.resize(groups[g].ranks.size());
            most += groups[g].ranks.size();
        }
        mail.make_room(most, most);
        list.make_room(comm.size());
    }
};

/// Collective. Whether it is so on any rank.
[[nodiscard]] inline bool is_anywhere(CommunicatorRef comm, bool here) {
    Verdict mine;
    if (here) mine.code = ErrorCode::mismatch;
    return !comm.agree(std::move(mine)).ok();
}

/// Collective. All differences, the same on every rank; where there are none, 16 bytes per rank and group have moved,
/// and nothing was allocated. What a rank has no memory for is an OutOfMemory on all.
[[nodiscard]] inline std::vector<ReplicaDifference> compare(CommunicatorRef comm, std::span<LocalTensor const> tensors,
                                                            ReplicaHasher& hasher, ReplicaComparison& comparison) {
    int const rank = comm.rank();
    auto const& groups = comparison.groups;
    auto& findings = comparison.findings;
    TransferLists& mail = comparison.mail;
    // From each rank of a group to its leader, which has a row for each of them: its own is there.
    auto const to_leaders = [&](auto const& mine_of, auto const& rows_of) {
        for (std::size_t g = 0; g < groups.size(); ++g) {
            std::span<Hash128 const> const mine = mine_of(g);
            if (rank != groups[g].leader()) {
                mail.send(groups[g].leader(), mine);
                continue;
            }
            for (std::size_t m = 1; m < groups[g].ranks.size(); ++m)
                mail.receive(groups[g].ranks[m], rows_of(g).subspan(m * mine.size(), mine.size()));
        }
        mail.deliver(comm);
    };
    for (std::size_t g = 0; g < groups.size(); ++g) {
        auto& found = findings[g];
        for (std::size_t i : groups[g].tensors) found.own.push_back(hasher.hash(tensors[i].view));
        found.whole = hash_of(std::as_bytes(std::span(found.own)));
        if (rank == groups[g].leader()) found.wholes.front() = found.whole;
    }
    to_leaders([&](std::size_t g) { return std::span<Hash128 const>(&findings[g].whole, 1); },
               [&](std::size_t g) { return std::span(findings[g].wholes); });
    bool here = false;
    for (auto const& found : findings)
        for (Hash128 const& whole : found.wholes) here = here || !(whole == found.whole);
    if (!is_anywhere(comm, here)) return {};

    PendingVerdict pending;
    std::vector<std::vector<Hash128>> tables;  // the leader: a row of hashes per rank
    pending.attempt([&] {
        tables.resize(groups.size());
        for (std::size_t g = 0; g < groups.size(); ++g) {
            if (rank != groups[g].leader()) continue;
            tables[g] = findings[g].own;
            tables[g].resize(groups[g].tensors.size() * groups[g].ranks.size());
        }
    });
    pending.agree(comm);
    to_leaders([&](std::size_t g) { return std::span<Hash128 const>(findings[g].own); },
               [&](std::size_t g) { return std::span(tables[g]); });

    std::vector<Index> words;
    pending.attempt([&] {
        std::vector<Hash128> column;
        for (std::size_t g = 0; g < groups.size(); ++g) {
            ReplicaGroup const& group = groups[g];
            std::size_t const row = group.tensors.size();
            for (std::size_t t = 0; t < row && !tables[g].empty(); ++t) {
                column.clear();
                for (std::size_t m = 0; m < group.ranks.size(); ++m) column.push_back(tables[g][m * row + t]);
                std::vector<int> const contents = number_contents(column);
                if (*std::max_element(contents.begin(), contents.end()) == 0) continue;
                words.push_back(static_cast<Index>(group.tensors[t]));
                words.push_back(static_cast<Index>(group.ranks.size()));
                words.insert(words.end(), group.ranks.begin(), group.ranks.end());
                words.insert(words.end(), contents.begin(), contents.end());
            }
        }
    });
    comparison.list.gather(comm, words, pending);
    std::vector<ReplicaDifference> differences;
    pending.attempt([&] { differences = parse_differences(comparison.list.all, tensors); });
    pending.agree(comm);
    return differences;
}

}  // namespace reshard::inline v0::detail
