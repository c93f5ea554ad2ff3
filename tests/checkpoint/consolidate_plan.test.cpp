// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/consolidate_plan.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/detail/consolidate_output.hpp>
#include <reshard/checkpoint/detail/consolidate_piece.hpp>
#include <reshard/checkpoint/detail/element_range.hpp>

#include "../../examples/support/model_lists.hpp"
#include "consolidate_support.hpp"

#include <string>

using namespace checkpoint_test;

TEST_SUITE("checkpoint/consolidate_plan") {
    TEST_CASE("shares of five models differ by less than 2 % on 8, 64 and 512 ranks, into one file and into many") {
        for (demo::ModelConfig const& config : demo::models()) {
            CAPTURE(config.name);
            Catalogue const from = Catalogue::of(demo::model_list(config));
            for (Index const max_file_bytes : {Index{0}, Index{500'000'000}}) {
                ConsolidateOptions options;
                options.max_file_bytes = max_file_bytes;
                auto const output = reshard::detail::full_output(from, options, std::string(16, '0'));
                reshard::detail::ByteLine const line(from, output.catalogue);
                for (int const ranks : {8, 64, 512}) {
                    CAPTURE(ranks);
                    Index least = line.bytes();
                    Index most = 0;
                    Index before = 0;
                    for (int rank = 0; rank < ranks; ++rank) {
                        CHECK(line.cut(rank, ranks) == before);
                        Index const next = line.cut(rank + 1, ranks);
                        least = detail::smaller(least, next - before);
                        most = detail::larger(most, next - before);
                        before = next;
                    }
                    CHECK(before == line.bytes());
                    CHECK(static_cast<double>(most) < 1.02 * static_cast<double>(least));
                }
            }
        }
    }

    TEST_CASE("a dry run says how many ranks read and write what") {
        Catalogue const from = Catalogue::of(demo::model_list(demo::qwen2_5_0_5b()));
        ConsolidateOptions options;
        options.max_file_bytes = 500'000'000;
        RewritePlan const plan = plan_consolidate(from, 8, options);
        CHECK(plan.imbalance() < 0.02);
        CHECK(plan.memory == Index{2} << 20U);  // pieces are not longer than 1 MiB
        Index opens = 0;
        Index bytes = 0;
        for (RewriteShare const& share : plan.shares) {
            opens += share.files_written;
            bytes += share.bytes();
            CHECK(share.bytes_read == share.bytes());
        }
        CHECK(bytes == plan.bytes_out);
        CHECK(opens <= plan.files_out + plan.ranks - 1);  // shares are contiguous
        std::string const text = explain(plan, 2);
        CAPTURE(text);
        CHECK(contains(text, "rewrite 290 tensors, 942.2 MiB in 1 file -> 942.2 MiB in 2 files, by 8 ranks\n"));
        CHECK(contains(text, "% above the mean, 1 vote, at most 2.0 MiB in flight a rank\n"));
        CHECK(contains(text, "  rank 0: bytes [0, "));
        CHECK(contains(text, "  and 6 more ranks\n"));
    }

    TEST_CASE("a dry run has the notes of what would be done") {
        std::vector<TensorSpec> const specs{{"a", DType::f32, Shape{4}}};
        Manifest manifest = Catalogue::of(specs).manifest();
        std::string const leaf = manifest.files[0].leaf;
        manifest.files[0].unlisted = 2;
        Catalogue const from(manifest, CheckpointKind::shards);
        for (RewritePlan const& plan : {plan_consolidate(from, 2), plan_shards(from, placed_as("(2):(S0)"), 2)}) {
            CHECK(plan.kind == CheckpointKind::shards);
            CHECK(plan.unlisted == std::vector{manifest.files[0]});
            CHECK(contains(explain(plan), "\nnote: PyTorch's shards do not say how many ranks saved: "));
            CHECK(contains(explain(plan), "\nnote: the index does not name 2 tensors of '" + leaf + "': "));
        }
    }

    TEST_CASE("what a plan counts is what a rank does") {
        for (std::uint64_t const seed : reshard::test::seeds(20)) {
            CAPTURE(seed);
            reshard::test::Random random(seed);
            TempFolder folder;
            std::filesystem::create_directory(folder / "in");
            Saved saved{{"w", DType::f32, Shape{random.between(1, 300), random.between(1, 300)}}, 1, {}};
            int part = 0;
            for (Box const& box : guillotine(random, Box(saved.spec.shape), 6))
                saved.parts.push_back({0, part++ % 3, box});
            write_sharded(folder / "in", {saved}, 3, Described::by_manifest);
            ConsolidateOptions options;
            options.window_bytes = Index{256} << 10;
            options.in_flight = 2;
            options.vote_bytes = random.between(1000, 1000000);
            int const ranks = static_cast<int>(random.between(1, 4));
            RewritePlan const plan = plan_consolidate(Catalogue(Checkpoint::open(folder / "in")), ranks, options);
            auto const reports = on_ranks(ranks, [&](ThreadCommunicator& comm) {
                return consolidate(folder / "in", folder / "out", comm, options);
            });
            for (std::size_t r = 0; r < reports.size(); ++r) {
                CHECK(reports[r].reads == plan.shares[r].reads);
                CHECK(reports[r].bytes_read == plan.shares[r].bytes_read);
                CHECK(reports[r].bytes_written == plan.shares[r].bytes());
                CHECK(reports[r].writes <= plan.shares[r].runs);
            }
        }
    }

    TEST_CASE("shards of a mesh: the plan of the other way") {
        Catalogue const from = Catalogue::of(demo::model_list(demo::qwen2_5_0_5b(2)));
        RewritePlan const plan = plan_shards(
            from,
            [](StoredTensor const& tensor) {
                return parse(tensor.shape.rank() == 2 ? "(4):(S1)" : "(4):(S0)", tensor.shape);
            },
            3);
        CHECK(plan.files_out == 4);
        CHECK(plan.imbalance() < 0.02);
        for (RewriteShare const& share : plan.shares) CHECK(share.bytes_read == share.bytes());  // each byte once
        CHECK_THROWS_WITH_AS(static_cast<void>(plan_consolidate(from, 0)),
                             "reshard::plan_consolidate: 0 ranks. Fix: at least one.", MeshError);
        CHECK_THROWS_WITH_AS(static_cast<void>(plan_shards(from, placed_as("(2):(R)"), 0)),
                             "reshard::plan_shards: 0 ranks. Fix: at least one.", MeshError);
        ConsolidateOptions none;
        none.max_file_bytes = -1;
        CHECK_THROWS_AS(static_cast<void>(plan_consolidate(from, 1, none)), BufferError);
    }
}

TEST_SUITE("checkpoint/detail/consolidate_piece") {
    using reshard::detail::for_each_box;

    TEST_CASE("a run of elements, in boxes, is one run of any box that it meets") {
        reshard::test::Random random(7);
        for (int turn = 0; turn < 300; ++turn) {
            DynamicShape const shape = random.shape();
            if (shape.size() == 0) continue;
            Index const begin = random.between(0, shape.size() - 1);
            auto const boxes = guillotine(random, Box(shape), 4);
            for_each_box(shape, begin, random.between(begin, shape.size()), [&](Box const& slab) {
                for (Box const& box : boxes) {
                    Box const part = intersect(slab, box);
                    if (part.empty()) continue;
                    Box last = part;  // of one element, the last
                    for (int d = 0; d < part.rank(); ++d) last.set(d, {part.end(d) - 1, part.end(d)});
                    Index const first = reshard::detail::place_in(box, part);
                    CHECK(reshard::detail::place_in(box, last) == first + part.size() - 1);
                }
            });
        }
    }
}
