// SPDX-License-Identifier: Apache-2.0
#include "../../examples/support/model_lists.hpp"
#include "support.hpp"

#include <reshard/checkpoint/load_forecast.hpp>
#include <reshard/checkpoint/save_plan.hpp>

#include <string>
#include <vector>

using namespace reshard;
using namespace checkpoint_test;

namespace {

[[nodiscard]] std::vector<PlacedTensor> all_as(std::vector<TensorSpec> const& specs, int ranks,
                                               std::string const& kept) {
    std::vector<PlacedTensor> targets;
    for (TensorSpec const& spec : specs) {
        targets.push_back({spec.name, distribution(DynamicMesh(Mesh{ranks}), spec.shape, kept), spec.dtype});
    }
    return targets;
}

}  // namespace

TEST_SUITE("checkpoint/load_forecast") {
    TEST_CASE("every strategy, by hand: two matrices of 4 KiB, cut in rows, on 2 ranks") {
        std::vector<TensorSpec> const specs{{"a", DType::f32, Shape{32, 32}}, {"b", DType::f32, Shape{32, 32}}};
        Catalogue const catalogue = Catalogue::of(specs);
        auto const targets = all_as(specs, 2, "S0");

        LoadForecast const every = forecast_load(catalogue, targets, 2, EveryRankReads{});
        CHECK(every.strategy == EveryRankReads::name);
        CHECK(every.ranks == 2);
        CHECK(every.tensors == 2);
        CHECK(every.collectives == Collectives{});
        CHECK(every.bytes_loaded == 8192);
        CHECK(every.bytes_passed == 0);
        CHECK(every.bytes_on_wire == 0);
        CHECK(every.bytes_of_lists == 0);
        CHECK(every.bytes_in_files == 8192);
        CHECK(every.reads == 2);  // halves of two tensors: the gap is 2 KiB, less than a page
        CHECK(every.bytes_read == 2 * 6144);
        CHECK(every.most_bytes_read == 6144);
        CHECK(every.files_opened == 2);
        CHECK(every.extra_bytes == 6144);
        CHECK(every.read_directly);

        LoadForecast const boxes = forecast_load(catalogue, targets, 2, EachRankReadsItsBoxes{});
        CHECK(boxes.collectives == Collectives{0, 2, 0, 4});
        CHECK(boxes.bytes_read == every.bytes_read);
        CHECK(boxes.bytes_on_wire == 0);
        CHECK(boxes.bytes_of_lists > 0);

        LoadForecast const scatter = forecast_load(catalogue, targets, 2, OneRankReads<Scatter>{});
        CHECK(scatter.collectives == Collectives{1, 2, 0, 6});
        CHECK(scatter.bytes_passed == 8192);
        CHECK(scatter.bytes_on_wire == 4096);
        CHECK(scatter.bytes_read == 8192);
        CHECK(scatter.reads == 1);
        CHECK(scatter.files_opened == 1);
        CHECK(scatter.extra_bytes == 8192);
        CHECK_FALSE(scatter.read_directly);

        OneRankReads<Scatter> single;
        single.window_bytes = 0;
        CHECK(forecast_load(catalogue, targets, 2, single).collectives == Collectives{2, 2, 0, 7});

        LoadForecast const broadcast = forecast_load(catalogue, targets, 2, OneRankReads<Broadcast>{});
        CHECK(broadcast.collectives == Collectives{0, 3, 0, 6});
        CHECK(broadcast.bytes_passed == 2 * 8192);
        CHECK(broadcast.bytes_on_wire == 8192);

        CooperativeRead together;
        together.cooperation = Cooperation::always;
        LoadForecast const cooperative = forecast_load(catalogue, targets, 2, together);
        CHECK(cooperative.collectives == Collectives{0, 2, 1, 6});
        CHECK(cooperative.bytes_passed == 8192);
        CHECK(cooperative.messages == 2);
        CHECK(broadcast.messages == 1);
        CHECK(scatter.messages == 1);
        CHECK(cooperative.bytes_on_wire == 4096);  // each reads one tensor and needs half of it
        CHECK(cooperative.bytes_read == 8192);
        CHECK(cooperative.most_bytes_read == 4096);
        CHECK(cooperative.files_opened == 2);
    }

    TEST_CASE("seconds follow from the model") {
        std::vector<TensorSpec> const specs{{"a", DType::u8, Shape{1000}}};
        Catalogue const catalogue = Catalogue::of(specs);
        LoadModel model;
        model.storage_bandwidth = 1000;
        model.rank_bandwidth = 500;
        model.read_latency = 4;
        model.exchange_bandwidth = 100;
        model.exchange_latency = 0.5;
        model.copy_bandwidth = 250;
        auto const rows = all_as(specs, 2, "S0");
        // 500 bytes each at 500 a second, and a fourth of the latency of one read
        CHECK(forecast_load(catalogue, rows, 2, EveryRankReads{}, model).seconds == doctest::Approx(1 + 1));
        // everything by one rank; one window; half of it sent; what was staged is copied
        CHECK(forecast_load(catalogue, rows, 2, OneRankReads<Scatter>{}, model).seconds ==
              doctest::Approx(2 + 4.5 + 5 + 4));
        CHECK(forecast_load(catalogue, rows, 2, OneRankReads<Broadcast>{}, model).seconds ==
              doctest::Approx(2 + 4.5 + 10 + 4));
        CooperativeRead together;
        together.model = model;
        together.cooperation = Cooperation::always;
        CHECK(forecast_load(catalogue, rows, 2, together).seconds == doctest::Approx(1 + 4.5 + 0 + 2));
        together.cooperation = Cooperation::by_model;  // nothing is read twice: an exchange gains nothing
        CHECK(forecast_load(catalogue, rows, 2, together).read_directly);
        auto const copies = all_as(specs, 2, "R");
        together.model.read_latency = 0.001;  // 2 s of reading twice against 1 s, 0.5 s and the exchange of a half
        together.model.exchange_bandwidth = 10'000;
        together.model.copy_bandwidth = 10'000;
        CHECK_FALSE(forecast_load(catalogue, copies, 2, together).read_directly);
    }

    TEST_CASE(
        "five models on two ranks: their tensors pass a scatter once, half of them over the wire; or not at all") {
        struct Row {
            demo::ModelConfig config;
            Index bytes;
        };
        for (Row const& row : {Row{demo::qwen2_5_0_5b(), 988'065'536}, Row{demo::qwen2_5_1_5b(), 3'087'428'608},
                               Row{demo::qwen3_0_6b(), 1'192'099'840}, Row{demo::qwen2_5_3b(), 6'171'877'376},
                               Row{demo::qwen1_5_moe_a2_7b(), 28'631'568'384}}) {
            CAPTURE(row.config.name);
            auto const specs = demo::model_list(row.config);
            auto const targets = all_as(specs, 2, "S0");
            Catalogue const catalogue = Catalogue::of(specs);
            LoadForecast const every = forecast_load(catalogue, targets, 2, EveryRankReads{});
            CHECK(every.collectives == Collectives{});
            CHECK(every.bytes_passed == 0);
            CHECK(every.bytes_on_wire == 0);
            CHECK(every.bytes_loaded == row.bytes);
            OneRankReads<Scatter> single;
            single.window_bytes = 0;
            LoadForecast const scatter = forecast_load(catalogue, targets, 2, single);
            CHECK(scatter.collectives.scatters == static_cast<Index>(specs.size()));
            CHECK(scatter.bytes_passed == row.bytes);
            Index odd = 0;  // tensors [1, hidden]: rank 0 keeps the one row
            for (TensorSpec const& spec : specs)
                if (spec.shape.extent(0) == 1) odd += stored_bytes(spec);
            CHECK(2 * scatter.bytes_on_wire == row.bytes - odd);
            CHECK(odd == (row.config.experts == 0 ? 0 : 24 * 2048 * 2));
        }
    }

    TEST_CASE("what a load would refuse, its forecast refuses in the same words") {
        std::vector<TensorSpec> const specs{{"a", DType::f32, Shape{8, 8}}};
        Catalogue const catalogue = Catalogue::of(specs);
        auto const targets = all_as(specs, 2, "S0");
        auto const error_of = [&](auto const& strategy, std::vector<PlacedTensor> const& list, int ranks) {
            Caught const error = caught([&] { static_cast<void>(forecast_load(catalogue, list, ranks, strategy)); });
            CAPTURE(error.message);
            CHECK(contains(error.message, "Fix: "));
            return error;
        };
        CHECK(error_of(EveryRankReads{}, targets, 1).code == ErrorCode::mesh);
        CHECK(error_of(EveryRankReads{}, targets, 0).code == ErrorCode::mesh);
        CHECK(error_of(OneRankReads<Scatter>{2}, targets, 2).code == ErrorCode::mesh);
        CHECK(error_of(OneRankReads<Broadcast>{-1}, targets, 2).code == ErrorCode::mesh);
        CHECK(error_of(OneRankReads<Scatter>{0, -1}, targets, 2).code == ErrorCode::buffer);
        CHECK(error_of(CooperativeRead{-1}, targets, 2).code == ErrorCode::buffer);
        ReadOptions none;
        none.in_flight = 0;
        CHECK(error_of(EveryRankReads{none}, targets, 2).code == ErrorCode::buffer);
        CHECK(error_of(CooperativeRead{0, none}, targets, 2).code == ErrorCode::buffer);
        CHECK(error_of(EveryRankReads{}, all_as({{"b", DType::f32, Shape{8, 8}}}, 2, "S0"), 2).rule ==
              SafetensorsRule::tensor_not_found);
        CHECK(error_of(EveryRankReads{}, all_as({{"a", DType::f32, Shape{8, 9}}}, 2, "S0"), 2).code ==
              ErrorCode::mismatch);
        CHECK(error_of(EveryRankReads{}, all_as({{"a", DType::f16, Shape{8, 8}}}, 2, "S0"), 2).code ==
              ErrorCode::mismatch);
    }

    TEST_CASE("nothing to load is no reads and no windows") {
        Catalogue const catalogue = Catalogue::of({{"a", DType::f32, Shape{8, 8}}});
        LoadForecast const none = forecast_load(catalogue, {}, 3, OneRankReads<Scatter>{});
        CHECK(none.collectives == Collectives{0, 2, 0, 5});
        CHECK(none.reads == 0);
        CHECK(none.bytes_passed == 0);
        CHECK(forecast_load(catalogue, {}, 3, CooperativeRead{}).bytes_read == 0);
        CHECK(forecast_load(catalogue, {}, 3).strategy == CooperativeRead::name);
        CHECK(forecast_load(catalogue, {}, 3, {.window_bytes = 64}).strategy == CooperativeRead::name);
    }

    TEST_CASE("targets are the list of any rank without its memory") {
        std::vector<float> memory(32);
        DynamicDistribution const to = distribution(DynamicMesh(Mesh{2}), Shape{8, 8}, "S0");
        std::vector<LocalTensor> const list{{"a", to, TensorView<float>(memory.data(), Shape{4, 8})}};
        auto const targets = placed_tensors(list);
        REQUIRE(targets.size() == 1);
        CHECK(targets[0].name == "a");
        CHECK(targets[0].distribution == to);
        CHECK(targets[0].dtype == DType::f32);
    }

    TEST_CASE("what it costs to compare every block: saved as rows by 8, ten tensors, loaded by others") {
        std::vector<TensorSpec> specs;
        for (int t = 0; t < 10; ++t) specs.push_back({errors::concat("t", t), DType::bf16, Shape{2048, 1024}});
        Manifest manifest = plan_save(all_as(specs, 8, "S0"), 8).manifest;
        for (Extent& extent : manifest.extents) extent.has_checksum = true;
        Catalogue const catalogue(manifest);
        constexpr Index mib = Index{1} << 20;
        EachRankReadsItsBoxes boxes;
        CooperativeRead together;
        CHECK(forecast_load(catalogue, all_as(specs, 16, "S0"), 16, boxes).bytes_read == 40 * mib);
        CHECK(forecast_load(catalogue, all_as(specs, 16, "S0"), 16, boxes).bytes_verified == 0);
        CHECK(forecast_load(catalogue, all_as(specs, 16, "S0"), 16, together).bytes_verified == 0);
        boxes.options.verify_checksums = together.options.verify_checksums = Checksums::touched_blocks;
        std::vector<std::pair<int, Index>> const cases{{8, 40}, {3, 50}, {6, 65}, {16, 80}};
        for (std::pair<int, Index> const& one : cases) {  // ranks; MiB, of which 40 are loaded
            CAPTURE(one.first);
            LoadForecast const forecast = forecast_load(catalogue, all_as(specs, one.first, "S0"), one.first, boxes);
            CHECK(forecast.bytes_read == one.second * mib);
            CHECK(forecast.bytes_verified == one.second * mib);
            CHECK(forecast.bytes_loaded == 40 * mib);
        }
        LoadForecast const shared = forecast_load(catalogue, all_as(specs, 16, "S0"), 16, together);
        CHECK_FALSE(shared.read_directly);  // two ranks want each block: it is read once and passed on
        CHECK(shared.bytes_read == 40 * mib);
        CHECK(shared.bytes_verified == 40 * mib);
    }

    TEST_CASE("explain tells what passes, what is read and what it takes") {
        std::vector<TensorSpec> const specs{{"a", DType::f32, Shape{32, 32}}};
        Catalogue const catalogue = Catalogue::of(specs);
        LoadForecast forecast = forecast_load(catalogue, all_as(specs, 2, "S0"), 2, OneRankReads<Scatter>{});
        forecast.bytes_of_lists = 100;
        CHECK(
            explain(forecast) ==
            "one rank reads, scatter: 1 tensor, 4.0 KiB in files, 4.0 KiB on 2 ranks\n"
            "  collectives: 1 scatter, 2 broadcasts, 6 agreements\n"
            "  pass 4.0 KiB of tensors, of which 2.0 KiB cross ranks in 1 message; lists of tensors and figures 100 B\n"
            "  reads 4.0 KiB in 1 read, 1 open file and 1 for lists; a rank at most 4.0 KiB in 1 read\n"
            "  verified 0 B, 4.0 KiB not compared with any checksum\n"
            "  memory beyond the local tensors: at most 4.0 KiB on a rank\n"
            "  about 153.1 us by the model\n");
        LoadReport report;  // and of what was done, in the same order
        report.strategy = CooperativeRead::name;
        report.tensors = 2;
        report.bytes_loaded = report.bytes_read = 4096;
        report.reads = report.files_opened = 1;
        report.traffic = {1, 100, 2, 2048, 7};
        report.seconds = 0.25;
        CHECK(explain(report) ==
              "cooperative read: 2 tensors, 4.0 KiB on this rank\n"
              "  collectives: none\n"
              "  sent 100 B in 1 message, received 2.0 KiB in 2 messages\n"
              "  read 4.0 KiB in 1 read, 1 open file and 0 for lists; verified 0 B, 4.0 KiB not compared with any "
              "checksum\n"
              "  memory beyond the local tensors: 0 B\n"
              "  250.0 ms\n");
        report.bytes_verified = 3072;
        CHECK(contains(explain(report), "; verified 3.0 KiB, 1.0 KiB not compared with any checksum\n"));
        report.bytes_verified = 4096;
        CHECK(contains(explain(report), "; verified 4.0 KiB\n"));
    }
}
