// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/replica_report.hpp.
#include <reshard/checkpoint/replica_report.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {
using namespace reshard;

ReplicaDifference difference() {
    ReplicaDifference d;
    d.tensor = 17;
    d.name = "layers.0.mlp.up_proj.weight";
    d.dtype = DType::f32;
    d.ranks = {0, 1, 2, 3, 8};
    d.contents = {0, 0, 1, 0, 0};
    d.odd = {2};
    d.spot = {2, 0, true, {17, 5}, 0x3fc00000U, 0x3fa00000U};
    return d;
}

TEST_CASE("a difference is one line: tensor, ranks, who is odd, where, and both values") {
    ReplicaDifference d = difference();
    CHECK(to_string(d) ==
          "'layers.0.mlp.up_proj.weight' F32 on ranks 0-3,8: rank 2 is odd; first at [17,5]: "
          "1.5 (0x3fc00000) on rank 2, 1.25 (0x3fa00000) on rank 0");
    d.odd = {1, 2};
    CHECK(to_string(d).find(": ranks 1,2 are odd; first") != std::string::npos);
    d.odd.clear();
    d.source = 0;
    d.repaired = {2};
    CHECK(to_string(d).find(": a tie, nobody is odd; first") != std::string::npos);
    CHECK(to_string(d).find("on rank 0; rank 2 repaired from rank 0") != std::string::npos);
    d.spot.found = false;
    CHECK(to_string(d).find("rank 2 and rank 0 no longer differ: the memory was written") != std::string::npos);
}

TEST_CASE("a report counts tensors once, and stops printing where it was told to") {
    ReplicaReport report;
    report.tensors = 5;
    report.compared = 3;
    CHECK(report.equal());
    CHECK(explain(report) == "3 tensors with replicas, all equal");
    report.differences = {difference(), difference(), difference()};
    report.differences[2].tensor = 18;
    CHECK_FALSE(report.equal());
    std::string const line = "\n  " + to_string(difference());
    CHECK(explain(report) == "2 of 3 tensors with replicas differ" + line + line + line);
    CHECK(explain(report, 1) == "2 of 3 tensors with replicas differ" + line + "\n  and 2 more differences");
}

}  // namespace
