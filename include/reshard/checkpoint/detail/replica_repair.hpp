// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_repair.hpp
/// \brief  Overwrites the replicas that differ with the bytes of one of them.
/// \depends replica_compare.
#pragma once

#include <reshard/checkpoint/detail/replica_compare.hpp>

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

/// Collective. Sends what choose_sources() decided, one tensor at a time, at most `bucket_bytes` of it in an exchange.
inline void repair(CommunicatorRef comm, std::span<LocalTensor const> tensors,
                   std::span<ReplicaDifference const> differences, Index bucket_bytes) {
    ReplicaMail mail;
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
                bool const gives = comm.rank() == difference.source;
                bool const takes = std::find(difference.repaired.begin(), difference.repaired.end(), comm.rank()) !=
                                   difference.repaired.end();
                if (!gives && !takes) continue;
                for_each_box(tensor.view.shape(), begin, smaller(end, tensor.view.size()), [&](Box const& box) {
                    DynamicView const window = window_of(tensor.view, box);
                    if (takes) mail.receive(Receive{difference.source, window.data(), strided_box(window)});
                    for (int receiver : difference.repaired) {
                        if (gives) mail.send(Send{receiver, window.data(), strided_box(window)});
                    }
                });
            }
            mail.deliver(comm);
            begin = end;
        }
        first = last;
    }
}

}  // namespace reshard::inline v0::detail
