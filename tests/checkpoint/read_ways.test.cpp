// SPDX-License-Identifier: Apache-2.0
// Mirrors examples/support/read_ways.hpp.
#include "../../examples/support/read_ways.hpp"

#include <doctest/doctest.h>

#include "../../examples/support/read_cases.hpp"
#include "support.hpp"

#include <vector>

namespace {
using namespace checkpoint_test;
}  // namespace

TEST_SUITE("checkpoint/read_ways") {
    TEST_CASE("opens and balance: spans keep both, dealing by size loses one and whole files the other") {
        // The bounds are those that a plan of spans of whole shards has had, without files' ends in mind.
        Index const most_opens[] = {8, 37, 69, 36};
        auto const cases = demo::read_cases();
        REQUIRE(cases.size() == 4);
        for (std::size_t i = 0; i < cases.size(); ++i) {
            demo::ReadCase const& row = cases[i];
            auto const files = static_cast<Index>(row.catalogue.files().size());
            CAPTURE(files);
            CAPTURE(row.ranks);
            auto const ways = demo::compare_reads(row.catalogue, row.ranks);
            REQUIRE(ways.size() == 3);
            demo::ReadShares const& spans = ways[0];
            demo::ReadShares const& by_size = ways[1];
            demo::ReadShares const& by_writer = ways[2];
            for (demo::ReadShares const& way : ways) CHECK(way.bytes == spans.bytes);
            CHECK(spans.opens <= most_opens[i]);
            CHECK(spans.opens <= files + row.ranks - 1);
            CHECK(spans.imbalance() <= 1.05);
            CHECK(spans.readers == row.ranks);
            CHECK(by_size.imbalance() <= 1.05);
            CHECK(by_size.opens >= spans.opens);
            if (files == row.ranks) {  // the load deals as the save did: all is where it was
                CHECK(spans.opens == files);
                CHECK(by_size.opens == files);
                CHECK(by_writer.opens == files);
                CHECK(by_writer.imbalance() <= 1.005);
            } else if (files < row.ranks) {  // ranks that wrote nothing read nothing
                CHECK(by_writer.opens == files);
                CHECK(by_writer.readers == files);
                CHECK(by_writer.imbalance() == doctest::Approx(4.0).epsilon(0.005));
                CHECK(by_size.opens > spans.opens);
            } else {  // files of ranks that are no more are dealt by size
                CHECK(by_writer.opens > spans.opens);
                CHECK(by_size.opens > spans.opens);
            }
        }
    }
}
