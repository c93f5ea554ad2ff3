// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/load.hpp: every strategy leaves the same bits, for any placements, mesh and ranks.
#include <reshard/checkpoint/load.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include "../support/random.hpp"
#include "load_support.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;

/// What all ranks reported, and the first wrong element of any.
struct Outcome {
    std::vector<LoadReport> reports;
    std::string wrong;
};

template <class Strategy>
Outcome outcome(std::string const& folder, std::vector<Goal> const& goals, int ranks, bool gaps,
                Strategy const& strategy) {
    Outcome result;
    result.reports.resize(static_cast<std::size_t>(ranks));
    std::mutex guard;
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        LocalTensors tensors(goals, comm.rank(), gaps);
        LoadReport report;
        if constexpr (Strategy::communicates) {
            report = load(folder, tensors.list(), comm, strategy);
        } else {
            report = load(Checkpoint::open(folder), tensors.list(), comm.rank(), strategy);
            agree_loaded(comm, report);
        }
        std::scoped_lock const lock(guard);
        result.reports[static_cast<std::size_t>(comm.rank())] = report;
        if (result.wrong.empty()) result.wrong = tensors.wrong();
        if (result.wrong.empty() && report.bytes_loaded != tensors.bytes_of_values()) {
            result.wrong = errors::concat("rank ", comm.rank(), " reports ", report.bytes_loaded, " bytes");
        }
    });
    return result;
}

void check(std::string const& folder, std::vector<Goal> const& goals, int ranks, test::Random& random) {
    ReadOptions reads;
    reads.gap_bytes = random.pick(std::vector<Index>{0, 64, 65536});
    reads.over_read = random.pick(std::vector<double>{1.0, 1.5, 4.0});
    reads.chunk_bytes = random.pick(std::vector<Index>{1, 100, 5000, 1 << 20});
    reads.direct_bytes = random.pick(std::vector<Index>{1, 1000, 1 << 20});
    reads.in_flight = static_cast<int>(random.between(1, 3));
    Index const window = random.pick(std::vector<Index>{0, 1, 50, 1000, 20'000, 1 << 20});
    int const source = static_cast<int>(random.between(0, ranks - 1));
    bool const gaps = random.chance(30);
    CAPTURE(window);
    CAPTURE(source);
    CAPTURE(reads.chunk_bytes);

    Index stored = 0;
    for (Goal const& goal : goals) stored += stored_bytes(goal.stored);
    Index largest = 0;  // a window that holds a tensor at least
    for (Goal const& goal : goals) largest = std::max(largest, stored_bytes(goal.stored));

    CHECK(outcome(folder, goals, ranks, gaps, EveryRankReads{reads}).wrong == "");
    CHECK(outcome(folder, goals, ranks, gaps, EachRankReadsItsBoxes{reads}).wrong == "");
    for (bool const scatter : {true, false}) {
        auto const one = scatter ? outcome(folder, goals, ranks, gaps, OneRankReads<Scatter>{source, window, reads})
                                 : outcome(folder, goals, ranks, gaps, OneRankReads<Broadcast>{source, window, reads});
        CAPTURE(scatter);
        CHECK(one.wrong == "");
        for (int r = 0; r < ranks; ++r)
            CHECK((r == source || one.reports[static_cast<std::size_t>(r)].bytes_read == 0));
        CHECK(one.reports[static_cast<std::size_t>(source)].bytes_read == stored);  // once, and no gap
    }
    auto const together = outcome(folder, goals, ranks, gaps, CooperativeRead{window, reads, Cooperation::always, {}});
    CHECK(together.wrong == "");
    Index read = 0;
    Index opened = 0;
    for (LoadReport const& report : together.reports) {
        read += report.bytes_read;
        opened += report.files_opened;
        CHECK(report.extra_bytes <= std::max<Index>(window, 0) + largest + reads.in_flight * reads.chunk_bytes);
    }
    CHECK(read == stored);
    CHECK(opened <= static_cast<Index>(Checkpoint::open(folder).files().size()) + ranks - 1);
    auto const chosen = outcome(folder, goals, ranks, gaps, CooperativeRead{window, reads, Cooperation::by_model, {}});
    CHECK(chosen.wrong == "");
    for (LoadReport const& report : chosen.reports) CHECK(report.read_directly == chosen.reports[0].read_directly);
}

}  // namespace

TEST_SUITE("checkpoint/load") {
    TEST_CASE("law: strategies x placements x meshes x ranks leave the same bits") {
        struct Kind {
            std::vector<Reduce> ops;
            std::vector<DType> dtypes;
        };
        Kind const any{{Reduce::sum, Reduce::product, Reduce::max},
                       {DType::f32, DType::bf16, DType::u8, DType::f64, DType::i16}};
        Kind const floats{{Reduce::avg, Reduce::min}, {DType::f32, DType::bf16, DType::f64}};
        Kind const integers{{Reduce::bxor, Reduce::band, Reduce::bor}, {DType::u8, DType::i16}};
        for (std::uint64_t seed : test::seeds(60)) {
            CAPTURE(seed);
            Kind const& kind = seed % 6 == 3 ? floats : seed % 6 == 5 ? integers : any;
            test::Limits limits;
            limits.max_elements = 3000;
            limits.max_ranks = 6;
            limits.plain_ranks = true;
            limits.ops = kind.ops;
            test::Random random(seed, limits);
            int const ranks = static_cast<int>(random.between(1, 6));
            limits.max_ranks = ranks;
            test::Random tensors(seed + 1'000'000, limits);
            std::vector<Goal> goals;
            std::string all;
            Index const count = random.between(1, 6);
            for (Index i = 0; i < count; ++i) {
                DynamicShape const shape = tensors.shape();
                DType const dtype = random.pick(kind.dtypes);
                DynamicDistribution const to = tensors.distribution(tensors.mesh(), shape);
                goals.push_back({{errors::concat("tensor.", i), dtype, shape}, to});
                all += errors::concat(to_string(to), " of ", to_string(shape), " ", name(dtype), "; ");
            }
            CAPTURE(all);
            TempFolder const folder;
            write(folder.path(), goals, random.pick(std::vector<Index>{1, 2000, 1 << 30}));
            check(folder.path(), goals, ranks, random);
        }
    }
}
