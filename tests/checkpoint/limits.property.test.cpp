// SPDX-License-Identifier: Apache-2.0
// Tensors, rows and options of about the sizes from which files are written, read and compared in another way: pages,
// direct reads and writes, slices, steps, blocks with a sum of their own, units, pieces, windows, votes, snapshots.
#include <reshard/checkpoint/compare_checkpoints.hpp>
#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/load_forecast.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "../support/around.hpp"
#include "model_support.hpp"

namespace {
using namespace reshard;
using namespace checkpoint_test;
using test::around;

constexpr Index kib = 1024;
constexpr Index mib = 1024 * kib;

/// Tensors whose bytes, and mostly those of their rows, are around a limit.
Model model_of_limits(test::Random& random, Index largest) {
    Model model;
    for (Index t = random.between(1, 4); t > 0; --t) {
        auto const dtype = random.pick(std::vector<DType>{DType::u8, DType::bf16, DType::f32, DType::c64});
        Index const limit = random.pick(std::vector<Index>{64, 4 * kib, 64 * kib, 256 * kib, 512 * kib, mib});
        Index size = around(random, limit);
        if (t == 1 && largest > 3 * mib) size = largest + random.between(-1, 1) * bytes(dtype);
        Index const elements = size / bytes(dtype);
        Index const width = around(random, random.pick(std::vector<Index>{4 * kib, 64 * kib})) / bytes(dtype);
        Index const row = detail::smaller(elements, size <= 16 * kib && random.chance(50) ? 1 : width);
        Indices extents{row};
        if (elements / row > 1) extents = {elements / row, row};
        if (elements / row > 6 && random.chance(50)) extents = {elements / row / 3, 3, row};
        Whole whole{errors::concat("t", t), dtype, DynamicShape(extents), {}};
        whole.bytes.resize(static_cast<std::size_t>(whole.shape.size() * bytes(dtype)));
        fill(whole, random);
        model.tensors.push_back(std::move(whole));
    }
    return model;
}
Index bytes_of(Model const& model) {
    Index sum = 0;
    for (Whole const& whole : model.tensors) sum += static_cast<Index>(whole.bytes.size());
    return sum;
}
/// Elements that lie apart take long to compare.
std::vector<Lies> any_lies(test::Random& random, Model const& model) {
    std::vector<Lies> lies;
    for (Whole const& whole : model.tensors)
        lies.push_back(static_cast<Lies>(random.between(0, whole.bytes.size() < 200'000 ? 3 : 1)));
    return lies;
}

/// An option around the limits, the largest that there is, or so small that there are some hundred of what it makes.
Index bytes_option(test::Random& random, Index total, std::vector<Index> const& limits) {
    if (random.chance(10)) return INT64_MAX;
    return random.chance(40) ? std::max<Index>(total / random.between(20, 300), 1)
                             : around(random, random.pick(limits));
}
ReadOptions any_reads(test::Random& random, Index total) {
    ReadOptions reads;
    reads.gap_bytes = random.pick(std::vector<Index>{0, 4 * kib - 1, 4 * kib, 4 * kib + 1, 64 * kib, INT64_MAX});
    reads.over_read = random.pick(std::vector<double>{1.0, 2.0, HUGE_VAL});
    reads.chunk_bytes = bytes_option(random, total, {4 * kib, 64 * kib, mib});
    reads.in_flight = static_cast<int>(random.between(1, 3));
    reads.direct_bytes = bytes_option(random, total, {1, 64 * kib, mib});
    reads.direct_bytes = std::max<Index>(reads.direct_bytes, 1);
    return reads;
}
SaveOptions any_save(test::Random& random, Index total) {
    SaveOptions options;
    options.dedup = static_cast<SaveDedup>(random.between(0, 2));
    options.small_bytes = random.pick(std::vector<Index>{0, 64 * kib, mib + 1, INT64_MAX});
    options.min_slice_bytes = bytes_option(random, total, {64 * kib, mib});
    options.durable = false;
    options.in_flight = static_cast<int>(random.between(1, 3));
    options.window_bytes = bytes_option(random, total, {4 * kib, 64 * kib, mib, 4 * mib});
    options.vote_bytes = bytes_option(random, total, {64 * kib, mib});
    options.snapshot_bytes = random.chance(30) ? 0 : bytes_option(random, total, {64 * kib, 4 * mib});
    return options;
}

/// Figures that a forecast has, too: of all ranks, and of the first.
struct Figures {
    Index bytes_read = 0;
    Index reads = 0;
    Index files_opened = 0;
    Index bytes_verified = 0;
    Collectives collectives;
    friend bool operator==(Figures const&, Figures const&) = default;
};

/// The error of a rank, or the first tensor that is wrong. What all report is what was foretold of dense memory.
template <class Strategy>
std::string load_by(Strategy const& strategy, std::string const& folder, Model const& model,
                    std::vector<Lies> const& lies) {
    std::string error;
    Figures counted;
    std::mutex guard;
    run_on_threads(model.ranks(), [&](ThreadCommunicator& comm) {
        Held held(model, comm.rank(), false, lies);
        LoadReport report;
        auto const mine = caught([&] {
            if constexpr (Strategy::communicates) {
                report = load(folder, held.list(), comm, strategy);
            } else {
                report = load(Checkpoint::open(folder), held.list(), comm.rank(), strategy);
            }
        });
        std::string const words = mine.code == ErrorCode::none ? held.wrong() : mine.message;
        std::lock_guard const lock(guard);
        if (!words.empty()) error = words;
        counted.bytes_read += report.bytes_read;
        counted.reads += report.reads;
        counted.files_opened += report.files_opened;
        counted.bytes_verified += report.bytes_verified;
        counted.collectives = report.collectives;
    });
    bool const dense = std::count(lies.begin(), lies.end(), Lies::dense) == std::ssize(lies);
    if (!error.empty() || !dense) return error;
    Held held(model, 0, false);
    LoadForecast const foretold =
        forecast_load(Catalogue(Checkpoint::open(folder)), placed_tensors(held.list()), model.ranks(), strategy);
    Figures const expected{foretold.bytes_read, foretold.reads, foretold.files_opened, foretold.bytes_verified,
                           foretold.collectives};
    return counted == expected ? "" : errors::concat("another load was foretold: ", explain(foretold));
}
std::string load_by(int strategy, std::string const& folder, Model const& model, std::uint64_t choice,
                    Checksums checksums) {
    test::Random random(choice);
    Index const total = bytes_of(model);
    std::vector<Lies> const lies = random.chance(50) ? std::vector{Lies::dense} : any_lies(random, model);
    ReadOptions const reads = any_reads(random, total);
    Index const window = random.chance(20) ? 0 : bytes_option(random, total, {4 * kib, 64 * kib, mib});
    int const root = static_cast<int>(random.between(0, model.ranks() - 1));
    LoadOptions options;
    options.verify_checksums = checksums;
    switch (strategy) {
        case 0: return load_by(EachRankReadsItsBoxes{reads, options}, folder, model, lies);
        case 1: return load_by(OneRankReads<Scatter>{root, window, reads, options}, folder, model, lies);
        case 2: return load_by(OneRankReads<Broadcast>{root, window, reads, options}, folder, model, lies);
        case 3: return load_by(EveryRankReads{reads, options}, folder, model, lies);
        default: return load_by(CooperativeRead{window, reads, Cooperation::always, {}, options}, folder, model, lies);
    }
}

std::string verify(std::string const& folder, int ranks, std::uint64_t choice, Index total) {
    std::string error;
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        test::Random random(choice);
        ReadOptions const reads = any_reads(random, total);
        Index const window = bytes_option(random, total, {4 * kib, mib, default_window_bytes});
        auto const mine = caught([&] { verify_checkpoint(folder, comm, reads, window); });
        if (comm.rank() == 0) error = mine.message;
    });
    return error;
}
CompareReport compare(std::string const& first, std::string const& second, int ranks, std::uint64_t choice,
                      Index total) {
    CompareReport report;
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        test::Random random(choice);
        CompareOptions options;
        options.window_bytes = bytes_option(random, total, {4 * kib, mib, 8 * mib});
        options.reads = any_reads(random, total);
        auto mine = compare_checkpoints(first, second, comm, options);
        if (comm.rank() == 0) report = std::move(mine);
    });
    return report;
}

/// Flips a bit of what an extent of the folder has, by its blocks: at an end of one, or anywhere.
void flip_a_bit(std::string const& folder, test::Random& random) {
    Checkpoint const checkpoint = Checkpoint::open(folder);
    std::vector<Extent> extents = checkpoint.manifest().extents;
    std::erase_if(extents, [](Extent const& extent) { return extent.box.empty(); });
    Extent const& extent = random.pick(extents);
    Index const size = stored_bytes_of(checkpoint.manifest().tensors[extent.tensor].dtype, extent.box);
    Index const spot = random.pick(std::vector<Index>{0, mib - 1, mib, size - 1, random.between(0, size - 1)}) % size;
    CheckpointFile const& file = checkpoint.manifest().files[static_cast<std::size_t>(extent.file)];
    std::fstream bytes(folder + "/" + file.leaf, std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header = 0;
    bytes.read(reinterpret_cast<char*>(&header), sizeof header);
    auto const at = static_cast<std::streamoff>(8 + static_cast<Index>(header) + extent.begin + spot);
    char byte = 0;
    bytes.seekg(at).read(&byte, 1);
    byte = static_cast<char>(byte ^ 4);
    bytes.seekp(at).write(&byte, 1);
    REQUIRE(bytes.good());
}

void check(test::Random& random, Index largest) {
    Model model = model_of_limits(random, largest);
    Index const total = bytes_of(model);
    model.place_at_random(random);
    std::string all;
    for (std::size_t t = 0; t < model.tensors.size(); ++t)
        all += errors::concat(name(model.tensors[t].dtype), " ", to_string(model.tensors[t].shape), " ",
                              to_string(model.places[t]), "; ");
    CAPTURE(all);
    TempFolder const folder;
    std::string const saved = folder / "saved";
    SaveOptions const options = any_save(random, total);
    CAPTURE(options.window_bytes);
    CAPTURE(options.vote_bytes);
    CAPTURE(options.snapshot_bytes);
    std::vector<Lies> const lies = any_lies(random, model);
    bool const later = random.chance(50);
    CAPTURE(later);
    run_on_threads(model.ranks(), [&](ThreadCommunicator& comm) {
        SaveOptions mine = options;
        Index told = 0;
        Index last = 0;
        mine.progress = [&](Index done, Index of) {
            CHECK((done > told && done <= of));
            told = done;
            last = of;
        };
        Held held(model, comm.rank(), true, lies);
        SaveReport const report =
            later ? start_save(saved, held.list(), comm, mine).wait() : save(saved, held.list(), comm, mine);
        CHECK(told == last);
        if (later && mine.snapshot_bytes != 0) CHECK(report.extra_bytes <= std::max<Index>(mine.snapshot_bytes, 64));
    });
    int const ranks = static_cast<int>(random.between(1, 3));
    CHECK(verify(saved, ranks, random.engine()(), total) == "");
    Model loaded = model;
    auto const load_anywhere = [&](std::string const& from, Checksums checksums) {
        loaded.place_at_random(random);
        int const strategy = static_cast<int>(random.between(0, 4));
        CAPTURE(strategy);
        return load_by(strategy, from, loaded, random.engine()(), checksums);
    };
    CHECK(load_anywhere(saved, Checksums::whole_blocks) == "");
    CHECK(load_anywhere(saved, Checksums::touched_blocks) == "");

    ConsolidateOptions full;
    full.durable = false;
    full.in_flight = static_cast<int>(random.between(1, 2));
    full.window_bytes = full.in_flight * 64 * kib * random.pick(std::vector<Index>{1, 2, 33}) + random.between(0, 4095);
    full.vote_bytes = bytes_option(random, total, {64 * kib});
    full.max_file_bytes = random.chance(50) ? 0 : std::max<Index>(total / random.between(1, 4), 1);
    full.manifest = true;
    std::string const whole = folder / "whole";
    run_on_threads(ranks, [&](ThreadCommunicator& comm) { consolidate(saved, whole, comm, full); });
    CHECK(load_anywhere(whole, static_cast<Checksums>(random.between(0, 2))) == "");
    CHECK(explain(compare(saved, whole, ranks, random.engine()(), total)).starts_with("equal"));

    bool const of_save = random.chance(50);
    std::string const damaged = of_save ? saved : whole;
    CAPTURE(damaged);
    flip_a_bit(damaged, random);
    CHECK(contains(verify(damaged, ranks, random.engine()(), total), "CRC-32C"));
    CHECK(contains(load_anywhere(damaged, Checksums::touched_blocks), "CRC-32C"));
    CompareReport const differs = compare(damaged, of_save ? whole : saved, ranks, random.engine()(), total);
    REQUIRE(differs.differences.size() == 1);
    CHECK(differs.differences[0].elements == 1);
}

}  // namespace

TEST_SUITE("checkpoint/limits") {
    TEST_CASE("what is saved, verified, loaded, rewritten and compared around the limits is the same, or told apart") {
        test::Limits limits;
        limits.partial = false;
        limits.plain_ranks = true;
        limits.max_axes = 2;
        limits.max_ranks = 4;
        for (std::uint64_t seed : test::seeds(6)) {
            CAPTURE(seed);
            limits.cyclic = limits.strided = false;  // thousands of boxes take their time
            test::Random random(seed, limits);
            check(random, seed % 4 == 0 ? 8 * mib : mib);
        }
    }
}
