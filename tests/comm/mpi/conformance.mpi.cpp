// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/mpi.hpp: the contract of a transport, on every way a byte can take.
#include <reshard/comm/mpi.hpp>

#include "comm/conformance.hpp"
#include "comm/policies.hpp"

#include <doctest/doctest.h>

#include <random>  // mt19937

namespace {
using namespace reshard;
using namespace std::chrono_literals;

static_assert(MpiCommunicator::name == "mpi");
static_assert(ExchangeRequest<MpiRequest>);

/// Every way between ranks that works on this machine: 0 ranks per node: as the machine is; 1: as if each rank had a
/// machine of its own; 2: some of each.
std::vector<MpiOptions> all_ways() {
    std::vector<MpiOptions> ways;
    for (int ranks_per_node : {0, 1, 2}) {
        for (MpiPath path : {MpiPath::automatic, MpiPath::messages}) {
            MpiOptions options;
            options.path = path;
            options.ranks_per_node = ranks_per_node;
            options.deadline = 60s;
            ways.push_back(options);
        }
    }
    return ways;
}

template <class Body>
void for_each_way(Body const& body) {
    for (auto const& options : all_ways()) {
        CAPTURE(options.ranks_per_node);
        CAPTURE(static_cast<int>(options.path));
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        body(comm);
    }
}
}  // namespace

TEST_SUITE("comm/mpi") {
    TEST_CASE("MpiCommunicator: keeps the contract on every path") {
        for_each_way([](MpiCommunicator& comm) { test::conforms(comm); });
    }

    TEST_CASE("MpiCommunicator: keeps the contract with policies around it") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        test::conforms_with_policies<test::SomePolicies>(comm);
    }

    TEST_CASE("MpiCommunicator: keeps the contract when every exchange is streamed") {
        MpiOptions options;
        options.streaming_threshold = 0;
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        test::conforms(comm);
    }
}
