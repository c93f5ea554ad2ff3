// SPDX-License-Identifier: Apache-2.0
// Whichever allocation one rank is refused in a collective call: all ranks throw the same OutOfMemory, and none waits.
#include <reshard/mch/checkpoint.hpp>
#include <reshard/mch/checkpoint_save.hpp>

#include <reshard/comm/agree.hpp>
#include <reshard/mch/detail/checkpoint_text.hpp>
#include <reshard/mch/redistribute.hpp>
#include <reshard/mch/row_moves.hpp>
#include <reshard/mch/validate.hpp>

#include <doctest/doctest.h>

#include <mch/support/saved.hpp>
#include <support/scarce.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {
using namespace reshard;
namespace sim = test::torchrec;
using test::Thrown;
using test::without_memory;

constexpr int ranks = 3;

/// Trained by two ranks, loaded by position by three: ids have to change ranks.
sim::World saved_world(sim::Kind kind = sim::Kind::hash63) {
    return sim::trained(7, 48, 2, sim::Policy::distance_lfu, kind, 0.9);
}

/// What one rank brings to a call: its buffers are its own, so that a run leaves the next one as this began.
struct Mine {
    sim::Module module;
    sim::Rows rows;
    MchState state;
    std::vector<MchRows> named;
    std::vector<DynamicView> views;

    explicit Mine(sim::Module const& from) : module(from), rows(from), state(sim::state_of(module)) {
        named = rows.views();
        for (MchRows const& one : named) views.push_back(one.view);
    }
    Mine(Mine const&) = delete;
    Mine& operator=(Mine const&) = delete;

    [[nodiscard]] bool is(sim::Module const& other) const {
        return module.raw == other.raw && module.mapping == other.mapping && module.counts == other.counts &&
               module.last == other.last && module.segments == other.segments && module.iteration == other.iteration;
    }
};
std::unique_ptr<Mine> mine_of(sim::World const& world, int rank) {
    return std::make_unique<Mine>(world.ranks[static_cast<std::size_t>(rank)]);
}

/// The same call with each rank that is poor in turn.
template <class Prepare, class After>
void check(std::vector<int> const& poor_ranks, Prepare const& prepare, After const& after) {
    for (int poor : poor_ranks) {
        CAPTURE(poor);
        CHECK(without_memory(ranks, poor, prepare, after) > 0);
    }
}
template <class Prepare>
void check(std::vector<int> const& poor_ranks, Prepare const& prepare) {
    check(poor_ranks, prepare, [](Thrown const&) {});
}
}  // namespace

TEST_SUITE("mch/no_memory") {
    TEST_CASE("validate: a sound table, an iteration that differs, ids on two ranks") {
        for (int const faults : {0, 1, 2}) {
            CAPTURE(faults);
            sim::World world = sim::trained(7, 48, ranks, sim::Policy::distance_lfu, sim::Kind::hash63, 0.9);
            MchTable const table = sim::table_of(world);
            if (faults == 1) world.ranks[1].iteration[0] += 1;
            if (faults == 2) world.ranks[2].raw = world.ranks[1].raw;
            check({0, 2}, [&](auto& comm) {
                return [&, mine = mine_of(world, comm.rank())] {
                    MchReport const report = validate(table, mine->state, comm);
                    test::Plenty const plenty;
                    CHECK(report.sound() == (faults == 0));
                    if (faults == 1) CHECK(report.total(MchFault::iteration) != 0);
                    if (faults == 2) CHECK(report.total(MchFault::id_on_two_ranks) != 0);
                };
            });
        }
    }

    TEST_CASE("redistribute: a table is carried over, or is as it was; threads, evictions, merges") {
        for (sim::Kind const kind : {sim::Kind::hash63, sim::Kind::low, sim::Kind::any}) {
            for (MchMode const mode : {MchMode::route, MchMode::slot_owner}) {
                CAPTURE(static_cast<int>(kind));
                CAPTURE(static_cast<int>(mode));
                sim::World const saved = saved_world(kind);
                sim::World const loaded = sim::loaded_by_position(saved, ranks);
                MchTable const from = sim::table_of(saved);
                MchTable const to = sim::table_of(loaded);
                MchOptions options;
                options.mode = mode;
                options.drop_unreachable = true;
                options.threads = kind == sim::Kind::low ? 2 : 1;
                check({0, 1}, [&](auto& comm) {
                    return [&, mine = mine_of(loaded, comm.rank())] {
                        try {
                            static_cast<void>(redistribute(from, to, mine->state, comm, options));
                        } catch (OutOfMemory const&) {
                            test::Plenty const plenty;
                            CHECK(mine->is(loaded.ranks[static_cast<std::size_t>(comm.rank())]));
                            throw;
                        }
                        test::Plenty const plenty;
                        CHECK(validate(to, mine->state, comm.rank()).sound());
                    };
                });
            }
        }
    }

    TEST_CASE("redistribute: entries of two tables are put in order of ranks in memory that was agreed on") {
        sim::World const saved = saved_world(sim::Kind::any);  // to several ranks
        sim::World const loaded = sim::loaded_by_position(saved, ranks);
        check({0, 1}, [&](auto& comm) {
            std::vector<std::unique_ptr<Mine>> mine;
            std::vector<MchTransition> tables;
            for (char const* name : {"user", "item"}) {
                mine.push_back(mine_of(loaded, comm.rank()));
                tables.push_back({sim::table_of(saved, name), sim::table_of(loaded, name), mine.back()->state});
            }
            return [&, mine = std::move(mine), tables = std::move(tables)] {
                static_cast<void>(redistribute(tables, comm));
                test::Plenty const plenty;
                for (std::size_t t = 0; t < 2; ++t) {
                    CHECK(validate(tables[t].current, mine[t]->state, comm.rank()).sound());
                }
            };
        });
    }

    TEST_CASE("apply_row_moves: rows follow, or are as they were") {
        sim::World const saved = saved_world();
        sim::World loaded = sim::loaded_by_position(saved, ranks);
        MchTable const from = sim::table_of(saved);
        MchTable const to = sim::table_of(loaded);
        sim::World moved = loaded;
        std::vector<MchChange> changes(ranks);
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            changes[r] = redistribute(from, to, sim::state_of(moved.ranks[r]), comm);
        });
        check({0, 1}, [&](auto& comm) {
            return [&, mine = mine_of(loaded, comm.rank())] {
                auto const r = static_cast<std::size_t>(comm.rank());
                try {
                    apply_row_moves(changes[r].moves, to, mine->views, comm);
                } catch (OutOfMemory const&) {
                    test::Plenty const plenty;
                    CHECK(mine->rows == sim::Rows(mine->module));
                    throw;
                }
                test::Plenty const plenty;
                for (MchRowMove const& move : changes[r].moves) {
                    auto const row = static_cast<std::size_t>(move.to - mine->module.o);
                    CHECK(mine->rows.momenta[row] == sim::momentum(move.from));
                }
            };
        });
    }

    TEST_CASE("load_redistributed: local, and the state is as it was on a rank that cannot") {
        checkpoint_test::TempFolder const folder;
        sim::World saved = saved_world();
        sim::save_world(folder.path(), saved);
        sim::World const fresh = sim::fresh_like(saved, ranks);
        MchTable const table = sim::table_of(fresh);
        check({1}, [&](auto& comm) {
            return [&, path = folder.path(), mine = mine_of(fresh, comm.rank())]() mutable {
                reshard::detail::PendingVerdict verdict;
                verdict.attempt([&] {
                    MchCheckpoint files = MchCheckpoint::open(std::move(path));
                    auto const found = files.load_redistributed("user", table, comm.rank(), mine->state, mine->named);
                    test::Plenty const plenty;
                    CHECK(validate(table, mine->state, comm.rank()).sound());
                });
                if (!verdict.ok()) {
                    test::Plenty const plenty;
                    CHECK(mine->is(fresh.ranks[static_cast<std::size_t>(comm.rank())]));
                }
                verdict.agree(comm);
            };
        });
    }

    TEST_CASE("save with a table: the folder holds a whole save, or none") {
        checkpoint_test::TempFolder const folder;
        std::string const out = folder / "out";
        sim::World const world = sim::trained(7, 48, ranks, sim::Policy::distance_lfu, sim::Kind::hash63, 0.9);
        MchTable const table = sim::table_of(world);
        check(
            {0, 1},
            [&](auto& comm) {
                auto mine = mine_of(world, comm.rank());
                auto saving = std::make_unique<MchTableToSave>(MchTableToSave{table, mine->state, mine->named});
                return [&, mine = std::move(mine), saving = std::move(saving), to = out]() mutable {
                    static_cast<void>(save(std::move(to), *saving, comm));
                };
            },
            [&](Thrown const& thrown) {
                bool const whole = std::filesystem::exists(out + "/" + std::string(manifest_name));
                CHECK((whole || thrown.code != ErrorCode::none));
                if (whole) CHECK(MchCheckpoint::open(out).ranks() == ranks);
                std::filesystem::remove_all(out);
            });
    }
}
