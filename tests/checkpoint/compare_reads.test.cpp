// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/compare_reads.hpp.
#include <reshard/checkpoint/compare_reads.hpp>

#include <doctest/doctest.h>

#include "../../examples/support/read_cases.hpp"
#include "support.hpp"

#include <vector>

namespace {
using namespace checkpoint_test;
}  // namespace

TEST_SUITE("checkpoint/compare_reads") {
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
            auto const ways = compare_reads(row.catalogue, row.ranks);
            REQUIRE(ways.size() == 3);
            INFO(explain(ways));
            ReadShares const& spans = ways[0];
            ReadShares const& by_size = ways[1];
            ReadShares const& by_writer = ways[2];
            for (ReadShares const& way : ways) CHECK(way.bytes == spans.bytes);
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

    TEST_CASE("with targets: what each rank would read for itself, and only what somebody needs") {
        std::vector<TensorSpec> const specs{{"a", DType::f32, Shape{64, 64}}, {"b", DType::f32, Shape{64, 64}}};
        Catalogue const catalogue = Catalogue::of(specs);
        std::vector<PlacedTensor> const targets{{"b", parse("(4):(R)", Shape{64, 64}), DType::f32}};
        auto const ways = compare_reads(catalogue, targets, 4);
        REQUIRE(ways.size() == 4);
        CHECK(ways[0].bytes == 16384);
        CHECK(ways[0].opens == 4);
        CHECK(ways[1].name == "each rank for itself");
        CHECK(ways[1].bytes == 4 * 16384);
        CHECK(ways[1].opens == 4);
        CHECK(ways[1].imbalance() == 1.0);
        CHECK(ways[2].opens == 1);
        CHECK(ways[2].imbalance() == 4.0);
        CHECK(ways[3].opens == 1);
        CHECK(explain(std::span(ways).first(1)) ==
              "equal spans of the files: 4 open files, 16.0 KiB by 4 of 4 ranks, the busiest 1.00 of the mean\n");
        CHECK(compare_reads(Catalogue(), 3)[0].imbalance() == 1.0);
        CHECK(caught([&] { static_cast<void>(compare_reads(catalogue, 0)); }).code == ErrorCode::mesh);
    }
}
