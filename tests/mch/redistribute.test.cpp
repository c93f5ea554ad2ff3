// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/redistribute.hpp and row_moves.hpp: simulated trainers save, change their number of
// ranks, and ask for every id by a look-up that shares no code with the library.
#include <reshard/mch/row_moves.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/exec/redistribute.hpp>
#include <reshard/mch/validate.hpp>

#include <mch/support/worlds.hpp>
#include <support/fake_cuda.hpp>
#include <support/random.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
namespace torchrec = reshard::test::torchrec;

/// What the row of a slot holds before the change.
double mark(Id slot, int column) { return static_cast<double>(slot) * 3.0 + column; }

/// A change of the number of ranks, and what all ranks said of it.
struct Outcome {
    World world;
    std::vector<std::vector<double>> rows;  ///< of each rank, two columns
    std::vector<MchChange> changes;
    std::vector<std::string> errors;
    std::string report;
};

template <class Spoil>
Outcome change(World const& saved, Id count, MchOptions const& options, Spoil const& spoil) {
    Outcome result{loaded_by_position(saved, count), {}, {}, {}, {}};
    auto const ranks = static_cast<std::size_t>(count);
    result.changes.resize(ranks);
    result.errors.resize(ranks);
    for (Module const& module : result.world.ranks) {
        result.rows.emplace_back();
        for (Id slot = module.o; slot < module.o + module.z; ++slot) {
            for (int c : {0, 1}) result.rows.back().push_back(mark(slot, c));
        }
    }
    MchTable const before = table_of(saved);
    MchTable const after = table_of(result.world);
    run_on_threads(static_cast<int>(count), [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        MchTable from = before;
        MchTable to = after;
        spoil(result.world, from, to, comm.rank());
        try {
            MchState const state = state_of(result.world.ranks[r]);
            result.changes[r] = redistribute(from, to, state, comm, options);
            auto& rows = result.rows[r];
            TensorView<double> const view(rows.data(), Shape{static_cast<Index>(rows.size()) / 2, 2});
            apply_row_moves(result.changes[r].moves, to, view, comm);
            auto const report = validate(to, state, comm);
            if (comm.rank() == 0 && !report.sound()) result.report = explain(report);
        } catch (Error const& error) {
            result.errors[r] = error.message();
        }
    });
    return result;
}
Outcome change(World const& saved, Id count, MchOptions const& options = {}) {
    return change(saved, count, options, [](World&, MchTable&, MchTable&, int) {});
}

template <class Get>
Index total(Outcome const& outcome, Get const& get) {
    Index sum = 0;
    for (MchChange const& one : outcome.changes) sum += get(one);
    return sum;
}

/// What answers misses on each rank is what did on the saved rank as far along, or on the next before it with slots.
void check_misses(World const& saved, Outcome const& outcome) {
    for (std::size_t r = 0; r < outcome.world.ranks.size(); ++r) {
        if (outcome.world.ranks[r].z == 0) continue;
        std::size_t from = r * saved.ranks.size() / outcome.world.ranks.size();
        while (saved.ranks[from].z == 0) --from;
        Id const slot = saved.ranks[from].o + saved.ranks[from].z - 1;
        auto const last = outcome.rows[r].end() - 2;
        CHECK(last[0] == mark(slot, 0));
        CHECK(last[1] == mark(slot, 1));
    }
}

/// Every id that was live is found and has the row it had, unless it is listed as evicted; misses, see above.
void check_found(World const& saved, Outcome const& outcome) {
    std::set<Id> evicted;
    for (MchChange const& one : outcome.changes) evicted.insert(one.evicted.begin(), one.evicted.end());
    Index lost = 0;
    Index wrong = 0;
    for (auto const& [id, slot] : saved.live()) {
        Id const row = outcome.world.look_up(id);
        if (row < 0) {
            lost += evicted.count(id) == 0 ? 1 : 0;
            continue;
        }
        std::size_t const rank = outcome.world.rank_of(id);
        auto const at = static_cast<std::size_t>(row - outcome.world.ranks[rank].o) * 2;
        wrong += outcome.rows[rank][at] == mark(slot, 0) && outcome.rows[rank][at + 1] == mark(slot, 1) ? 0 : 1;
    }
    CHECK(lost == 0);
    CHECK(wrong == 0);
    check_misses(saved, outcome);
    CHECK(total(outcome, [](MchChange const& c) { return c.live_before; }) ==
          total(outcome, [](MchChange const& c) { return c.live_after; }) + total(outcome, [](MchChange const& c) {
              return static_cast<Index>(c.evicted.size() + c.left_out.size());
          }));
}

constexpr std::pair<Id, Id> changes_of_ranks[] = {{1, 2}, {2, 4}, {1, 8}, {6, 4}, {4, 3},
                                                  {4, 2}, {3, 1}, {4, 4}, {2, 7}};

}  // namespace

TEST_SUITE("mch/redistribute") {
    TEST_CASE(
        "route: every id is found where it is looked up, with the row it had, for any policy and change of ranks") {
        int turn = 0;
        for (Policy policy : {Policy::lfu, Policy::lru, Policy::distance_lfu}) {
            ++turn;
            for (auto const& pair : changes_of_ranks) {
                if (reshard::test::fewer_seeds() && ++turn % 3 != 0) continue;  // each change with one policy
                Id const from = pair.first;
                Id const to = pair.second;
                CAPTURE(static_cast<int>(policy));
                CAPTURE(from);
                CAPTURE(to);
                World const saved = trained(17, 1003, from, policy, torchrec::Kind::any, 0.9);
                Outcome const outcome = change(saved, to);
                CHECK(outcome.errors[0] == "");
                CHECK(outcome.report == "");
                check_found(saved, outcome);
                CHECK(total(outcome, [](MchChange const& c) { return c.unreachable; }) == 0);
                for (Module const& module : outcome.world.ranks) CHECK(module.iteration == saved.ranks[0].iteration);
            }
        }
    }

    TEST_CASE("slot_owner: what was kept is reachable as the algorithm that moves entries to their slots leaves it") {
        MchOptions options;
        options.mode = MchMode::slot_owner;
        options.drop_unreachable = false;
        struct Row {
            Id from, to;
            double share;
        };
        for (Row const& row : {Row{1, 2, 0.5}, {2, 4, 0.5}, {1, 8, 0.125}, {6, 4, 0.833}, {4, 3, 0.778}, {4, 2, 1.0}}) {
            CAPTURE(row.from);
            CAPTURE(row.to);
            World const saved = trained(5, reshard::test::tries(24000), row.from, Policy::lfu);
            Outcome const outcome = change(saved, row.to, options);
            CHECK(outcome.errors[0] == "");
            Index const live = total(outcome, [](MchChange const& c) { return c.live_after; });
            Index const dead = total(outcome, [](MchChange const& c) { return c.unreachable; });
            double const share = 1.0 - static_cast<double>(dead) / static_cast<double>(live);
            double const near = reshard::test::fewer_seeds() ? 0.03 : 0.01;
            CHECK(share > row.share - near);
            CHECK(share < row.share + near);
            Index const evicted =
                total(outcome, [](MchChange const& c) { return static_cast<Index>(c.evicted.size()); });
            CHECK(live + evicted == static_cast<Index>(saved.live().size()));
            World const expected = saved.by_slot_owner(row.to);  // but for the slots that misses need
            for (std::size_t r = 0; r < outcome.world.ranks.size(); ++r) {
                MchChange const& one = outcome.changes[r];
                Module const& is = outcome.world.ranks[r];
                Module const& was = expected.ranks[r];
                CHECK(one.evicted.size() == (was.live() == was.z ? 1U : 0U));  // a full shard has no row for misses
                auto const of_ids = std::count_if(one.moves.begin(), one.moves.end(), [&](MchRowMove const& move) {
                    return move.to != is.o + is.z - 1;  // there goes the row of misses
                });
                CHECK(of_ids <= 1);
                if (!one.evicted.empty()) continue;
                CHECK(is.raw == was.raw);
                CHECK(is.counts == was.counts);
                Index moved = 0;
                for (std::size_t i = 0; i < is.raw.size(); ++i)
                    moved += is.raw[i] != no_id && is.mapping[i] != was.mapping[i];
                CHECK(moved == of_ids);
            }
            check_misses(saved, outcome);
        }
    }

    TEST_CASE("slot_owner: ids that no look-up finds are left out, and listed") {
        MchOptions options;
        options.mode = MchMode::slot_owner;
        World const saved = trained(9, 2000, 2, Policy::lru);
        Outcome const outcome = change(saved, 4, options);
        CHECK(outcome.report == "");
        CHECK(total(outcome, [](MchChange const& c) { return c.unreachable; }) == 0);
        Index const left = total(outcome, [](MchChange const& c) { return static_cast<Index>(c.left_out.size()); });
        CHECK(left > 800);
        CHECK(left + total(outcome, [](MchChange const& c) { return c.live_after; }) ==
              static_cast<Index>(saved.live().size()));
        for (MchChange const& one : outcome.changes) {
            for (Index id : one.left_out) CHECK(outcome.world.look_up(id) == -1);
        }
    }

    TEST_CASE("small ids are all looked up on rank 0: what its capacity forces out is listed, the worst first") {
        World const saved = trained(3, 800, 1, Policy::lfu, torchrec::Kind::low, 0.9);
        Outcome const outcome = change(saved, 4);
        CHECK(outcome.report == "");
        check_found(saved, outcome);
        std::size_t const room = 200 - 1;
        CHECK(outcome.changes[0].live_after == static_cast<Index>(room));
        CHECK(outcome.changes[0].evicted.size() == saved.live().size() - room);
        std::map<Id, Id> counts;
        Module const& old = saved.ranks[0];
        for (std::size_t i = 0; i < old.raw.size(); ++i) counts[old.raw[i]] = old.counts[i];
        Id previous = 0;
        for (Index id : outcome.changes[0].evicted) {
            CHECK(counts[id] >= previous);
            previous = counts[id];
        }
        for (Id id : outcome.world.ranks[0].raw) CHECK((id == no_id || counts[id] >= previous));
    }

    TEST_CASE("the slot that misses read is nobody's: a live id on it gets another, and its row follows") {
        for (MchMode mode : {MchMode::route, MchMode::slot_owner}) {
            World const saved = trained(23, 64, 1, Policy::lfu, torchrec::Kind::hash63, 1.5);  // full: 63 ids
            MchOptions options;
            options.mode = mode;
            options.drop_unreachable = false;
            Outcome const outcome = change(saved, 4, options);
            if (mode == MchMode::route) CHECK(outcome.report == "");
            if (mode == MchMode::route) check_found(saved, outcome);
            check_misses(saved, outcome);
            CHECK(total(outcome, [](MchChange const& c) { return static_cast<Index>(c.moves.size()); }) > 0);
            for (Module const& module : outcome.world.ranks) {
                CHECK(module.raw.back() == no_id);
                CHECK(module.mapping.back() == module.o + module.z - 1);
            }
        }
    }

    TEST_CASE("free slots whose rows are those of ids that left are listed; on the same ranks none is") {
        World saved(12, 1, Policy::lfu, 28);  // of 2 ranks the first looks up ids below 14
        for (Id i = 0; i < 8; ++i) saved.ranks[0].raw[static_cast<std::size_t>(i)] = 10 + i;
        Outcome const route = change(saved, 2);
        CHECK(route.changes[0].freed == std::vector<Index>{4});
        CHECK(route.rows[0][2 * 4] == mark(4, 0));  // of id 14, which is on rank 1
        CHECK(route.changes[1].freed == std::vector<Index>{10});
        MchOptions options;
        options.mode = MchMode::slot_owner;
        Outcome const dropped = change(saved, 2, options);
        CHECK(dropped.changes[0].freed == std::vector<Index>{4});
        CHECK(dropped.changes[1].freed == std::vector<Index>{8, 9, 10});
        for (MchMode mode : {MchMode::route, MchMode::slot_owner}) {
            options.mode = mode;
            CHECK(change(saved, 1, options).changes[0].freed.empty());
        }
        Outcome const back = change(route.world, 1);  // slot 5 answered misses
        CHECK(back.changes[0].freed == std::vector<Index>{4, 5, 10});
    }

    TEST_CASE("law: any policy, ids, fill, slots and change of ranks: found with its row, or listed") {
        for (std::uint64_t seed = 1; seed <= 80; seed += reshard::test::fewer_seeds() ? 5 : 1) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            auto const pick = picker(random);
            Policy const policy = pick(Policy::lfu, Policy::lru, Policy::distance_lfu);
            Id const from = pick(Id{1}, Id{2}, Id{3}, Id{4}, Id{6}, Id{8});
            Id const to = pick(Id{1}, Id{2}, Id{3}, Id{4}, Id{6}, Id{8});
            Id const slots = pick(Id{8}, Id{10}, Id{97}, Id{1000});
            double const fill = pick(0.0, 0.01, 0.5, 0.95, 1.3);
            auto const kind = pick(torchrec::Kind::low, torchrec::Kind::hash63, torchrec::Kind::any);
            World const saved = trained(seed, slots, from, policy, kind, fill, 16);
            Outcome const outcome = change(saved, to);
            for (auto const& error : outcome.errors) CHECK(error == "");
            CHECK(outcome.report == "");
            check_found(saved, outcome);
        }
    }

    TEST_CASE("a second time nothing changes, and nothing crosses ranks") {
        World const saved = trained(31, 500, 3, Policy::distance_lfu, torchrec::Kind::any);
        World const once = change(saved, 5).world;
        Outcome const again = change(once, 5);
        CHECK(buffers(again.world) == buffers(once));
        CHECK(total(again, [](MchChange const& c) { return c.sent + static_cast<Index>(c.moves.size()); }) == 0);
    }

    TEST_CASE("shards without slots, more ranks than slots, empty tables and one id") {
        for (double fill : {0.0, 0.08, 1.5}) {
            for (auto const& pair : {std::pair<Id, Id>{2, 8}, {8, 3}, {1, 10}}) {
                Id const from = pair.first;
                Id const to = pair.second;
                CAPTURE(fill);
                CAPTURE(from);
                CAPTURE(to);
                World const saved = trained(2, 10, from, Policy::lfu, torchrec::Kind::any, fill, 8);
                Outcome const outcome = change(saved, to);
                for (auto const& error : outcome.errors) CHECK(error == "");
                CHECK(outcome.report == "");
                check_found(saved, outcome);
            }
        }
    }

    TEST_CASE("one rank: a table is put in order without a collective call") {
        World const saved = trained(4, 300, 3, Policy::lfu);
        World world = loaded_by_position(saved, 1);
        SelfCommunicator comm;
        MchChange const one = redistribute(table_of(saved), table_of(world), state_of(world.ranks[0]), comm);
        CHECK(comm.traffic() == Traffic{});
        CHECK(one.live_after == static_cast<Index>(saved.live().size()));
        for (auto const& [id, slot] : saved.live()) CHECK(world.look_up(id) >= 0);
        std::vector<float> rows(300);
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
        apply_row_moves(one.moves, table_of(world), TensorView<float>(rows.data(), Shape{300}), comm);
        for (auto const& [id, slot] : saved.live()) {
            CHECK(rows[static_cast<std::size_t>(world.look_up(id))] == static_cast<float>(slot));
        }
    }

    TEST_CASE("bytes that cross ranks are the entries that change owner, and headers") {
        World const saved = trained(6, 4000, 2, Policy::distance_lfu);
        Outcome const outcome = change(saved, 4);
        Index const sent = total(outcome, [](MchChange const& c) { return c.sent; });
        CHECK(sent == total(outcome, [](MchChange const& c) { return c.received; }));
        CHECK(total(outcome, [](MchChange const& c) { return c.bytes_sent; }) == sent * 32);
    }

    TEST_CASE("many tables travel in one message for each pair of ranks, and end as each by itself") {
        std::vector<World> const saved{trained(41, 700, 2, Policy::lfu), trained(42, 300, 3, Policy::distance_lfu),
                                       trained(43, 90, 6, Policy::lru), trained(44, 500, 4, Policy::lfu)};
        std::vector<World> loaded;
        std::vector<Outcome> alone;
        for (World const& world : saved) {
            loaded.push_back(loaded_by_position(world, 4));
            alone.push_back(change(world, 4));
        }
        BucketWorld buckets(24, 12, {0, 6, 12, 18, 24});
        for (Id id : {3, 500, -7, 12345}) buckets.admit(id, 9);
        BucketWorld const before = buckets;
        std::vector<Traffic> traffic(4);
        std::vector<std::vector<MchChange>> changes(4);
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            std::vector<MchTransition> tables;
            for (std::size_t t = 0; t < saved.size(); ++t) {
                std::string const name = errors::concat("table ", t);
                tables.push_back({table_of(saved[t], name), table_of(loaded[t], name), state_of(loaded[t].ranks[r])});
            }
            tables.push_back({table_of(before), table_of(buckets), state_of(buckets, r)});
            Traffic const start = comm.traffic();
            changes[r] = redistribute(tables, comm);
            traffic[r] = comm.traffic() - start;
        });
        CHECK(buckets.identities == before.identities);
        CHECK(buckets.hours == before.hours);
        Index entries = 0;
        Index live = 0;
        for (std::size_t r = 0; r < 4; ++r) {
            REQUIRE(changes[r].size() == 5);
            for (std::size_t t = 0; t < saved.size(); ++t) {
                CHECK(changes[r][t].moves == alone[t].changes[r].moves);
                CHECK(changes[r][t].sent == alone[t].changes[r].sent);
                CHECK(changes[r][t].bytes_sent == alone[t].changes[r].bytes_sent);
                entries += changes[r][t].bytes_sent;
            }
            live += changes[r][4].live_after;
            CHECK(traffic[r].messages_sent <= 2 * 3);  // headers, and entries for those who get any
        }
        Index held = 0;
        for (Ids const& part : before.identities)
            held += std::count_if(part.begin(), part.end(), [](Id id) { return id != -1; });
        CHECK(live == held);
        for (std::size_t t = 0; t < saved.size(); ++t) CHECK(buffers(loaded[t]) == buffers(alone[t].world));
        Index bytes = 0;
        for (Traffic const& one : traffic) bytes += one.bytes_sent;
        CHECK(bytes == entries + 4 * 3 * 5 * 16);  // a header a pair of ranks and table
    }

    TEST_CASE("tables on other ranks than one another's, and ranks without any") {
        World const saved = trained(51, 200, 2, Policy::lfu);
        World loaded = loaded_by_position(saved, 3);
        World const alone = change(saved, 3).world;
        run_on_threads(5, [&](ThreadCommunicator& comm) {
            MchTable const from = table_of(saved);
            MchTable const to = from.on(mch_slots(DynamicMesh({3}, first_rank(2)), 200));
            bool const here = comm.rank() >= 2;
            MchState const state =
                here ? state_of(loaded.ranks[static_cast<std::size_t>(comm.rank() - 2)]) : MchState{};
            MchChange const one = redistribute(from, to, state, comm);
            CHECK((here || one.live_after == 0));
            CHECK(one.unreachable == 0);
        });
        CHECK(buffers(loaded) == buffers(alone));
    }

    TEST_CASE("any number of threads gives the same bits") {
        World const saved = trained(61, 3000, 3, Policy::distance_lfu, torchrec::Kind::any);
        for (MchMode mode : {MchMode::route, MchMode::slot_owner}) {
            MchOptions options;
            options.mode = mode;
            Outcome const one = change(saved, 4, options);
            for (int threads : {2, 3}) {
                options.threads = threads;
                Outcome const other = change(saved, 4, options);
                CHECK(buffers(other.world) == buffers(one.world));
                for (std::size_t r = 0; r < 4; ++r) {
                    CHECK(other.changes[r].moves == one.changes[r].moves);
                    CHECK(other.changes[r].left_out == one.changes[r].left_out);
                }
            }
        }
    }

    TEST_CASE("where a load by position was enough nothing is sent, and shards are put in order") {
        World const saved = trained(71, 800, 4, Policy::lfu);
        Outcome const outcome = change(saved, 2);  // 200 slots a shard, then 400
        CHECK(outcome.report == "");
        check_found(saved, outcome);
        CHECK(total(outcome, [](MchChange const& c) { return c.sent + c.bytes_sent; }) == 0);
        CHECK(position_ok(table_of(saved), table_of(outcome.world)));
    }

    TEST_CASE(
        "old shards in memory that a plan takes there by position end as loaded ones do, on old ranks or others") {
        for (auto const& pair : {std::pair<Id, Id>{2, 3}, {3, 2}, {1, 4}}) {
            World saved = trained(91, 200, pair.first, Policy::distance_lfu, torchrec::Kind::any);
            Outcome const expected = change(saved, pair.second);
            auto const columns = [](World& world, Id part) {
                std::vector<DynamicView> list(5, TensorView<Index>(nullptr, Shape{0}));
                if (part < 0 || part >= static_cast<Id>(world.ranks.size())) return list;
                MchState const state = state_of(world.ranks[static_cast<std::size_t>(part)]);
                return std::vector<DynamicView>{state.ids, state.slots, state.metadata[0].view, state.metadata[1].view,
                                                state.iteration};
            };
            auto const on_all = [](MchTable const& table) {
                return DynamicDistribution(table.slots.mesh(), Shape{1}, Placements{Placement::replicate()});
            };
            for (Id first : {Id{0}, pair.first}) {  // from the second on no new rank was an old one
                World now(200, pair.second, saved.policy, saved.hash_size);
                MchTable const from = table_of(saved);
                MchTable to = table_of(now);
                to = to.on(mch_slots(to.slots.mesh().on(first_rank(first)), to.size()));
                run_on_threads(static_cast<int>(std::max(pair.first, first + pair.second)), [&](auto& comm) {
                    Id const part = comm.rank() - first;
                    auto const old_columns = columns(saved, comm.rank());
                    auto const new_columns = columns(now, part);
                    for (std::size_t c = 0; c < 5; ++c) {
                        Plan<> const move =
                            c < 4 ? plan_across(from.slots, to.slots) : plan_across(on_all(from), on_all(to));
                        redistribute(move, comm, old_columns[c], new_columns[c]);
                    }
                    bool const here = part >= 0 && part < pair.second;
                    auto const p = static_cast<std::size_t>(part);
                    MchChange const one = redistribute(from, to, here ? state_of(now.ranks[p]) : MchState{}, comm);
                    if (here) CHECK(one.moves == expected.changes[p].moves);
                    if (here) CHECK(one.freed == expected.changes[p].freed);
                });
                CHECK(buffers(now) == buffers(expected.world));
            }
        }
    }

    TEST_CASE("weights and optimizer states follow in one exchange, of any width") {
        World const saved = trained(81, 300, 1, Policy::lfu);
        World world = loaded_by_position(saved, 3);
        std::vector<std::vector<float>> weights(3);
        std::vector<std::vector<std::uint8_t>> momentum(3);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            Module& module = world.ranks[r];
            MchTable const to = table_of(world);
            auto const one = redistribute(table_of(saved), to, state_of(module), comm);
            for (Id slot = module.o; slot < module.o + module.z; ++slot) {
                for (int c : {0, 1, 2}) weights[r].push_back(static_cast<float>(slot * 3 + c));
                momentum[r].push_back(static_cast<std::uint8_t>(slot % 251));
            }
            std::vector<DynamicView> const rows{TensorView<float>(weights[r].data(), Shape{module.z, 3}),
                                                TensorView<std::uint8_t>(momentum[r].data(), Shape{module.z})};
            Traffic const start = comm.traffic();
            apply_row_moves(one.moves, to, rows, comm);
            CHECK((comm.traffic() - start).messages_sent <= 3 * 2);  // counts, numbers, rows
        });
        for (auto const& [id, slot] : saved.live()) {
            std::size_t const rank = world.rank_of(id);
            if (world.look_up(id) < 0) continue;  // evicted
            auto const at = static_cast<std::size_t>(world.look_up(id) - world.ranks[rank].o);
            CHECK(weights[rank][at * 3 + 2] == static_cast<float>(slot * 3 + 2));
            CHECK(momentum[rank][at] == slot % 251);
        }
    }

    // ---- Errors: the same on every rank, and nothing written
    // ---------------------------------------------------------

    TEST_CASE("what is wrong on one rank is said on all, and no buffer is touched") {
        World const saved = trained(8, 400, 2, Policy::lfu);
        auto const refused = [&](std::vector<std::string> const& parts, auto const& spoil) {
            Outcome const outcome = change(saved, 4, {}, spoil);
            for (std::string const& error : outcome.errors) {
                CHECK(error == outcome.errors[0]);
                CHECK(error.find("Fix: ") != std::string::npos);
            }
            CAPTURE(outcome.errors[0]);
            for (std::string const& part : parts) {
                CAPTURE(part);
                CHECK(outcome.errors[0].find(part) != std::string::npos);
            }
            return buffers(outcome.world);
        };
        auto const plain = buffers(loaded_by_position(saved, 4));

        CHECK(refused({"rank 2 of 4: reshard::mch: table 'user': the number of slots differs: saved 401, current 400"},
                      [](World&, MchTable& from, MchTable&, int rank) {
                          if (rank == 2) from.slots = mch_slots(Mesh{2}, 401);
                      }) == plain);
        CHECK(refused({"rank 1 of 4: redistributes table 0 'user' of ", " to 'item' of ",
                       ", but rank 0 redistributes table 0 "},
                      [](World&, MchTable&, MchTable& to, int rank) {
                          if (rank == 1) to.name = "item";
                      }) == plain);
        CHECK(refused({"table 'user'", "hash size differs", "saved 9223372036854775807, current 1000"},
                      [](World&, MchTable&, MchTable& to, int) { to.hash_size = 1000; }) == plain);

        auto expected = loaded_by_position(saved, 4);  // a slot of another shard
        expected.ranks[3].mapping[0] = 5;
        CHECK(refused({"rank 3 of 4: reshard::mch: table 'user': position 300",
                       "with slot 5, outside its saved shard of slots "
                       "200 to 400"},
                      [](World& world, MchTable&, MchTable&, int rank) {
                          if (rank == 3) world.ranks[3].mapping[0] = 5;
                      }) == buffers(expected));

        expected = loaded_by_position(saved, 4);  // an id twice
        expected.ranks[0].raw[1] = expected.ranks[0].raw[0];
        CHECK(refused({"1 ids arrive at slots", "more than once"}, [](World& world, MchTable&, MchTable&, int rank) {
                  if (rank == 0) world.ranks[0].raw[1] = world.ranks[0].raw[0];
              }) == buffers(expected));

        expected = loaded_by_position(saved, 4);  // a slot twice
        expected.ranks[0].mapping[1] = expected.ranks[0].mapping[0];
        CHECK(refused({"two ids hold slot"}, [](World& world, MchTable&, MchTable&, int rank) {
                  if (rank == 0) world.ranks[0].mapping[1] = world.ranks[0].mapping[0];
              }) == buffers(expected));

        expected = loaded_by_position(saved, 4);  // nothing was loaded
        expected.ranks[2].raw.assign(100, 0);
        expected.ranks[2].mapping.assign(100, 0);
        CHECK(refused({"rank 2 of 4: reshard::mch: table 'user': all 100 ids and slots", "never loaded"},
                      [](World& world, MchTable&, MchTable&, int rank) {
                          if (rank != 2) return;
                          world.ranks[2].raw.assign(100, 0);
                          world.ranks[2].mapping.assign(100, 0);
                      }) == buffers(expected));

        expected = loaded_by_position(saved, 4);  // a count that is none
        expected.ranks[1].counts[0] = -3;
        CHECK(refused({"from rank 1 has count -3"}, [](World& world, MchTable&, MchTable&, int rank) {
                  if (rank == 1) world.ranks[1].counts[0] = -3;
              }) == buffers(expected));

        expected = loaded_by_position(saved, 4);  // another checkpoint's iteration
        expected.ranks[1].iteration[0] += 7;
        CHECK(refused({"is at iteration", "Fix: load the states of one checkpoint."},
                      [](World& world, MchTable&, MchTable&, int rank) {
                          if (rank == 1) world.ranks[1].iteration[0] += 7;
                      }) == buffers(expected));
    }

    TEST_CASE("the iteration reaches ranks that start anew") {
        World const saved = trained(12, 90, 2, Policy::lru);
        Outcome const outcome = change(saved, 3, {}, [](World& world, MchTable&, MchTable&, int rank) {
            if (rank == 2) world.ranks[2].iteration[0] = 0;
        });
        for (Module const& module : outcome.world.ranks) CHECK(module.iteration == saved.ranks[0].iteration);
        CHECK(outcome.report == "");
    }

    TEST_CASE("training goes on: scores and evictions fall as they would have on the old ranks") {
        for (Policy policy : {Policy::lfu, Policy::lru, Policy::distance_lfu}) {
            CAPTURE(static_cast<int>(policy));
            World old = trained(101, 900, 2, policy, torchrec::Kind::hash63, 0.6);
            World now = change(old, 3).world;
            std::mt19937_64 random(7);
            auto const known = old.live();
            for (int interval = 0; interval < 5; ++interval) {
                for (int step = 0; step < 3; ++step) {
                    Ids batch;
                    for (int i = 0; i < 40; ++i) batch.push_back(known[random() % known.size()].first);
                    for (int i = 0; i < 5; ++i) batch.push_back(random_id(random, torchrec::Kind::hash63));
                    old.train(batch);
                    now.train(batch);
                }
                old.evict();
                now.evict();
            }
            // Neither table overflows, so both hold the same ids with the same scores, wherever they are.
            auto const contents = [](World const& world) {
                std::map<Id, std::pair<Id, Id>> result;
                for (Module const& module : world.ranks) {
                    for (std::size_t i = 0; i < module.raw.size(); ++i) {
                        if (module.raw[i] == no_id) continue;
                        result[module.raw[i]] = {module.counts.empty() ? 0 : module.counts[i],
                                                 module.last.empty() ? 0 : module.last[i]};
                    }
                }
                return result;
            };
            CHECK(contents(now) == contents(old));
            CHECK(contents(now).size() > known.size());
            for (Module const& module : now.ranks) CHECK(module.iteration == old.ranks[0].iteration);
        }
    }

    TEST_CASE("moves that are not this rank's are refused on all ranks") {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            MchTable const table = mch_table("user", Mesh{2}, 10, MchEviction::lfu);
            std::vector<float> rows(5, 1.0F);
            TensorView<float> const view(rows.data(), Shape{5});
            for (MchRowMove const move : {MchRowMove{3, 7}, MchRowMove{10, 1}, MchRowMove{-1, 2}}) {
                std::vector<MchRowMove> moves;
                if (comm.rank() == 0) moves.push_back(move);
                CHECK_THROWS_AS(apply_row_moves(moves, table, view, comm), MismatchError);
            }
            TensorView<float> const wrong(rows.data(), Shape{4});
            CHECK_THROWS_AS(apply_row_moves({}, table, comm.rank() == 1 ? wrong : view, comm), BufferError);
            CHECK(rows == std::vector<float>(5, 1.0F));
        });
    }

    TEST_CASE("rows of a table on ranks that the communicator does not have are refused on all ranks") {
        std::vector<float> rows(5, 1.0F);
        TensorView<float> const view(rows.data(), Shape{5});
        std::vector<MchRowMove> const moves{{7, 1}};
        SelfCommunicator self;
        CHECK_THROWS_WITH_AS(apply_row_moves(moves, mch_table("user", Mesh{2}, 10, MchEviction::lfu), view, self),
                             doctest::Contains("has rank 1, the communicator only 1 ranks. Fix: "), MeshError);
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<float> mine(5, 1.0F);
            CHECK_THROWS_WITH_AS(apply_row_moves({}, mch_table("user", Mesh{3}, 15, MchEviction::lfu),
                                                 TensorView<float>(mine.data(), Shape{5}), comm),
                                 doctest::Contains("has rank 2, the communicator only 2 ranks. Fix: "), MeshError);
        });
        CHECK(rows == std::vector<float>(5, 1.0F));
    }

    TEST_CASE("slot_owner: a shard that would be full does not hide that two ids hold a slot") {
        World saved = trained(91, 64, 1, Policy::lfu, torchrec::Kind::hash63, 1.5);  // full: an id has to go
        saved.ranks[0].mapping[0] = saved.ranks[0].mapping[1];
        MchOptions options;
        options.mode = MchMode::slot_owner;
        options.drop_unreachable = false;
        Outcome const outcome = change(saved, 2, options);
        for (std::string const& error : outcome.errors) {
            CHECK(error == outcome.errors[0]);
            CHECK(error.find("two ids hold slot") != std::string::npos);
        }
        CHECK(buffers(outcome.world) == buffers(loaded_by_position(saved, 2)));
    }

    TEST_CASE("accesses before the first iteration and after the current one are refused on all ranks") {
        World const saved = trained(14, 200, 2, Policy::lru);
        Id const now = saved.ranks[0].iteration[0];
        for (Id access : {Id{-1}, Id{INT64_MIN}, now + 1, Id{INT64_MAX}}) {
            Outcome const outcome = change(saved, 3, {}, [&](World& world, MchTable&, MchTable&, int rank) {
                if (rank == 0) world.ranks[0].last[0] = access;
            });
            for (std::string const& error : outcome.errors) {
                CHECK(error == outcome.errors[0]);
                CHECK(error.find(errors::concat("from rank 0 was last accessed at ", access, ", at iteration ", now)) !=
                      std::string::npos);
            }
        }
    }

    TEST_CASE("an iteration below 0 is refused on all ranks; the largest one makes scores, not overflows") {
        World const saved = trained(14, 200, 2, Policy::distance_lfu, torchrec::Kind::low);
        for (Id iteration : {Id{-1}, INT64_MIN}) {
            Outcome const outcome = change(saved, 3, {}, [&](World& world, MchTable&, MchTable&, int rank) {
                world.ranks[static_cast<std::size_t>(rank)].iteration[0] = iteration;
            });
            for (std::string const& error : outcome.errors) {
                CAPTURE(error);
                CHECK(error == outcome.errors[0]);
                CHECK(error.find(errors::concat("rank 0 is at iteration ", iteration,
                                                ", but they count from 0. Fix: ")) != std::string::npos);
            }
        }
        Outcome const outcome = change(saved, 3, {}, [&](World& world, MchTable&, MchTable&, int rank) {
            auto const r = static_cast<std::size_t>(rank);
            world.ranks[r].iteration[0] = INT64_MAX;
            for (Id& access : world.ranks[r].last) access = 0;
        });
        for (std::string const& error : outcome.errors) CHECK(error.empty());
        CHECK(outcome.changes[0].evicted.size() > 0);
    }

    TEST_CASE("an id that a full shard left pinned can be evicted again") {
        World const saved = trained(15, 40, 1, Policy::lfu, torchrec::Kind::hash63, 3.0);
        World full = saved;
        Module& module = full.ranks[0];
        module.raw.back() = INT64_MAX - 1;  // an id on the last position, and the count that TorchRec gives it there
        module.counts.back() = INT64_MAX;
        Id const largest = *std::max_element(module.counts.begin(), module.counts.end() - 1);
        Outcome const outcome = change(full, 1);
        CHECK(outcome.errors[0] == "");
        CHECK(outcome.changes[0].unpinned == 1);
        CHECK(outcome.report == "");
        Module const& now = outcome.world.ranks[0];
        CHECK(*std::max_element(now.counts.begin(), now.counts.end()) == largest);
        CHECK(now.hits(INT64_MAX - 1));
    }

    TEST_CASE("memory of a device is refused on all ranks, ids and rows") {
        World const saved = trained(16, 40, 2, Policy::lfu);
        World world = loaded_by_position(saved, 2);
        std::vector<float> rows(40);
        test::FakeCuda const cuda;
        if (!cuda.works()) return;  // the real driver does not know our memory
        auto const refused = [&](auto const& call) {
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                CHECK_THROWS_WITH_AS(call(comm), doctest::Contains("on rank 1: a buffer lies in device memory. Fix: "),
                                     BufferError);
            });
        };
        MchTable const table = table_of(world);
        cuda.claim(world.ranks[1].counts.data(), 24);
        refused([&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            static_cast<void>(redistribute(table_of(saved), table, state_of(world.ranks[r]), comm));
        });
        cuda.claim(rows.data() + 20, 24);
        refused([&](ThreadCommunicator& comm) {
            TensorView<float> const view(rows.data() + 20 * comm.rank(), Shape{20});
            apply_row_moves({}, table, view, comm);
        });
    }

    TEST_CASE("lists that make no sense are refused on all ranks") {
        World const saved = trained(8, 100, 2, Policy::lfu);
        World world = loaded_by_position(saved, 2);
        World second = world;
        BucketWorld zeros(24, 12, {0, 12, 24});
        for (auto& shard : zeros.identities) shard.assign(shard.size(), 0);
        auto const before = buffers(world);
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            MchTransition const one{table_of(saved), table_of(world), state_of(world.ranks[r])};
            std::vector<MchTransition> tables(comm.rank() == 1 ? 1 : 2, one);
            if (comm.rank() == 0)
                tables[1] = {table_of(saved, "item"), table_of(second, "item"), state_of(second.ranks[r])};
            CHECK_THROWS_WITH_AS(
                static_cast<void>(redistribute(tables, comm)),
                doctest::Contains("rank 1 of 2: redistributes 1 tables, but rank 0 redistributes table 1 'item' of "),
                MismatchError);
            tables.assign(2, one);
            CHECK_THROWS_WITH_AS(static_cast<void>(redistribute(tables, comm)),
                                 doctest::Contains("table 'user': is in the list twice. Fix: "), MismatchError);
            if (r == 1) tables[1].state = state_of(second.ranks[r]);
            tables[1].saved.name = tables[1].current.name = "item";
            CHECK_THROWS_WITH_AS(
                static_cast<void>(redistribute(tables, comm)),
                doctest::Contains("table 'item': on rank 0: a column overlaps one of table 'user'. Fix: "),
                BufferError);
            tables = {{table_of(zeros), table_of(zeros), state_of(zeros, r)}};
            CHECK_THROWS_WITH_AS(
                static_cast<void>(redistribute(tables, comm)),
                doctest::Contains("all 12 ids from position 0 on are zero: the state was never loaded. Fix: "),
                MismatchError);
            MchOptions options;
            options.threads = comm.rank();
            CHECK_THROWS_WITH_AS(static_cast<void>(redistribute(one.saved, one.current, one.state, comm, options)),
                                 doctest::Contains("rank 0 of 2: reshard::MchOptions: 0 threads"), BufferError);
            CHECK(redistribute(std::span<MchTransition const>{}, comm).empty());
        });
        CHECK(buffers(world) == before);
    }

    TEST_CASE("rows of another width on another rank are refused on all ranks") {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            MchTable const table = mch_table("user", Mesh{2}, 10, MchEviction::lfu);
            std::vector<float> memory(10, 1.0F);
            DynamicView const rows = TensorView<float>(memory.data(), Shape{5, comm.rank() + 1});
            std::vector<MchRowMove> moves;
            if (comm.rank() == 1) moves.push_back({2, 8});
            CHECK_THROWS_WITH_AS(apply_row_moves(moves, table, rows, comm),
                                 doctest::Contains("rows have 4 bytes on rank 0, 8 on rank 1. Fix: "), MismatchError);
            std::vector<float> state(5);
            std::vector<DynamicView> lists{TensorView<float>(state.data(), Shape{5})};
            if (comm.rank() == 0) lists.push_back(rows);
            CHECK_THROWS_WITH_AS(
                apply_row_moves({}, table, lists, comm),
                doctest::Contains("rank 1 of 2: moves rows on hosts: 1 views of table 'user' of 10 slots (2):(S0) "
                                  "sorted LFU, hash size 9223372036854775807, buckets 2, columns counts:8, but rank 0 "
                                  "moves rows on hosts: 2 views of table 'user' of 10 slots "),
                MismatchError);
            CHECK(memory == std::vector<float>(10, 1.0F));
            lists.assign({TensorView<float>(state.data(), Shape{5}), TensorView<float>(memory.data(), Shape{5, 2})});
            if (comm.rank() == 1) std::swap(lists[0], lists[1]);
            CHECK_THROWS_WITH_AS(
                apply_row_moves(moves, table, lists, comm),
                doctest::Contains("rows have 12 bytes on rank 0, 12 on rank 1, in views of other widths. Fix: "),
                MismatchError);
            CHECK(memory == std::vector<float>(10, 1.0F));
            CHECK(state == std::vector<float>(5));
        });
    }
}
