// SPDX-License-Identifier: Apache-2.0
#include "../../examples/support/redundant_scatter.hpp"

#include "../../examples/support/model_lists.hpp"
#include "support.hpp"

#include <reshard/algebra/notation.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/comm/threads.hpp>

#include <vector>

using namespace reshard;
using namespace checkpoint_test;

namespace {

struct Part {
    Part(std::vector<PlacedTensor> const& targets, int rank) {
        for (PlacedTensor const& target : targets) {
            DynamicShape const shape = target.distribution.local_shape(rank);
            memory.emplace_back(static_cast<std::size_t>(shape.size() * bytes(target.dtype)), std::byte{0xee});
            tensors.push_back(
                {target.name, target.distribution, DynamicView(memory.back().data(), target.dtype, shape)});
        }
    }
    std::vector<std::vector<std::byte>> memory;
    std::vector<LocalTensor> tensors;
};

}  // namespace

TEST_SUITE("checkpoint/redundant_scatter") {
    TEST_CASE("five models on two ranks: a scatter per tensor, every byte of them, half of it over the wire") {
        struct Row {
            demo::ModelConfig config;
            Index scatters;
            Index passed;
            Index on_wire;
        };
        // The experts' gates, [1,2048] in each of 24 layers, cannot be halved: rank 0 keeps all of them.
        for (Row const& row : {Row{demo::qwen2_5_0_5b(), 290, 988'065'536, 494'032'768},
                               Row{demo::qwen2_5_1_5b(), 338, 3'087'428'608, 1'543'714'304},
                               Row{demo::qwen3_0_6b(), 310, 1'192'099'840, 596'049'920},
                               Row{demo::qwen2_5_3b(), 434, 6'171'877'376, 3'085'938'688},
                               Row{demo::qwen1_5_moe_a2_7b(), 4659, 28'631'568'384, 14'315'735'040}}) {
            CAPTURE(row.config.name);
            auto const specs = demo::model_list(row.config);
            std::vector<PlacedTensor> targets;
            for (TensorSpec const& spec : specs) {
                targets.push_back({spec.name, parse("(2):(S0)", spec.shape), spec.dtype});
            }
            auto const forecast = demo::forecast_redundant_scatter(Catalogue::of(specs), targets, 2);
            CHECK(forecast.collectives == Collectives{row.scatters, 0, 0, 1});
            CHECK(forecast.bytes_passed == row.passed);
            CHECK(forecast.bytes_on_wire == row.on_wire);
            CHECK(forecast.bytes_read == 2 * row.passed);
        }
    }

    TEST_CASE("it leaves what the strategies leave, and does what its forecast says") {
        TempFolder folder;
        std::vector<TensorSpec> const specs{{"a", DType::f32, Shape{37, 50}},
                                            {"b", DType::bf16, Shape{1, 9}},
                                            {"c", DType::u8, Shape{1001}},
                                            {"d", DType::i64, Shape{0, 4}},
                                            {"e", DType::f32, DynamicShape(Indices{})}};
        write_checkpoint(folder.path(), specs, fill_expected, 5000);
        Catalogue const catalogue{Checkpoint::open(folder.path())};
        CHECK(catalogue.files().size() > 1);
        for (std::string_view to : {"(4):(S0)", "(2,2):(S0,R)", "(4):(R)", "(2,2):(S0:cyc3,P+)"}) {
            CAPTURE(to);
            std::vector<PlacedTensor> targets;
            for (TensorSpec const& spec : specs) {
                targets.push_back({spec.name, parse(spec.shape.rank() == 0 ? "(4):(R)" : to, spec.shape), spec.dtype});
            }
            std::vector<LoadReport> reports(4);
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                Part wanted(targets, comm.rank());
                Part got(targets, comm.rank());
                load(Checkpoint::open(folder.path()), wanted.tensors, comm.rank());
                reports[static_cast<std::size_t>(comm.rank())] =
                    demo::redundant_scatter(folder.path(), got.tensors, comm);
                CHECK(got.memory == wanted.memory);
            });
            LoadForecast const forecast = demo::forecast_redundant_scatter(catalogue, targets, 4);
            Index sent = 0;
            Index kept = 0;
            Index read = 0;
            Index reads = 0;
            Index opened = 0;
            for (LoadReport const& report : reports) {
                CHECK(report.strategy == forecast.strategy);
                CHECK(report.collectives == forecast.collectives);
                CHECK(report.extra_bytes == forecast.extra_bytes);
                sent += report.traffic.bytes_sent;
                kept += report.traffic.bytes_local;
                read += report.bytes_read;
                reads += report.reads;
                opened += report.files_opened;
            }
            CHECK(sent == forecast.bytes_on_wire);
            CHECK(sent + kept == forecast.bytes_passed);
            CHECK(read == forecast.bytes_read);
            CHECK(reads == forecast.reads);
            CHECK(opened == forecast.files_opened);
        }
    }
}
