// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/save_plan.hpp: who writes what, and what is refused.
#include <reshard/checkpoint/save_plan.hpp>

#include <doctest/doctest.h>

#include "../support/random.hpp"
#include "support.hpp"

#include <string>
#include <vector>

namespace {
using namespace reshard;
using checkpoint_test::caught;
using checkpoint_test::Caught;
using checkpoint_test::contains;

PlacedTensor source(std::string name, DType dtype, std::string const& placed, DynamicShape const& shape) {
    return {std::move(name), parse(placed, shape), dtype};
}
std::vector<int> writers(SavePlan const& plan) {
    std::vector<int> ranks;
    for (CheckpointFile const& file : plan.manifest.files) ranks.push_back(file.writer);
    return ranks;
}
std::vector<Index> loads(SavePlan const& plan) {
    std::vector<Index> bytes;
    for (int rank = 0; rank < plan.ranks; ++rank) bytes.push_back(plan.bytes_of(rank));
    return bytes;
}
double imbalance(SavePlan const& plan) {
    Index most = 0;
    for (Index bytes : loads(plan)) most = detail::larger(most, bytes);
    return static_cast<double>(most) * plan.ranks / static_cast<double>(plan.bytes_written);
}
constexpr Index mib = Index{1} << 20;

}  // namespace

TEST_SUITE("checkpoint/save_plan") {
    TEST_CASE("shards are written by who holds them, copies once, and a file is laid out as safetensors does") {
        std::vector<PlacedTensor> const list{source("w", DType::f32, "(2,2):(R,S0)", Shape{4, 8}),
                                             source("a", DType::bf16, "(2,2):(R,R)", Shape{3}),
                                             source("id", DType::i64, "(2,2):(S0,R)", Shape{3})};
        SavePlan const plan = plan_save(list, 6, {.dedup = SaveDedup::lowest_rank});
        CHECK(writers(plan) == std::vector<int>{0, 1, 2});
        CHECK(plan.manifest.tensors[0] == StoredTensor{"a", DType::bf16, Shape{3}, 1, "(2,2):(R,R)"});
        CHECK(plan.sources == std::vector<std::size_t>{2, 0, 1, 0, 2});
        auto const mine = plan.extents_of(0);
        REQUIRE(mine.size() == 3);
        CHECK(mine[0] == Extent{1, 0, 0, 0, Box{{0, 2}}});
        CHECK(mine[1] == Extent{2, 0, 0, 16, Box{{0, 2}, {0, 8}}});
        CHECK(mine[2] == Extent{0, 0, 0, 80, Box{{0, 3}}});
        CHECK(plan.extents_of(2).size() == 1);
        CHECK(plan.extents_of(3).empty());
        CHECK(plan.extents_of(5).empty());
        CHECK(plan.bytes_of(0) == 86);
        CHECK(plan.bytes_written == 4 * 8 * 4 + 3 * 2 + 3 * 8);
        CHECK(plan.bytes_held == 2 * 4 * 8 * 4 + 4 * 3 * 2 + 2 * 3 * 8);
        CHECK(explain(plan) ==
              "save 3 tensors as 5 extents in 3 files of 6 ranks, lowest_rank\n"
              "  328 B held, 158 B written, 170 B of copies left out\n"
              "  busiest rank 86 B, 3.26 times the mean of all ranks\n"
              "  rank 0: 3 extents, 86 B\n"
              "  rank 1: 1 extent, 64 B\n"
              "  rank 2: 1 extent, 8 B\n");
        CHECK(contains(explain(plan, 1), "rank 0: 3 extents, 86 B\n  and 2 more ranks\n"));
        CHECK(plan == plan_save(list, 6, {.dedup = SaveDedup::lowest_rank}));
        CHECK_FALSE(plan == plan_save(list, 7, {.dedup = SaveDedup::lowest_rank}));
    }

    TEST_CASE("balanced: largest first to the least loaded, what one rank must write counts first, ties go low") {
        std::vector<PlacedTensor> const list{
            source("a", DType::u8, "(3):(R)", Shape{3 * mib}),     source("b", DType::u8, "(3):(R)", Shape{3 * mib}),
            source("c", DType::u8, "(3):(R)", Shape{5 * mib}),     source("d", DType::u8, "(3):(R)", Shape{4 * mib}),
            source("own", DType::u8, "(1)+1:(R)", Shape{4 * mib}), source("small", DType::u8, "(3):(R)", Shape{100})};
        SavePlan const plan = plan_save(list, 3);
        CHECK(plan.dedup == SaveDedup::balanced);
        // c to 2 (rank 0 has the small one, rank 1 its own), d to 0, a to 0 or 1, which are at 4 MiB and more: 1 is
        // lower.
        CHECK(loads(plan) == std::vector<Index>{7 * mib + 100, 7 * mib, 5 * mib});
    }

    TEST_CASE("balanced keeps small tensors on the lowest rank of their group, so that opens stay few") {
        std::vector<PlacedTensor> list;
        for (int i = 0; i < 500; ++i) list.push_back(source(errors::concat("s", i), DType::f32, "(64):(R)", Shape{16}));
        CHECK(writers(plan_save(list, 64)) == std::vector<int>{0});
        CHECK(writers(plan_save(list, 64, {.small_bytes = 0})).size() == 64);
        CHECK(writers(plan_save(list, 64, {.dedup = SaveDedup::shared})) == std::vector<int>{0});
    }

    TEST_CASE("shared: a replica group cuts what it holds into equal shares") {
        std::vector<PlacedTensor> list{source("w", DType::f32, "(4):(R)", Shape{4096, 1024})};
        SavePlan plan = plan_save(list, 4, {.dedup = SaveDedup::shared});
        REQUIRE(plan.manifest.extents.size() == 4);
        for (int rank = 0; rank < 4; ++rank) {
            CHECK(plan.extents_of(rank)[0].box == Box{{1024 * rank, 1024 * (rank + 1)}, {0, 1024}});
        }
        // Few rows: the next dimension has finer steps.
        list[0] = source("w", DType::f32, "(4):(R)", Shape{2, 1, 1'000'000});
        plan = plan_save(list, 4, {.dedup = SaveDedup::shared});
        CHECK(plan.extents_of(3)[0].box == Box{{0, 2}, {0, 1}, {750'000, 1'000'000}});
        CHECK(imbalance(plan) == doctest::Approx(1.0));
        // Too small to cut, but not small: one writes it.
        list[0] = source("w", DType::u8, "(4):(R)", Shape{100'000});
        CHECK(plan_save(list, 4, {.dedup = SaveDedup::shared}).manifest.extents.size() == 1);
        // A model: shares even out, although some bytes have one holder only and others have few.
        list.clear();
        for (int layer = 0; layer < 12; ++layer) {
            list.push_back(source(errors::concat(layer, ".qkv"), DType::bf16, "(4,2):(R,S0)", Shape{3072, 1024}));
            list.push_back(source(errors::concat(layer, ".mlp"), DType::bf16, "(4,2):(R,S1)", Shape{1024, 4096}));
            list.push_back(source(errors::concat(layer, ".norm"), DType::f32, "(4,2):(R,R)", Shape{1024}));
        }
        list.push_back(source("embedding", DType::bf16, "(4,2):(R,R)", Shape{50257, 1024}));
        list.push_back(source("first", DType::f32, "(1):(R)", Shape{7 * mib}));
        plan = plan_save(list, 8, {.dedup = SaveDedup::shared});
        CHECK(imbalance(plan) < 1.02);
        CHECK(plan.manifest.extents.size() < 12 * 5 + 2 + 8 * 2);  // hardly more than without cuts
        CHECK(imbalance(plan_save(list, 8, {.dedup = SaveDedup::lowest_rank})) > 3);
    }

    TEST_CASE("copies along replica axes are kept apart, others are left out") {
        std::vector<PlacedTensor> const list{source("norm", DType::f32, "(2,3):(R,R)", Shape{8}),
                                             source("w", DType::f32, "(2,3):(R,S0)", Shape{6, 2})};
        SavePlan const plan = plan_save(list, 6, {.dedup = SaveDedup::lowest_rank, .replica_axes = {1}});
        CHECK(plan.manifest.tensors[0].replicas == 3);
        CHECK(plan.manifest.tensors[1].replicas == 1);
        for (int rank = 0; rank < 3; ++rank) {
            auto const extents = plan.extents_of(rank);
            REQUIRE(extents.size() == 2);
            CHECK(extents[0] == Extent{0, rank, rank, 0, Box{{0, 8}}, errors::concat("norm.__tp_replica_", rank)});
            CHECK(extents[1].key.empty());
        }
        CHECK(plan.extents_of(3).empty());
        SavePlan const both = plan_save(list, 6, {.dedup = SaveDedup::lowest_rank, .replica_axes = {0, 1}});
        CHECK(both.manifest.tensors[0].replicas == 6);
        CHECK(both.extents_of(4)[0].key == "norm.__tp_replica_4");
        CHECK(both.manifest.tensors[1].replicas == 2);
        CHECK(both.extents_of(4)[1].key == "w.__tp_replica_1");
    }

    TEST_CASE("block-cyclic parts are an extent per block, numbered inside their file") {
        std::vector<PlacedTensor> const list{source("c", DType::u8, "(2):(S0:cyc2)", Shape{9})};
        SavePlan const plan = plan_save(list, 2);
        REQUIRE(plan.extents_of(0).size() == 3);
        CHECK(plan.extents_of(0)[0].key.empty());
        CHECK(plan.extents_of(0)[1].key == "c.__box_1");
        CHECK(plan.extents_of(0)[2] == Extent{0, 0, 0, 4, Box{{8, 9}}, "c.__box_2"});
        CHECK(plan.extents_of(1)[1].box == Box{{6, 8}});
    }

    TEST_CASE("scalars, empty tensors, empty parts, sub-byte types, one addend, no tensors") {
        std::vector<PlacedTensor> const list{
            source("empty", DType::f32, "(4):(S1)", Shape{3, 0}), source("few", DType::u8, "(4):(S0)", Shape{3}),
            source("nibbles", DType::f4, "(4):(R)", Shape{6}), source("scalar", DType::i64, "(4):(R)", Shape{}),
            source("sum of one", DType::f32, "(1):(P+)", Shape{2})};
        for (SaveDedup dedup : {SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared}) {
            SavePlan const plan =
                plan_save(list, 4, {.dedup = dedup, .small_bytes = 0, .min_slice_bytes = 1, .replica_axes = {}});
            CHECK(plan.manifest.tensors.size() == 5);
            CHECK(plan.bytes_written == 3 + 3 + 8 + 8);
            Index empty = 0;
            for (Extent const& extent : plan.manifest.extents) empty += extent.box.empty() ? 1 : 0;
            CHECK(empty == 1);
            CHECK(plan.file_of(3) < static_cast<int>(plan.manifest.files.size()));
        }
        SavePlan const none = plan_save({}, 4);
        CHECK(none.manifest.files.empty());
        CHECK(none.bytes_of(2) == 0);
        CHECK(contains(explain(none), "save 0 tensors as 0 extents in 0 files of 4 ranks"));
    }

    TEST_CASE("what cannot be saved is refused by name") {
        auto const refuses = [](ErrorCode code, std::vector<std::string> const& parts, std::vector<PlacedTensor> list,
                                SaveOptions const& options = {}) {
            Caught const error = caught([&] { static_cast<void>(plan_save(list, 4, options)); });
            CAPTURE(error.message);
            CHECK(error.code == code);
            CHECK(contains(error.message, "Fix: "));
            for (std::string const& part : parts) CHECK(contains(error.message, part));
        };
        refuses(ErrorCode::transition, {"'g' under (2,2):(S0,P+) of [4]", "Partial along mesh axis 1"},
                {source("g", DType::f32, "(2,2):(S0,P+)", Shape{4})});
        refuses(ErrorCode::mesh, {"'w'", "rank 4, there are only 4 ranks"},
                {source("w", DType::f32, "(5):(S0)", Shape{4})});
        refuses(ErrorCode::mesh, {"replica_axes names axis 1, which no tensor's mesh has"},
                {source("w", DType::f32, "(4):(S0)", Shape{4})}, {.replica_axes = {1}});
        refuses(ErrorCode::dtype, {"'q'", "elements of F4"}, {source("q", DType::f4, "(4):(S0)", Shape{8})});
        refuses(ErrorCode::format, {"MisalignedSlice", "'q'"}, {source("q", DType::f4, "(4):(R)", Shape{3})});
        refuses(ErrorCode::format,
                {"DuplicateKey", "'w' is given twice", "a table NAME has the names NAME.*", "LocalTensor::within"},
                {source("w", DType::f32, "(4):(S0)", Shape{4}), source("w", DType::u8, "(4):(R)", Shape{})});
        for (std::string const name :
             {"w.__tp_replica_0", "w.__box_12", "w._tp_replica3", "w.__tp_replica_1.__box_1"}) {
            refuses(ErrorCode::format, {"DuplicateKey", name, "boxes of tensor 'w' are stored under"},
                    {source("w", DType::f32, "(4):(S0)", Shape{4}), source(name, DType::u8, "(4):(R)", Shape{})});
        }
        refuses(ErrorCode::format, {"is not UTF-8"}, {source("\xff", DType::f32, "(4):(S0)", Shape{4})});
        refuses(ErrorCode::format, {"'__metadata__'"}, {source("__metadata__", DType::f32, "(4):(S0)", Shape{4})});
        refuses(ErrorCode::format, {"'step' is given twice"}, {}, {.metadata = {{"step", "1"}, {"step", "2"}}});
        refuses(ErrorCode::buffer, {"metadata has 'mch.table.user'", "without their tensors"},
                {source("user", DType::f32, "(4):(S0)", Shape{4})}, {.metadata = {{"mch.table.user", "{}"}}});
        for (std::string const ours : {"DCP_SHARDING_INFO", "reshard_save", "format"})
            refuses(ErrorCode::buffer, {"metadata has '" + ours + "'", "Fix: another name"}, {},
                    {.metadata = {{ours, "1"}}});
        CHECK(plan_save(std::vector{source("user.ids", DType::i64, "(4):(S0)", Shape{4})}, 4,
                        {.metadata = {{"mch.table.user", "{}"}}})
                  .manifest.metadata.size() == 1);  // a copy of a table, tensor by tensor
        refuses(ErrorCode::placement,
                {"'c'", "brings this save to 8388608 boxes or more, of 69 bytes or more each in the manifest",
                 "readers take 500000000"},
                {source("c", DType::u8, "(2):(S0:cyc1)", Shape{Index{1} << 24})});
        refuses(ErrorCode::placement, {"'d'", "brings this save to 7300000 boxes or more"},
                {source("c", DType::u8, "(2):(S0:cyc1)", Shape{7'000'000}),
                 source("d", DType::u8, "(2):(S0:cyc1)", Shape{600'000})});
        refuses(ErrorCode::placement, {"'c'", "500000000 boxes or more"},
                {source("c", DType::u8, "(2,2):(S0:cyc1,S1:cyc1)", Shape{Index{1} << 29, Index{1} << 29})});
        refuses(ErrorCode::buffer, {"in_flight is 0"}, {}, {.in_flight = 0});
        refuses(ErrorCode::buffer, {"window_bytes is 0"}, {}, {.window_bytes = 0});
        refuses(ErrorCode::buffer, {"min_slice_bytes is 0"}, {}, {.min_slice_bytes = 0});
        refuses(ErrorCode::buffer, {"small_bytes is -1"}, {}, {.small_bytes = -1});
        refuses(ErrorCode::buffer, {"snapshot_bytes is -1"}, {}, {.snapshot_bytes = -1});
        // A name of that form alone is a name like others.
        CHECK(plan_save(std::vector{source("x.__box_1", DType::u8, "(4):(R)", Shape{2})}, 4).manifest.extents.size() ==
              1);
    }

    TEST_CASE("blocks that are summed up are as long as it takes for their sums to stay 4 million") {
        auto const blocks_of = [](Index mebibytes) {
            std::vector<PlacedTensor> const list{source("w", DType::u8, "(1):(R)", Shape{mebibytes << 20})};
            return plan_save(list, 1).manifest.block_bytes;
        };
        CHECK(blocks_of(Index{1} << 22) == default_block_bytes);
        CHECK(blocks_of((Index{1} << 22) + 1) == 2 * default_block_bytes);
        CHECK(blocks_of(Index{9} << 22) == 16 * default_block_bytes);
    }

    TEST_CASE("a plan for no ranks is refused") {
        for (int const ranks : {0, -1}) {
            Caught const error = caught([&] { static_cast<void>(plan_save({}, ranks)); });
            CHECK(error.code == ErrorCode::mesh);
            CHECK(contains(error.message, errors::concat("plan_save: ", ranks, " ranks. Fix: at least one.")));
        }
    }

    TEST_CASE("a plan of 16,384 extents by 4,096 ranks (sanitized, a fourth)") {
        int const side = test::fewer_seeds() ? 32 : 64;
        int const ranks = side * side;
        auto const extents = 4 * static_cast<std::size_t>(ranks);
        std::vector<PlacedTensor> list;
        for (int i = 0; i < 4; ++i) {
            list.push_back(source(errors::concat("cut", i), DType::bf16, errors::concat("(", ranks, "):(S0)"),
                                  Shape{Index{16} * ranks, 8192}));
        }
        SavePlan const cut = plan_save(list, ranks, {.dedup = SaveDedup::shared});
        CHECK(cut.manifest.extents.size() == extents);
        CHECK(imbalance(cut) == doctest::Approx(1.0));
        list.clear();
        for (std::size_t i = 0; i < extents; ++i) {
            list.push_back(source(errors::concat("copied", i), DType::bf16,
                                  errors::concat("(", side, ",", side, "):(R,R)"), Shape{4096, 1024}));
        }
        SavePlan const even = plan_save(list, ranks);
        CHECK(even.manifest.extents.size() == extents);
        CHECK(imbalance(even) == doctest::Approx(1.0));
        SavePlan const shared = plan_save(list, ranks, {.dedup = SaveDedup::shared});
        CHECK(shared.manifest.extents.size() <= extents + static_cast<std::size_t>(ranks));
        CHECK(imbalance(shared) <= 1.05);
    }
}
