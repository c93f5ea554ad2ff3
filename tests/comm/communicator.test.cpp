// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/communicator.hpp.
#include <reshard/comm/communicator.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {
using namespace reshard;

/// The least that is still an exchange.
struct ArchetypeExchange {
    ArchetypeExchange() = default;
    ArchetypeExchange(ArchetypeExchange&&) noexcept = default;
    ArchetypeExchange& operator=(ArchetypeExchange&&) noexcept = default;
    ~ArchetypeExchange() = default;
    void start() {}
    void wait() {}
    bool test() { return true; }
    bool done() const noexcept { return true; }
};

/// The least that is still a communicator. Algorithms that ask for more do not compile with it.
struct Archetype {
    static constexpr char const* name = "archetype";
    using exchange_type = ArchetypeExchange;
    Archetype(Archetype&&) noexcept = default;
    Archetype& operator=(Archetype&&) noexcept = default;
    ~Archetype() = default;
    int rank() const noexcept { return 0; }
    int size() const noexcept { return 1; }
    exchange_type bind(std::span<transport::Send const>, std::span<transport::Receive const>);
    exchange_type exchange(std::span<transport::Send const>, std::span<transport::Receive const>);
    void check_memory(void const*) {}
    std::nullptr_t memory() { return nullptr; }
    void terminate() noexcept {}
    transport::Verdict agree(transport::Verdict mine) { return mine; }
    Archetype split(int, int);
    Archetype split(DynamicMesh const&, int);
    void abort(ErrorCode, std::string_view) noexcept {}
    Traffic traffic() const noexcept { return {}; }
};
static_assert(BoundExchange<ArchetypeExchange>);
static_assert(Communicator<Archetype>);

struct Copyable : Archetype {
    Copyable(Copyable const&);
    Copyable& operator=(Copyable const&);
    Copyable split(int, int);
    Copyable split(DynamicMesh const&, int);
};
struct Nameless : Archetype {
    Nameless split(int, int);
    Nameless split(DynamicMesh const&, int);
    struct name;
};
struct SplitsIntoAnother : Archetype {};  // split() gives an Archetype, not itself
struct LoudRank : Archetype {
    int rank() const { return 0; }  // may throw
    LoudRank split(int, int);
    LoudRank split(DynamicMesh const&, int);
};
struct Silent : Archetype {
    void bind(std::span<transport::Send const>,
              std::span<transport::Receive const>);  // no exchange: nobody could start it
    Silent split(int, int);
    Silent split(DynamicMesh const&, int);
};
struct AgreesInPlace : Archetype {  // verdicts are given away
    transport::Verdict agree(transport::Verdict&);
    AgreesInPlace split(int, int);
    AgreesInPlace split(DynamicMesh const&, int);
};
struct NoMesh : CommunicatorBase<NoMesh>, Archetype {  // split(int, int) hides nothing, but the names are ambiguous
};
static_assert(!Communicator<int>);
static_assert(!Communicator<Archetype&>);
static_assert(!Communicator<Copyable>);
static_assert(!Communicator<Nameless>);
static_assert(!Communicator<SplitsIntoAnother>);
static_assert(!Communicator<LoudRank>);
static_assert(!Communicator<Silent>);
static_assert(!Communicator<AgreesInPlace>);
static_assert(!Communicator<NoMesh>);

struct RunOnce {  // a request: it cannot be started again
    RunOnce() = default;
    RunOnce(RunOnce&&) noexcept;
    RunOnce& operator=(RunOnce&&) noexcept;
    void wait();
    bool test() const;
    bool done() const noexcept;
};
struct CopyableExchange {
    void start();
    void wait();
    bool test();
    bool done() const noexcept;
};
struct NeverEmptyExchange {  // cannot be made from nothing, so a prepared plan could not keep one
    explicit NeverEmptyExchange(int);
    NeverEmptyExchange(NeverEmptyExchange&&) noexcept;
    NeverEmptyExchange& operator=(NeverEmptyExchange&&) noexcept;
    ~NeverEmptyExchange();
    void start();
    void wait();
    bool test();
    bool done() const noexcept;
};
struct ThrowingExchange {
    ThrowingExchange() = default;
    ThrowingExchange(ThrowingExchange&&) noexcept;
    ThrowingExchange& operator=(ThrowingExchange&&) noexcept;
    ~ThrowingExchange() noexcept(false);
    void start();
    void wait();
    bool test();
    bool done() const noexcept;
};
static_assert(!BoundExchange<CopyableExchange>);
static_assert(!BoundExchange<NeverEmptyExchange>);
static_assert(!BoundExchange<ThrowingExchange>);
static_assert(!BoundExchange<RunOnce>);
static_assert(!BoundExchange<int>);

/// Calls that a base has and a misspelt one does not replace: the whole table is asked for.
struct Forgetful : Archetype {
    Forgetful split(int, int);
    Forgetful split(DynamicMesh const&, int);
    void memory() = delete;
};
static_assert(!Communicator<Forgetful>);
}  // namespace

TEST_SUITE("comm/communicator") {
    TEST_CASE("Traffic: a difference is what moved in between") {
        Traffic const before{1, 10, 2, 20, 5};
        Traffic const after{4, 70, 2, 20, 6};
        CHECK(after - before == Traffic{3, 60, 0, 0, 1});
        CHECK(after - after == Traffic{});
    }

    TEST_CASE("joint_verdict: the lowest failing rank wins over any digest") {
        std::vector<transport::Verdict> all(4);
        all[1].digest = 9;
        all[3].code = ErrorCode::io;
        all[3].reason = "no file";
        auto const get = [&](int r) -> transport::Verdict const& { return all[static_cast<std::size_t>(r)]; };
        transport::Verdict joint = transport::joint_verdict(4, get);
        CHECK(joint.code == ErrorCode::io);
        CHECK(joint.rank == 3);
        CHECK(joint.reason == "no file");
        all[2].code = ErrorCode::dtype;
        joint = transport::joint_verdict(4, get);
        CHECK(joint.code == ErrorCode::dtype);
        CHECK(joint.rank == 2);
    }

    TEST_CASE("joint_verdict: without a failure, the first digest unlike rank 0's is a mismatch") {
        std::vector<transport::Verdict> all(4);
        auto const get = [&](int r) -> transport::Verdict const& { return all[static_cast<std::size_t>(r)]; };
        CHECK(transport::joint_verdict(4, get).ok());
        all[2].digest = all[3].digest = 7;
        transport::Verdict joint = transport::joint_verdict(4, get);
        CHECK(joint.code == ErrorCode::mismatch);
        CHECK(joint.rank == 2);
        CHECK(joint.reason == "disagrees with rank 0. Fix: give every rank the same arguments.");
        CHECK(!joint.apart);
        all[0].digest = all[1].digest = 6;
        joint = transport::joint_verdict(4, get);
        CHECK(joint.rank == 2);
        CHECK(joint.reason == "disagrees with rank 0. Fix: give every rank the same arguments.");
        all[0].reason = "prepared a";
        all[2].reason = "prepared b";
        CHECK(transport::joint_verdict(4, get).reason ==
              "prepared b, but rank 0 prepared a. Fix: give every rank the same arguments.");
    }

    TEST_CASE("joint_verdict: of several options in hand the first that differs is named, with both values") {
        transport::Verdict all[2];
        all[1].digest = 7;
        auto const said = [&](std::string_view one, std::string_view first) {
            for (auto const& [verdict, words] : {std::pair(&all[1], one), std::pair(&all[0], first)}) {
                verdict->reason = words;
                for (char& c : verdict->reason)
                    if (c == '|') c = transport::next_option.front();
            }
            std::string const reason =
                transport::joint_verdict(2, [&](int r) -> transport::Verdict const& { return all[r]; }).reason;
            return reason.substr(0, reason.find(". Fix: "));
        };
        CHECK(said("saves with|a 1|b 2|c 3", "saves with|a 1|b 20|c 4") ==
              "saves with b 2, but rank 0 saves with b 20");
        CHECK(said("saves with|a 1|b 2", "saves with|a 10|b 2") == "saves with a 1, but rank 0 saves with a 10");
        CHECK(said("loads with|a 1|b 2", "saves with|a 1|b 3") ==
              "loads with a 1, b 2, but rank 0 saves with a 1, b 3");
        CHECK(said("saves with|a 1", "saves with|a 1|b 3") == "saves with a 1, but rank 0 saves with a 1, b 3");
        CHECK(said("saves with|a 1|b 2", "saves with|a 1|b 2") ==
              "saves with a 1, b 2, but rank 0 saves with a 1, b 2");
        CHECK(said("", "saves with|a 1|b 2") == "is in another call, but rank 0 saves with a 1, b 2");
    }

    TEST_CASE("joint_verdict: a rank in another call is told so, not that it has nothing to say") {
        std::vector<transport::Verdict> all(3);
        transport::Verdict joint;
        auto const reason = [&] {
            joint = transport::joint_verdict(3, [&](int r) { return all[static_cast<std::size_t>(r)]; });
            return joint.reason.substr(0, joint.reason.find(". Fix: make all ranks call the same things"));
        };
        all[1].call = "barrier";  // no digest differs
        CHECK(reason() == "is in barrier(), but rank 0 is in another call");
        CHECK(joint.code == ErrorCode::mismatch);
        CHECK(joint.rank == 1);
        CHECK(joint.apart);
        all[0].reason = "prepared a";
        CHECK(reason() == "is in barrier(), but rank 0 is in another call (prepared a)");
        all[0].call = "prepare(Batch)";
        all[0].reason =
            "saves with\x1f"
            "a 1";
        CHECK(reason() == "is in barrier(), but rank 0 is in prepare(Batch)");
        all[2].code = ErrorCode::io;
        all[2].reason = "No file. Fix: make one.";
        all[2].call = "load";
        CHECK(reason() ==
              "No file. Fix: make one. (Rank 0 is in prepare(Batch): make all ranks call the same things in the same "
              "order.)");
        CHECK(joint.code == ErrorCode::io);
        CHECK(joint.rank == 2);
        CHECK(joint.apart);
        all[2].call = "";  // it may have failed before it could say
        CHECK(reason() == "No file. Fix: make one.");
        CHECK(joint.apart);
    }

    TEST_CASE("mesh_line: ranks of one line share a colour and are ordered by their coordinate") {
        Mesh const mesh = Mesh{2, 3, 2}.on(first_rank(1));
        for (int axis = 0; axis != 3; ++axis) {
            for (int rank = 1; rank <= 12; ++rank) {
                CAPTURE(axis);
                CAPTURE(rank);
                auto const line = transport::mesh_line(mesh, axis, rank, 13);
                Indices const at = mesh.coordinates(rank);
                CHECK(line.key == at[axis]);
                int members = 0;
                for (int other = 1; other <= 12; ++other) {
                    Indices const there = mesh.coordinates(other);
                    bool same_line = true;
                    for (int a = 0; a != 3; ++a) same_line = same_line && (a == axis || at[a] == there[a]);
                    CHECK((transport::mesh_line(mesh, axis, other, 13).colour == line.colour) == same_line);
                    members += same_line ? 1 : 0;
                }
                CHECK(members == mesh.extent(axis));
            }
        }
        CHECK(transport::mesh_line(mesh, 0, 0, 13).colour == -1);
        CHECK_THROWS_WITH_AS(static_cast<void>(transport::mesh_line(mesh, 3, 0, 13)), doctest::Contains("axis 3"),
                             MeshError);
        CHECK_THROWS_WITH_AS(static_cast<void>(transport::mesh_line(mesh, 0, 0, 12)), doctest::Contains("rank 12"),
                             MeshError);
    }
}
