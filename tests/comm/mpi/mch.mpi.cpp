// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/{redistribute,row_moves,validate}.hpp over include/reshard/comm/mpi.hpp: processes carry
// tables to other numbers of ranks as threads do, bit for bit.
#include <reshard/comm/collectives.hpp>
#include <reshard/comm/mpi.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>
#include <reshard/mch/row_moves.hpp>
#include <reshard/mch/validate.hpp>

#include <mch/support/worlds.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using namespace std::chrono_literals;
namespace torchrec = reshard::test::torchrec;

/// What a rank has of a table and its rows after a change, and what it was told.
struct Part {
    World world;  ///< this rank's module is the one that counts
    std::vector<float> weights;
    std::vector<double> momentum;
    MchChange change;
    std::string report;
    std::string error;
};

/// A table saved by one world, as rank `rank` of `count` loads it by position; ranks beyond have none of it.
Part loaded_part(World const& saved, Id count, int rank) {
    Part part{loaded_by_position(saved, count), {}, {}, {}, {}, {}};
    if (rank >= count) return part;
    Module const& module = part.world.ranks[static_cast<std::size_t>(rank)];
    for (Id slot = module.o; slot < module.o + module.z; ++slot) {
        for (int c = 0; c < 3; ++c) part.weights.push_back(static_cast<float>(slot * 3 + c));
        part.momentum.push_back(static_cast<double>(slot) + 0.25);
    }
    return part;
}

struct Case {
    std::vector<World> saved;  ///< tables of one model
    Id count = 1;
    MchOptions options{};
};

/// Carries the tables over and moves their rows. `spoil` may damage what this rank passes.
template <Communicator C, class Spoil>
std::vector<Part> carry(Case const& one, C& comm, Spoil const& spoil) {
    int const rank = comm.rank();
    std::vector<Part> parts;
    for (World const& world : one.saved) parts.push_back(loaded_part(world, one.count, rank));
    std::vector<MchTransition> tables;
    for (std::size_t t = 0; t < parts.size(); ++t) {
        std::string const name = errors::concat("table.", t);
        MchState state;
        if (rank < one.count) state = state_of(parts[t].world.ranks[static_cast<std::size_t>(rank)]);
        tables.push_back({table_of(one.saved[t], name), table_of(parts[t].world, name), state});
    }
    spoil(rank, parts, tables);
    try {
        auto changes = redistribute(tables, comm, one.options);
        for (std::size_t t = 0; t < parts.size(); ++t) {
            auto const z = static_cast<Index>(parts[t].momentum.size());
            std::vector<DynamicView> const rows{TensorView<float>(parts[t].weights.data(), Shape{z, 3}),
                                                TensorView<double>(parts[t].momentum.data(), Shape{z})};
            apply_row_moves(changes[t].moves, tables[t].current, rows, comm);
            parts[t].change = std::move(changes[t]);
            parts[t].report = explain(validate(tables[t].current, tables[t].state, comm));
        }
    } catch (Error const& error) {
        for (Part& part : parts) part.error = error.message();
    }
    return parts;
}
constexpr auto unspoilt = [](int, std::vector<Part>&, std::vector<MchTransition>&) {};

/// The same on threads, as every process may do for itself: the parts of one rank.
template <class Spoil>
std::vector<Part> carried_by_threads(Case const& one, int ranks, int rank, Spoil const& spoil) {
    std::vector<Part> mine;
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        std::vector<Part> parts = carry(one, comm, spoil);
        if (comm.rank() == rank) mine = std::move(parts);
    });
    return mine;
}

void check_equal(std::vector<Part> const& is, std::vector<Part> const& expected, int rank) {
    CHECK(is.size() == expected.size());
    for (std::size_t t = 0; t < is.size() && t < expected.size(); ++t) {
        CAPTURE(t);
        Part const& a = is[t];
        Part const& b = expected[t];
        CHECK(a.error == b.error);
        CHECK(a.report == b.report);
        CHECK(a.weights == b.weights);
        CHECK(a.momentum == b.momentum);
        CHECK(a.change.live_before == b.change.live_before);
        CHECK(a.change.live_after == b.change.live_after);
        CHECK(a.change.sent == b.change.sent);
        CHECK(a.change.received == b.change.received);
        CHECK(a.change.unreachable == b.change.unreachable);
        CHECK(a.change.left_out == b.change.left_out);
        CHECK(a.change.evicted == b.change.evicted);
        CHECK(a.change.moves == b.change.moves);
        CHECK(a.change.freed == b.change.freed);
        CHECK(a.change.bytes_sent == b.change.bytes_sent);
        if (rank < static_cast<int>(a.world.ranks.size())) {
            Module const& has = a.world.ranks[static_cast<std::size_t>(rank)];
            Module const& should = b.world.ranks[static_cast<std::size_t>(rank)];
            CHECK(has.raw == should.raw);
            CHECK(has.mapping == should.mapping);
            CHECK(has.counts == should.counts);
            CHECK(has.last == should.last);
            CHECK(has.segments == should.segments);
            CHECK(has.iteration == should.iteration);
        }
    }
}

/// The same text on every rank?
void check_same(MpiCommunicator& comm, std::string const& text) {
    char mine[512] = {};
    text.copy(mine, sizeof(mine) - 1);
    std::vector<char> all(sizeof(mine) * static_cast<std::size_t>(comm.size()));
    all_gather(comm, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    for (int r = 0; r < comm.size(); ++r) {
        CHECK(std::string(mine) == std::string(all.data() + static_cast<std::size_t>(r) * sizeof(mine)));
    }
}

}  // namespace

TEST_SUITE("comm/mpi") {
    TEST_CASE("tables carried to other ranks over MPI end as they do on threads, within a node and between nodes") {
        for (int ranks_per_node : {0, 1}) {
            MpiOptions options;
            options.ranks_per_node = ranks_per_node;
            options.deadline = 60s;
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            Index sent = 0;
            Index moved = 0;
            for (std::uint64_t seed = 1; seed <= 12; ++seed) {
                CAPTURE(ranks_per_node);
                CAPTURE(seed);
                std::mt19937_64 random(seed);
                auto const below = [&](int end) {
                    return static_cast<int>(random() % static_cast<std::uint64_t>(end));
                };
                Case one;
                one.count = 1 + below(comm.size());  // the others have nothing of it
                one.options.mode = below(3) == 0 ? MchMode::slot_owner : MchMode::route;
                one.options.drop_unreachable = below(2) == 0;
                one.options.threads = 1 + below(2);
                int const tables = 1 + below(3);
                for (int t = 0; t < tables; ++t) {
                    auto const policy = static_cast<Policy>(below(3));
                    auto const kind = static_cast<torchrec::Kind>(below(3));
                    Id const slots = below(5) == 0 ? 7 : 100 + below(400);
                    double const fill = below(4) == 0 ? 1.4 : 0.1 * (1 + below(9));
                    one.saved.push_back(
                        trained(seed * 10 + static_cast<std::uint64_t>(t), slots, 1 + below(6), policy, kind, fill, 8));
                }
                std::vector<Part> const parts = carry(one, comm, unspoilt);
                for (Part const& part : parts) CHECK(part.error == "");
                check_equal(parts, carried_by_threads(one, comm.size(), comm.rank(), unspoilt), comm.rank());
                for (Part const& part : parts) {
                    check_same(comm, part.report);
                    sent += part.change.sent;
                    moved += static_cast<Index>(part.change.moves.size());
                }
            }
            CHECK((comm.size() == 1 || sent > 0));
            CHECK((comm.size() == 1 || moved > 0));
        }
    }

    TEST_CASE("what is wrong with the last rank's state is one error on all processes, and no buffer is touched") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        int const last = comm.size() - 1;
        Case one;
        one.saved = {trained(3, 120, 2, Policy::lfu), trained(4, 90, 3, Policy::distance_lfu)};
        one.count = comm.size();
        auto const check_refused = [&](std::vector<std::string> const& parts, auto const& spoil) {
            std::vector<Part> before;
            auto const keep = [&](int rank, std::vector<Part>& states, std::vector<MchTransition>& tables) {
                if (rank == last) spoil(states, tables);
                before = states;
            };
            std::vector<Part> const after = carry(one, comm, keep);
            CAPTURE(after[0].error);
            check_same(comm, after[0].error);
            for (std::string const& text : parts) CHECK(after[0].error.find(text) != std::string::npos);
            for (std::size_t t = 0; t < after.size(); ++t) {
                CHECK(buffers(after[t].world) == buffers(before[t].world));
                CHECK(after[t].weights == before[t].weights);
            }
        };
        auto const mine = [&](Part& part) -> Module& { return part.world.ranks[static_cast<std::size_t>(last)]; };
        check_refused({"table 'table.1'", "outside its saved shard", "Fix: "},
                      [&](std::vector<Part>& parts, std::vector<MchTransition>&) {
                          mine(parts[1]).raw[0] = 1;
                          mine(parts[1]).mapping[0] = -5;
                      });
        check_refused({"table 'table.0'", "the column of ids has shape [1]", "Fix: "},
                      [&](std::vector<Part>&, std::vector<MchTransition>& tables) {
                          static Index lone = 0;
                          tables[0].state.ids = TensorView<Index>(&lone, Shape{1});
                      });
        check_refused(
            {"hash size differs", "saved 9223372036854775807, current 77", "Fix: "},
            [&](std::vector<Part>&, std::vector<MchTransition>& tables) { tables[1].current.hash_size = 77; });
        if (comm.size() > 1) {
            check_refused(
                {"is at iteration", "Fix: load the states of one checkpoint."},
                [&](std::vector<Part>& parts, std::vector<MchTransition>&) { mine(parts[0]).iteration[0] += 1000; });
        }
        std::vector<Part> const well = carry(one, comm, unspoilt);  // the communicator is as good as before
        check_equal(well, carried_by_threads(one, comm.size(), comm.rank(), unspoilt), comm.rank());
    }

    TEST_CASE("a table with more ranks than processes is a MeshError on all of them") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        Case one;
        one.saved = {trained(5, 60, 1, Policy::lru)};
        one.count = comm.size() + 1;
        std::vector<Part> const parts = carry(one, comm, unspoilt);
        CHECK(parts[0].error.find(errors::concat("the communicator only ", comm.size(), " ranks")) !=
              std::string::npos);
        check_same(comm, parts[0].error);
    }
}
