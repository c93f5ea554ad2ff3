// SPDX-License-Identifier: Apache-2.0
// include/reshard/checkpoint/save.hpp and load.hpp together: what is saved on one mesh under any placements, by any
// policy, is loaded onto any other with the same bits.
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include "../support/random.hpp"
#include "save_support.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace checkpoint_test;

/// Elements that are not what the tensor held when it was saved.
std::string first_wrong(std::vector<PlacedTensor> const& targets, int rank, std::vector<LocalTensor> const& list,
                        std::vector<LocalTensor> const& expected) {
    for (std::size_t i = 0; i < targets.size(); ++i) {
        if (!targets[i].distribution.contains(rank)) continue;
        auto const size = static_cast<std::size_t>(list[i].view.size() * bytes(targets[i].dtype));
        if (std::memcmp(list[i].view.data(), expected[i].view.data(), size) != 0) {
            return errors::concat("'", targets[i].name, "' on rank ", rank, " under ",
                                  to_string(targets[i].distribution));
        }
    }
    return {};
}

}  // namespace

TEST_SUITE("checkpoint/save_load property") {
    TEST_CASE("a checkpoint has the same bits on any mesh, whoever saved it") {
        test::Limits limits;
        limits.partial = false;
        limits.max_ranks = 6;
        limits.max_elements = 500;
        limits.max_dims = 3;
        limits.plain_ranks = true;
        for (std::uint64_t seed : test::seeds(60)) {
            CAPTURE(seed);
            test::Random random(seed, limits);
            SaveOptions options{.small_bytes = random.between(0, 200), .min_slice_bytes = random.between(1, 100)};
            options.dedup =
                random.pick(std::vector<SaveDedup>{SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared});
            options.durable = false;
            std::vector<PlacedTensor> saved;
            std::vector<PlacedTensor> loaded;
            Index savers = 1;
            Index loaders = 1;
            for (Index i = random.between(1, 5); i > 0; --i) {
                DType const dtype =
                    random.pick(std::vector<DType>{DType::u8, DType::bf16, DType::f32, DType::c64, DType::i64});
                DynamicShape const shape = random.shape();
                saved.push_back({errors::concat("t", i), random.distribution(random.mesh(), shape), dtype});
                loaded.push_back({errors::concat("t", i), random.distribution(random.mesh(), shape), dtype});
                savers = detail::larger(savers, saved.back().distribution.mesh().last_rank() + 1);
                loaders = detail::larger(loaders, loaded.back().distribution.mesh().last_rank() + 1);
            }
            TempFolder const folder;
            run_on_threads(static_cast<int>(savers), [&](ThreadCommunicator& comm) {
                Trained mine(saved, comm.rank(), 1);
                save(folder.path(), mine.list(), comm, options);
            });
            REQUIRE(damage(folder.path()) == "");
            for (int strategy = 0; strategy < 3; ++strategy) {
                CAPTURE(strategy);
                run_on_threads(static_cast<int>(loaders), [&](ThreadCommunicator& comm) {
                    Trained mine(loaded, comm.rank(), 2);  // other bytes
                    Trained expected(loaded, comm.rank(), 1);
                    if (strategy == 0) load(folder.path(), mine.list(), comm, EachRankReadsItsBoxes{});
                    if (strategy == 1) load(folder.path(), mine.list(), comm, OneRankReads<Scatter>{});
                    if (strategy == 2) {
                        load(folder.path(), mine.list(), comm, CooperativeRead{.cooperation = Cooperation::always});
                    }
                    CHECK(first_wrong(loaded, comm.rank(), mine.list(), expected.list()) == "");
                });
            }
        }
    }

    TEST_CASE("copies that are kept apart come back as they were, on the same mesh") {
        std::vector<PlacedTensor> const model{source("norm", DType::f32, "(2,3):(R,R)", Shape{8}),
                                              source("w", DType::f32, "(2,3):(R,S0)", Shape{6, 2}),
                                              source("v", DType::f32, "(2,3):(S1,R)", Shape{6, 2})};
        for (std::vector<int> const& apart : {std::vector{0}, std::vector{1}, std::vector{0, 1}}) {
            SaveOptions options;
            options.replica_axes = apart;
            TempFolder const folder;
            run_on_threads(6, [&](ThreadCommunicator& comm) {
                Trained mine(model, comm.rank(), 1, options);
                save(folder.path(), mine.list(), comm, options);
                Trained loaded(model, comm.rank(), 2, options);
                load(folder.path(), loaded.list(), comm, EachRankReadsItsBoxes{.options = {.replica_axes = apart}});
                CHECK(first_wrong(model, comm.rank(), loaded.list(), mine.list()) == "");
            });
        }
    }
}
