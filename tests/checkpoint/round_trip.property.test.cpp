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

#include "../support/oracle.hpp"
#include "../support/random.hpp"
#include "support.hpp"

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace checkpoint_test;
using Bytes = std::vector<std::byte>;

/// All of it in one process.
struct Whole {
    std::string name;
    DType dtype;
    DynamicShape shape;
    Bytes bytes;
};

struct Model {
    std::vector<Whole> tensors;
    std::vector<DynamicDistribution> places;
    [[nodiscard]] int ranks() const {
        Index last = 0;
        for (auto const& place : places) last = detail::larger(last, place.mesh().last_rank());
        return static_cast<int>(last) + 1;
    }
    void place_at_random(test::Random& random) {
        places.clear();
        auto const mesh = random.mesh();
        for (Whole const& whole : tensors)
            places.push_back(random.distribution(random.chance(70) ? mesh : random.mesh(), whole.shape));
    }
};

/// What a rank holds of the whole tensor, by the oracle. \pre one dimension at least
Bytes part_of(Whole const& whole, DynamicDistribution const& place, int rank) {
    if (!place.contains(rank)) return {};
    Index const width = bytes(whole.dtype);
    auto const held = oracle::held_indices(place, rank);
    oracle::Elements rows{0};
    for (std::size_t dim = 0; dim + 1 < held.size(); ++dim) {
        oracle::Elements longer;
        for (Index const row : rows)
            for (Index const i : held[dim]) longer.push_back(row * whole.shape.extent(static_cast<int>(dim)) + i);
        rows.swap(longer);
    }
    std::vector<Interval> runs;  // of the last dimension
    for (Index const i : held.back()) {
        if (runs.empty() || runs.back().end != i) runs.push_back({i, i});
        ++runs.back().end;
    }
    Index const extent = whole.shape.extent(whole.shape.rank() - 1);
    Bytes result;
    for (Index const row : rows) {
        for (Interval const& run : runs) {
            auto const from = whole.bytes.begin() + (row * extent + run.begin) * width;
            result.insert(result.end(), from, from + run.size() * width);
        }
    }
    return result;
}

/// A rank's tensors: what the model says, or bytes that nobody saved.
class Held {
public:
    Held(Model const& model, int rank, bool filled) : model_(&model), rank_(rank) {
        for (std::size_t t = 0; t != model.tensors.size(); ++t) {
            Whole const& whole = model.tensors[t];
            DynamicDistribution const& place = model.places[t];
            DynamicShape const shape = place.contains(rank) ? place.local_shape(rank) : DynamicShape(Shape{0});
            memory_.push_back(
                filled ? part_of(whole, place, rank)
                       : Bytes(static_cast<std::size_t>(shape.size() * bytes(whole.dtype)), std::byte{0xEE}));
            memory_.back().reserve(1);  // an empty view has an address, too
            list_.push_back({whole.name, place, DynamicView(memory_.back().data(), whole.dtype, shape)});
        }
    }
    [[nodiscard]] std::vector<LocalTensor>& list() noexcept { return list_; }
    /// The first tensor that is not what the model says.
    [[nodiscard]] std::string wrong() const {
        for (std::size_t t = 0; t != memory_.size(); ++t) {
            if (memory_[t] == part_of(model_->tensors[t], model_->places[t], rank_)) continue;
            return errors::concat("'", model_->tensors[t].name, "' of ", to_string(model_->tensors[t].shape), " under ",
                                  to_string(model_->places[t]), " on rank ", rank_);
        }
        return {};
    }

private:
    Model const* model_;
    int rank_;
    std::deque<Bytes> memory_;
    std::vector<LocalTensor> list_;
};

Model random_model(test::Random& random) {
    Model model;
    for (Index t = random.between(1, 3); t > 0; --t) {
        auto const dtype = random.pick(std::vector<DType>{DType::u8, DType::bf16, DType::f32, DType::f32, DType::c64});
        Index const outer = random.between(1, 600);
        Index const middle = random.chance(50) ? 1 : random.between(1, 20);
        Index const inner = detail::larger<Index>(random.between(50'000, 1'000'000) / (outer * middle), 1);
        DynamicShape const shape(middle == 1 ? Indices{outer, inner} : Indices{outer, middle, inner});
        Whole whole{errors::concat("t", t), dtype, shape, Bytes(static_cast<std::size_t>(shape.size() * bytes(dtype)))};
        std::mt19937_64 values(random.engine()());
        for (std::size_t i = 0; i < whole.bytes.size(); i += 8) {
            std::uint64_t const next = values();
            std::memcpy(whole.bytes.data() + i, &next, detail::smaller<std::size_t>(8, whole.bytes.size() - i));
        }
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
