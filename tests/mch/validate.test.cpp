// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/validate.hpp.
#include <reshard/mch/validate.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include <mch/support/state.hpp>
#include <support/fake_cuda.hpp>
#include <support/random.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
namespace sim = test::torchrec;
using enum MchFault;

/// 4 ranks of 3, 3, 3 and 1 slots; ids are blocks of 25. Rank 1: ids 30 and 40 in slots 3 and 4, then an empty place.
sim::World sample() {
    sim::World world(10, 4, sim::Policy::distance_lfu, 100);
    world.train({1, 40});
    world.evict();
    world.train({30, 2, 51, 52});
    world.train({40, 40});
    world.evict();
    return world;
}

using Violations = std::vector<MchViolation>;

/// What rank 1 finds when its buffers are changed. Every other fault would be listed too.
template <class Change>
Violations found(Change const& change) {
    sim::World world = sample();
    change(world.ranks[1]);
    MchReport const report = validate(sim::table_of(world), sim::state_of(world.ranks[1]), 1);
    CHECK(report.total() == static_cast<Index>(report.violations().size()));
    return report.violations();
}

TEST_CASE("the sample is what the tests say it is, and sound") {
    sim::World world = sample();
    CHECK(world.ranks[1].raw == sim::Ids{30, 40, sim::no_id});
    CHECK(world.ranks[1].mapping == sim::Ids{3, 4, 5});
    CHECK(world.ranks[1].counts == sim::Ids{1, 3, INT64_MAX});
    CHECK(world.ranks[1].last == sim::Ids{2, 3, 3});
    CHECK(world.ranks[3].raw == sim::Ids{sim::no_id});
    for (std::size_t r = 0; r < 4; ++r) {
        CHECK(validate(sim::table_of(world), sim::state_of(world.ranks[r]), static_cast<Index>(r)).sound());
    }
    CHECK(found([](sim::Module&) {}).empty());
}

TEST_CASE("states that real training leaves are sound, whatever the policy, the ids and the fill") {
    int turn = 0;
    for (sim::Policy policy : {sim::Policy::lfu, sim::Policy::lru, sim::Policy::distance_lfu}) {
        for (sim::Kind kind : {sim::Kind::low, sim::Kind::hash63, sim::Kind::any}) {
            for (sim::Id ranks : {1, 3, 4, 8}) {
                if (test::fewer_seeds() && ++turn % 3 != 0) continue;
                for (double fill : {0.0, 0.5, 3.0}) {
                    sim::World world = sim::trained(static_cast<std::uint64_t>(ranks), 203, ranks, policy, kind, fill);
                    MchTable const table = sim::table_of(world);
                    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
                        MchReport const report = validate(table, sim::state_of(world.ranks[r]), static_cast<Index>(r));
                        CHECK_MESSAGE(report.sound(), explain(report));
                    }
                }
            }
        }
    }
}

TEST_CASE("I1: ids out of order and ids that are there twice") {
    CHECK(found([](sim::Module& m) { std::swap(m.raw[0], m.raw[1]); }) == Violations{{id_order, 1, 1, 30, 40}});
    CHECK(found([](sim::Module& m) { m.raw[1] = 30; }) == Violations{{id_repeated, 1, 1, 30, 0}});
    CHECK(found([](sim::Module& m) { m.raw[0] = sim::no_id; }) ==  // an empty place before a live one
          Violations{{id_order, 1, 1, 40, sim::no_id}, {stale_metadata, 1, 0, 0, 1}, {stale_metadata, 1, 0, 1, 2}});
    CHECK(found([](sim::Module& m) {
              m.raw = {40, 30, 40};
          }) == Violations{{id_order, 1, 1, 30, 40},
                           {id_repeated, 1, 2, 40, 0},
                           {reserved_live, 1, 2, 40, 5},
                           {count_pinned, 1, 2, INT64_MAX, 40}});
}

TEST_CASE("I2: slots of another shard and slots that are there twice") {
    for (Index wrong : {Index{2}, Index{6}, Index{-3}, Index{INT64_MAX}, Index{INT64_MIN}}) {
        CHECK(found([&](sim::Module& m) { m.mapping[0] = wrong; }) == Violations{{slot_range, 1, 0, wrong, 3}});
    }
    CHECK(found([](sim::Module& m) { m.mapping[1] = 3; }) == Violations{{slot_repeated, 1, 1, 3, 0}});
}

TEST_CASE("I3: the miss row belongs to nobody") {
    CHECK(found([](sim::Module& m) {
              m.raw[2] = 45;
              m.counts[2] = 1;
          }) == Violations{{reserved_live, 1, 2, 45, 5}});
    CHECK(found([](sim::Module& m) { std::swap(m.mapping[0], m.mapping[2]); }) ==
          Violations{{reserved_slot, 1, 2, 3, 0}});
    CHECK(found([](sim::Module& m) { m.mapping[2] = 4; }) ==
          Violations{{slot_repeated, 1, 2, 4, 1}, {reserved_slot, 1, 2, 4, -1}});
}

TEST_CASE("I4: counts and accesses that no score is made of") {
    CHECK(found([](sim::Module& m) { m.counts[0] = -5; }) == Violations{{count_negative, 1, 0, -5, 30}});
    CHECK(found([](sim::Module& m) { m.counts[1] = INT64_MAX; }) == Violations{{count_pinned, 1, 1, INT64_MAX, 40}});
    CHECK(found([](sim::Module& m) { m.last[1] = 4; }) == Violations{{access_late, 1, 1, 4, 3}});
    CHECK(found([](sim::Module& m) { m.iteration[0] = 2; }) ==
          Violations{{access_late, 1, 1, 3, 2}, {access_late, 1, 2, 3, 2}});
}

TEST_CASE("an empty place that kept the count of a miss row is found: it would never fill") {
    // What a merge of whole shards by position leaves: the reserved position of a saved shard, inside a longer one.
    CHECK(found([](sim::Module& m) {
              m.raw = {30, sim::no_id, sim::no_id};
              m.counts = {1, INT64_MAX, INT64_MAX};
              m.last = {2, 0, 3};
          }) == Violations{{stale_metadata, 1, 1, 0, 255}});
}

TEST_CASE("segments are the table's, to the last -1") {
    CHECK(found([](sim::Module& m) { m.segments[2] = 5; }) == Violations{{stale_segments, 1, 2, 5, 6}});
    CHECK(found([](sim::Module& m) { m.segments[5] = 10; }) == Violations{{stale_segments, 1, 5, 10, -1}});
    CHECK(found([](sim::Module& m) { m.segments.resize(5); }).empty());
}

TEST_CASE("I5: ids that another rank looks up") {
    CHECK(found([](sim::Module& m) { m.raw[0] = 10; }) == Violations{{unreachable, 1, 0, 10, 0}});
    CHECK(found([](sim::Module& m) { m.raw[0] = -1; }) == Violations{{unreachable, 1, 0, -1, 3}});  // 2^64 - 1 mod 4
}

TEST_CASE("a state that was never loaded is that, and not thousands of repeated zeros") {
    CHECK(found([](sim::Module& m) {
              m.raw.assign(3, 0);
              m.mapping.assign(3, 0);
          }) == Violations{{never_loaded, 1, 0, 0, 0}});
}

TEST_CASE("a bucketed shard has distinct ids where they are looked up") {
    MchTable table = mch_table("item", Mesh{2}, 12, MchEviction::none);
    table.layout = MchLayout::buckets;
    table.buckets = 4;
    table.hash_size = 100;
    table.metadata = {{"metadata", 4, 0xff}};
    sim::Ids identities{-1, 60, -1, 0, 99, 101};  // 101 mod 4 is bucket 1: of rank 0
    std::vector<std::int32_t> hours(6);
    MchState state;
    state.ids = TensorView<Index>(identities.data(), Shape{6, 1});
    state.metadata = {{"metadata", TensorView<std::int32_t>(hours.data(), Shape{6, 1})}};
    CHECK(validate(table, state, 1).violations() == Violations{{unreachable, 1, 3, 0, 0}, {unreachable, 1, 5, 101, 0}});
    identities = {-1, 60, 60, INT64_MAX, 99, -5};  // 2^63 - 1 mod 4 is 3, and so is 2^64 - 5
    CHECK(validate(table, state, 1).violations() == Violations{{id_repeated, 1, 2, 60, 1}});
    identities = {-1, 99, -2, -2, 60, -1};  // 2^64 - 2 mod 4 is 2; probing stops at the bucket
    Violations const astray{
        {id_repeated, 1, 3, -2, 2}, {unreachable, 1, 1, 99, 1}, {unreachable, 1, 3, -2, 1}, {unreachable, 1, 4, 60, 1}};
    CHECK(validate(table, state, 1).violations() == astray);
    sim::Ids empty(6, -1);
    MchState other = state;
    other.ids = TensorView<Index>(empty.data(), Shape{6, 1});
    run_on_threads(2, [&](ThreadCommunicator& comm) {
        CHECK(validate(table, comm.rank() == 1 ? state : other, comm).violations() == astray);
    });
    identities.assign(6, 0);
    CHECK(validate(table, state, 1).violations() == Violations{{never_loaded, 1, 0, 0, 0}});
}

TEST_CASE("a bucketed table is sound on all its ranks, also cut elsewhere") {
    sim::BucketWorld whole(96, 12, {0, 96});
    std::mt19937_64 random(2);
    for (std::int32_t hour = 0; hour < 200; ++hour) whole.admit(sim::random_id(random, sim::Kind::any), hour);
    sim::BucketWorld world = whole.cut_at({0, 16, 16, 96});
    run_on_threads(3, [&](ThreadCommunicator& comm) {
        MchReport const report =
            validate(sim::table_of(world), sim::state_of(world, static_cast<std::size_t>(comm.rank())), comm);
        CHECK_MESSAGE(report.sound(), explain(report));
    });
    sim::BucketWorld broken = world;
    broken.identities[2][5] = broken.identities[0][3];
    REQUIRE(broken.identities[2][5] != -1);
    run_on_threads(3, [&](ThreadCommunicator& comm) {
        Index const id = broken.identities[0][3];
        CHECK(validate(sim::table_of(broken), sim::state_of(broken, static_cast<std::size_t>(comm.rank())), comm)
                  .violations() == Violations{{unreachable, 2, 5, id, 0}, {id_on_two_ranks, 2, 5, id, 0}});
    });
}

TEST_CASE("a shard in device memory is refused, not read") {
    test::FakeCuda const cuda;
    if (!cuda.works()) return;
    sim::World world = sample();
    cuda.claim(world.ranks[1].counts.data(), 24);
    CHECK_THROWS_WITH_AS(
        static_cast<void>(validate(sim::table_of(world), sim::state_of(world.ranks[1]), 1)),
        "reshard::mch: table 'user': on rank 1: a buffer lies in device memory. Fix: copy the shard to "
        "the host.",
        BufferError);
}

// ---- Together -----------------------------------------------------------------------------------------------------

struct Answer {
    ErrorCode code = ErrorCode::none;
    std::string text;
    MchReport report;
    friend bool operator==(Answer const&, Answer const&) = default;
};

/// What all ranks are told; they are told the same.
template <class Change>
Answer together(sim::World world, Change const& change, int ranks = 4) {
    std::vector<Answer> answers(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        MchTable table = sim::table_of(world);
        MchState state = r < world.ranks.size() ? sim::state_of(world.ranks[r]) : MchState{};
        change(comm.rank(), table, state);
        Answer& answer = answers[r];
        try {
            answer.report = validate(table, state, comm);
        } catch (Error const& error) {
            answer.code = error.code();
            answer.text = error.message();
        }
    });
    for (Answer const& answer : answers) CHECK(answer == answers[0]);
    return answers[0];
}
auto const nothing = [](int, MchTable&, MchState&) {};

TEST_CASE("all ranks find a sound table sound, also with ranks beside its mesh and shards of no slots") {
    CHECK(together(sample(), nothing).report.sound());
    CHECK(together(sample(), nothing, 6).report.sound());
    CHECK(together(sim::trained(1, 10, 8, sim::Policy::lfu, sim::Kind::any, 2.0), nothing, 8).report.sound());
    CHECK(together(
              sim::trained(1, 10, 8, sim::Policy::lfu, sim::Kind::any, 2.0),
              [](int rank, MchTable&, MchState& state) {
                  if (rank >= 5) state = {};  // TorchRec cannot even build a module of no slots
              },
              8)
              .report.sound());
}

TEST_CASE("a sound table costs one small gather, and on a group of one nothing at all") {
    sim::World world = sample();
    run_on_threads(4, [&](ThreadCommunicator& comm) {
        Traffic const before = comm.traffic();
        auto const r = static_cast<std::size_t>(comm.rank());
        CHECK(validate(sim::table_of(world), sim::state_of(world.ranks[r]), comm).sound());
        CHECK((comm.traffic() - before).bytes_sent == 3 * 24);
    });
    sim::World alone = sim::trained(1, 50, 1, sim::Policy::lru);
    SelfCommunicator self;
    CHECK(validate(sim::table_of(alone), sim::state_of(alone.ranks[0]), self).sound());
    CHECK(self.traffic() == Traffic{});
    alone.ranks[0].raw[0] = sim::no_id;
    CHECK(validate(sim::table_of(alone), sim::state_of(alone.ranks[0]), self) ==
          validate(sim::table_of(alone), sim::state_of(alone.ranks[0]), 0));
}

TEST_CASE("every rank has the faults of all, by rank and position") {
    sim::World world = sample();
    world.ranks[1].counts[0] = -5;
    world.ranks[2].mapping[0] = 0;
    world.ranks[0].counts[1] = -7;
    world.ranks[1].counts[1] = -6;
    CHECK(together(world, nothing).report.violations() == Violations{{slot_range, 2, 0, 0, 6},
                                                                     {count_negative, 0, 1, -7, 2},
                                                                     {count_negative, 1, 0, -5, 30},
                                                                     {count_negative, 1, 1, -6, 40}});
}

TEST_CASE("I6: a rank at another iteration is named") {
    sim::World world = sample();
    world.ranks[2].iteration[0] = 9;
    CHECK(together(world, nothing).report.violations() == Violations{{iteration, 2, 0, 9, 3}});
    // In a report with other faults too; ranks without slots may leave it out.
    sim::World wide = sim::trained(1, 10, 8, sim::Policy::lfu, sim::Kind::hash63, 0.5);
    Index const now = wide.ranks[0].iteration[0];
    wide.ranks[6].iteration[0] = 0;
    wide.ranks[1].mapping[1] = 2;  // the miss row's slot is 3
    CHECK(together(
              wide,
              [](int rank, MchTable&, MchState& state) {
                  if (rank == 7) state = {};
              },
              8)
              .report.violations() ==
          Violations{{slot_repeated, 1, 1, 2, 0}, {reserved_slot, 1, 1, 2, -1}, {iteration, 6, 0, 0, now}});
}

TEST_CASE("I7: an id on two ranks is found, with or without the rank that looks it up") {
    sim::World world = sample();
    world.ranks[1].raw[0] = 2;  // rank 0 has it and looks it up
    CHECK(together(world, nothing).report.violations() ==
          Violations{{unreachable, 1, 0, 2, 0}, {id_on_two_ranks, 1, 0, 2, 0}});
    world.ranks[1].raw[0] = 3;  // nobody else has it
    CHECK(together(world, nothing).report.violations() == Violations{{unreachable, 1, 0, 3, 0}});
    world.ranks[2].raw[0] = 3;  // and now rank 2; rank 0 looks it up
    CHECK(together(world, nothing).report.violations() ==
          Violations{{unreachable, 1, 0, 3, 0}, {unreachable, 2, 0, 3, 0}, {id_on_two_ranks, 2, 0, 3, 1}});
}

TEST_CASE("more faults than are listed are counted") {
    sim::World world = sim::trained(5, 400, 4, sim::Policy::lfu);
    sim::World after = world.by_slot_owner(2);  // of 4 ranks' blocks: all reachable
    for (sim::Module& module : after.ranks) std::fill(module.counts.begin(), module.counts.end(), -1);
    Answer const answer = together(after, nothing, 2);
    CHECK(answer.report.total(count_negative) == 400);
    CHECK(answer.report.violations().size() >= static_cast<std::size_t>(2 * MchReport::listed));
}

TEST_CASE("buffers that one rank has wrong are the same error on every rank, and nothing is exchanged") {
    Answer const short_ids = together(sample(), [](int rank, MchTable&, MchState& state) {
        if (rank == 2) state.ids = TensorView<Index>(static_cast<Index*>(nullptr), Shape{2});
    });
    CHECK(short_ids.code == ErrorCode::buffer);
    CHECK(short_ids.text.find("rank 2 of 4: reshard::mch: table 'user': on rank 2: the column of ids has shape [2]") ==
          0);
    Answer const gone = together(sample(), [](int rank, MchTable&, MchState& state) {
        if (rank == 3) state.metadata.pop_back();
    });
    CHECK(gone.code == ErrorCode::mismatch);
    CHECK(gone.text.find("the state has no column 'last_access_iter'") != std::string::npos);
}

TEST_CASE("ranks that describe different tables are told both") {
    Answer const size = together(sample(), [](int rank, MchTable& table, MchState&) {
        if (rank == 3) table.hash_size = 101;
    });
    CHECK(size.code == ErrorCode::mismatch);
    CHECK(size.text.find("rank 3 of 4: validates the table 'user' of 10 slots (4):(S0) sorted DistanceLFU, hash size "
                         "101,") == 0);
    CHECK(size.text.find("but rank 0 validates the table 'user' of 10 slots (4):(S0) sorted DistanceLFU, hash size "
                         "100,") != std::string::npos);
    Answer const cut = together(sample(), [](int rank, MchTable& table, MchState&) {
        // The same ranges by another rule count as another table: nobody has to compare offsets later.
        if (rank == 1) table.slots = mch_slots(Mesh{4}, IndexList{0, 3, 6, 9, 10});
    });
    CHECK(cut.code == ErrorCode::mismatch);
}

TEST_CASE("a mesh of ranks that do not exist is refused on all, also on a group of one") {
    Answer const answer = together(sample(), nothing, 3);
    CHECK(answer.code == ErrorCode::mesh);
    CHECK(answer.text.find("has rank 3, the communicator only 3 ranks") != std::string::npos);
    sim::World world = sample();
    SelfCommunicator self;
    CHECK_THROWS_AS(static_cast<void>(validate(sim::table_of(world), sim::state_of(world.ranks[0]), self)), MeshError);
}

TEST_CASE("a table on a part of the ranks, in any order, is validated where it is") {
    sim::World world = sample();
    world.ranks[1].raw[0] = 2;  // on rank 0, which is now rank 4
    std::vector<MchReport> reports(6);
    run_on_threads(6, [&](ThreadCommunicator& comm) {
        MchTable table = sim::table_of(world);
        table.slots = mch_slots(Mesh{4}.on({0, {4, 1, 5, 0}}), 10);
        Index const part = table.slots.mesh().ordinal(comm.rank());
        MchState const state = part < 0 ? MchState{} : sim::state_of(world.ranks[static_cast<std::size_t>(part)]);
        reports[static_cast<std::size_t>(comm.rank())] = validate(table, state, comm);
    });
    for (MchReport const& report : reports) {
        CHECK(report.violations() == Violations{{unreachable, 1, 0, 2, 4}, {id_on_two_ranks, 1, 0, 2, 4}});
    }
}

}  // namespace
