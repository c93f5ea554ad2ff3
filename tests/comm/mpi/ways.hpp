// SPDX-License-Identifier: Apache-2.0
// Every way between ranks that works on this machine.
#pragma once

#include <reshard/comm/mpi.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <initializer_list>
#include <vector>

namespace reshard::test {

/// 0 ranks per node: as the machine is; 1: as if each rank had a machine of its own; 2: some of each.
inline std::vector<MpiOptions> all_ways(std::initializer_list<MpiPath> paths = {MpiPath::automatic,
                                                                                MpiPath::messages}) {
    std::vector<MpiOptions> ways;
    for (int ranks_per_node : {0, 1, 2}) {
        for (MpiPath path : paths) {
            MpiOptions options;
            options.path = path;
            options.ranks_per_node = ranks_per_node;
            options.deadline = std::chrono::seconds(60);
            ways.push_back(options);
        }
    }
    return ways;
}

template <class Body>
void for_each_way(std::vector<MpiOptions> const& ways, Body const& body) {
    for (auto const& options : ways) {
        CAPTURE(options.ranks_per_node);
        CAPTURE(static_cast<int>(options.path));
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        body(comm);
    }
}

}  // namespace reshard::test
