// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/checkpoint_save.hpp: a save is there as a whole or not at all, whichever rank fails at
// whichever step.
#include <reshard/mch/checkpoint_save.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/mch/detail/checkpoint_text.hpp>

#include <mch/support/saved.hpp>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using checkpoint_test::contains;
using checkpoint_test::TempFolder;
namespace torchrec = reshard::test::torchrec;

/// A world of one rank that answers no collective call.
struct Alone : CommunicatorBase<Alone> {
    static constexpr std::string_view name = "alone";
    using exchange_type = transport::InOrder;
    using CommunicatorBase<Alone>::split;
    Alone() = default;
    Alone(Alone&&) = default;
    Alone& operator=(Alone&&) = default;
    Alone(Alone const&) = delete;
    Alone& operator=(Alone const&) = delete;
    ~Alone() = default;
    [[nodiscard]] int rank() const noexcept { return 0; }
    [[nodiscard]] int size() const noexcept { return 1; }
    [[nodiscard]] Traffic traffic() const noexcept { return {}; }
    exchange_type bind(std::span<Send const>, std::span<Receive const>) { throw std::logic_error("bind"); }
    Verdict agree(Verdict) { throw std::logic_error("agree"); }
    Alone split(int, int) { throw std::logic_error("split"); }
    void abort(ErrorCode, std::string_view) noexcept {}
};
static_assert(Communicator<Alone>);

/// What is live in a folder: iteration and ids of its table 'user', read by one rank.
std::pair<Index, Ids> content(std::string const& folder) {
    MchCheckpoint files = MchCheckpoint::open(folder);
    World whole(files.table("user").size(), 1, Policy::lfu);
    Rows rows(whole.ranks[0]);
    rows.clear();
    files.load("user", table_of(whole), 0, state_of(whole.ranks[0]), rows.views());
    CHECK(rows == Rows(whole.ranks[0]));
    return {whole.ranks[0].iteration[0], whole.ranks[0].raw};
}

/// Four ranks that fail must leave this folder as it is.
class SavedBefore {
public:
    SavedBefore() : before_(trained(3, 90, 4, Policy::lfu)), next_(trained(4, 90, 4, Policy::lfu)) {
        save_world(folder.path(), before_);
        checkpoint_test::write_text(folder / "notes.txt", "of somebody else");
        leaves_ = folder.leaves();
        content_ = content(folder.path());
    }
    template <class Spoil>
    void refuses(std::vector<std::string> const& parts, Spoil const& spoil, MchSaveOptions const& options = {}) {
        auto const errors = save_world(folder.path(), next_, spoil, options);
        CAPTURE(errors[0]);
        for (std::string const& error : errors) CHECK(error == errors[0]);
        CHECK(contains(errors[0], "Fix: "));
        for (std::string const& part : parts) {
            CAPTURE(part);
            CHECK(contains(errors[0], part));
        }
        is_unchanged();
    }
    void is_unchanged() const {
        CHECK(folder.leaves() == leaves_);
        CHECK(content(folder.path()) == content_);
    }
    [[nodiscard]] World& next() { return next_; }

    TempFolder folder;

private:
    World before_;
    World next_;
    std::vector<std::string> leaves_;
    std::pair<Index, Ids> content_;
};

}  // namespace

TEST_SUITE("mch/checkpoint_save") {
    TEST_CASE("a save is an index and one file per rank; the files of the one before it go, others stay") {
        SavedBefore before;
        World next = trained(5, 90, 3, Policy::lfu);
        save_world(before.folder.path(), next, {0x1234});
        CHECK(before.folder.leaves() == std::vector<std::string>{
                                            "mch-0000000000001234-00000-of-00003.safetensors",
                                            "mch-0000000000001234-00001-of-00003.safetensors",
                                            "mch-0000000000001234-00002-of-00003.safetensors",
                                            "mch.index.json",
                                            "notes.txt",
                                        });
        CHECK(content(before.folder.path()).second == loaded_by_position(next, 1).ranks[0].raw);
    }

    TEST_CASE("a rank whose state, rows or folder is wrong stops all, and the save before is whole") {
        SavedBefore before;
        before.refuses({"rank 2 of 4: ", "table 'user': on rank 2: the column of ids"},
                       [](int rank, MchSaving& one, std::string&) {
                           if (rank == 2) one.state.ids = DynamicView();
                       });
        before.refuses({"rank 3 of 4: ", "rows 'momentum' has shape [1]"}, [](int rank, MchSaving& one, std::string&) {
            static double number = 0;
            if (rank == 3) one.rows[1].view = TensorView<double>(&number, Shape{1});
        });
        before.refuses({"rank 0 of 4: ", "rows 'weights' have no shape"}, [](int rank, MchSaving& one, std::string&) {
            if (rank == 0) one.rows[0].view = DynamicView();
        });
        before.refuses({"rank 1 of 4: IoError: ", "notes.txt/inside: cannot create the folder"},
                       [](int rank, MchSaving&, std::string& path) {
                           if (rank == 1) path += "/notes.txt/inside";
                       });
        before.refuses({"rank 1 of 4: ", "never loaded"}, [&](int rank, MchSaving& one, std::string&) {
            static Ids zeros(30, 0);
            static Ids others(30, 0);
            if (rank != 1) return;
            auto const z = one.state.ids.extent(0);
            one.state.ids = TensorView<Index>(zeros.data(), Shape{z});
            one.state.slots = TensorView<Index>(others.data(), Shape{z});
        });
    }

    TEST_CASE("what no load would take is not written: the save before it would go for nothing") {
        SavedBefore before;
        Module& module = before.next().ranks[2];
        Module const good = module;
        auto const spoiled = [&](auto const& change, std::string const& fault) {
            module = good;
            change();
            before.refuses({"rank 2 of 4: ", "table 'user': on rank 2: no load would take it: " + fault,
                            "redistribute() before it is saved"},
                           [](int, MchSaving&, std::string&) {});
        };
        REQUIRE(module.live() > 3);
        spoiled([&] { std::swap(module.raw[1], module.raw[2]); }, "I1 ids do not ascend: 1, the first at rank 2, pos");
        spoiled([&] { module.raw[1] = module.raw[2]; }, "I1 id repeated: 1");
        spoiled([&] { module.mapping[1] = 0; }, "I2 slot of another shard: 1, the first at rank 2, position 1: slot 0");
        spoiled([&] { module.mapping[1] = module.mapping[2]; }, "I2 slot repeated: 1");
        spoiled([&] { module.counts[1] = -1; }, "I4 negative count: 1");
        module = good;
        World lru = trained(3, 90, 2, Policy::lru);
        lru.ranks[1].last[0] = lru.ranks[1].iteration[0] + 1;
        for (std::string const& error : save_world(before.folder.path(), lru, [](int, MchSaving&, std::string&) {})) {
            CHECK(contains(error, "I4 accessed before iteration 0 or after the current one: 1"));
        }
        before.is_unchanged();
    }

    TEST_CASE("an index that readers would find too long is not written") {
        TempFolder const folder;
        SelfCommunicator self;
        MchTable table = mch_table("user", Mesh{1}, 0, MchEviction::lfu);
        save_mch(folder.path(), {table, MchState{}}, self);
        auto const before = folder.leaves();
        // Twice in the index, where each of these is six characters.
        table.name = std::string(static_cast<std::size_t>(max_safetensors_header_bytes / 12), '\1');
        auto const error = checkpoint_test::caught([&] { save_mch(folder.path(), {table, MchState{}}, self); });
        CHECK(error.code == ErrorCode::format);
        CHECK(contains(error.message, "mch.index.json: it would have 100000"));
        CHECK(contains(error.message, "bytes, readers take 100000000. Fix: save fewer tables into one folder."));
        CHECK(folder.leaves() == before);
        CHECK(MchCheckpoint::open(folder.path()).names() == std::vector<std::string>{"user"});
    }

    TEST_CASE("ranks that save different things stop all") {
        SavedBefore before;
        before.refuses({"rank 1 of 4: saves 1 tables: 'item' of 90 slots", "but rank 0 saves 1 tables: 'user'"},
                       [](int rank, MchSaving& one, std::string&) {
                           if (rank == 1) one.table.name = "item";
                       });
        before.refuses({"rank 2 of 4: ", "with F32 rows 'weights' [2]", "but rank 0 "},
                       [](int rank, MchSaving& one, std::string&) {
                           if (rank == 2) one.rows.pop_back();
                       });
        before.refuses({"rank 3 is at iteration", "Fix: save when all ranks have made the same steps."},
                       [&](int rank, MchSaving&, std::string&) {
                           if (rank == 3) before.next().ranks[3].iteration[0] += 1;
                       });
        before.next().ranks[3].iteration[0] -= 1;
        before.refuses({"two lists of rows are called 'weights'"},
                       [](int, MchSaving& one, std::string&) { one.rows.push_back(one.rows[0]); });
        before.refuses({"the hash function '", "is not UTF-8. Fix: "},
                       [](int, MchSaving& one, std::string&) { one.table.hash_function = "\xff"; });
        before.refuses({"the name of the rows '", "is not UTF-8. Fix: "},
                       [](int, MchSaving& one, std::string&) { one.rows[0].name = "\xff"; });
        before.refuses({"is not UTF-8. Fix: "}, [](int, MchSaving& one, std::string&) { one.table.name = "\xff"; });
        before.refuses({"the mesh (5) has rank 4, the communicator only 4 ranks"},
                       [](int, MchSaving& one, std::string&) {
                           one = {};
                           one.table = mch_table("user", Mesh{5}, 4, MchEviction::lfu);
                           one.state.metadata = {};
                           one.table.slots = mch_slots(Mesh{5}, IndexList{0, 0, 0, 0, 0, 4});
                       });
    }

    TEST_CASE("a failure after the files have their names takes them back on all ranks") {
        TempFolder const folder;
        World world = trained(3, 90, 4, Policy::lfu);
        std::filesystem::create_directory(folder / "mch.index.json");  // the last step, on rank 0, cannot be done
        auto const errors = save_world(folder.path(), world, [](int, MchSaving&, std::string&) {});
        for (std::string const& error : errors) CHECK(error == errors[0]);
        CHECK(contains(errors[0], "rank 0 of 4: IoError: "));
        CHECK(contains(errors[0], "mch.index.json: cannot rename"));
        CHECK(folder.leaves() == std::vector<std::string>{"mch.index.json"});
    }

    TEST_CASE("the id of the save that is there is refused, and its files stay") {
        SavedBefore before;
        std::string const id = MchCheckpoint::open(before.folder.path()).save();
        auto const errors = save_world(before.folder.path(), before.next(), [](int, MchSaving&, std::string&) {},
                                       {std::stoull(id, nullptr, 16)});
        for (std::string const& error : errors) {
            CHECK(contains(error, "rank 0 of 4: IoError: "));
            CHECK(contains(error, "a save of this id is there"));
        }
        before.is_unchanged();
    }

    TEST_CASE("what saves that died have left goes with the next save, and nothing else") {
        TempFolder const folder;
        World world = trained(3, 90, 4, Policy::lfu);
        save_world(folder.path(), world, {0xabc});
        auto const stale = [&] {
            for (std::string const leaf :
                 {"mch-00000000000000aa-00000-of-00004.safetensors", "mch-00000000000000aa-00003-of-00004.safetensors",
                  ".mch-00000000000000bb-00001-of-00004.safetensors.tmp.17.0", ".mch.index.json.tmp.17.3"}) {
                checkpoint_test::write_text(folder / leaf, "stale");
            }
        };
        std::vector<std::string> const others{".mch.index.json.tmp", ".notes.tmp.17.0",
                                              "mch-00000000000000aa-00000-of-00004.safetensors.bak", "mch-notes",
                                              "shard-00001-of-00004.0123456789abcdef.safetensors"};
        for (std::string const& leaf : others) checkpoint_test::write_text(folder / leaf, "of somebody else");
        auto const left = [&](std::string const& save) {
            std::vector<std::string> wanted = others;
            for (Index r = 0; r < 4; ++r) wanted.push_back(detail::mch_file_name(save, r, 4));
            wanted.emplace_back("mch.index.json");
            std::sort(wanted.begin(), wanted.end());
            return folder.leaves() == wanted;
        };
        stale();
        CHECK_FALSE(left("0000000000000abc"));
        save_world(folder.path(), world, {0xdef});
        CHECK(left("0000000000000def"));

        stale();  // a save that fails has made room as well, and left what is named
        auto const errors = save_world(folder.path(), world, [](int rank, MchSaving& one, std::string&) {
            if (rank == 2) one.state.ids = DynamicView();
        });
        CHECK(contains(errors[0], "the column of ids"));
        CHECK(content(folder.path()).first == world.ranks[0].iteration[0]);

        stale();
        checkpoint_test::write_text(folder / "mch.index.json",
                                    "{");  // names nothing: all is left until there is another
        save_world(folder.path(), world, {0x123});
        CHECK(left("0000000000000123"));
    }

    TEST_CASE("nothing but files of saves goes, whatever an index says that somebody else wrote") {
        TempFolder const folder;
        TempFolder const other;
        std::string const victim = other / "x";
        checkpoint_test::write_text(victim, "precious");
        std::filesystem::create_directory(folder / "mch-");
        std::string const save = concat("/../../", other.path().substr(other.path().rfind('/') + 1), "/x\\u0000");
        checkpoint_test::write_text(
            folder / "mch.index.json",
            concat(R"({"format":"reshard-mch","version":1,"save":")", save, R"(","files":["mch-)", save,
                   R"(-00000-of-00001.safetensors"],"tables":{},"ids":{}})"));
        World world = trained(3, 90, 2, Policy::lfu);
        save_world(folder.path(), world);
        CHECK(checkpoint_test::read_text(victim) == "precious");
        CHECK(content(folder.path()).first == world.ranks[0].iteration[0]);
    }

    TEST_CASE("ranks with folders of their own are told so, and nothing stays") {
        TempFolder const shared;
        TempFolder const other;
        World world = trained(3, 60, 2, Policy::lfu);
        auto const errors = save_world(shared.path(), world, [&](int rank, MchSaving&, std::string& path) {
            if (rank == 1) path = other.path();
        });
        for (std::string const& error : errors)
            CHECK(contains(error, "rank 0 does not see what another rank has written"));
        CHECK(shared.leaves().empty());
        CHECK(other.leaves().empty());
    }

    TEST_CASE("a rank that is lost before it saves: the others say so, and the save before is whole") {
        SavedBefore before;
        MchTable const table = table_of(before.next());
        std::atomic<int> told{0};
        try {
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                if (comm.rank() == 2) return;
                MchSaving const saving{table, state_of(before.next().ranks[r])};
                try {
                    save_mch(before.folder.path(), saving, comm);
                } catch (PeerFailed const&) {
                    ++told;
                    throw;
                }
            });
        } catch (PeerFailed const&) {
        }
        CHECK(told == 3);
        before.is_unchanged();
    }

    TEST_CASE("several tables, ranks without slots, a group of some ranks, buckets, and no tables at all") {
        TempFolder const folder;
        World user = trained(1, 6, 4, Policy::distance_lfu);  // two slots on each of three ranks, none on the fourth
        BucketWorld item(48, 6, {0, 16, 48});
        for (Id id : {7, 19, -5, 4000}) item.admit(id, 3);
        item.admit(INT64_MAX, 12);  // an id like any other here
        MchTable buckets = table_of(item);
        buckets.slots = mch_slots(DynamicMesh(Indices{2}, RankList{0, IndexList{3, 1}}), IndexList{0, 16, 48});
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            std::vector<MchSaving> tables(2);
            tables[0] = {table_of(user), r == 3 ? MchState{} : state_of(user.ranks[r])};
            tables[1] = {buckets, r == 3 ? state_of(item, 0) : r == 1 ? state_of(item, 1) : MchState{}};
            save_mch(folder.path(), tables, comm);
        });
        MchCheckpoint files = MchCheckpoint::open(folder.path());
        CHECK(files.names() == std::vector<std::string>{"user", "item"});
        CHECK(files.ranks() == 4);
        CHECK(files.table("item") == buckets);
        CHECK(files.iteration("item") == 0);
        CHECK(files.table("user") == table_of(user));
        std::size_t admitted = 0;
        for (MchIdBounds const& bounds : files.ids("item")) admitted += static_cast<std::size_t>(bounds.live);
        CHECK(admitted == 5);
        BucketWorld whole(48, 6, {0, 48});
        MchLoaded const loaded = files.load("item", table_of(whole), 0, state_of(whole, 0));
        CHECK(loaded.live == 5);
        for (Id id : {Id{7}, Id{19}, Id{-5}, Id{4000}, INT64_MAX}) CHECK(whole.look_up(id) == item.look_up(id));
        CHECK(whole.hours == item.cut_at({0, 48}).hours);

        TempFolder const empty;
        SelfCommunicator self;
        save_mch(empty.path(), std::span<MchSaving const>(), self);
        CHECK(MchCheckpoint::open(empty.path()).names().empty());
    }

    TEST_CASE("one rank makes no collective call") {
        TempFolder const folder;
        World world = trained(9, 50, 1, Policy::lru);
        Alone comm;
        std::string const id = save_mch(folder.path(), {table_of(world), state_of(world.ranks[0])}, comm);
        CHECK(MchCheckpoint::open(folder.path()).save() == id);
        MchSaving const wrong{table_of(world), MchState{}};
        CHECK_THROWS_AS(save_mch(folder.path(), wrong, comm), BufferError);
    }
}
