// SPDX-License-Identifier: Apache-2.0
// Parts of 500 distributions as PyTorch's DTensor computed them: see bench/peers/dtensor_boxes.py. Uneven, nested and
// empty parts among them.
#include <reshard/algebra/notation.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

using namespace reshard;

TEST_CASE("every rank's part begins and ends where DTensor says") {
    auto const file = std::filesystem::path(__FILE__).parent_path() / "data/dtensor_boxes.txt";
    std::ifstream lines(file);
    REQUIRE_MESSAGE(lines, file.string(), " is not there");
    int compared = 0;
    int nested = 0;
    int empty = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("#")) continue;
        CAPTURE(line);
        std::istringstream words(line);
        std::string notation;
        std::string shape;
        words >> notation >> shape;
        DynamicDistribution const ours = parse(notation, parse_shape(shape));
        CHECK(to_string(ours) == notation);
        for (Index rank = 0; rank < ours.mesh().size(); ++rank) {
            CAPTURE(rank);
            std::string theirs;
            words >> theirs;
            Box const box = ours.box(rank);
            std::string mine;
            for (int dim = 0; dim < ours.shape().rank(); ++dim) {
                if (dim != 0) mine += ",";
                mine += std::to_string(box.begin(dim)) + "+" + std::to_string(box.extent(dim));
            }
            CHECK(mine == theirs);
            if (box.empty()) ++empty;
            ++compared;
        }
        std::string rest;
        words >> rest;
        CHECK(rest.empty());
        for (int dim = 0; dim < ours.shape().rank(); ++dim) {
            if (ours.cuts(dim).size() > 1) ++nested;
        }
    }
    CHECK(compared > 3000);
    CHECK(nested > 100);
    CHECK(empty > 500);
}
