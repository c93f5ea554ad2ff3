// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/consolidate.hpp>

#include <doctest/doctest.h>

#include "consolidate_support.hpp"

#include <string>
#include <vector>

using namespace checkpoint_test;

namespace {

/// Tensors of any type and shape, cut at random into any files, some in several copies.
std::vector<Saved> random_model(reshard::test::Random& random, int files, bool manifest) {
    std::vector<Saved> list;
    auto const count = random.between(1, 8);
    for (Index t = 0; t < count; ++t) {
        auto const dtype = static_cast<DType>(random.between(0, dtype_count - 1));
        DynamicShape shape = is_byte_sized(dtype) ? random.shape() : DynamicShape(Indices{4, random.between(0, 60)});
        if (random.chance(10)) shape = is_byte_sized(dtype) ? DynamicShape(Indices{}) : DynamicShape(Indices{0, 3});
        Saved saved{{errors::concat("t", t), dtype, shape}, manifest && random.chance(20) ? 2 : 1, {}};
        for (int r = 0; r < saved.replicas; ++r) {
            int const cuts = is_byte_sized(dtype) ? static_cast<int>(random.between(0, 9)) : 0;
            for (Box const& box : guillotine(random, Box(shape), cuts)) {
                saved.parts.push_back({r, static_cast<int>(random.between(0, files - 1)), box});
            }
        }
        // The manifest of shards is what their headers say: a file without an entry would be a missing rank.
        list.push_back(saved);
    }
    // Long enough for runs that are copied from file to file by themselves.
    Saved wide{{"wide", DType::i16, DynamicShape(Indices{random.between(100, 400), random.between(200, 700)})}, 1, {}};
    for (Box const& box : guillotine(random, Box(wide.spec.shape), static_cast<int>(random.between(0, 2))))
        wide.parts.push_back({0, static_cast<int>(random.between(0, files - 1)), box});
    list.push_back(wide);
    Saved filler{{"zz", DType::u8, DynamicShape(Indices{files})}, 1, {}};
    for (int f = 0; f < files; ++f) filler.parts.push_back({0, f, Box{{f, f + 1}}});
    list.push_back(filler);
    return list;
}

void choose(RewriteOptions& options, reshard::test::Random& random) {
    options.in_flight = static_cast<int>(random.between(1, 3));
    options.window_bytes = options.in_flight * (Index{64} << 10) * random.between(1, 8);
    options.vote_bytes = random.chance(50) ? random.between(100, 5000) : Index{1} << 20;
    options.checksums = random.chance(70);
    options.durable = random.chance(20);
}

}  // namespace

TEST_SUITE("checkpoint/consolidate") {
    TEST_CASE("any shards become full files, other shards, and full files again, with the same bytes") {
        reshard::test::Limits limits;
        limits.partial = false;
        limits.max_ranks = 6;
        limits.plain_ranks = true;
        limits.max_elements = 6000;
        for (std::uint64_t seed : reshard::test::seeds(120)) {
            CAPTURE(seed);
            reshard::test::Random random(seed, limits);
            bool const manifest = random.chance(50);
            int const files = static_cast<int>(random.between(1, 5));
            TempFolder const folder;
            std::filesystem::create_directory(folder / "in");
            auto const list = random_model(random, files, manifest);
            write_sharded(folder / "in", list, files, manifest ? Described::by_manifest : Described::by_shards);

            ConsolidateOptions full;
            choose(full, random);
            full.replica = static_cast<int>(random.between(0, 2));
            full.max_file_bytes = random.chance(30) ? 0 : random.between(1, 40000);
            int const ranks = static_cast<int>(random.between(1, 5));
            CAPTURE(ranks);
            auto const reports = on_ranks(ranks, [&](ThreadCommunicator& comm) {
                return consolidate(folder / "in", folder / "full", comm, full);
            });
            REQUIRE(damage(folder / "full", list, full.replica) == "");
            Index written = 0;
            for (auto const& report : reports) {
                written += report.bytes_written;
                CHECK(report.written == reports[0].written);
                CHECK(report.extra_bytes <= full.window_bytes);
            }
            CHECK(written == reports[0].bytes_total);
            if (full.checksums) {
                for (Extent const& extent : reports[0].written.extents) {
                    CHECK(extent.has_checksum);
                    StoredTensor const& tensor = reports[0].written.tensors[extent.tensor];
                    int const copy = full.replica % list[extent.tensor].replicas;
                    CHECK(extent.crc32c ==
                          crc32c(bytes_of_box(content_of(tensor.name, copy, list[extent.tensor].replicas), tensor.dtype,
                                              tensor.shape, extent.box)));
                }
            }

            // Each tensor is placed by itself; sources may be cut, copies may be kept apart.
            auto const mesh = random.mesh();
            std::vector<DynamicDistribution> places;
            for (Saved const& saved : list) {
                DynamicDistribution to = random.distribution(mesh, saved.spec.shape);
                if (!is_byte_sized(saved.spec.dtype)) {
                    Placements copies;
                    for (int axis = 0; axis < mesh.axes(); ++axis) copies.push_back(Placement::replicate());
                    to = DynamicDistribution(mesh, saved.spec.shape, copies);
                }
                places.push_back(to);
            }
            PlaceTensor const place = [&](StoredTensor const& tensor) {
                for (std::size_t i = 0; i < list.size(); ++i)
                    if (list[i].spec.name == tensor.name) return places[i];
                return DynamicDistribution();
            };
            ShardOptions shards;
            choose(shards, random);
            shards.replica = full.replica;
            shards.dedup = static_cast<SaveDedup>(random.between(0, 2));
            if (random.chance(40)) shards.replica_axes.push_back(static_cast<int>(random.between(0, mesh.axes() - 1)));
            int const writers = static_cast<int>(random.between(1, 5));
            on_ranks(writers, [&](ThreadCommunicator& comm) {
                return shard_checkpoint(folder / "in", folder / "direct", place, comm, shards);
            });
            on_ranks(writers, [&](ThreadCommunicator& comm) {
                return shard_checkpoint(folder / "full", folder / "shards", place, comm, shards);
            });
            std::vector<Saved> chosen = list;  // the full files have one copy each
            for (std::string const& where : {folder / "direct", folder / "shards"}) {
                Checkpoint const shard = Checkpoint::open(where);
                for (Extent const& extent : shard.manifest().extents) {
                    StoredTensor const& tensor = shard.manifest().tensors[extent.tensor];
                    Saved const& saved = list[extent.tensor];
                    CHECK(extent.has_checksum == shards.checksums);
                    std::vector<std::byte> bytes(static_cast<std::size_t>(stored_bytes_of(tensor.dtype, extent.box)));
                    shard.files()[static_cast<std::size_t>(extent.file)].read_data(extent.begin, bytes);
                    CHECK(bytes == bytes_of_box(content_of(tensor.name, full.replica % saved.replicas, saved.replicas),
                                                tensor.dtype, tensor.shape, extent.box));
                    if (extent.has_checksum) CHECK(extent.crc32c == crc32c(bytes));
                }
            }

            ConsolidateOptions back = full;
            back.replica = 0;
            on_ranks(ranks, [&](ThreadCommunicator& comm) {
                return consolidate(folder / "shards", folder / "back", comm, back);
            });
            for (auto const& entry : std::filesystem::directory_iterator(folder / "full")) {
                std::string const leaf = entry.path().filename();
                CHECK(read_text(folder / ("back/" + leaf)) == read_text(folder / ("full/" + leaf)));
            }
        }
    }
}
