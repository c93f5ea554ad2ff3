// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_check.hpp
/// \brief  Who differs from whom and where, by hashes: one per replica group; where these differ one per tensor, and of
///         tensors that differ one per block.
/// \depends checkpoint/replica_report, checkpoint/detail/{element_range,replica_hash}, comm/collectives,
/// exec/local_tensor, plan/replicas.
#pragma once

#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/checkpoint/detail/replica_hash.hpp>
#include <reshard/checkpoint/replica_report.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/plan/replicas.hpp>

#include <algorithm>  // any_of, count, find, max_element, mismatch

namespace reshard::inline v0_1::detail {

/// The global index of an element of a rank's local tensor. \pre it has that element.
[[nodiscard]] inline Indices global_index(DynamicDistribution const& distribution, Index rank, Indices const& local) {
    Indices const coordinates = distribution.mesh().coordinates(rank);
    Indices result = local;
    for (int dim = 0; dim < local.size(); ++dim)
        result[dim] = distribution.index_set(coordinates, dim).global_index(local[dim]);
    return result;
}

/// Whether a rank has elements of a tensor that others have, too.
[[nodiscard]] inline bool is_copied(LocalTensor const& tensor, int rank) {
    DynamicDistribution const& distribution = tensor.distribution;
    return has_replicas(distribution) && distribution.contains(rank) && distribution.local_shape(rank).size() != 0;
}

/// Two ranks or more, and the tensors, by number, of which they should hold the same bytes.
struct ReplicaGroup {
    std::vector<int> ranks;  ///< ascending
    std::vector<std::size_t> tensors;
    Hash128 mine{};    ///< of all these tensors
    Hash128 theirs{};  ///< that of the rank before this one; the last is before the first
};

/// The groups that a rank belongs to, in the order of their first tensors: ranks that share several list these alike.
[[nodiscard]] inline std::vector<ReplicaGroup> replica_groups(std::span<LocalTensor const> tensors, int rank) {
    std::vector<ReplicaGroup> groups;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (!is_copied(tensors[i], rank)) continue;
        std::vector<int> ranks = replica_group(tensors[i].distribution, rank);
        auto known =
            std::find_if(groups.begin(), groups.end(), [&](ReplicaGroup const& group) { return group.ranks == ranks; });
        if (known == groups.end()) known = groups.insert(known, {std::move(ranks), {}});
        known->tensors.push_back(i);
    }
    return groups;
}

/// Equal numbers for equal hashes, counting from 0 in order of appearance.
[[nodiscard]] inline std::vector<int> number_contents(std::span<Hash128 const> hashes) {
    std::vector<int> contents;
    int next = 0;
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        auto const known = std::find(hashes.begin(), hashes.begin() + static_cast<std::ptrdiff_t>(i), hashes[i]);
        auto const at = as_size(known - hashes.begin());
        contents.push_back(at == i ? next++ : contents[at]);
    }
    return contents;
}

/// Fills in who is odd and which two ranks are compared element by element.
inline void judge(ReplicaDifference& difference) {
    std::vector<int> const& contents = difference.contents;
    std::vector<Index> votes(contents.size(), 0);
    for (int content : contents) ++votes[as_size(content)];
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

/// Groups whose ranks have different hashes of one of the tensors at `places`. `hashes`: of these on rank 0, then on
/// rank 1, ...
[[nodiscard]] inline std::vector<ReplicaDifference> differences_of(std::span<Hash128 const> hashes,
                                                                   std::span<LocalTensor const> tensors,
                                                                   std::span<std::size_t const> places) {
    std::vector<ReplicaDifference> result;
    std::vector<Hash128> of_group;
    for (std::size_t i = 0; i < places.size(); ++i) {
        std::size_t const t = places[i];
        std::vector<bool> seen(hashes.size() / places.size(), false);
        for (std::size_t rank = 0; rank < seen.size(); ++rank) {
            if (seen[rank] || !is_copied(tensors[t], static_cast<int>(rank))) continue;
            ReplicaDifference one;
            one.ranks = replica_group(tensors[t].distribution, as_index(rank));
            of_group.clear();
            for (int const r : one.ranks) {
                seen[as_size(r)] = true;
                of_group.push_back(hashes[as_size(r) * places.size() + i]);
            }
            one.contents = number_contents(of_group);
            if (*std::max_element(one.contents.begin(), one.contents.end()) == 0) continue;
            one.tensor = t;
            one.name = tensors[t].name;
            one.dtype = tensors[t].view.dtype();
            judge(one);
            result.push_back(std::move(one));
        }
    }
    return result;
}

/// Collective. Whether it is so on any rank.
[[nodiscard]] inline bool is_anywhere(CommunicatorRef comm, bool here) {
    Verdict mine;
    if (here) mine.code = ErrorCode::mismatch;
    return !comm.agree(std::move(mine)).ok();
}

/// Elements of a block: whole ones, at least one.
[[nodiscard]] constexpr Index block_elements(DType dtype, Index block_bytes) noexcept {
    return larger<Index>(block_bytes / bytes(dtype), 1);
}

/// The first element in which two dense blocks differ, -1 for none.
[[nodiscard]] inline Index first_difference(DType dtype, std::span<std::byte const> a, std::span<std::byte const> b,
                                            bool canonical) noexcept {
    auto const element = as_size(bytes(dtype));
    for (std::size_t at = 0; at < a.size(); at += element) {
        std::byte values[2][8]{};
        std::memcpy(values[0], a.data() + at, element);
        std::memcpy(values[1], b.data() + at, element);
        for (auto& value : values)
            if (canonical) canonicalise(dtype, std::span(value).first(element));
        if (std::memcmp(values[0], values[1], element) != 0) return as_index(at / element);
    }
    return -1;
}

/// Compares the copies of tensors, on one rank of several.
class ReplicaCheck {
public:
    /// Local, where all ranks agree next: equal copies take no memory later on. \pre the list outlives this
    ReplicaCheck(CommunicatorRef comm, std::span<LocalTensor const> tensors, bool canonical, Index block_bytes)
        : comm_(comm),
          tensors_(tensors),
          hasher_(canonical, comm.memory()),
          block_bytes_(block_bytes),
          groups_(replica_groups(tensors, comm.rank())),
          hashes_(tensors.size()) {
        std::size_t const most = larger<std::size_t>(groups_.size(), 1);  // messages at once, either way
        mail_.make_room(most, most);
        places_.make_room(comm.size());
        all_hashes_.make_room(comm.size());
        spots_.make_room(comm.size());
    }

    /// Collective; the same on every rank. Where there is no difference 16 bytes per rank and group have moved. What a
    /// rank has no memory for is an OutOfMemory on all.
    [[nodiscard]] ReplicaReport run() {
        ReplicaReport report;
        report.tensors = tensors_.size();
        for (LocalTensor const& tensor : tensors_) report.compared += has_replicas(tensor.distribution) ? 1U : 0U;
        pending_.attempt([&, this] {  // memory of a device may be out of reach
            for (ReplicaGroup& group : groups_) {
                for (std::size_t const t : group.tensors) {
                    hashes_[t] = hasher_.hash(tensors_[t].view);
                    Hash128 const both[] = {group.mine, hashes_[t]};
                    group.mine = hash_of(std::as_bytes(std::span(both)));
                }
            }
        });
        pending_.agree(comm_);
        if (!is_anywhere(comm_, differs_from_before())) return report;
        std::vector<std::size_t> const places = unequal_tensors();
        std::vector<Hash128> mine;
        pending_.attempt([&, this] {
            for (std::size_t const t : places) mine.push_back(hashes_[t]);
        });
        all_hashes_.gather(comm_, mine, pending_);
        pending_.attempt([&, this] { report.differences = differences_of(all_hashes_.all, tensors_, places); });
        pending_.agree(comm_);
        locate(report.differences);
        return report;
    }

    /// Collective. Fills in the spot of every difference, on every rank: all groups of a tensor at once, a tensor after
    /// the other, so that a rank needs memory for two blocks.
    void locate(std::vector<ReplicaDifference>& differences) {
        std::vector<Spot> mine;
        for (std::size_t next = 0; next < differences.size();) {
            std::size_t const tensor = differences[next].tensor;
            std::size_t here = differences.size();  // a rank is in one group of a tensor at most
            for (; next < differences.size() && differences[next].tensor == tensor; ++next) {
                ReplicaSpot const& spot = differences[next].spot;
                if (comm_.rank() == spot.rank || comm_.rank() == spot.reference) here = next;
            }
            bool const takes_part = here != differences.size();
            search(tensors_[tensor], takes_part ? &differences[here].spot : nullptr, here, mine);
        }
        spots_.gather(comm_, mine, pending_);
        for (Spot const& found : spots_.all) {
            ReplicaDifference& difference = differences[found.difference];
            ReplicaSpot& spot = difference.spot;
            DynamicDistribution const& distribution = tensors_[difference.tensor].distribution;
            spot.found = found.place >= 0;
            if (!spot.found) continue;
            spot.index =
                global_index(distribution, spot.rank, unravel(distribution.local_shape(spot.rank), found.place));
            Within const& within = tensors_[difference.tensor].within;
            for (int dim = 0; dim < within.shape.rank(); ++dim) spot.index[dim] += within.begin[dim];
            spot.value = found.value;
            spot.reference_value = found.reference_value;
        }
    }

private:
    struct Spot {
        std::size_t difference = 0;
        Index place = -1;  ///< in the local tensor; -1 where nothing differs any more
        std::uint64_t value = 0;
        std::uint64_t reference_value = 0;
    };

    /// To the next rank of a group, and from the one before it.
    void pass_on(ReplicaGroup const& group, Hash128 const& mine, Hash128& theirs) {
        std::vector<int> const& ranks = group.ranks;
        auto const place = as_size(std::find(ranks.begin(), ranks.end(), comm_.rank()) - ranks.begin());
        mail_.send(ranks[(place + 1) % ranks.size()], std::span<Hash128 const>(&mine, 1));
        mail_.receive(ranks[(place + ranks.size() - 1) % ranks.size()], std::span(&theirs, 1));
    }
    /// Collective. Whether this rank has other bytes than the one before it, in any group: where copies are not all
    /// equal, some rank has.
    [[nodiscard]] bool differs_from_before() {
        for (ReplicaGroup& group : groups_) pass_on(group, group.mine, group.theirs);
        mail_.deliver(comm_);
        return std::any_of(groups_.begin(), groups_.end(),
                           [](ReplicaGroup const& group) { return !(group.theirs == group.mine); });
    }

    /// Collective; the same on every rank, ascending: the tensors of which some rank differs from the one before it.
    [[nodiscard]] std::vector<std::size_t> unequal_tensors() {
        std::vector<Hash128> theirs;
        std::vector<std::size_t> found;
        pending_.attempt([&, this] {
            theirs.resize(hashes_.size());
            std::size_t messages = 0;
            for (ReplicaGroup const& group : groups_) messages += group.tensors.size();
            mail_.make_room(messages, messages);
        });
        pending_.agree(comm_);
        for (ReplicaGroup const& group : groups_)
            for (std::size_t const t : group.tensors) pass_on(group, hashes_[t], theirs[t]);
        mail_.deliver(comm_);
        pending_.attempt([&, this] {
            for (ReplicaGroup const& group : groups_)
                for (std::size_t const t : group.tensors)
                    if (!(theirs[t] == hashes_[t])) found.push_back(t);
        });
        places_.gather(comm_, found, pending_);
        found = std::move(places_.all);
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }

    /// Collective: where the copies of a tensor differ first. Two ranks of a group swap 16 bytes per block, and one
    /// sends the first block that differs. `spot` names them; null for ranks that take no part. The one that compares
    /// adds what it finds to `found`.
    void search(LocalTensor const& tensor, ReplicaSpot const* spot, std::size_t difference, std::vector<Spot>& found) {
        bool const compares = spot != nullptr && comm_.rank() == spot->reference;
        int const peer = spot == nullptr ? -1 : compares ? spot->rank : spot->reference;
        DType const dtype = tensor.view.dtype();
        Index const block = block_elements(dtype, block_bytes_);
        std::vector<Hash128> hashes;
        std::vector<Hash128> their_hashes;
        std::vector<std::byte> bytes;
        std::vector<std::byte> their_bytes;
        pending_.attempt([&, this] {
            if (spot == nullptr) return;
            hashes = hasher_.block_hashes(tensor.view, block);
            their_hashes.resize(hashes.size());
            bytes.resize(as_size(smaller(block, tensor.view.size()) * enums::bytes(dtype)));
            their_bytes.resize(bytes.size());
        });
        pending_.agree(comm_);
        mail_.send(peer, std::span<Hash128 const>(hashes));
        mail_.receive(peer, std::span(their_hashes));
        mail_.deliver(comm_);
        auto const differs = std::mismatch(hashes.begin(), hashes.end(), their_hashes.begin()).first;
        Index const begin = spot == nullptr ? 0 : smaller((differs - hashes.begin()) * block, tensor.view.size());
        Index const end = spot == nullptr ? 0 : begin + smaller(block, tensor.view.size() - begin);
        bytes.resize(as_size((end - begin) * enums::bytes(dtype)));
        their_bytes.resize(bytes.size());
        MemoryPolicy const* const from = policy_for(comm_.memory(), tensor.view.data());
        pending_.attempt([&] { gather(tensor.view, begin, end, bytes.data(), from); });
        compares ? mail_.receive(peer, std::span(their_bytes)) : mail_.send(peer, std::span<std::byte const>(bytes));
        mail_.deliver(comm_);
        if (!compares) return;
        Spot one{difference};
        if (Index const at = first_difference(dtype, bytes, their_bytes, hasher_.is_canonical()); at >= 0) {
            auto const width = static_cast<int>(enums::bytes(dtype));
            one = {difference, begin + at, load_bits(width, their_bytes.data() + at * width),
                   load_bits(width, bytes.data() + at * width)};
        }
        pending_.attempt([&] { found.push_back(one); });
    }

    CommunicatorRef comm_;
    std::span<LocalTensor const> tensors_;
    ReplicaHasher hasher_;
    Index block_bytes_;
    std::vector<ReplicaGroup> groups_;
    std::vector<Hash128> hashes_;  ///< per tensor, those that this rank has a copy of
    TransferLists mail_;
    GatheredLists<std::size_t> places_;
    GatheredLists<Hash128> all_hashes_;
    GatheredLists<Spot> spots_;
    PendingVerdict pending_;
};

}  // namespace reshard::inline v0_1::detail
