// SPDX-License-Identifier: Apache-2.0
// Mirrors load_redistributed() of include/reshard/mch/checkpoint.hpp and detail/checkpoint_route.hpp. The oracle: ranks
// that load by position, exchange entries, then rows. What each rank reads for itself is the same, bit for bit.
#include <reshard/mch/checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/mch/detail/checkpoint_route.hpp>
#include <reshard/mch/row_moves.hpp>
#include <reshard/mch/validate.hpp>

#include <mch/support/damaged.hpp>
#include <support/allocations.hpp>
#include <support/random.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using checkpoint_test::contains;
using checkpoint_test::TempFolder;
namespace torchrec = reshard::test::torchrec;

/// For who wants the ids alone.
MchLoadOptions const no_rows{.leave_rows = {"weights", "momentum"}};

/// What both ways leave behind.
struct Result {
    World world;
    std::vector<Rows> rows;
    std::vector<MchChange> changes;
    std::vector<MchLoadResult> loads;
};
Result untouched(World const& saved, Id count) {
    Result result{fresh_like(saved, count), {}, {}, {}};
    for (Module const& module : result.world.ranks) {
        result.rows.emplace_back(module);
        result.rows.back().clear();
    }
    result.changes.resize(result.rows.size());
    result.loads.resize(result.rows.size());
    return result;
}

Result together(std::string const& folder, World const& saved, Id count, MchOptions const& options) {
    Result result = untouched(saved, count);
    MchTable const current = table_of(result.world);
    run_on_threads(static_cast<int>(count), [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        MchState const state = state_of(result.world.ranks[r]);
        std::vector<MchRows> const rows = result.rows[r].views();
        result.loads[r] = MchCheckpoint::open(folder).load("user", current, comm.rank(), state, rows);
        result.changes[r] = redistribute(result.loads[r].saved, current, state, comm, options);
        for (MchRows const& one : rows) apply_row_moves(result.changes[r].moves, current, one.view, comm);
    });
    return result;
}
Result apart(std::string const& folder, World const& saved, Id count, MchOptions const& options,
             MchLoadOptions const& load = {}) {
    Result result = untouched(saved, count);
    MchTable const current = table_of(result.world);
    for (std::size_t r = 0; r < result.rows.size(); ++r) {
        MchLoadedChange done = MchCheckpoint::open(folder).load_redistributed("user", current, static_cast<Index>(r),
                                                                              state_of(result.world.ranks[r]),
                                                                              result.rows[r].views(), options, load);
        result.loads[r] = done.loaded;
        result.changes[r] = done.change;
    }
    return result;
}
std::vector<Index> all_left_out(Result const& result) {
    std::vector<Index> ids;
    for (MchChange const& one : result.changes) ids.insert(ids.end(), one.left_out.begin(), one.left_out.end());
    std::sort(ids.begin(), ids.end());
    return ids;
}
void check_equal(Result const& is, Result const& wanted) {
    CHECK(buffers(is.world) == buffers(wanted.world));
    CHECK(is.rows == wanted.rows);
    for (std::size_t r = 0; r < is.changes.size(); ++r) {
        CHECK(is.changes[r].moves == wanted.changes[r].moves);
        CHECK(is.changes[r].evicted == wanted.changes[r].evicted);
        CHECK(is.changes[r].freed == wanted.changes[r].freed);
        CHECK(is.changes[r].live_after == wanted.changes[r].live_after);
        CHECK(is.changes[r].unreachable == wanted.changes[r].unreachable);
    }
    CHECK(all_left_out(is) == all_left_out(wanted));
}

}  // namespace

TEST_SUITE("mch/checkpoint_route") {
    TEST_CASE("law: what ranks read for themselves is what they exchange otherwise, rows and lists included") {
        Index moved = 0;
        Index evicted = 0;
        Index left_out = 0;
        int const fewer = reshard::test::fewer_seeds() ? 5 : 1;
        for (std::uint64_t seed = 1; seed <= 160; seed += static_cast<std::uint64_t>(fewer)) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            auto const pick = picker(random);
            Policy const policy = pick(Policy::lfu, Policy::lru, Policy::distance_lfu);
            Id const from = pick(Id{1}, Id{2}, Id{3}, Id{4}, Id{6}, Id{8});
            Id const to = pick(Id{1}, Id{2}, Id{3}, Id{4}, Id{6}, Id{8});
            auto const kind = pick(torchrec::Kind::low, torchrec::Kind::hash63, torchrec::Kind::any);
            World saved = trained(seed, pick(Id{8}, Id{10}, Id{97}, Id{700}), from, policy, kind,
                                  pick(0.0, 0.05, 0.5, 0.95, 1.3), 16, pick(INT64_MAX, Id{5000}));
            TempFolder const folder;
            save_world(folder.path(), saved);
            MchOptions options;
            options.mode = pick(MchMode::route, MchMode::slot_owner);
            options.drop_unreachable = pick(true, false);
            Result const wanted = together(folder.path(), saved, to, options);
            check_equal(apart(folder.path(), saved, to, options), wanted);
            if (options.mode == MchMode::route) {
                check_equal(apart(folder.path(), saved, to, options, {.resize = true}), wanted);
            }
            for (MchChange const& one : wanted.changes) {
                moved += static_cast<Index>(one.moves.size());
                evicted += static_cast<Index>(one.evicted.size());
                left_out += static_cast<Index>(one.left_out.size());
            }
        }
        CHECK(moved > (fewer == 1 ? 500 : 0));  // the cases were worth it
        CHECK(evicted > (fewer == 1 ? 50 : 0));
        CHECK(left_out > (fewer == 1 ? 100 : 0));
    }

    TEST_CASE("entries that were kept where no look-up finds them are carried too: the files know what they hold") {
        World const first = trained(7, 400, 2, Policy::lfu);
        TempFolder const one;
        World copy = first;
        save_world(one.path(), copy);
        MchOptions keep;
        keep.mode = MchMode::slot_owner;
        keep.drop_unreachable = false;
        World dead = apart(one.path(), first, 4, keep).world;  // half of its ids are unreachable
        TempFolder const two;
        save_world(two.path(), dead);
        MchOptions const strays{.accept_strays = true};
        check_equal(apart(two.path(), dead, 3, strays), together(two.path(), dead, 3, strays));
    }

    TEST_CASE("ranks read what they need: of 63-bit ids the shards next to theirs, of small ones those that have any") {
        World saved = trained(11, 4000, 4, Policy::lru);
        TempFolder const folder;
        save_world(folder.path(), saved);
        Index read = 0;
        for (MchLoadResult const& one : apart(folder.path(), saved, 8, {}).loads) {
            CHECK(one.shards_read <= 2);  // the shard with its ids, and the one with its rows
            read += one.live;
        }
        CHECK(read == 2 * static_cast<Index>(saved.live().size()));  // each saved shard by two ranks
        World low = trained(11, 4000, 4, Policy::lru, torchrec::Kind::low);
        TempFolder const other;
        save_world(other.path(), low);
        World loaded = fresh_like(low, 4);
        MchCheckpoint files = MchCheckpoint::open(other.path());
        CHECK(files.ids("user")[3] == MchIdBounds{});
        MchLoadedChange const none =
            files.load_redistributed("user", table_of(loaded), 2, state_of(loaded.ranks[2]), {}, {}, no_rows);
        CHECK(none.loaded.bytes_read == 0);
        CHECK(none.change.live_after == 0);
        CHECK(loaded.ranks[2].iteration == low.ranks[0].iteration);
        CHECK(loaded.ranks[2].segments == loaded.ranks[0].segments);
    }

    TEST_CASE("shards larger than a piece") {
        Id const slots = 3 * detail::MchPicker::piece_entries + 7;
        World saved(slots, 2, Policy::lfu);
        std::mt19937_64 random(5);
        for (std::size_t r : {0U, 1U}) {
            Module& module = saved.ranks[r];
            Ids ids;
            for (Id i = 0; i < module.z / 2; ++i) {
                ids.push_back(static_cast<Id>(random() >> 2) + (r == 0 ? 0 : Id{1} << 62));
            }
            std::sort(ids.begin(), ids.end());
            ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
            std::copy(ids.begin(), ids.end(), module.raw.begin());
        }
        TempFolder const folder;
        save_world(folder.path(), saved);
        check_equal(apart(folder.path(), saved, 3, {}), together(folder.path(), saved, 3, {}));
    }

    TEST_CASE("ids that descend where pieces meet are refused, also where only the bounds of a shard are looked at") {
        Id const piece = detail::MchPicker::piece_entries;
        World saved(2 * (piece + 100), 2, Policy::lfu);
        for (Id r : {0, 1}) {
            Ids& raw = saved.ranks[static_cast<std::size_t>(r)].raw;
            for (Id i = 0; i < piece + 10; ++i) raw[static_cast<std::size_t>(i)] = (r << 62) + 7 + i;
        }
        TempFolder const folder;
        save_world(folder.path(), saved);
        TempFolder const whole;
        run_on_threads(1, [&](ThreadCommunicator& comm) { consolidate(folder.path(), whole / "out", comm); });
        auto const swap_at = [&](std::vector<std::byte>& ids, Id at) {
            std::swap_ranges(ids.begin() + 8 * at, ids.begin() + 8 * (at + 1), ids.begin() + 8 * (at - 1));
        };
        auto const load = [&](std::string const& path, Index rank) {
            World loaded = fresh_like(saved, 2);
            return checkpoint_test::caught([&] {
                static_cast<void>(MchCheckpoint::open(path).load_redistributed(
                    "user", table_of(loaded), rank, state_of(loaded.ranks[static_cast<std::size_t>(rank)]), {}, {},
                    no_rows));
            });
        };
        CHECK(load(whole / "out", 0).message == "");
        rewrite(folder.path(), leaf_in(folder.path(), 0), [&](TensorSpec& spec, auto& bytes, Metadata&) {
            if (spec.name == "user.ids") swap_at(bytes, piece);
        });
        rewrite(whole / "out/model.safetensors", [&](TensorSpec& spec, auto& bytes, Metadata&) {
            if (spec.name == "user.ids") swap_at(bytes, saved.ranks[1].o + piece);
        });
        for (auto const& error : {load(folder.path(), 0), load(whole / "out", 0), load(whole / "out", 1)}) {
            CAPTURE(error.message);
            CHECK(error.code == ErrorCode::format);
            CHECK(contains(error.message, "the ids of table 'user' do not ascend: entry 65536 is"));
        }
    }

    TEST_CASE("two ids with one slot are refused where pieces of a shard have one of them each") {
        Id const piece = detail::MchPicker::piece_entries;
        World saved(piece + 100, 1, Policy::lfu);
        for (Id i = 0; i < piece + 10; ++i) saved.ranks[0].raw[static_cast<std::size_t>(i)] = 7 + i;
        TempFolder const folder;
        save_world(folder.path(), saved);
        rewrite(folder.path(), leaf_in(folder.path(), 0), [&](TensorSpec& spec, auto& bytes, Metadata&) {
            if (spec.name == "user.slots") std::memcpy(bytes.data() + 8 * (piece + 5), bytes.data() + 8 * 3, 8);
        });
        for (bool const by_position : {false, true}) {
            World loaded = fresh_like(saved, by_position ? 1 : 3);
            auto const error = checkpoint_test::caught([&] {
                MchCheckpoint files = MchCheckpoint::open(folder.path());
                MchState const state = state_of(loaded.ranks[0]);
                by_position
                    ? static_cast<void>(files.load("user", table_of(loaded), 0, state))
                    : static_cast<void>(files.load_redistributed("user", table_of(loaded), 0, state, {}, {}, no_rows));
            });
            CAPTURE(error.message);
            CHECK(error.code == ErrorCode::format);
            CHECK(
                contains(error.message, errors::concat("ids 10 and ", piece + 12, " of table 'user' both have slot")));
        }
    }

    TEST_CASE("a piece has no more room than the longest shard") {
        World saved = trained(3, 90, 2, Policy::lfu);
        TempFolder const folder;
        save_world(folder.path(), saved);
        World loaded = fresh_like(saved, 3);
        MchTable const table = table_of(loaded);
        MchCheckpoint files = MchCheckpoint::open(folder.path());
        bool enough = true;
        try {
            reshard::test::allocation_counter().refused_from = 1U << 18U;  // 65536 entries take twice as much
            static_cast<void>(files.load_redistributed("user", table, 0, state_of(loaded.ranks[0]), {}, {}, no_rows));
        } catch (std::bad_alloc const&) {
            enough = false;
        }
        reshard::test::allocation_counter().refused_from = SIZE_MAX;
        CHECK(enough);
    }

    TEST_CASE("rows of bucketed tables are given, or said to be left") {
        BucketWorld item(48, 6, {0, 48});
        std::vector<float> weights(48, 3.0F);
        std::vector<MchRows> const rows{{"weights", TensorView<float>(weights.data(), Shape{48})}};
        TempFolder const folder;
        run_on_threads(1, [&](ThreadCommunicator& comm) {
            save(folder.path(), MchTableToSave{table_of(item), state_of(item, 0), rows}, comm);
        });
        auto const load = [&](std::span<MchRows const> given, MchLoadOptions const& options) {
            return checkpoint_test::caught([&] {
                static_cast<void>(
                    MchCheckpoint::open(folder.path())
                        .load_redistributed("item", table_of(item), 0, state_of(item, 0), given, {}, options));
            });
        };
        CHECK(load({}, {}).code == ErrorCode::mismatch);
        CHECK(contains(load({}, {}).message, "rows 'weights' were saved with 'item' and are not given"));
        CHECK(load({}, {.leave_rows = {"weights"}}).message == "");
        weights.assign(48, 0);
        CHECK(load(rows, {}).message == "");
        CHECK(weights == std::vector<float>(48, 3.0F));
    }

    TEST_CASE("bucketed tables are loaded by position") {
        BucketWorld item(48, 6, {0, 16, 48});
        for (Id id : {7, 19, -5, 4000, 123'456'789}) item.admit(id, 3);
        TempFolder const folder;
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            save(folder.path(), MchTableToSave{table_of(item), state_of(item, static_cast<std::size_t>(comm.rank()))},
                 comm);
        });
        BucketWorld other(48, 6, {0, 8, 24, 48});
        Index live = 0;
        for (std::size_t r = 0; r < 3; ++r) {
            live += MchCheckpoint::open(folder.path())
                        .load_redistributed("item", table_of(other), static_cast<Index>(r), state_of(other, r))
                        .change.live_after;
        }
        CHECK(live == 5);
        CHECK(other.identities == item.cut_at({0, 8, 24, 48}).identities);
        CHECK(other.hours == item.cut_at({0, 8, 24, 48}).hours);
    }

    TEST_CASE("a damaged shard is said before the state is touched") {
        World saved = trained(3, 90, 2, Policy::lfu);
        TempFolder const folder;
        save_world(folder.path(), saved);
        std::string const leaf = leaf_in(folder.path(), 0);
        std::string const file = folder / leaf;
        auto const refused = [&](std::vector<std::string> const& parts) {
            World loaded = fresh_like(saved, 2);
            auto const before = buffers(loaded);
            auto const error = checkpoint_test::caught([&] {
                static_cast<void>(
                    MchCheckpoint::open(folder.path())
                        .load_redistributed("user", table_of(loaded), 0, state_of(loaded.ranks[0]), {}, {}, no_rows));
            });
            CAPTURE(error.message);
            CHECK(error.code == ErrorCode::format);
            for (std::string const& part : parts) CHECK(contains(error.message, part));
            CHECK(buffers(loaded) == before);
        };
        rewrite(folder.path(), leaf, [](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            Index const slot = 77;
            if (spec.name == "user.slots") std::memcpy(bytes.data(), &slot, 8);
        });
        refused({file, "entry 0 of table 'user' has slot 77, outside its shard of slots 0 to 45"});
        rewrite(folder.path(), leaf, [&](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            if (spec.name == "user.slots") std::memcpy(bytes.data(), bytes.data() + 16, 8);
        });
        Module const& module = saved.ranks[0];
        refused({file, errors::concat("ids ", module.raw[0], " and ", module.raw[2], " of table 'user' both have slot ",
                                      module.mapping[2], ". Fix: ")});
        std::string const bytes = checkpoint_test::read_text(file);
        checkpoint_test::write_text(file, std::string_view(bytes).substr(0, bytes.size() - 8));
        refused({file, "MetadataIncompleteBuffer"});
    }
}
