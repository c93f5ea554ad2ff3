// SPDX-License-Identifier: Apache-2.0
// A model of megabytes goes a long way through files and ranks: saved, made full, cut, loaded, moved, saved again.
// Sizes are beyond those from which something is done in another way: copied past the cache, written alone, cut into
// pieces.
#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_async.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>
#include <reshard/exec/batch.hpp>

#include "model_support.hpp"

#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace checkpoint_test;
Model random_model(test::Random& random) {
    Model model;
    for (Index t = random.between(1, 3); t > 0; --t) {
        auto const dtype = random.pick(std::vector<DType>{DType::u8, DType::bf16, DType::f32, DType::f32, DType::c64});
        Index const outer = random.between(1, 600);
        Index const middle = random.chance(50) ? 1 : random.between(1, 20);
        Index const inner = detail::larger<Index>(random.between(50'000, 1'000'000) / (outer * middle), 1);
        DynamicShape const shape(middle == 1 ? Indices{outer, inner} : Indices{outer, middle, inner});
        Whole whole{errors::concat("t", t), dtype, shape, Bytes(static_cast<std::size_t>(shape.size() * bytes(dtype)))};
        fill(whole, random);
        model.tensors.push_back(std::move(whole));
    }
    return model;
}

void load_somehow(std::string const& folder, Held& held, ThreadCommunicator& comm, std::uint64_t choice) {
    test::Random random(choice);  // the same on all ranks
    Index const window = random.chance(50) ? default_window_bytes : random.between(1000, Index{3} << 20);
    switch (random.between(0, 4)) {
        case 0: load(folder, held.list(), comm, EachRankReadsItsBoxes{}); break;
        case 1: load(folder, held.list(), comm, OneRankReads<Scatter>{.window_bytes = window}); break;
        case 2: load(folder, held.list(), comm, OneRankReads<Broadcast>{.window_bytes = window}); break;
        case 3: load(Checkpoint::open(folder), held.list(), comm.rank()); break;
        default:
            load(folder, held.list(), comm,
                 CooperativeRead{.window_bytes = window, .cooperation = Cooperation::always});
    }
}

SaveOptions random_save(test::Random& random) {
    SaveOptions options{.small_bytes = random.between(0, Index{1} << 18),
                        .min_slice_bytes = random.between(1, Index{1} << 18)};
    options.dedup = static_cast<SaveDedup>(random.between(0, 2));
    options.durable = false;
    options.in_flight = static_cast<int>(random.between(1, 3));
    return options;
}

void rewrite_somehow(RewriteOptions& options, test::Random& random) {
    options.durable = false;
    options.in_flight = static_cast<int>(random.between(1, 3));
    options.window_bytes = options.in_flight * (Index{64} << 10) * random.between(1, 200);
}

/// Loads it, most times moves it in memory, and saves it at once or later: on other places each time.
void train(std::string const& from, std::string const& to, Model& model, test::Random& random) {
    Model loaded = model;
    loaded.place_at_random(random);
    bool const moved = random.chance(60);
    Model saved = loaded;
    if (moved) {
        for (auto& place : saved.places) place = random.distribution(place.mesh(), place.shape());
    }
    std::uint64_t const choice = random.engine()();
    SaveOptions const options = random_save(random);
    bool const later = random.chance(40);
    run_on_threads(loaded.ranks(), [&](ThreadCommunicator& comm) {
        Held source(loaded, comm.rank(), false);
        load_somehow(from, source, comm, choice);
        CHECK(source.wrong() == "");
        Held target(saved, comm.rank(), false);
        if (moved) {
            Batch batch;
            for (std::size_t t = 0; t != model.tensors.size(); ++t) {
                batch.add(plan(loaded.places[t], saved.places[t]), source.list()[t].view, target.list()[t].view);
            }
            redistribute(batch, comm);
            CHECK(target.wrong() == "");
        }
        auto const& tensors = moved ? target.list() : source.list();
        if (!later) {
            save(to, tensors, comm, options);
            return;
        }
        auto saving = start_save(to, tensors, comm, options);
        static_cast<void>(saving.wait());
    });
    model = saved;
}

}  // namespace

TEST_SUITE("checkpoint/round_trip") {
    TEST_CASE("a model of megabytes is the same after any way through files and ranks") {
        test::Limits limits;
        limits.partial = false;
        limits.plain_ranks = true;
        limits.max_axes = 3;
        limits.max_ranks = 6;
        for (std::uint64_t seed : test::seeds(40)) {
            CAPTURE(seed);
            limits.cyclic = limits.strided = seed % 5 == 0;  // thousands of boxes take their time
            test::Random random(seed, limits);
            Model model = random_model(random);
            model.place_at_random(random);
            TempFolder const folder;
            std::string at = folder / "0";
            SaveOptions const first = random_save(random);
            run_on_threads(model.ranks(), [&](ThreadCommunicator& comm) {
                save(at, Held(model, comm.rank(), true).list(), comm, first);
            });
            std::string way = "saved";
            for (int step = 1; step <= 4; ++step) {
                std::string const next = folder / errors::concat(step);
                Index const kind = random.between(0, 2);
                way += kind == 0 ? ", consolidated" : kind == 1 ? ", sharded" : ", trained";
                CAPTURE(way);
                int const writers = static_cast<int>(random.between(1, 4));
                if (kind == 0) {
                    ConsolidateOptions options;
                    rewrite_somehow(options, random);
                    options.max_file_bytes = random.chance(50) ? 0 : random.between(1000, Index{8} << 20);
                    run_on_threads(writers, [&](ThreadCommunicator& comm) { consolidate(at, next, comm, options); });
                } else if (kind == 1) {
                    ShardOptions options;
                    rewrite_somehow(options, random);
                    options.dedup = static_cast<SaveDedup>(random.between(0, 2));
                    model.place_at_random(random);
                    PlaceTensor const place = [&](StoredTensor const& tensor) {
                        std::size_t t = 0;
                        while (model.tensors[t].name != tensor.name) ++t;
                        return model.places[t];
                    };
                    run_on_threads(writers,
                                   [&](ThreadCommunicator& comm) { shard_checkpoint(at, next, place, comm, options); });
                } else {
                    train(at, next, model, random);
                }
                at = next;
            }
            model.place_at_random(random);
            std::uint64_t const choice = random.engine()();
            run_on_threads(model.ranks(), [&](ThreadCommunicator& comm) {
                Held end(model, comm.rank(), false);
                load_somehow(at, end, comm, choice);
                CAPTURE(way);
                CHECK(end.wrong() == "");
            });
        }
    }
}
