// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/traffic_case.hpp
/// \brief  What kernels are given where their traffic is counted: on the host by its double (tests/cuda/watch), on a
///         GPU by a profiler (tests/cuda/device/traffic.cu).
#pragma once

#include "support/mch_kernels.hpp"

#include <algorithm>  // sort
#include <vector>

namespace reshard::test {

/// What TorchRec's tables have: an id and a slot, and two columns of metadata.
inline constexpr Index columns_of_table = 4;

/// Reads two words of an entry, as BySlot does of tables with empty places.
struct ByTwoWords {
    Index const* ids;
    Index const* slots;
    Index world;
    [[nodiscard]] RESHARD_HOST_DEVICE Index operator()(Index entry) const {
        return static_cast<Index>(static_cast<std::uint64_t>(ids[entry] ^ slots[entry]) %
                                  static_cast<std::uint64_t>(world));
    }
};

struct SortedRuns {
    std::vector<Index> begins{0};
    std::vector<Index> keys;
};
inline SortedRuns sorted_runs(Random& random, Index runs, Index longest) {
    SortedRuns made;
    for (Index run = 0; run < runs; ++run) {
        for (Index i = 0; i < longest; ++i) made.keys.push_back(random.between(0, INT64_MAX / 2));
        std::sort(made.keys.begin() + made.begins.back(), made.keys.end());
        made.begins.push_back(static_cast<Index>(made.keys.size()));
    }
    return made;
}

/// 32768 entries of 4 words for 8 ranks, and 8 runs of 3000 keys.
struct TrafficCase {
    PartitionCase partition;
    SortedRuns runs;
    TrafficCase() {
        Random random(1);
        partition = random_partition(random, Index{16} * 2048, 8, std::vector<Index>(columns_of_table, 8), Skew::even);
        runs = sorted_runs(random, 8, 3000);
    }
};

}  // namespace reshard::test
