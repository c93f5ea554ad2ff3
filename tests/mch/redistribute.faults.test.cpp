// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/redistribute.hpp: what goes wrong on one rank is the same error on every rank, none waits
// for another, and no buffer is touched. The numbers are those of docs/mch-checks.md; nothing here is an assert, so
// that nothing is lost without them (5).
#ifndef NDEBUG
#define NDEBUG
#endif
#include <reshard/mch/row_moves.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include <mch/support/scenes.hpp>
#include <support/allocations.hpp>
#include <support/fake_cuda.hpp>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;
using namespace reshard::test::reference;

constexpr Mode modes[] = {Mode::route, Mode::slot_owner_keep, Mode::slot_owner_drop};

/// What one rank calls redistribute() with.
struct Call {
    MchTable saved;
    MchTable current;
    MchState state;
    MchOptions options;
};
auto const as_is = [](int, Call&) {};

/// A table with the metadata of DistanceLFU and a column of 12 bytes, of ids of both signs.
Scene sample(Id from = 2, Id to = 4, Id slots = 100, Fill fill = Fill::all_but_one, std::uint64_t seed = 1) {
    Random random(seed);
    Scene scene;
    do {  // columns are drawn
        scene = draw_scene({from, to, slots, fill, IdKind::any, 3, false, true}, random);
    } while (scene.table.policy != Policy::distance_lfu || scene.saved[0].iteration[0] == 0);
    for (ShardBuffers& shard : scene.loaded) shard.iteration = scene.saved[0].iteration;
    return scene;
}

Call call_of(Scene const& scene, ShardBuffers& shard, Mode mode) {
    Table const& table = scene.table;
    return {library_table(table, table.saved_offsets, scene.saved_buckets),
            library_table(table, table.offsets, table.buckets), library_state(table, shard), library_options(mode)};
}

/// Runs a scene in which `spoil(rank, call)` makes a call wrong: every rank must be told the same, with a remedy, and
/// keep its buffers; in the replayed world and among threads. Returns what they are told.
template <class Spoil>
RankEnd refused(Scene const& scene, Mode mode, Spoil const& spoil, ReplayWorld world = ReplayWorld(0)) {
    int const ranks = static_cast<int>(scene.loaded.size());
    bool const own = world.size() == 0;
    if (own) world = ReplayWorld(ranks);
    std::vector<ShardBuffers> shards = scene.loaded;
    auto const one_rank = [&](auto& comm) {
        Call call = call_of(scene, shards[static_cast<std::size_t>(comm.rank())], mode);
        spoil(comm.rank(), call);
        static_cast<void>(redistribute(call.saved, call.current, call.state, comm, call.options));
    };
    std::vector<RankEnd> const ends = world.run(one_rank);
    for (RankEnd const& end : ends) {
        CHECK(end.code == ends[0].code);
        CHECK(end.message == ends[0].message);
    }
    CHECK(ends[0].code != ErrorCode::none);
    CHECK((shards == scene.loaded));
    if (!own) return ends[0];  // what is done to messages cannot be done among threads
    CHECK_MESSAGE(ends[0].message.find("Fix: ") != std::string::npos, ends[0].message);
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        try {
            one_rank(comm);
        } catch (Error const& error) {
            texts[static_cast<std::size_t>(comm.rank())] = error.message();
        }
    });
    for (std::string const& text : texts) CHECK(text == ends[0].message);
    CHECK((shards == scene.loaded));
    return ends[0];
}
/// The same in every mode, with the words that have to be in the message.
template <class Spoil>
void check_refused(ErrorCode code, std::vector<std::string> const& words, Scene const& scene, Spoil const& spoil) {
    for (Mode mode : modes) {
        CAPTURE(static_cast<int>(mode));
        RankEnd const end = refused(scene, mode, spoil);
        CAPTURE(end.message);
        CHECK(end.code == code);
        for (std::string const& word : words) {
            CAPTURE(word);
            CHECK(end.message.find(word) != std::string::npos);
        }
    }
}
/// Only rank 1 is wrong.
template <class Spoil>
auto on_rank_1(Spoil spoil) {
    return [spoil](int rank, Call& call) {
        if (rank == 1) spoil(call);
    };
}

/// Memory of so many bytes and more is not to be had, but for the first times.
class Scarce {
public:
    Scarce(std::size_t bytes, int granted) {
        allocation_counter().refused_from = bytes;
        allocation_counter().granted = granted;
    }
    ~Scarce() { allocation_counter().refused_from = SIZE_MAX; }
    Scarce(Scarce const&) = delete;
    Scarce& operator=(Scarce const&) = delete;
};

void check_equals_oracle(Scene const& scene) {
    for (Mode mode : modes) {
        CAPTURE(static_cast<int>(mode));
        CHECK(difference(scene.table, run_library(scene, mode), redistribute(scene.table, scene.loaded, mode)) == "");
    }
}

std::size_t first_live(ShardBuffers const& shard) {
    std::size_t i = 0;
    while (shard.raw.at(i) == INT64_MAX) ++i;
    return i;
}
Id number_at(std::vector<std::uint8_t> const& column, std::size_t at) {
    Id value = 0;
    std::memcpy(&value, column.data() + at * 8, 8);
    return value;
}
std::size_t column_at(Table const& table, std::string const& name) {
    std::size_t c = 0;
    while (table.columns.at(c).name != name) ++c;
    return c;
}

/// The same number beside every id of a rank.
void set_all(Scene& scene, std::size_t rank, std::string const& column, Id value) {
    auto& bytes = scene.loaded[rank].metadata[column_at(scene.table, column)];
    for (std::size_t i = 0; i < scene.loaded[rank].raw.size(); ++i)
        if (scene.loaded[rank].raw[i] != INT64_MAX) reference::detail::put(bytes, i, value);
}

}  // namespace

TEST_SUITE("mch/redistribute") {
    TEST_CASE("check 1: ranks that would decide differently are told so, and none goes its own way") {
        Scene const scene = sample();
        check_refused(ErrorCode::mismatch, {"rank 1 of 4"}, scene, on_rank_1([](Call& call) {
                          call.saved = call.saved.on(mch_slots(Mesh{4}, 100));  // "nothing to do for me"
                      }));
        check_refused(ErrorCode::mismatch, {"rank 1 of 4: redistributes on "}, scene, on_rank_1([](Call& call) {
                          call.options.mode =
                              call.options.mode == MchMode::route ? MchMode::slot_owner : MchMode::route;
                      }));
        check_refused(ErrorCode::mismatch, {"rank 1 of 4: redistributes on ", "dropping what is unreachable"}, scene,
                      on_rank_1([](Call& call) { call.options.drop_unreachable ^= true; }));
        check_refused(ErrorCode::mismatch, {"rank 1 of 4: redistributes table 0 ", "^2, hash size"}, scene,
                      on_rank_1([](Call& call) { call.saved.decay_exponent = call.current.decay_exponent = 2; }));
    }

    TEST_CASE("check 2: slots outside the table, or the shard they were saved in, are refused and not clamped") {
        for (Id slot : {Id{-1}, Id{100}, Id{1} << 40, INT64_MIN, INT64_MAX, Id{49}}) {  // rank 2 reads slots 50 to 75
            Scene scene = sample();
            std::size_t const at = first_live(scene.loaded[2]);
            scene.loaded[2].slots[at] = slot;
            check_refused(ErrorCode::mismatch,
                          {"rank 2 of 4", errors::concat("position ", 50 + at, " of the saved columns"),
                           errors::concat("with slot ", slot, ", outside its saved shard of slots 50 to 100")},
                          scene, as_is);
        }
    }

    TEST_CASE("check 3: a slot that arrives where it does not belong is refused before it is an index") {
        Scene const scene = sample();
        Outcome const expected = redistribute(scene.table, scene.loaded, Mode::slot_owner_keep);
        REQUIRE(expected.changes[0].sent + expected.changes[1].sent > 0);
        int const from = expected.changes[0].sent != 0 ? 0 : 1;
        for (Id slot : {Id{-1}, Id{99}, INT64_MIN, INT64_MAX}) {  // from ranks of slots 0 to 50, to another of those
            int const to = 1 - from;
            Id entries = 0;
            for (Id one : scene.loaded[static_cast<std::size_t>(from)].slots) entries += one < 0 ? 1 : 0;
            std::vector<ShardBuffers> const& loaded = scene.loaded;
            auto const& shard = loaded[static_cast<std::size_t>(from)];
            entries = 0;
            for (std::size_t i = 0; i < shard.raw.size(); ++i) {
                if (shard.raw[i] == INT64_MAX) continue;
                entries += scene.table.owner(shard.slots[i]) == static_cast<std::size_t>(to) ? 1 : 0;
            }
            ReplayWorld world(4);
            world.tamper(1, from, to, entries * 8, slot);  // behind the ids: the first slot
            RankEnd const end = refused(scene, Mode::slot_owner_keep, as_is, world);
            CHECK(end.code == ErrorCode::mismatch);
            CHECK_MESSAGE(
                end.message.find(errors::concat("slot ", slot, " arrives at the owner of")) != std::string::npos,
                end.message);
        }
    }

    TEST_CASE("check 4: a slot that two ids hold is refused") {
        for (Mode mode : {Mode::slot_owner_keep, Mode::route}) {
            Scene scene = sample(1, 1);
            scene.loaded[0].slots[0] = scene.loaded[0].slots[1];
            RankEnd const end = refused(scene, mode, as_is);
            CHECK(end.code == ErrorCode::mismatch);
            CHECK(end.message.find(errors::concat("two ids hold slot ", scene.loaded[0].slots[1])) !=
                  std::string::npos);
        }
        Scene scene = sample();  // on two ranks, which both send it to its owner
        std::size_t const a = first_live(scene.loaded[0]);
        std::size_t const b = first_live(scene.loaded[1]);
        scene.loaded[0].slots[a] = scene.loaded[1].slots[b];
        CHECK(refused(scene, Mode::slot_owner_keep, as_is).message.find("two ids hold slot") != std::string::npos);
    }

    TEST_CASE("check 7: buffers are written in place, and buffers that share memory are refused") {
        Scene const scene = sample();
        check_refused(ErrorCode::buffer, {"on rank 1", "the column of slots overlaps the column of ids"}, scene,
                      on_rank_1([](Call& call) { call.state.slots = call.state.ids; }));
        check_refused(ErrorCode::buffer, {"on rank 1", "overlaps"}, scene,
                      on_rank_1([](Call& call) { call.state.metadata[0].view = call.state.metadata[2].view; }));
        std::vector<ShardBuffers> shards = scene.loaded;
        std::vector<Id const*> before;
        for (ShardBuffers const& shard : shards) before.push_back(shard.raw.data());
        static_cast<void>(ReplayWorld(4).run([&](ReplayCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            Call const call = call_of(scene, shards[r], Mode::route);
            static_cast<void>(redistribute(call.saved, call.current, call.state, comm, call.options));
            CHECK(call.state.ids.data() == static_cast<void const*>(before[r]));
        }));
        CHECK((shards == redistribute(scene.table, scene.loaded, Mode::route).shards));
    }

    TEST_CASE("check 8: one exchange of headers and one of entries, however many columns") {
        for (int columns = 0; columns < 4; ++columns) {
            Random random(7);
            Scene const scene = draw_scene({2, 4, 400, Fill::half, IdKind::any, columns, false, true}, random);
            Result const result = run_library(scene, Mode::route);
            for (RankEnd const& end : result.ends) {
                CHECK(end.exchanges == 2);
                CHECK(end.agreements == 3);
                CHECK(end.traffic.messages_sent <= 2 * 3);
            }
        }
    }

    TEST_CASE("check 9: lists of segments have any length that holds the offsets, on every rank its own") {
        Scene scene = sample();
        for (std::size_t r = 0; r < 4; ++r) scene.loaded[r].segments.resize(5 + 509 * r, 77);
        check_equals_oracle(scene);
        scene.loaded[1].segments.resize(4);
        check_refused(ErrorCode::buffer,
                      {"on rank 1", "the list of segments has 4 places for the 5 offsets of 4 shards"}, scene, as_is);
    }

    TEST_CASE("checks 12 and 34: a rank that fails at any agreement, the last included, stops all before a write") {
        Scene const scene = sample();
        for (Mode mode : modes) {
            for (int rank = 0; rank < 4; ++rank) {
                for (int nth = 0; nth < 3; ++nth) {
                    ReplayWorld world(4);
                    world.fail(rank, nth, ErrorCode::out_of_memory, "tests: no memory. Fix: none.");
                    RankEnd const end = refused(scene, mode, as_is, world);
                    CHECK(end.code == ErrorCode::out_of_memory);
                    CHECK_MESSAGE(end.message.find(errors::concat("rank ", rank, " of 4")) != std::string::npos,
                                  end.message);
                    CHECK(end.agreements == nth + 1);
                }
            }
        }
    }

    TEST_CASE("checks 12 and 34: memory that runs out on one rank, wherever it does, is OutOfMemory on all") {
        Scene const scene = sample(2, 3, 3000);
        for (Mode mode : modes) {
            std::set<int> agreements;
            for (int granted = 0;; ++granted) {
                std::vector<ShardBuffers> shards = scene.loaded;
                std::vector<RankEnd> const ends = ReplayWorld(3).run([&](ReplayCommunicator& comm) {
                    Call const call = call_of(scene, shards[static_cast<std::size_t>(comm.rank())], mode);
                    Scarce const scarce(comm.rank() == 1 ? 4000 : SIZE_MAX, granted);
                    static_cast<void>(redistribute(call.saved, call.current, call.state, comm, call.options));
                });
                CAPTURE(granted);
                for (RankEnd const& end : ends) {
                    CHECK(end.code == ends[0].code);
                    CHECK(end.message == ends[0].message);
                }
                if (ends[0].code == ErrorCode::none) break;
                CHECK_MESSAGE(ends[0].code == ErrorCode::out_of_memory, ends[0].message);
                CHECK((shards == scene.loaded));
                agreements.insert(ends[0].agreements);
                REQUIRE(granted < 1000);
            }
            CHECK(agreements == std::set<int>{1, 2, 3});  // it did run out before each
        }
    }

    TEST_CASE("check 13: ids that are looked up elsewhere are counted, or left out and listed") {
        Scene const scene = sample(1, 4, 400, Fill::half);
        Result const kept = run_library(scene, Mode::slot_owner_keep);
        Result const dropped = run_library(scene, Mode::slot_owner_drop);
        Id unreachable = 0;
        std::size_t left_out = 0;
        for (std::size_t r = 0; r < 4; ++r) {
            Id dead = 0;
            for (Id id : kept.shards[r].raw) dead += id != INT64_MAX && scene.table.route(id) != r ? 1 : 0;
            CHECK(kept.changes[r].unreachable == dead);
            CHECK(dropped.changes[r].unreachable == 0);
            CHECK(kept.changes[r].left_out.empty());
            unreachable += dead;
            left_out += dropped.changes[r].left_out.size();
        }
        CHECK(unreachable > 0);
        CHECK(left_out == static_cast<std::size_t>(unreachable));
    }

    TEST_CASE("check 14: a shard that would be full, and an id on the slot of misses, make room") {
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            Scene const scene = sample(1, 3, 20, Fill::all, seed);
            check_equals_oracle(scene);
            Result const result = run_library(scene, Mode::slot_owner_keep);
            for (std::size_t r = 0; r < 3; ++r) {
                CHECK(result.changes[r].evicted.size() == 1);  // n == z
                CHECK(result.shards[r].raw.back() == INT64_MAX);
                CHECK(result.shards[r].slots.back() == scene.table.offsets[r + 1] - 1);
            }
        }
    }

    TEST_CASE("check 15: 378801 slots go from 4 ranks to 2, whose boundary is none of the saved ones") {
        Random random(360);
        Id const slots = fewer_seeds() ? 37881 : 378801;
        Scene const scene = draw_scene({4, 2, slots, Fill::half, IdKind::hash63, 1, false, true}, random);
        CHECK(scene.table.offsets[1] == slots / 2 + 1);
        check_equals_oracle(scene);
    }

    TEST_CASE("check 16: shards are those of the offsets; other sizes and offsets on a rank are refused") {
        check_equals_oracle(sample(3, 4, 97));
        check_equals_oracle(sample(4, 3, 10));
        Scene const scene = sample(3, 4, 97);  // 25, 25, 25, 22
        check_refused(
            ErrorCode::buffer, {"rank 3 of 4", "25 entries, but the shard has 22"},
            [&] {
                Scene longer = scene;
                for (Ids* column : {&longer.loaded[3].raw, &longer.loaded[3].slots}) column->resize(25, INT64_MAX);
                return longer;
            }(),
            as_is);
        check_refused(ErrorCode::buffer, {"rank 1 of 4"}, scene, on_rank_1([](Call& call) {
                          call.current.slots = mch_slots(Mesh{4}, IndexList{0, 24, 48, 72, 97});
                      }));
        check_refused(ErrorCode::mismatch, {"rank 1 of 4: redistributes table 0"}, scene, on_rank_1([](Call& call) {
                          call.saved.slots = mch_slots(Mesh{3}, IndexList{0, 33, 66, 97});  // chunks: 33, 33, 31
                          call.saved.buckets = 6;
                      }));
        CHECK_THROWS_AS(static_cast<void>(mch_slots(Mesh{2}, IndexList{0, 60, 50})), PlacementError);
    }

    TEST_CASE("check 17: another number of slots is refused with both, before anything is sent") {
        Scene const scene = sample();
        check_refused(ErrorCode::mismatch, {"the number of slots differs: saved 120, current 100"}, scene,
                      [](int, Call& call) { call.saved.slots = mch_slots(Mesh{2}, 120); });
        RankEnd const end =
            refused(scene, Mode::route, [](int, Call& call) { call.saved.slots = mch_slots(Mesh{2}, 120); });
        CHECK(end.exchanges == 0);
        CHECK(end.agreements == 1);
    }

    TEST_CASE("check 18: ranks without slots take part, with empty buffers or none") {
        Scene const scene = sample(3, 8, 10, Fill::all_but_one);
        check_equals_oracle(scene);
        for (Mode mode : modes) {
            std::vector<ShardBuffers> shards = scene.loaded;
            auto const ends = ReplayWorld(8).run([&](ReplayCommunicator& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                Call call = call_of(scene, shards[r], mode);
                if (shards[r].raw.empty()) call.state = {};
                static_cast<void>(redistribute(call.saved, call.current, call.state, comm, call.options));
            });
            for (RankEnd const& end : ends) CHECK(end.message == "");
            Outcome const expected = redistribute(scene.table, scene.loaded, mode);
            for (std::size_t r = 0; r < 5; ++r) CHECK((shards[r] == expected.shards[r]));
            for (std::size_t r = 5; r < 8; ++r) CHECK((shards[r] == scene.loaded[r]));
        }
    }

    TEST_CASE("check 19: an id that is there twice is refused, in a shard or in two") {
        Scene scene = sample();
        std::size_t const at = first_live(scene.loaded[0]);
        scene.loaded[0].raw[at + 1] = scene.loaded[0].raw[at];
        RankEnd end = refused(scene, Mode::route, as_is);
        CHECK(end.code == ErrorCode::mismatch);
        CHECK(end.message.find(errors::concat("the first of them ", scene.loaded[0].raw[at])) != std::string::npos);
        scene = sample();
        std::size_t const other = first_live(scene.loaded[3]);
        scene.loaded[0].raw[at] = scene.loaded[3].raw[other];
        end = refused(scene, Mode::route, as_is);
        CHECK(end.message.find("1 ids arrive at slots") != std::string::npos);
        CHECK(end.message.find(errors::concat("the first of them ", scene.loaded[3].raw[other])) != std::string::npos);
        // Where slots stay an id may be on two ranks; of these look-ups find one at most.
        check_equals_oracle(sample());
    }

    TEST_CASE("check 20: empty places have empty metadata, whatever they had") {
        Scene scene = sample(4, 2, 100, Fill::half);
        for (ShardBuffers& shard : scene.loaded) {
            for (std::size_t i = 0; i < shard.raw.size(); ++i) {
                if (shard.raw[i] != INT64_MAX) continue;
                reference::detail::put(shard.metadata[column_at(scene.table, "counts")], i, INT64_MAX);
                reference::detail::put(shard.metadata[column_at(scene.table, "last_access_iter")], i, 5);
            }
        }
        check_equals_oracle(scene);
        Result const result = run_library(scene, Mode::route);
        auto const& counts = result.shards[0].metadata[column_at(scene.table, "counts")];
        for (std::size_t i = 0; i < 50; ++i) CHECK(number_at(counts, i) != INT64_MAX);
    }

    TEST_CASE("check 21: another policy, and a column that one rank lacks, are refused by name") {
        Scene const scene = sample();
        check_refused(ErrorCode::mismatch, {"the eviction policy differs: saved LRU, current DistanceLFU"}, scene,
                      [](int, Call& call) { call.saved.eviction = MchEviction::lru; });
        check_refused(ErrorCode::mismatch, {"column 'a' differs: saved none"}, scene, [](int, Call& call) {
            std::erase_if(call.saved.metadata, [](MchColumn const& column) { return column.name == "a"; });
        });
        check_refused(ErrorCode::mismatch, {"on rank 1", "the state has no column 'a'"}, scene,
                      on_rank_1([](Call& call) {
                          std::erase_if(call.state.metadata, [](auto const& column) { return column.name == "a"; });
                      }));
        check_refused(ErrorCode::mismatch, {"LFU needs a column 'counts'"}, scene, [](int, Call& call) {
            for (MchTable* table : {&call.saved, &call.current}) {
                std::erase_if(table->metadata, [](MchColumn const& column) { return column.name == "counts"; });
            }
        });
    }

    TEST_CASE("check 22: iterations of two checkpoints, accesses after the iteration and counts below 0 are refused") {
        Scene scene = sample();
        scene.loaded[1].iteration[0] += 1;
        check_refused(ErrorCode::mismatch, {"is at iteration", "Fix: load the states of one checkpoint."}, scene,
                      as_is);
        Id const now = scene.loaded[0].iteration[0];
        for (Id access : {now + 1, INT64_MAX, Id{-1}, INT64_MIN}) {
            scene = sample();
            set_all(scene, 1, "last_access_iter", access);
            check_refused(ErrorCode::mismatch,
                          {"from rank 1 was last accessed at", errors::concat(access, ", at iteration ", now)}, scene,
                          as_is);
        }
        for (Id count : {Id{-1}, INT64_MIN}) {
            scene = sample();
            set_all(scene, 1, "counts", count);
            check_refused(ErrorCode::mismatch, {errors::concat("from rank 1 has count ", count)}, scene, as_is);
        }
    }

    TEST_CASE("check 20: an id that no other could surpass gets the largest other count, and is counted") {
        Scene scene = sample(4, 2);
        for (ShardBuffers& shard : scene.loaded)
            reference::detail::put(shard.metadata[column_at(scene.table, "counts")], 3, INT64_MAX);
        check_equals_oracle(scene);
        Id unpinned = 0;
        for (Change const& change : run_library(scene, Mode::slot_owner_keep).changes) unpinned += change.unpinned;
        CHECK(unpinned == 2);
    }

    TEST_CASE("check 23: segments of the saved world, or of any other, become those of this one") {
        Scene scene = sample();
        scene.loaded[0].segments.assign(1025, 12345);
        scene.loaded[2].segments.assign(1025, 0);
        check_equals_oracle(scene);
    }

    TEST_CASE("check 24: type, shape and strides of every buffer, and the same columns on every rank") {
        Scene const scene = sample();  // shards of 25 slots
        Ids other(200, 0);
        std::vector<std::uint8_t> bytes(25 * 12, 0);
        auto const view = [&](auto const& shape) { return TensorView<Index>(other.data(), shape); };
        check_refused(
            ErrorCode::dtype, {"on rank 1: the column of ids is U64, not I64"}, scene,
            on_rank_1([&](Call& call) { call.state.ids = DynamicView(other.data(), DType::u64, Shape{25}); }));
        check_refused(ErrorCode::dtype, {"on rank 1: column 'counts' is F64"}, scene, on_rank_1([&](Call& call) {
                          for (auto& column : call.state.metadata)
                              if (column.name == "counts")
                                  column.view = DynamicView(other.data(), DType::f64, Shape{25});
                      }));
        check_refused(ErrorCode::buffer, {"on rank 1: the column of slots has shape [24]"}, scene,
                      on_rank_1([&](Call& call) { call.state.slots = view(Shape{24}); }));
        check_refused(
            ErrorCode::buffer, {"on rank 1: the column of ids has strides [2]"}, scene,
            on_rank_1([&](Call& call) { call.state.ids = TensorView<Index>(other.data(), Shape{25}, Indices{2}); }));
        check_refused(ErrorCode::buffer, {"on rank 1: the column of ids is null"}, scene,
                      on_rank_1([](Call& call) { call.state.ids = TensorView<Index>(nullptr, Shape{25}); }));
        check_refused(ErrorCode::buffer, {"on rank 1: the current iteration has shape [2]"}, scene,
                      on_rank_1([&](Call& call) { call.state.iteration = view(Shape{2}); }));
        check_refused(ErrorCode::mismatch, {"rank 1 of 4: redistributes table 0", " x:12"}, scene,
                      on_rank_1([&](Call& call) {
                          for (MchTable* table : {&call.saved, &call.current}) table->metadata.push_back({"x", 12, 0});
                          call.state.metadata.push_back({"x", DynamicView(bytes.data(), DType::u8, Shape{25, 12})});
                      }));
    }

    TEST_CASE("checks 24 and 39: device memory is refused on all ranks, not read, by both calls") {
        FakeCuda const cuda;
        if (!cuda.works()) return;
        Scene const scene = sample();
        std::vector<ShardBuffers> shards = scene.loaded;
        std::vector<std::vector<float>> rows(4, std::vector<float>(25, 1.0F));
        for (auto const* column : {shards[1].metadata[0].data(), shards[1].metadata[2].data()}) {
            cuda.claim(column, 25 * 8);
            auto const ends = ReplayWorld(4).run([&](ReplayCommunicator& comm) {
                Call const call = call_of(scene, shards[static_cast<std::size_t>(comm.rank())], Mode::route);
                static_cast<void>(redistribute(call.saved, call.current, call.state, comm, call.options));
            });
            for (RankEnd const& end : ends) {
                CHECK(end.code == ErrorCode::buffer);
                CHECK(end.message.find("rank 1: a buffer lies in device memory. Fix: ") != std::string::npos);
            }
        }
        cuda.claim(rows[2].data(), 25 * 4);
        auto const ends = ReplayWorld(4).run([&](ReplayCommunicator& comm) {
            auto& mine = rows[static_cast<std::size_t>(comm.rank())];
            apply_row_moves({}, library_table(scene.table, scene.table.offsets, 4),
                            TensorView<float>(mine.data(), Shape{25}), comm);
        });
        for (RankEnd const& end : ends) {
            CHECK(end.code == ErrorCode::buffer);
            CHECK(end.message.find("rank 2: a buffer lies in device memory. Fix: ") != std::string::npos);
        }
        CHECK((shards == scene.loaded));
    }

    TEST_CASE("check 28: what stays on its rank stays whole, and is not sent") {
        Scene const scene = sample(4, 4, 400);
        Result const once = run_library(scene, Mode::route);
        Scene again = scene;
        again.loaded = again.saved = once.shards;
        for (Mode mode : modes) {
            Result const twice = run_library(again, mode);
            CHECK((twice.shards == once.shards));
            for (std::size_t r = 0; r < 4; ++r) {
                CHECK(twice.changes[r].sent + twice.changes[r].received == 0);
                CHECK(twice.ends[r].traffic.messages_sent == 3);  // headers
            }
        }
    }

    TEST_CASE("check 29: a rank that is at another table is told so") {
        check_refused(ErrorCode::mismatch, {"rank 1 of 4: redistributes table 0 'item' of "}, sample(),
                      on_rank_1([](Call& call) { call.saved.name = call.current.name = "item"; }));
    }

    TEST_CASE("check 31: hash size, hash function and buckets must be the saved ones") {
        Scene const scene = sample();
        check_refused(ErrorCode::mismatch, {"the hash size differs", "saved 1000, current 9223372036854775807"}, scene,
                      [](int, Call& call) { call.saved.hash_size = 1000; });
        check_refused(ErrorCode::mismatch, {"the hash function differs", "saved 'murmur', current ''"}, scene,
                      [](int, Call& call) { call.saved.hash_function = "murmur"; });
        check_refused(ErrorCode::mismatch, {"5 buckets cannot be shared by 4 ranks"}, scene,
                      [](int, Call& call) { call.current.buckets = 5; });
        Scene buckets = scene;
        buckets.table.bucketed = true;
        buckets.table.policy = Policy::none;
        buckets.saved_buckets = 2;
        check_refused(ErrorCode::mismatch, {"the number of buckets differs: saved 2, current 4"}, buckets, as_is);
    }

    TEST_CASE("check 32: negative ids go where their unsigned remainder says") {
        Scene scene = sample(1, 3, 100, Fill::nothing);
        Ids const ids{INT64_MIN, -7, -1, Id{1} << 62, INT64_MAX - 1};  // INT64_MAX is the default hash size
        std::size_t const ranks[] = {2, 0, 0, 1, 2};
        for (std::size_t i = 0; i < ids.size(); ++i) scene.loaded[0].raw[i] = ids[i];
        Result const result = run_library(scene, Mode::route);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            auto const& raw = result.shards[ranks[i]].raw;
            CAPTURE(ids[i]);
            CHECK(std::count(raw.begin(), raw.end(), ids[i]) == 1);
        }
        check_equals_oracle(scene);
    }

    TEST_CASE("check 35: counts that no memory holds, and that 64 bits do not count, are errors on all ranks") {
        Scene const scene = sample();
        for (Id entries : {INT64_MAX, INT64_MAX / 32, Id{-1}}) {
            ReplayWorld world(4);
            world.tamper(0, 2, 1, 0, entries);  // the header of rank 2 to rank 1
            RankEnd const end = refused(scene, Mode::route, as_is, world);
            CHECK(end.code == ErrorCode::shape);
            CHECK(end.message.find("rank 1 of 4") != std::string::npos);
        }
        Scarce const scarce(std::size_t{1} << 40, 0);
        ReplayWorld world(4);
        world.tamper(0, 2, 1, 0, Id{1} << 50);
        CHECK(refused(scene, Mode::route, as_is, world).code == ErrorCode::out_of_memory);
        static_assert(sizeof(MchChange::sent) == 8);
        static_assert(sizeof(MchShard::entries) == 8);
    }

    TEST_CASE("check 36: on one rank nothing collective is called, not even when something is wrong") {
        Scene scene = sample(3, 1);
        for (Mode mode : modes) {
            Result const result = run_library(scene, mode);
            CHECK(result.error() == "");
            CHECK(result.ends[0].agreements + result.ends[0].exchanges == 0);
        }
        scene.loaded[0].slots[first_live(scene.loaded[0])] = 1000;
        RankEnd const end = refused(scene, Mode::route, as_is);
        CHECK(end.agreements + end.exchanges == 0);
        CHECK(end.code == ErrorCode::mismatch);
    }

    TEST_CASE("check 37: offsets that a rank saved of its own shard alone are refused") {
        check_refused(ErrorCode::mismatch, {"the number of slots differs: saved 50, current 100"}, sample(),
                      [](int, Call& call) { call.saved = call.saved.on(mch_slots(Mesh{1}, 50)); });
    }

    TEST_CASE("check 38: INT64_MAX is an empty place, wherever it stands, and never travels") {
        Scene scene = sample();
        scene.loaded[0].raw[first_live(scene.loaded[0])] = INT64_MAX;  // among others: ids no longer ascend
        check_equals_oracle(scene);
        CHECK_THROWS_AS(check_ids(library_table(scene.table, scene.table.offsets, 4), scene.loaded[0].raw.data(), 25),
                        MismatchError);
    }

    TEST_CASE("check 39: moves of another table, or of another rank, are refused and no row is written") {
        MchTable const table = mch_table("user", Mesh{4}, 100, MchEviction::lfu);
        for (MchRowMove const move : {MchRowMove{-1, 26}, {100, 26}, {3, 24}, {3, 50}, {INT64_MIN, 26}}) {
            std::vector<std::vector<std::uint16_t>> rows(4, std::vector<std::uint16_t>(25, 9));
            auto const ends = ReplayWorld(4).run([&](ReplayCommunicator& comm) {
                std::vector<MchRowMove> moves;
                if (comm.rank() == 1) moves.push_back(move);
                auto& mine = rows[static_cast<std::size_t>(comm.rank())];
                apply_row_moves(moves, table, DynamicView(mine.data(), DType::u16, Shape{25}), comm);
            });
            for (RankEnd const& end : ends) {
                CHECK(end.code == ErrorCode::mismatch);
                CHECK(end.message == ends[0].message);
                CHECK(end.message.find(errors::concat("a move from row ", move.from, " to row ", move.to)) !=
                      std::string::npos);
            }
            for (auto const& part : rows) CHECK(part == std::vector<std::uint16_t>(25, 9));
        }
        // Nor may two end at one row. The lowest such row is named, wherever it stands in the list.
        std::vector<std::vector<std::uint16_t>> rows(4, std::vector<std::uint16_t>(25, 9));
        auto const ends = ReplayWorld(4).run([&](ReplayCommunicator& comm) {
            std::vector<MchRowMove> moves;
            if (comm.rank() == 1) moves = {{0, 49}, {1, 30}, {2, 49}, {99, 30}, {3, 25}};
            auto& mine = rows[static_cast<std::size_t>(comm.rank())];
            apply_row_moves(moves, table, DynamicView(mine.data(), DType::u16, Shape{25}), comm);
        });
        for (RankEnd const& end : ends) {
            CHECK(end.code == ErrorCode::mismatch);
            CHECK(end.message ==
                  "rank 1 of 4: reshard::mch: table 'user': on rank 1: two moves end at row 30. Fix: "
                  "pass the moves that redistribute() returned on this rank, each once.");
        }
        for (auto const& part : rows) CHECK(part == std::vector<std::uint16_t>(25, 9));
    }
}
