// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/load.hpp: tensors that are cut into boxes, in files, at random, and stored in
// copies. The oracle knows every byte of every copy, and which copy is whose.
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/load_forecast.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include "../support/random.hpp"
#include "sharded_support.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;

struct Case {
    std::vector<Goal> goals;
    std::vector<Saved> saved;
    std::vector<int> axes;  ///< replica_axes
    int ranks = 1;
    Checksums compared = Checksums::whole_blocks;

    [[nodiscard]] static bool is_of_copies(Goal const& goal, int axis) {
        return goal.to.placement(axis) == Placement::replicate() && goal.to.mesh().extent(axis) > 1;
    }
    [[nodiscard]] int replica(Goal const& goal, int rank, int replicas) const {
        DynamicMesh const& mesh = goal.to.mesh();
        Indices const at = mesh.coordinates(rank);
        if (!axes.empty()) {
            Index place = 0;
            for (int axis = 0; axis < mesh.axes(); ++axis) {
                if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
                if (goal.to.placement(axis) != Placement::replicate()) continue;
                place = place * mesh.extent(axis) + at[axis];
            }
            return static_cast<int>(place % replicas);
        }
        for (int axis = mesh.axes() - 1; axis >= 0; --axis) {
            if (is_of_copies(goal, axis)) return static_cast<int>(at[axis] % replicas);
        }
        return 0;
    }
    [[nodiscard]] std::string content(Goal const& goal, int rank) const {
        for (Saved const& each : saved) {
            if (each.spec.name != goal.stored.name) continue;
            return content_of(goal.stored.name, replica(goal, rank, each.replicas), each.replicas);
        }
        return "nothing";
    }
    /// Bytes of the boxes that at least one rank needs something of.
    [[nodiscard]] Index needed_bytes() const {
        Index sum = 0;
        for (std::size_t t = 0; t < goals.size(); ++t) {
            DynamicDistribution const& to = goals[t].to;
            for (Saved::Part const& part : saved[t].parts) {
                bool needed = saved[t].replicas == 1;
                for (int rank = 0; rank < ranks && !needed; ++rank) {
                    if (!to.contains(rank) || replica(goals[t], rank, saved[t].replicas) != part.replica) continue;
                    bool const partial = oracle::addend_of(to, rank) != 0;
                    Reduce const op = oracle::owed(to).op;
                    if (partial && op != Reduce::max && op != Reduce::min) continue;
                    for (Box const& box : to.boxes(rank)) needed = needed || !intersect(box, part.box).empty();
                }
                if (needed) sum += part.box.size() * bytes(goals[t].stored.dtype);
            }
        }
        return sum;
    }
};

struct Outcome {
    std::vector<LoadReport> reports;
    std::string wrong;
    [[nodiscard]] Index sum(Index LoadReport::*figure) const {
        Index total = 0;
        for (LoadReport const& report : reports) total += report.*figure;
        return total;
    }
};

template <class Strategy>
Outcome outcome(std::string const& path, Case const& one, Strategy strategy) {
    strategy.options.replica_axes = one.axes;
    strategy.options.verify_checksums = one.compared;
    Outcome result;
    result.reports.resize(static_cast<std::size_t>(one.ranks));
    std::mutex guard;
    run_on_threads(one.ranks, [&](ThreadCommunicator& comm) {
        LocalTensors tensors(one.goals, comm.rank());
        LoadReport report;
        if constexpr (Strategy::communicates) {
            report = load(path, tensors.list(), comm, strategy);
        } else {
            report = load(Checkpoint::open(path), tensors.list(), comm.rank(), strategy);
            agree_loaded(comm, report);
        }
        std::scoped_lock const lock(guard);
        result.reports[static_cast<std::size_t>(comm.rank())] = report;
        if (!result.wrong.empty()) return;
        result.wrong = tensors.wrong([&](Goal const& goal) { return one.content(goal, comm.rank()); });
        if (result.wrong.empty() && report.bytes_loaded != tensors.bytes_of_values()) {
            result.wrong = errors::concat("rank ", comm.rank(), " reports ", report.bytes_loaded, " bytes");
        }
    });
    return result;
}

/// What all ranks report, added up, is what was foretold.
template <class Strategy>
void check_forecast(Catalogue const& catalogue, Case const& one, Strategy strategy, Outcome const& counted,
                    bool exact_lists) {
    strategy.options.replica_axes = one.axes;
    strategy.options.verify_checksums = one.compared;
    LocalTensors tensors(one.goals, 0);
    LoadForecast const forecast = forecast_load(catalogue, placed_tensors(tensors.list()), one.ranks, strategy);
    CAPTURE(forecast.strategy);
    CHECK(forecast.bytes_loaded == counted.sum(&LoadReport::bytes_loaded));
    CHECK(forecast.bytes_read == counted.sum(&LoadReport::bytes_read));
    CHECK(forecast.reads == counted.sum(&LoadReport::reads));
    CHECK(forecast.files_opened == counted.sum(&LoadReport::files_opened));
    CHECK(forecast.bytes_verified == counted.sum(&LoadReport::bytes_verified));
    if (!Strategy::communicates) return;
    CHECK(forecast.lists_opened == counted.sum(&LoadReport::lists_opened));
    CHECK(to_string(forecast.collectives) == to_string(counted.reports[0].collectives));
    Index sent = 0;
    for (LoadReport const& report : counted.reports) sent += report.traffic.bytes_sent;
    if (exact_lists) CHECK(forecast.bytes_on_wire + forecast.bytes_of_lists == sent);
}

void make(Case& one, test::Random& random, test::Limits limits) {
    one.ranks = static_cast<int>(random.between(1, 6));
    limits.max_ranks = one.ranks;
    test::Random tensors(static_cast<std::uint64_t>(random.between(1, 1 << 30)), limits);
    Index const count = random.between(1, 5);
    for (Index i = 0; i < count; ++i) {
        DynamicShape const shape = tensors.shape();
        DType const dtype = random.pick(std::vector<DType>{DType::f32, DType::bf16, DType::u8, DType::f64});
        one.goals.push_back(
            {{errors::concat("tensor.", i), dtype, shape}, tensors.distribution(tensors.mesh(), shape)});
    }
    int axes = 8;  // that all meshes have
    for (Goal const& goal : one.goals) axes = std::min(axes, goal.to.mesh().axes());
    for (int axis = 0; axis < axes; ++axis)
        if (random.chance(20)) one.axes.push_back(axis);
    for (Goal const& goal : one.goals) {  // which copy is meant must be said where several axes could be
        int open = 0;
        for (int axis = 0; axis < goal.to.mesh().axes(); ++axis) open += Case::is_of_copies(goal, axis) ? 1 : 0;
        if (open > 1 && one.axes.empty()) one.axes.push_back(0);
    }
}

}  // namespace

TEST_SUITE("checkpoint/load") {
    TEST_CASE(
        "law: whatever boxes, files and copies tensors were saved in, every strategy leaves the bits of its copy") {
        Index dropped = 0;
        for (std::uint64_t seed : test::seeds(80)) {
            CAPTURE(seed);
            test::Limits limits;
            limits.max_elements = 2000;
            limits.max_dims = 4;
            limits.plain_ranks = true;
            limits.ops = {Reduce::sum, Reduce::max};
            test::Random random(seed, limits);
            Case one;
            make(one, random, limits);
            int const files = static_cast<int>(random.between(1, 6));
            bool const by_manifest = random.chance(75);
            one.saved = saved_at_random(one.goals, random, files, by_manifest ? 3 : 1);
            // Boxes without elements say nothing about shards' extents: PyTorch's headers lose them.
            TempFolder const folder;
            if (!by_manifest) {  // no number may be missing
                for (int f = 0; f < files; ++f) {
                    one.goals.push_back(goal(errors::concat("zz.", f), DType::u8, "(1):(R)", Shape{3}));
                    one.saved.push_back({one.goals.back().stored, 1, {{0, f, Box(Shape{3})}}});
                }
            }
            bool const checksums = random.chance(80);
            if (random.chance(50)) one.compared = Checksums::touched_blocks;
            Index const block_bytes = random.pick(std::vector<Index>{1, 40, 64, 1000, default_block_bytes});
            Manifest const manifest =
                write_sharded(folder.path(), one.saved, files,
                              by_manifest ? Described::by_manifest : Described::by_shards, checksums, block_bytes);
            std::string all;
            for (Goal const& goal : one.goals) {
                all += errors::concat(to_string(goal.to), " of ", to_string(goal.stored.shape), " ",
                                      name(goal.stored.dtype), "; ");
            }
            CAPTURE(all);
            CAPTURE(by_manifest);
            CAPTURE(one.ranks);
            Catalogue const catalogue(Checkpoint::open(folder.path()));
            if (by_manifest) CHECK(catalogue.manifest() == manifest);
            CHECK(catalogue.extents().size() == manifest.extents.size());
            Index const needed = one.needed_bytes();
            Index stored = 0;
            for (Extent const& extent : manifest.extents) stored += catalogue.extent_bytes(extent);
            dropped += stored - needed;

            ReadOptions reads;
            reads.gap_bytes = random.pick(std::vector<Index>{0, 64, 65536});
            reads.chunk_bytes = random.pick(std::vector<Index>{1, 100, 5000, 1 << 20});
            reads.in_flight = static_cast<int>(random.between(1, 3));
            Index window = random.pick(std::vector<Index>{0, 1, 50, 1000, 20'000, 1 << 20});
            if (window != 0)
                window =
                    std::max(window, needed / (test::fewer_seeds() ? 100 : 1000));  // all ranks meet in each window
            int const source = static_cast<int>(random.between(0, one.ranks - 1));
            CAPTURE(window);

            auto const every = outcome(folder.path(), one, EveryRankReads{reads});
            CHECK(every.wrong == "");
            check_forecast(catalogue, one, EveryRankReads{reads}, every, true);
            auto const boxes = outcome(folder.path(), one, EachRankReadsItsBoxes{reads});
            CHECK(boxes.wrong == "");
            CHECK(boxes.sum(&LoadReport::bytes_verified) == every.sum(&LoadReport::bytes_verified));
            if (one.compared == Checksums::touched_blocks && by_manifest && checksums)
                CHECK(every.sum(&LoadReport::bytes_verified) >= every.sum(&LoadReport::bytes_loaded));
            check_forecast(catalogue, one, EachRankReadsItsBoxes{reads}, boxes, true);
            auto const scattered = outcome(folder.path(), one, OneRankReads<Scatter>{source, window, reads});
            CHECK(scattered.wrong == "");
            check_forecast(catalogue, one, OneRankReads<Scatter>{source, window, reads}, scattered, true);
            auto const spread = outcome(folder.path(), one, OneRankReads<Broadcast>{source, window, reads});
            CHECK(spread.wrong == "");
            check_forecast(catalogue, one, OneRankReads<Broadcast>{source, window, reads}, spread, true);
            CooperativeRead strategy{window, reads, Cooperation::always, {}};
            auto const together = outcome(folder.path(), one, strategy);
            CHECK(together.wrong == "");
            check_forecast(catalogue, one, strategy, together, true);
            for (Outcome const* staged : {&scattered, &spread, &together}) {
                CHECK(staged->sum(&LoadReport::bytes_verified) == (by_manifest && checksums ? needed : 0));
                Index wanted = 0;  // reads of gaps apart: in windows of a byte there are none
                for (LoadReport const& report : staged->reports) wanted += report.bytes_read;
                CHECK(wanted >= needed);
            }
            auto const there = static_cast<Index>(catalogue.files().size());
            Index const opened = together.sum(&LoadReport::files_opened);
            CHECK(opened <= there + one.ranks - 1);
            CHECK(opened + together.sum(&LoadReport::lists_opened) <= 2 * there + one.ranks);
            strategy.cooperation = Cooperation::by_model;
            CHECK(outcome(folder.path(), one, strategy).wrong == "");
        }
        CHECK(dropped > 0);  // there were copies that nobody needed
    }
}
