// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/compare_reads.hpp.
#include <reshard/checkpoint/compare_reads.hpp>

#include <doctest/doctest.h>

#include "support.hpp"

namespace {
using namespace checkpoint_test;

/// 2000 shards of a transformer: five kinds of weights and two of norms, layer by layer, in units of a kilobyte.
std::vector<Index> shard_sizes() {
    std::vector<Index> sizes;
    for (Index const unit : {4096, 1024, 1024, 4096, 14336, 14336, 14336, 4, 4}) sizes.push_back(unit);
    std::vector<Index> all;
    for (std::size_t i = 0; i < 2000; ++i) all.push_back(sizes[i % sizes.size()] * 1000 + static_cast<Index>(i % 7));
    return all;
}

/// The shards in the files that file_of(i) names, as rank `file` wrote them.
template <class FileOf>
Catalogue made(int files, FileOf&& file_of) {
    auto const sizes = shard_sizes();
    Manifest manifest;
    manifest.save = "0123456789abcdef";
    manifest.world_size = files;
    std::vector<Index> ends(static_cast<std::size_t>(files));
    for (int f = 0; f < files; ++f) manifest.files.push_back({concat("file", f), 0, 0, f});
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        manifest.tensors.push_back({concat("t", 10000 + i), DType::u8, Shape{sizes[i]}, 1, ""});
        int const file = file_of(i);
        Index& end = ends[static_cast<std::size_t>(file)];
        manifest.extents.push_back({i, 0, file, end, Box(Shape{sizes[i]})});
        end += sizes[i];
    }
    std::stable_sort(manifest.extents.begin(), manifest.extents.end(), [](Extent const& a, Extent const& b) {
        return a.file != b.file ? a.file < b.file : a.begin < b.begin;
    });
    return Catalogue(manifest);
}
/// Saved by as many ranks as files, largest shard first, each to the rank with the fewest bytes.
Catalogue saved_by_size(int files) {
    auto const sizes = shard_sizes();
    std::vector<std::size_t> order(sizes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
    std::vector<int> file_of(sizes.size());
    std::vector<Index> load(static_cast<std::size_t>(files));
    for (std::size_t i : order) {
        auto const least = std::min_element(load.begin(), load.end());
        file_of[i] = static_cast<int>(least - load.begin());
        *least += sizes[i];
    }
    return made(files, [&](std::size_t i) { return file_of[i]; });
}
/// In the order of their names, in files of about the same size.
Catalogue saved_in_order(int files) {
    auto const sizes = shard_sizes();
    Index total = 0;
    for (Index bytes : sizes) total += bytes;
    std::vector<int> file_of;
    Index before = 0;
    for (Index bytes : sizes) {
        file_of.push_back(static_cast<int>((before + bytes / 2) * files / total));
        before += bytes;
    }
    return made(files, [&](std::size_t i) { return file_of[i]; });
}

}  // namespace

TEST_SUITE("checkpoint/compare_reads") {
    TEST_CASE("opens and balance: spans keep both, dealing by size loses one and whole files the other") {
        struct Row {
            Catalogue catalogue;
            int ranks;
            Index most_opens;  ///< of spans: never more than files + ranks - 1
        };
        // The bounds are those that a plan of spans of whole shards has had, without files' ends in mind.
        Row const rows[] = {{saved_by_size(8), 8, 8},
                            {saved_by_size(8), 32, 37},
                            {saved_by_size(64), 8, 69},
                            {saved_in_order(30), 8, 36}};
        for (Row const& row : rows) {
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
            CHECK(spans.opens <= row.most_opens);
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
        std::vector<LoadTarget> const targets{{"b", parse("(4):(R)", Shape{64, 64}), DType::f32}};
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
