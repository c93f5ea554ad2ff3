// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_repair.hpp
/// \brief  Overwrites the replicas that differ with the bytes of one of them.
/// \depends replica_compare.
#pragma once

#include <reshard/checkpoint/detail/replica_compare.hpp>

#include <utility>  // exchange

namespace reshard::inline v0::detail {

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
