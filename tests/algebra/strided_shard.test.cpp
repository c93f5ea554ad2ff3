// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/algebra/strided_shard.hpp: parts as PyTorch computed them, see bench/peers/dtensor_boxes.py.
#include <reshard/algebra/strided_shard.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// "0+2,9+2": what a rank has, in runs.
std::string runs_of(DynamicDistribution const& distribution, Index rank) {
    IndexSet const set = distribution.index_set(distribution.mesh().coordinates(rank), 0);
    std::vector<Interval> runs;
    for (Index k = 0; k < set.segments(); ++k) {
        Interval const next = set.segment(k);
        if (runs.empty() || runs.back().end != next.begin) runs.push_back({next.begin, next.begin});
        runs.back().end = next.end;
    }
    std::string text;
    for (Interval run : runs) text += errors::concat(text.empty() ? "" : ",", run.begin, "+", run.size());
    return text.empty() ? "-" : text;
}

Indices numbers(std::string text) {
    std::replace(text.begin(), text.end(), ',', ' ');
    std::istringstream words(text);
    Indices result;
    for (Index number = 0; words >> number;) result.push_back(number);
    return result;
}

std::string refusal(DynamicMesh const& mesh, DynamicShape const& shape, Placements const& placements,
                    Indices const& factors) {
    try {
        return to_string(from_strided_shard(mesh, shape, placements, factors));
    } catch (PlacementError const& error) {
        return error.what();
    }
}

}  // namespace

TEST_SUITE("algebra/strided_shard") {
    TEST_CASE("every rank has what DTensor gives it, or nothing is made") {
        auto const file = std::filesystem::path(__FILE__).parent_path() / "data/dtensor_strided.txt";
        std::ifstream lines(file);
        REQUIRE_MESSAGE(lines, file.string(), " is not there");
        int made = 0;
        int refused = 0;
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("#")) continue;
            CAPTURE(line);
            std::istringstream words(line);
            std::string mesh_text;
            std::string factor_text;
            Index extent = 0;
            words >> mesh_text >> extent >> factor_text;
            DynamicMesh const mesh(numbers(mesh_text.substr(1, mesh_text.size() - 2)));
            Indices factors = numbers(factor_text);
            Placements placements;
            for (Index& factor : factors) {
                placements.push_back(factor == 0 ? Placement::replicate() : Placement::shard(0));
                factor = std::max<Index>(factor, 1);
            }
            DynamicDistribution ours;
            try {
                ours = from_strided_shard(mesh, Shape{extent}, placements, factors);
                ++made;
            } catch (PlacementError const&) {
                ++refused;
                continue;
            }
            CAPTURE(to_string(ours));
            for (Index rank = 0; rank < mesh.size(); ++rank) {
                CAPTURE(rank);
                std::string theirs;
                words >> theirs;
                CHECK(runs_of(ours, rank) == theirs);
            }
        }
        CHECK(made == 111);
        CHECK(refused == 9);
    }

    TEST_CASE("what even parts are called") {
        Placements const both{Placement::shard(0), Placement::shard(0)};
        CHECK(refusal(Mesh{2, 4}, Shape{64, 3}, both, {4, 1}) == "(2,4):(S0,S0)@1,0");
        CHECK(refusal(Mesh{2, 4}, Shape{64, 3}, both, {1, 1}) == "(2,4):(S0,S0)");
        CHECK(refusal(Mesh{2, 4}, Shape{3, 64}, {Placement::shard(0), Placement::shard(1)}, {1, 2}) ==
              "(2,4):(S0,S1:cyc8)");
        CHECK(refusal(Mesh{2, 4}, Shape{64}, both, {1, 2}) == "(2,4):(S0,S0:cyc4)");
        CHECK(refusal(Mesh{3}, Shape{3}, {Placement::shard(0)}, {5}) == "(3):(S0:str5)");  // pieces of one
        CHECK(refusal(Mesh{4}, Shape{8}, {Placement::shard(0)}, {Index{1} << 62}) == "(4):(S0:str4611686018427387904)");
        CHECK(refusal(Mesh{2}, Shape{4, 15}, {Placement::shard(1)}, {3}) == "(2):(S1:str3)");
        CHECK(refusal(Mesh{2, 4}, Shape{20}, both, {4, 1}) == "(2,4):(S0,S0)@1,0");
        CHECK(refusal(Mesh{2, 4}, Shape{21}, both, {1, 3}) == "(2,4):(S0,S0:str3)");
        CHECK(refusal(Mesh{2, 4}, Shape{INT64_MAX - 7}, both, {4, 1}) == "(2,4):(S0,S0)@1,0");  // no sum is beyond it
        Placement const balanced = Placement::shard(0, {SplitKind::balanced, 0, {}});  // of one rank: all of it
        CHECK(refusal(Mesh{1, 2}, Shape{8}, {balanced, Placement::shard(0)}, {1, 2}) == "(1,2):(S0:bal,S0:cyc2)");
    }

    TEST_CASE("what is refused, and why") {
        Placements const both{Placement::shard(0), Placement::shard(0)};
        CHECK(
            refusal(Mesh{2, 3}, Shape{20}, both, {3, 2}) ==
            "reshard::from_strided_shard: _StridedShard(0, split_factor=3) on mesh axis 0 of (2,3) cuts the 20 "
            "elements of dimension 0 into uneven parts, and another axis cuts these. Fix: redistribute it to Shard(0) "
            "in PyTorch first.");
        CHECK(refusal(Mesh{2}, Shape{16}, {Placement::shard(0, {SplitKind::balanced, 0, {}})}, {2}) ==
              "reshard::from_strided_shard: a split factor of 2 for S0:bal on mesh axis 0. Fix: give 1, or more for a "
              "shard cut by chunks.");
        CHECK(refusal(Mesh{2}, Shape{16}, {Placement::shard(0)}, {0}).find("a split factor of 0") != std::string::npos);
        CHECK(refusal(Mesh{2}, Shape{16}, {Placement::shard(0)}, {1, 1}).find("1 placements and 2 split factors") !=
              std::string::npos);
        CHECK(refusal(Mesh{2}, Shape{16}, {Placement::shard(1)}, {2}).find("has no dimension 1") != std::string::npos);
    }
}
