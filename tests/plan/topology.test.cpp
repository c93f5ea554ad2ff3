// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/topology.hpp.
#include <reshard/plan/topology.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

namespace {
using namespace reshard;

std::string complaint(std::vector<Tier> tiers) {
    try {
        Topology const topology(std::move(tiers));
    } catch (MeshError const& error) {
        return error.message();
    }
    return "none";
}

}  // namespace

TEST_SUITE("plan/topology") {
    TEST_CASE("two ranks meet in the innermost tier that holds both") {
        Topology const topology({{"node", 4, 1e-6, 1e9, 0}, {"rack", 16, 2e-6, 1e9, 0}, {"cluster", 0, 3e-6, 1e9, 0}});
        CHECK(topology.size() == 3);
        CHECK(topology.tier_of(0, 3) == 0);
        CHECK(topology.tier_of(3, 4) == 1);
        CHECK(topology.tier_of(15, 16) == 2);
        CHECK(topology.tier_of(5, 5) == 0);
        CHECK(topology.unit(0, 11) == 2);
        CHECK(topology.unit(1, 17) == 1);
        CHECK(topology.unit(2, 1 << 20) == 0);
        CHECK_NOTHROW(topology.require(INT32_MAX));
    }

    TEST_CASE("ranks outside the outermost tier are an error that names both") {
        Topology const topology({{"node", 8, 0, 1e9, 0}});
        CHECK_NOTHROW(topology.require(7));
        CHECK_THROWS_WITH_AS(topology.require(8),
                             "reshard::Topology: rank 8 is outside the outermost tier 'node' of 8 ranks. Fix: make it "
                             "larger, or 0 for all ranks.",
                             MeshError);
    }

    TEST_CASE("what is no topology is refused, and the tier is named") {
        double const nan = std::numeric_limits<double>::quiet_NaN();
        double const infinity = std::numeric_limits<double>::infinity();
        CHECK(complaint({}).find("0 tiers") != std::string::npos);
        CHECK(complaint(std::vector<Tier>(9, Tier{"x", 1, 0, 1, 0})).find("9 tiers") != std::string::npos);
        CHECK(complaint({{"", 4, 0, 1, 0}}).find("tier 0 '' has no name") != std::string::npos);
        CHECK(complaint({{"node", -1, 0, 1, 0}}).find("-1 ranks per unit") != std::string::npos);
        CHECK(complaint({{"node", 0, 0, 1, 0}, {"all", 0, 0, 1, 0}}).find("tier 0 'node' has 0") != std::string::npos);
        CHECK(complaint({{"node", 4, 0, 1, 0}, {"rack", 6, 0, 1, 0}}).find("tier 1 'rack'") != std::string::npos);
        CHECK(complaint({{"node", 4, 0, 1, 0}, {"rack", 4, 0, 1, 0}}).find("two or more") != std::string::npos);
        Index const huge = Index{1} << 62;  // twice that is negative
        CHECK(complaint({{"node", huge, 0, 1, 0}, {"rack", huge, 0, 1, 0}}).find("two or more") != std::string::npos);
        CHECK(complaint({{"node", 4, -1e-6, 1, 0}}).find("latency") != std::string::npos);
        CHECK(complaint({{"node", 4, nan, 1, 0}}).find("latency") != std::string::npos);
        CHECK(complaint({{"node", 4, 0, 0, 0}}).find("bandwidth") != std::string::npos);
        CHECK(complaint({{"node", 4, 0, infinity, 0}}).find("bandwidth") != std::string::npos);
        CHECK(complaint({{"node", 4, 0, 1, -1}}).find("uplink") != std::string::npos);
        CHECK(complaint({{"node", 4, 0, 1, nan}}).find("uplink") != std::string::npos);
        CHECK(complaint({{"node", 4, 0, 1, 0}, {"rack", 8, 0, 1, 0}, {"all", 0, 0, 1, 0}}) == "none");
    }

    TEST_CASE("prints a line a tier") {
        Topology const topology({{"node", 8, 2e-6, 450e9, 400e9}, {"cluster", 0, 1.5e-3, 50e9, 0}});
        CHECK(to_string(topology) ==
              "node: 8 ranks, 2.0 us, 450 GB/s a rank, 400 GB/s out of a unit\n"
              "cluster: all ranks, 1.5 ms, 50 GB/s a rank\n");
    }
}
