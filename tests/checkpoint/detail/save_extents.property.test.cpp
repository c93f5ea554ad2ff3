// SPDX-License-Identifier: Apache-2.0
// include/reshard/checkpoint/detail/save_extents.hpp against the whole plan: what is made tensor by tensor is what a
// list of all extents has, to the byte of the manifest.
#include <reshard/checkpoint/detail/save_extents.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/save_plan.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "support/random.hpp"

namespace {
using namespace reshard;
using reshard::detail::SaveDealer;
using reshard::detail::SaveExtents;
using reshard::detail::SaveStream;

/// A rank's record: as many words as it has sums, and two.
std::vector<std::uint64_t> random_record(test::Random& random, SavePlan const& plan, int rank) {
    std::size_t words = 2;
    for (Extent const& extent : plan.extents_of(rank))
        words += SaveStream::sums_of(plan.bytes_of(extent), plan.manifest.block_bytes);
    std::vector<std::uint64_t> record{static_cast<std::uint64_t>(random.between(0, 1 << 20)), random.engine()()};
    while (record.size() < words) record.push_back(random.engine()() >> 32U);
    return record;
}

/// The manifest of the whole plan with those sums.
Manifest completed(SavePlan const& plan, std::vector<std::vector<std::uint64_t>> const& records) {
    Manifest m = plan.manifest;
    for (std::size_t f = 0; f < m.files.size(); ++f) {
        auto word = records[f].begin();
        m.files[f].file_bytes = static_cast<Index>(*word++);
        m.files[f].header_digest = *word++;
        for (Extent& extent : m.extents) {
            if (extent.file != static_cast<int>(f)) continue;
            extent.has_checksum = true;
            extent.crc32c = static_cast<std::uint32_t>(*word++);
            Index const blocks = detail::block_count(plan.bytes_of(extent), m.block_bytes);
            for (Index b = 0; b < blocks; ++b) extent.block_sums.push_back(static_cast<std::uint32_t>(*word++));
        }
        REQUIRE(word == records[f].end());
    }
    return m;
}

}  // namespace

TEST_SUITE("checkpoint/detail/save_extents property") {
    TEST_CASE(
        "extents made tensor by tensor give the manifest that a list of all of them gives, as often as they are") {
        // Boxes and copies of one are stored under names between those of others.
        std::vector<std::string> names{"w", "w.0",        "w.0.B",           "w.A",      "w.__a", "w.a", "w-", "w0",
                                       "",  "w.__box_1x", "w.__tp_replica_", "w.__box_", "v",     "x"};
        test::Limits limits;
        limits.partial = false;
        limits.max_ranks = 12;
        limits.max_elements = 400;
        int between = 0;  // cases with such names
        for (std::uint64_t const seed : test::seeds(400)) {
            CAPTURE(seed);
            test::Random random(seed, limits);
            SaveOptions options;
            options.dedup =
                random.pick(std::vector<SaveDedup>{SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared});
            options.small_bytes = random.between(0, 200);
            options.min_slice_bytes = random.between(1, 100);
            std::shuffle(names.begin(), names.end(), random.engine());
            std::vector<PlacedTensor> list;
            Index ranks = 1;
            int axes = 0;
            for (Index i = random.between(0, 9); i > 0; --i) {
                DType const dtype = random.pick(std::vector<DType>{DType::u8, DType::bf16, DType::f32, DType::i64});
                list.push_back({names[static_cast<std::size_t>(i)], random.distribution(), dtype});
                ranks = detail::larger(ranks, list.back().distribution.mesh().last_rank() + 1);
                axes = detail::larger(axes, list.back().distribution.mesh().axes());
            }
            for (int axis = 0; axis < axes; ++axis)
                if (random.chance(25)) options.replica_axes.push_back(axis);
            Index const block_bytes = random.chance(50) ? random.between(1, 60) : default_block_bytes;

            SavePlan whole = plan_save(list, static_cast<int>(ranks), options);
            whole.manifest.block_bytes = block_bytes;
            std::vector<std::vector<std::uint64_t>> records;
            for (CheckpointFile const& file : whole.manifest.files)
                records.push_back(random_record(random, whole, file.writer));
            Manifest const wanted = completed(whole, records);
            for (std::size_t e = 1; e < wanted.extents.size(); ++e)
                between += wanted.extents[e - 1].file == wanted.extents[e].file && !wanted.extents[e].key.empty() &&
                           wanted.extents[e].tensor < wanted.extents[e - 1].tensor &&
                           wanted.tensors[wanted.extents[e].tensor].dtype ==
                               wanted.tensors[wanted.extents[e - 1].tensor].dtype;

            SaveDealer dealt;
            SavePlan first = detail::plan_save_of_rank(list, static_cast<int>(ranks), 0, options, &dealt);
            first.manifest.files = wanted.files;
            first.manifest.block_bytes = block_bytes;
            SaveExtents extents(std::move(dealt), first.manifest);
            CHECK(extents.size() == wanted.extents.size());
            std::size_t words = 0;
            for (std::size_t f = 0; f < records.size(); ++f) {
                REQUIRE(extents.record(f).size() == records[f].size());
                std::copy(records[f].begin(), records[f].end(), extents.record(f).begin());
                words += records[f].size();
            }
            CHECK(extents.words() == words);
            for (int times = 0; times < 2; ++times) {
                std::string text;
                detail::write_manifest(
                    first.manifest, extents.has_blocks(), [&](std::size_t tensor) { return extents(tensor); },
                    [&](std::string_view piece) { text += piece; });
                REQUIRE(text == to_json(wanted));
            }
        }
        CHECK(between >= test::of_seeds(40));
    }
}
