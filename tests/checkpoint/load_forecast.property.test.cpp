// SPDX-License-Identifier: Apache-2.0
//
// The oracle of a forecast is the load: what all ranks report, added up.
#include "support.hpp"
#include "support/random.hpp"

#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/load_forecast.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/comm/threads.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

using namespace reshard;
using namespace checkpoint_test;

namespace {

/// A checkpoint on disk and where its tensors go.
struct Case {
    TempFolder folder;
    std::vector<TensorSpec> specs;
    Index max_file_bytes = 0;
    std::vector<PlacedTensor> targets;
    int ranks = 1;

    [[nodiscard]] std::string text() const {
        std::string text = errors::concat(ranks, " ranks");
        for (PlacedTensor const& target : targets) {
            text += errors::concat("; ", target.name, " ", reshard::enums::name(target.dtype), " ",
                                   to_string(target.distribution.shape()), " ", to_string(target.distribution));
        }
        return text;
    }
};

void make(Case& one, test::Random& random) {
    std::vector<DType> const dtypes{DType::u8, DType::bf16, DType::f32, DType::i64, DType::f4};
    Index const tensors = random.between(1, 7);
    for (Index i = 0; i < tensors; ++i) {
        DType dtype = random.pick(dtypes);
        DynamicShape shape = random.shape(static_cast<int>(random.between(0, 3)));
        DynamicShape target_shape = shape;
        DType target_dtype = dtype;
        if (!is_byte_sized(dtype)) {
            shape = Shape{2 * random.between(0, 300)};
            target_shape = Shape{shape.extent(0) / 2};
            target_dtype = DType::u8;
        }
        std::string const name = errors::concat("tensor.", i);
        one.specs.push_back({name, dtype, shape});
        if (random.chance(20)) continue;  // stays where it is
        DynamicDistribution const to = random.distribution(random.mesh(), target_shape);
        one.ranks = std::max(one.ranks, static_cast<int>(to.mesh().last_rank()) + 1);
        one.targets.push_back({name, to, target_dtype});
    }
    if (random.chance(30)) ++one.ranks;  // one that holds nothing
    one.max_file_bytes = random.between(100'000, 300'000);
    write_checkpoint(one.folder.path(), one.specs, fill_expected, one.max_file_bytes);
}

[[nodiscard]] ReadOptions random_reads(test::Random& random) {
    ReadOptions reads;
    reads.gap_bytes = random.between(0, 1) * random.between(0, 20'000);
    reads.over_read = random.chance(50) ? 1.0 : 3.0;
    reads.chunk_bytes = random.between(1'000, 50'000);
    reads.in_flight = static_cast<int>(random.between(1, 3));
    reads.direct_bytes = random.between(1, 30'000);
    return reads;
}

/// One rank's memory, each tensor apart from the others.
struct Part {
    Part(Case const& one, int rank) {
        for (PlacedTensor const& target : one.targets) {
            DynamicShape shape = Shape{0};
            if (target.distribution.contains(rank)) shape = target.distribution.local_shape(rank);
            memory.emplace_back(static_cast<std::size_t>(shape.size() * bytes(target.dtype)));
            tensors.push_back(
                {target.name, target.distribution, DynamicView(memory.back().data(), target.dtype, shape)});
        }
    }
    std::vector<std::vector<std::byte>> memory;
    std::vector<LocalTensor> tensors;
};

/// Loads on threads and adds up the reports in the forecast's words.
template <class Load>
[[nodiscard]] LoadForecast counted(Case const& one, Load&& load, Index& local_bytes) {
    std::vector<LoadReport> reports(static_cast<std::size_t>(one.ranks));
    run_on_threads(one.ranks, [&](ThreadCommunicator& comm) {
        Part part(one, comm.rank());
        reports[static_cast<std::size_t>(comm.rank())] = load(part, comm);
    });
    LoadForecast sum;
    sum.strategy = reports[0].strategy;
    sum.ranks = one.ranks;
    sum.tensors = reports[0].tensors;
    sum.collectives = reports[0].collectives;
    sum.read_directly = reports[0].read_directly;
    local_bytes = 0;
    for (LoadReport const& report : reports) {
        CHECK(report.collectives == sum.collectives);
        sum.bytes_loaded += report.bytes_loaded;
        sum.bytes_read += report.bytes_read;
        sum.most_bytes_read = detail::larger(sum.most_bytes_read, report.bytes_read);
        sum.reads += report.reads;
        sum.most_reads = detail::larger(sum.most_reads, report.reads);
        sum.files_opened += report.files_opened;
        sum.lists_opened += report.lists_opened;
        sum.bytes_verified += report.bytes_verified;
        sum.extra_bytes = detail::larger(sum.extra_bytes, report.extra_bytes);
        sum.bytes_on_wire += report.traffic.bytes_sent;  // lists included
        local_bytes += report.traffic.bytes_local;
    }
    return sum;
}

void check_equal(LoadForecast const& forecast, LoadForecast const& counted) {
    CAPTURE(forecast.strategy);
    CHECK(forecast.strategy == counted.strategy);
    CHECK(forecast.ranks == counted.ranks);
    CHECK(forecast.tensors == counted.tensors);
    CHECK(to_string(forecast.collectives) == to_string(counted.collectives));
    CHECK(forecast.read_directly == counted.read_directly);
    CHECK(forecast.bytes_loaded == counted.bytes_loaded);
    CHECK(forecast.bytes_on_wire + forecast.bytes_of_lists == counted.bytes_on_wire);
    CHECK(forecast.bytes_read == counted.bytes_read);
    CHECK(forecast.most_bytes_read == counted.most_bytes_read);
    CHECK(forecast.reads == counted.reads);
    CHECK(forecast.most_reads == counted.most_reads);
    CHECK(forecast.files_opened == counted.files_opened);
    CHECK(forecast.lists_opened == counted.lists_opened);
    CHECK(forecast.bytes_verified == counted.bytes_verified);
    CHECK(forecast.extra_bytes == counted.extra_bytes);
}

}  // namespace

TEST_SUITE("checkpoint/load_forecast") {
    TEST_CASE("a forecast is what the ranks of a load report, added up") {
        int together = 0;
        int apart = 0;
        for (std::uint64_t seed : test::seeds(60)) {
            test::Limits limits;
            limits.max_ranks = 6;
            limits.max_dims = 3;
            limits.max_extent = 150;
            limits.ops = {Reduce::sum, Reduce::min};
            test::Random random(seed, limits);
            Case one;
            make(one, random);
            CAPTURE(seed);
            INFO(one.text());
            Catalogue const catalogue = Catalogue::of(one.specs, one.max_file_bytes);
            ReadOptions const reads = random_reads(random);
            std::string const path = one.folder.path();
            Index const window = random.chance(20) ? 0 : random.between(4'000, 200'000);
            auto const over = [&](auto const& strategy) {
                return [&](Part& part, ThreadCommunicator& comm) { return load(path, part.tensors, comm, strategy); };
            };
            Index local = 0;

            EveryRankReads const every{reads};
            check_equal(forecast_load(catalogue, one.targets, one.ranks, every),
                        counted(
                            one,
                            [&](Part& part, ThreadCommunicator& comm) {
                                return load(Checkpoint::open(path), part.tensors, comm.rank(), every);
                            },
                            local));

            EachRankReadsItsBoxes const boxes{reads};
            check_equal(forecast_load(catalogue, one.targets, one.ranks, boxes), counted(one, over(boxes), local));

            int const source = static_cast<int>(random.between(0, one.ranks - 1));
            OneRankReads<Scatter> const scatter{source, window, reads};
            LoadForecast const scattered = forecast_load(catalogue, one.targets, one.ranks, scatter);
            check_equal(scattered, counted(one, over(scatter), local));
            CHECK(scattered.bytes_passed - scattered.bytes_on_wire == local);

            OneRankReads<Broadcast> const broadcast{source, window, reads};
            LoadForecast const spread = forecast_load(catalogue, one.targets, one.ranks, broadcast);
            check_equal(spread, counted(one, over(broadcast), local));
            CHECK(spread.bytes_passed == spread.bytes_in_files * one.ranks);

            for (Cooperation cooperation : {Cooperation::by_model, Cooperation::always, Cooperation::never}) {
                CooperativeRead cooperative{window, reads, cooperation, {}};
                cooperative.model.read_latency = random.chance(50) ? 0 : 1e-4;  // so that either choice is made
                cooperative.model.exchange_latency = random.chance(50) ? 0 : 1e-3;
                LoadForecast const forecast = forecast_load(catalogue, one.targets, one.ranks, cooperative);
                check_equal(forecast, counted(one, over(cooperative), local));
                Index const shares = cooperation == Cooperation::by_model ? one.ranks * Index{32} : 0;
                Index const sizes = catalogue.files().size() > 1 ? one.ranks * Index{8} : 0;  // of lists that are dealt
                CHECK(forecast.bytes_passed - forecast.bytes_on_wire + shares + sizes == local);
                if (cooperation == Cooperation::by_model) ++(forecast.read_directly ? apart : together);
            }
        }
        CHECK(together > 0);
        CHECK(apart > 0);
    }
}
