// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/checkpoint.hpp and detail/checkpoint_load.hpp: simulated trainers save with some ranks
// and load with others; damaged folders are told apart from absent ones.
#include <reshard/mch/checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/compare_checkpoints.hpp>
#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/mch/row_moves.hpp>
#include <reshard/mch/validate.hpp>

#include <mch/support/damaged.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using checkpoint_test::contains;
using checkpoint_test::read_text;
using checkpoint_test::TempFolder;
using checkpoint_test::write_text;
namespace torchrec = reshard::test::torchrec;

/// A saved world whose files can be damaged.
class Folder {
public:
    explicit Folder(Id ranks = 4) : world(trained(3, 90, ranks, Policy::lfu)) { save_world(temporary.path(), world); }
    [[nodiscard]] std::string path() const { return temporary.path(); }
    [[nodiscard]] std::string leaf(Index rank) const { return leaf_in(path(), static_cast<int>(rank)); }
    [[nodiscard]] std::string file(Index rank) const { return temporary / leaf(rank); }
    [[nodiscard]] std::string index() const { return temporary / "reshard.manifest.json"; }
    /// The text of the table with something changed.
    void edit(std::string const& from, std::string const& to) const {
        Manifest manifest = manifest_in(path());
        std::string& text = manifest.metadata.at(0).second;
        auto const at = text.find(from);
        REQUIRE(at != std::string::npos);
        text.replace(at, from.size(), to);
        write_text(index(), to_json(manifest));
    }
    [[nodiscard]] checkpoint_test::Caught load(Id ranks = 2) const { return load_error(path(), world, ranks); }

    TempFolder temporary;
    World world;
};

Index* numbers(std::vector<std::byte>& bytes) { return reinterpret_cast<Index*>(bytes.data()); }

}  // namespace

TEST_SUITE("mch/checkpoint") {
    TEST_CASE("what any number of ranks saved is loaded by any other number, by position, with its rows") {
        for (Policy policy : {Policy::lfu, Policy::lru, Policy::distance_lfu}) {
            for (auto const& pair : {std::pair<Id, Id>{1, 4}, {4, 1}, {4, 3}, {3, 8}, {8, 8}, {2, 5}}) {
                CAPTURE(static_cast<int>(policy));
                CAPTURE(pair.first);
                CAPTURE(pair.second);
                TempFolder const folder;
                World saved = trained(17, 203, pair.first, policy, torchrec::Kind::any, 0.9);
                save_world(folder.path(), saved);
                World const expected = loaded_by_position(saved, pair.second);
                World loaded = fresh_like(saved, pair.second);
                MchTable const current = table_of(loaded);
                Index live = 0;
                for (std::size_t r = 0; r < loaded.ranks.size(); ++r) {
                    MchCheckpoint files = MchCheckpoint::open(folder.path());
                    CHECK(files.table("user") == table_of(saved));
                    CHECK(files.iteration("user") == saved.ranks[0].iteration[0]);
                    Rows rows(loaded.ranks[r]);
                    Rows const right = rows;
                    rows.clear();
                    MchLoadResult const done =
                        files.load("user", current, static_cast<Index>(r), state_of(loaded.ranks[r]), rows.views());
                    CHECK(rows == right);
                    CHECK(done.saved == table_of(saved));
                    live += done.live;
                }
                CHECK(buffers(loaded) == buffers(expected));
                CHECK(live == static_cast<Index>(saved.live().size()));
            }
        }
    }

    TEST_CASE("loaded, redistributed, looked up: every id finds the row it had") {
        for (auto const& pair : {std::pair<Id, Id>{2, 3}, {3, 1}, {1, 5}}) {
            CAPTURE(pair.first);
            CAPTURE(pair.second);
            TempFolder const folder;
            World saved = trained(8, 400, pair.first, Policy::distance_lfu, torchrec::Kind::any, 0.8);
            save_world(folder.path(), saved);
            World loaded = fresh_like(saved, pair.second);
            MchTable const current = table_of(loaded);
            std::vector<Rows> rows(loaded.ranks.begin(), loaded.ranks.end());
            std::vector<Ids> evicted(loaded.ranks.size());
            run_on_threads(static_cast<int>(pair.second), [&](ThreadCommunicator& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                rows[r].clear();
                MchState const state = state_of(loaded.ranks[r]);
                MchLoadResult const done =
                    MchCheckpoint::open(folder.path()).load("user", current, comm.rank(), state, rows[r].views());
                MchChange const change = redistribute(done.saved, current, state, comm);
                for (MchRows const& one : rows[r].views()) apply_row_moves(change.moves, current, one.view, comm);
                MchReport const report = validate(current, state, comm);
                CHECK(report.sound());
                evicted[r] = change.evicted;
            });
            for (auto const& [id, slot] : saved.live()) {
                Id const row = loaded.look_up(id);
                if (row < 0) {
                    bool listed = false;
                    for (Ids const& list : evicted) listed = listed || std::count(list.begin(), list.end(), id) != 0;
                    CHECK(listed);
                    continue;
                }
                std::size_t const rank = loaded.rank_of(id);
                auto const at = static_cast<std::size_t>(row - loaded.ranks[rank].o);
                CHECK(rows[rank].weights[2 * at] == weight(slot, 0));
                CHECK(rows[rank].momenta[at] == momentum(slot));
            }
        }
    }

    TEST_CASE("what a checkpoint returns that is about to go stays") {
        Folder const folder;
        Index live = 0;
        for (MchIdBounds const& one : MchCheckpoint::open(folder.path()).ids("user")) live += one.live;
        CHECK(live == static_cast<Index>(folder.world.live().size()));
        MchTable const& table = MchCheckpoint::open(folder.path()).table("user");
        CHECK(table == table_of(folder.world));
        static_assert(std::is_same_v<decltype(MchCheckpoint::open("").rows("")), std::vector<MchRowsInfo>>);
        static_assert(std::is_same_v<decltype(MchCheckpoint::open("").folder()), std::string>);
        static_assert(std::is_same_v<decltype(MchCheckpoint::open("").save_id()), std::string>);
    }

    TEST_CASE("iteration 8 stays 8 on every rank, new ones included, and a rank without slots may say nothing") {
        TempFolder const folder;
        World saved(10, 2, Policy::lru);
        for (Module& module : saved.ranks) module.iteration[0] = 8;
        save_world(folder.path(), saved);
        MchCheckpoint files = MchCheckpoint::open(folder.path());
        World loaded = fresh_like(saved, 8);  // 2, 2, 2, 2, 2, 0, 0, 0
        for (std::size_t r = 0; r < 8; ++r) {
            files.load("user", table_of(loaded), static_cast<Index>(r), state_of(loaded.ranks[r]));
            CHECK(loaded.ranks[r].iteration[0] == 8);
            CHECK(loaded.ranks[r].segments[1] == 5);
            CHECK(loaded.ranks[r].segments[3] == -1);
        }
        CHECK(files.load("user", table_of(loaded), 7, MchState{}).live == 0);
        CHECK(files.load("user", table_of(loaded), 100, MchState{}).live == 0);
    }

    TEST_CASE("offsets that TorchRec's rule would not give, ranks in another order, and column widths are kept") {
        TempFolder const folder;
        MchTable table = mch_table("a.b", Mesh{3}, 12, MchEviction::lfu);
        table.slots = mch_slots(DynamicMesh(Indices{3}, RankList{0, IndexList{2, 0, 1}}), IndexList{0, 1, 9, 12});
        table.hash_size = 100;
        table.hash_function = "murmur \"3\"\n";
        table.metadata.push_back({"note", 12, 0xff});
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            Interval const range = table.range(comm.rank());
            auto const z = static_cast<std::size_t>(range.size());
            Ids ids(z, INT64_MAX), slots(z), counts(z), segments(4, -1), iteration(1, 3);
            std::vector<std::int32_t> notes(3 * z);
            std::iota(slots.begin(), slots.end(), range.begin);
            std::iota(notes.begin(), notes.end(), static_cast<std::int32_t>(3 * range.begin));
            MchState const state{view_of(ids),
                                 view_of(slots),
                                 {{"note", TensorView<std::int32_t>(notes.data(), Shape{range.size(), 3})},
                                  {std::string(mch_counts), view_of(counts)}},
                                 view_of(segments),
                                 view_of(iteration)};
            save(folder.path(), MchTableToSave{table, state}, comm);
        });
        MchCheckpoint files = MchCheckpoint::open(folder.path());
        CHECK(files.table("a.b") == table);
        MchTable const whole = table.on(mch_slots(Mesh{1}, 12));
        Ids ids(12), slots(12), counts(12, -1), segments(5), iteration(1);
        std::vector<std::int32_t> notes(36, -1);
        MchState state{view_of(ids),
                       view_of(slots),
                       {{std::string(mch_counts), view_of(counts)},
                        {"note", TensorView<std::int32_t>(notes.data(), Shape{12, 3})}},
                       view_of(segments),
                       view_of(iteration)};
        CHECK(files.load("a.b", whole, 0, state).shards_read == 3);
        for (int i = 0; i < 12; ++i) CHECK(slots[static_cast<std::size_t>(i)] == i);
        for (int i = 0; i < 36; ++i) CHECK(notes[static_cast<std::size_t>(i)] == i);
        CHECK(segments == Ids{0, 1, 9, 12, -1});
        CHECK(iteration == Ids{3});

        std::vector<std::uint8_t> bytes(144);  // the same bytes under another type: said, not guessed
        state.metadata[1].view = TensorView<std::uint8_t>(bytes.data(), Shape{12, 12});
        files.load("a.b", whole, 0, state);
        CHECK(std::memcmp(bytes.data(), notes.data(), 144) == 0);
        std::vector<float> floats(36);
        state.metadata[1].view = TensorView<float>(floats.data(), Shape{12, 3});
        check_error(checkpoint_test::caught([&] { files.load("a.b", whole, 0, state); }), ErrorCode::dtype,
                    {"column 'note' is F32, but was saved as I32"});
    }

    // ---- What is not there, and what is damaged

    TEST_CASE("no index, a folder that is none, a table and rows that were not saved") {
        Folder const saved;
        check_error(load_error(saved.path() + "/elsewhere", saved.world, 2), ErrorCode::io,
                    {"elsewhere: cannot open the checkpoint"});
        check_error(load_error(saved.path(), saved.world, 2, {}, "item"), ErrorCode::mismatch,
                    {"holds no table 'item'; it holds: 'user'"});
        MchCheckpoint files = MchCheckpoint::open(saved.path());
        World loaded = fresh_like(saved.world, 2);
        Rows rows(loaded.ranks[0]);
        std::vector<MchRows> views = rows.views();
        auto const load = [&] {
            return checkpoint_test::caught(
                [&] { files.load("user", table_of(loaded), 0, state_of(loaded.ranks[0]), views); });
        };
        views[1].name = "adam";
        check_error(load(), ErrorCode::mismatch,
                    {"no rows 'adam' were saved with 'user'; there are: 'weights', 'momentum'"});
        views = rows.views();
        views[0].view = TensorView<double>(rows.momenta.data(), Shape{45});
        check_error(load(), ErrorCode::dtype, {"rows 'weights' are F64 [] each, but were saved as F32 [2]"});
        views[0].view = TensorView<float>(rows.weights.data(), Shape{45});
        check_error(load(), ErrorCode::buffer, {"rows 'weights' are F32 [] each, but were saved as F32 [2]"});
        views[0].view = TensorView<float>(rows.weights.data(), Shape{44, 2});
        check_error(load(), ErrorCode::buffer, {"rows 'weights' has shape [44,2]: 44 entries, but the shard has 45"});
        CHECK(buffers(loaded) == buffers(fresh_like(saved.world, 2)));
        CHECK(rows == Rows(loaded.ranks[0]));

        Index const outside = 7;  // no rank of the table: neither state nor rows
        views = {{"weights", {}}};
        auto const load_outside = [&] {
            return checkpoint_test::caught([&] { files.load("user", table_of(loaded), outside, {}, views); });
        };
        CHECK(load_outside().code == ErrorCode::none);
        views[0].name = "adam";
        check_error(load_outside(), ErrorCode::mismatch, {"no rows 'adam' were saved with 'user'"});
    }

    TEST_CASE("a missing file is missing, also for a rank that would not read it; each is named") {
        Folder const saved;
        std::string const first = saved.leaf(1);
        std::string const third = saved.leaf(3);
        std::filesystem::remove(saved.temporary / first);
        std::filesystem::remove(saved.temporary / third);
        check_error(saved.load(4), ErrorCode::io,
                    {"2 of the 4 files it names are missing: '" + first + "', '" + third + "'"});
    }

    TEST_CASE("a corrupt file is not an absent one") {
        Folder const saved;
        std::string const leaf = saved.leaf(1);
        std::string const file = saved.file(1);
        std::string const good = read_text(file);
        std::string const manifest = read_text(saved.index());
        auto const check = [&](ErrorCode code, std::vector<std::string> const& parts) {
            check_error(saved.load(), code, parts);
            World loaded = fresh_like(saved.world, 4);  // who does not need the file does not mind
            MchCheckpoint::open(saved.path()).load("user", table_of(loaded), 3, state_of(loaded.ranks[3]));
            World untouched = fresh_like(saved.world, 2);
            check_error(checkpoint_test::caught([&] {
                            MchCheckpoint::open(saved.path())
                                .load("user", table_of(untouched), 0, state_of(untouched.ranks[0]));
                        }),
                        code, parts);
            CHECK(buffers(untouched) == buffers(fresh_like(saved.world, 2)));
            write_text(file, good);
            write_text(saved.index(), manifest);
        };
        write_text(file, std::string_view(good).substr(0, good.size() - 1));
        check(ErrorCode::format, {"MetadataIncompleteBuffer", leaf});
        write_text(file, "");
        check(ErrorCode::format, {"HeaderTooSmall", leaf});
        write_text(file, "not what it was, but long enough");
        check(ErrorCode::format, {"HeaderTooLarge", leaf});
        write_text(file, read_text(saved.file(2)));
        check(ErrorCode::mismatch, {leaf, "another version of it"});
        Folder const other;
        write_text(file, read_text(other.file(1)));
        check(ErrorCode::mismatch, {leaf, "another version of it"});
        rewrite(saved.path(), leaf, [](TensorSpec& spec, std::vector<std::byte>&, Metadata&) {
            if (spec.name == "user.slots") spec.dtype = DType::f64;
        });
        check(ErrorCode::format, {"[23:46] of tensor 'user.slots'", "is not in '" + leaf + "' as it says"});
        std::string flipped = good;
        flipped[flipped.size() - 1] = static_cast<char>(flipped.back() ^ 1);  // of the last tensor: user.rows.weights
        write_text(file, flipped);
        check_error(saved.load(), ErrorCode::format,
                    {leaf, "of box [23:46,0:2] of tensor 'user.rows.weights'", "have CRC-32C"});
        write_text(file, good);
        CHECK(saved.load().code == ErrorCode::none);
    }

    TEST_CASE("a manifest whose tensors are not what the table says") {
        Folder const saved;
        std::string const good = read_text(saved.index());
        auto const check = [&](auto const& change, std::string const& part) {
            Manifest manifest = manifest_in(saved.path());
            for (StoredTensor& tensor : manifest.tensors) change(manifest, tensor);
            write_text(saved.index(), to_json(manifest));
            check_error(saved.load(), ErrorCode::format, {"reshard.manifest.json: ", part});
            write_text(saved.index(), good);
        };
        check(
            [](Manifest&, StoredTensor& t) {
                if (t.name == "user.ids") t.dtype = DType::f64;
            },
            "tensor 'user.ids' is F64 [90], not I64 of one number a slot");
        check(
            [](Manifest&, StoredTensor& t) {
                if (t.name == "user.metadata.counts") t.dtype = DType::u64;
            },
            "tensor 'user.metadata.counts' is U64 [90], not I64");
        check(
            [](Manifest&, StoredTensor& t) {
                if (t.name == "user.rows.weights") t.dtype = DType::i32;
            },
            "tensor 'user.rows.weights' is I32 [90,2], not F32 [90,2]");
        check(
            [](Manifest&, StoredTensor& t) {
                if (t.name == "user.rows.momentum") t.name = "user.rows.momentun";
            },
            "it has no tensor 'user.rows.momentum'");
        check(
            [](Manifest& m, StoredTensor& t) {
                if (t.name != "user.rows.weights") return;
                auto const one = std::find_if(m.extents.begin(), m.extents.end(),
                                              [&](Extent const& e) { return &m.tensors[e.tensor] == &t; });
                Extent second = *one;
                one->box.set(1, {0, 1});
                second.box.set(1, {1, 2});
                second.begin += one->box.size() * 4;
                second.key = "second";
                m.extents.insert(one + 1, second);
            },
            "tensor 'user.rows.weights' is F32 [90,2], cut along dimension 1; tables are cut by slots");
    }

    TEST_CASE("a table whose text is damaged, or of another version") {
        Folder const saved;
        std::string const good = read_text(saved.index());
        auto const check = [&](std::string const& from, std::string const& to, std::string const& part) {
            CAPTURE(from);
            saved.edit(from, to);
            check_error(saved.load(), ErrorCode::format, {"reshard.manifest.json: ", part});
            write_text(saved.index(), good);
        };
        check("{", "[", "'mch.table.user': not JSON");
        check("\"version\":3", "\"version\":4", "'mch.table.user' is of version 4, this library reads 3");
        check("\"version\":3", "\"version\":2", "'mch.table.user' is of version 2, this library reads 3");
        check("\"version\":3", "\"version\":\"3\"", "version' is not an integer of 0 or more");
        check("\"offsets\":[0,23", "\"offsets\":[23", "has 4 offsets for 4 ranks");
        check("\"offsets\":[0,23", "\"offsets\":[0,99", "has offsets that do not ascend from 0");
        check("\"ranks\":[0,1,2,3]", "\"ranks\":[0,1,2,2]", "is no table: ");
        check("\"eviction\":\"lfu\"", "\"eviction\":\"fifo\"", "has the eviction policy 'fifo'");
        check("\"layout\":\"sorted\"", "\"layout\":\"heap\"", "has the layout 'heap'");
        check("9223372036854775807", "9223372036854775808", "hash_size' is 9223372036854775808, above");
        check("\"buckets\":4", "\"buckets\":-4", "buckets' is not an integer of 0 or more");
        check("\"buckets\":4", "\"buckets\":4,\"buckets\":4", "'buckets' is given twice");
        check("\"buckets\":4", "\"buckets\":3",
              "is no table: reshard::mch: table 'user': 3 buckets cannot be shared by 4 ranks. Fix: restore the file");
        for (char const* number : {"", "1.5e", "0x2", "inf", "1,5", " 2", "2 ", "2.5.1"}) {
            check("\"buckets\":4", "\"buckets\":4,\"decay_exponent\":\"" + std::string(number) + "\"",
                  "'mch.table.user' has the decay exponent '" + std::string(number) + "'");
        }
        check("\"dtype\":\"F32\"", "\"dtype\":\"F33\"", "has the dtype 'F33'");
        check("]]", "],[0,0]]", "has 5 entries for 4 shards");
        check("\"ids\":", "\"was\":", "'mch.table.user' has no 'ids'");
        write_text(saved.index(), "");
        check_error(saved.load(), ErrorCode::format, {"not JSON"});
        write_text(saved.index(), std::string(good).replace(good.find("90"), 2, "91"));
        check_error(saved.load(), ErrorCode::format, {"its bytes are not those that were written"});
        std::filesystem::remove(saved.index());
        check_error(saved.load(), ErrorCode::io, {"parts of a save that never ended"});
    }

    TEST_CASE("files of other saves and other numbers of ranks in the folder mean nothing") {
        Folder const saved(3);
        Folder const other(8);
        for (Index rank = 0; rank < 8; ++rank)
            write_text(saved.temporary / other.leaf(rank), read_text(other.file(rank)));
        CHECK(MchCheckpoint::open(saved.path()).ranks() == 3);
        CHECK(saved.load().code == ErrorCode::none);
    }

    TEST_CASE("what was consolidated to whole files loads too: the tables came along") {
        Folder const saved;
        TempFolder const whole;
        run_on_threads(2, [&](ThreadCommunicator& comm) { consolidate(saved.path(), whole / "out", comm); });
        for (Id const count : {1, 3}) {
            World loaded = fresh_like(saved.world, count);
            for (std::size_t r = 0; r < loaded.ranks.size(); ++r) {
                Rows rows(loaded.ranks[r]);
                Rows const right = rows;
                rows.clear();
                MchCheckpoint::open(whole / "out")
                    .load("user", table_of(loaded), static_cast<Index>(r), state_of(loaded.ranks[r]), rows.views());
                CHECK(rows == right);
            }
            CHECK(buffers(loaded) == buffers(loaded_by_position(saved.world, count)));
        }
    }

    TEST_CASE("a file that was written to since it was opened is no file to load from, with checksums or without") {
        Folder const saved;
        TempFolder const whole;
        run_on_threads(2, [&](ThreadCommunicator& comm) { consolidate(saved.path(), whole / "out", comm); });
        for (std::string const& file : {saved.file(0), whole / "out/model.safetensors"}) {
            CAPTURE(file);
            MchCheckpoint files = MchCheckpoint::open(std::filesystem::path(file).parent_path());
            World loaded = fresh_like(saved.world, 1);
            files.load("user", table_of(loaded), 0, state_of(loaded.ranks[0]));
            std::filesystem::last_write_time(file,
                                             std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
            for (bool const redistributed : {false, true}) {
                World again = fresh_like(saved.world, 1);
                Rows rows(again.ranks[0]);
                auto const load = [&] {
                    if (!redistributed) files.load("user", table_of(again), 0, state_of(again.ranks[0]), rows.views());
                    if (redistributed)
                        static_cast<void>(files.load_redistributed("user", table_of(again), 0, state_of(again.ranks[0]),
                                                                   rows.views()));
                };
                check_error(checkpoint_test::caught(load), ErrorCode::io, {"it was written to while it was read"});
            }
        }
    }

    TEST_CASE("tables come along whatever is made of a checkpoint: other files, and files of other ranks") {
        Folder const saved;  // by 4 ranks
        TempFolder const other;
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            consolidate(saved.path(), other / "whole", comm);
            consolidate(other / "whole", other / "several", comm, {{}, 900});
            PlacementRule const two("(2):(S0)");
            auto const place = [&](StoredTensor const& tensor) { return two.of(tensor.shape, tensor.dtype); };
            shard_checkpoint(saved.path(), other / "fewer", place, comm);
            shard_checkpoint(other / "whole", other / "shards", place, comm);
            PlacementRule const cut("(2):(S1)");
            auto const columns = [&](StoredTensor const& tensor) {
                return tensor.shape.rank() < 2 ? place(tensor) : cut.of(tensor.shape, tensor.dtype);
            };
            shard_checkpoint(saved.path(), other / "columns", columns, comm);
            consolidate(other / "columns", other / "mended", comm);
        });
        check_error(checkpoint_test::caught([&] { static_cast<void>(MchCheckpoint::open(other / "columns")); }),
                    ErrorCode::format, {"cut along dimension 1", "Fix: consolidate() first"});
        for (std::string const name : {"whole", "several", "fewer", "shards", "mended"}) {
            CAPTURE(name);
            MchCheckpoint files = MchCheckpoint::open(other / name);
            CHECK(files.names() == std::vector<std::string>{"user"});
            CHECK(files.table("user") == table_of(saved.world));
            World loaded = fresh_like(saved.world, 1);
            files.load("user", table_of(loaded), 0, state_of(loaded.ranks[0]));
            CHECK(buffers(loaded) == buffers(loaded_by_position(saved.world, 1)));
        }
    }

    TEST_CASE("a table goes by another name where all of its tensors do, and not without some of them") {
        TempFolder const folder;
        World world = trained(17, 203, 2, Policy::lru, torchrec::Kind::any, 0.9);
        MchTable table = table_of(world);
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            Rows rows(world.ranks[r]);
            std::vector<MchTableToSave> saving;
            std::vector<float> bias(3, 1.0F);
            for (char const* name : {"a", "a.b", "a.rows.d", "c"}) {
                saving.push_back({table, state_of(world.ranks[r]), rows.views()});
                saving.back().table.name = name;
            }
            LocalTensor const dense{"a.bias", distribution(Mesh{2}, Shape{3}, "R"),
                                    TensorView<float>(bias.data(), Shape{3})};
            save(folder / "in", std::vector<LocalTensor>{dense}, saving, comm);
        });
        using Renames = std::vector<std::pair<std::string, std::string>>;
        auto const check_names = [&](std::string const& out, std::vector<std::string> const& names) {
            MchCheckpoint files = MchCheckpoint::open(folder / out);
            CHECK(files.names() == names);
            for (std::string const& name : names) {
                World loaded = fresh_like(world, 1);
                MchTable current = table_of(loaded);
                current.name = name;
                Rows rows(loaded.ranks[0]);
                Rows const right = rows;
                rows.clear();
                files.load(name, current, 0, state_of(loaded.ranks[0]), rows.views());
                CHECK(rows == right);
                CHECK(buffers(loaded) == buffers(loaded_by_position(world, 1)));
            }
        };
        auto const check_renamed = [&](std::string const& from, std::string const& out, Renames const& renames,
                                       std::vector<std::string> const& names) {
            SelfCommunicator self;
            CompareOptions same;
            same.rename = renames;
            ConsolidateOptions whole;
            whole.rename = renames;
            consolidate(folder / from, folder / out, whole);
            ShardOptions cut;
            cut.rename = renames;
            shard_checkpoint(folder / from, folder / (out + ".cut"), placed_as("(3):(S0)"), cut);
            for (std::string const& made : {out, out + ".cut"}) {
                CAPTURE(made);
                check_names(made, names);
                CHECK(compare_checkpoints(folder / from, folder / made, self, same).equal());
            }
        };
        check_renamed("in", "c", {{"c.*", "old.c.*"}}, {"a", "a.b", "a.rows.d", "old.c"});
        check_renamed("c", "back", {{"old.*", "*"}}, {"a", "a.b", "a.rows.d", "c"});
        check_renamed("in", "swapped", {{"a.*", "c.*"}, {"c.*", "a.*"}}, {"a", "c", "c.b", "c.rows.d"});
        check_renamed("in", "inner", {{"a.rows.d.*", "d.*"}}, {"a", "a.b", "c", "d"});
        check_renamed("in", "dense", {{"a.bias", "bias"}}, {"a", "a.b", "a.rows.d", "c"});
        {  // what is only compared may be taken apart
            SelfCommunicator self;
            CompareOptions one;
            one.rename = {{"c.rows.weights", "w"}};
            auto const report = compare_checkpoints(folder / "in", folder / "in", self, one);
            CHECK(report.differences.size() == 2);  // each has a tensor that the other lacks
        }

        auto const refused = [&](Renames const& renames, std::vector<std::string> const& says) {
            constexpr ErrorCode code = ErrorCode::format;
            SelfCommunicator self;
            ConsolidateOptions whole;
            whole.rename = renames;
            check_error(checkpoint_test::caught([&] { consolidate(folder / "in", folder / "none", whole); }), code,
                        says);
            CHECK_FALSE(std::filesystem::exists(folder / "none"));
            ShardOptions cut;
            cut.rename = renames;
            check_error(checkpoint_test::caught(
                            [&] { shard_checkpoint(folder / "in", folder / "none", placed_as("(3):(S0)"), cut); }),
                        code, says);
            CHECK_FALSE(std::filesystem::exists(folder / "none"));
        };
        refused({{"c.rows.weights", "c.weight"}},
                {"table 'c' apart: its tensor 'c.rows.weights' would be 'c.weight', not 'c.rows.weights'. Fix: "});
        refused({{"c.ids", "ids"}}, {"table 'c' apart: its tensor 'c.ids' would be 'ids', not OTHER.ids. Fix: "});
        refused(
            {{"c.ids", "d.ids"}},
            {"table 'c' apart: its tensor 'c.metadata.last_access_iter' would be 'c.metadata.l", "not 'd.metadata.l"});
        refused({{"c.slots", "d.slots"}, {"c.*", "e.*"}}, {"'c.slots' would be 'd.slots', not 'e.slots'"});
        refused({{"c.*", "*"}}, {"table 'c' apart: its tensor 'c.ids' would be 'ids', not OTHER.ids"});
    }

    TEST_CASE("a table without slots needs no tensors, also where nothing has checksums") {
        TempFolder const folder;
        SelfCommunicator self;
        MchTable const table = mch_table("t", Mesh{1}, 0, MchEviction::lfu);
        save(folder.path(), MchTableToSave{table, MchState{}}, self);
        Metadata const metadata = manifest_in(folder.path()).metadata;
        TempFolder const whole;
        write_safetensors(
            whole / "model.safetensors", {{"other", DType::u8, Shape{4}}},
            [](TensorInfo const&, Index, std::span<std::byte>) {}, metadata);
        for (std::string const& path : {folder.path(), whole.path()}) {
            MchCheckpoint files = MchCheckpoint::open(path);
            CHECK(files.load("t", table, 0, MchState{}).live == 0);
            CHECK(files.load_redistributed("t", table, 0, MchState{}).change.live_after == 0);
        }
    }

    TEST_CASE("shards longer than a block of sums: each byte is read once, and every part is checked") {
        Id const slots = 300'000;  // 2.4 MB a column
        World saved(slots, 1, Policy::lfu);
        for (Id i = 0; i < slots / 2; ++i) saved.ranks[0].raw[static_cast<std::size_t>(i)] = i * 7;
        TempFolder const folder;
        save_world(folder.path(), saved);
        std::string const file = folder / leaf_in(folder.path(), 0);
        for (Extent const& extent : manifest_in(folder.path()).extents) CHECK(extent.block_sums.size() == 3);
        TempFolder const copy;
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            PlacementRule const one("(1):(S0)");
            shard_checkpoint(
                folder.path(), copy / "out", [&](StoredTensor const& t) { return one.of(t.shape, t.dtype); }, comm);
        });
        for (std::string const& path : {folder.path(), copy / "out"}) {
            Manifest const manifest = manifest_in(path);
            for (Extent const& extent : manifest.extents) CHECK(extent.block_sums.size() == 3);
            World loaded = fresh_like(saved, 1);
            Rows rows(loaded.ranks[0]);
            auto const load = [&] {
                return MchCheckpoint::open(path).load_redistributed("user", table_of(loaded), 0,
                                                                    state_of(loaded.ranks[0]), rows.views());
            };
            CHECK(load().loaded.bytes_read <= slots * (3 * 8 + 2 * 4 + 8));
            for (Extent const& extent : manifest.extents) {  // in its second block
                std::string const damaged = path + "/" + manifest.files[0].leaf;
                std::fstream bytes(damaged, std::ios::in | std::ios::out | std::ios::binary);
                auto const at = SafetensorsFile::open(damaged).data_offset() + extent.begin + default_block_bytes + 5;
                bytes.seekg(at);
                auto const was = static_cast<char>(bytes.get());
                bytes.seekp(at).put(static_cast<char>(was ^ 4)).flush();
                CHECK(checkpoint_test::caught([&] { static_cast<void>(load()); }).code == ErrorCode::format);
                bytes.seekp(at).put(was).flush();
            }
        }
    }

    TEST_CASE("a checkpoint without tables has none, and its tensors are tensors like others") {
        Folder const saved;
        Checkpoint const dense = Checkpoint::open(saved.path());
        std::vector<Index> ids(90);
        std::vector<LocalTensor> const wanted{
            {"user.ids", distribution(Mesh{1}, Shape{90}, "R"), TensorView<Index>(ids.data(), Shape{90})}};
        load(dense, wanted, 0);
        CHECK(ids == loaded_by_position(saved.world, 1).ranks[0].raw);
        TempFolder const other;
        SelfCommunicator self;
        save(other.path(), wanted, self);
        CHECK(MchCheckpoint::open(other.path()).names().empty());
        check_error(load_error(other.path(), saved.world, 2), ErrorCode::mismatch, {"holds no table 'user'"});
    }

    TEST_CASE("a table of another kind is refused before any file of ids is opened") {
        Folder const saved;
        for (Index rank = 0; rank < 4; ++rank) write_text(saved.file(rank), "nobody reads this");
        auto const refused = [&](auto const& change, std::string const& part) {
            World loaded = fresh_like(saved.world, 2);
            MchTable table = table_of(loaded);
            change(table);
            check_error(checkpoint_test::caught([&] {
                            MchCheckpoint::open(saved.path()).load("user", table, 0, state_of(loaded.ranks[0]));
                        }),
                        ErrorCode::mismatch, {part});
            CHECK(buffers(loaded) == buffers(fresh_like(saved.world, 2)));
        };
        refused([](MchTable& table) { table.slots = mch_slots(Mesh{2}, 91); },
                "the number of slots differs: saved 90, current 91");
        refused(
            [](MchTable& table) { table.hash_size = 7; },
            "the hash size differs, so that ids would be looked up elsewhere: saved 9223372036854775807, current 7");
        refused([](MchTable& table) { table.hash_function = "murmur"; }, "the hash function differs");
        refused([](MchTable& table) { table.layout = MchLayout::buckets; }, "the layout differs");
        refused([](MchTable& table) { table.eviction = MchEviction::none; }, "the eviction policy differs: saved LFU");
        refused([](MchTable& table) { table.metadata.push_back({"age", 8, 0}); }, "column 'age' differs: saved none");

        BucketWorld item(48, 6, {0, 16, 48});
        TempFolder const folder;
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            save(folder.path(), MchTableToSave{table_of(item), state_of(item, static_cast<std::size_t>(comm.rank()))},
                 comm);
        });
        BucketWorld other(48, 3, {0, 48});
        check_error(checkpoint_test::caught([&] {
                        MchCheckpoint::open(folder.path()).load("item", table_of(other), 0, state_of(other, 0));
                    }),
                    ErrorCode::mismatch, {"the number of buckets differs: saved 6, current 3"});
    }

    TEST_CASE("another policy: an error that says what is missing, or columns filled and dropped by name") {
        Folder const saved;
        World lru(90, 2, Policy::lru);
        MchTable const table = table_of(lru);
        MchLoadOptions options;
        MchLoadResult done;
        auto const load = [&] {
            return checkpoint_test::caught([&] {
                done = MchCheckpoint::open(saved.path()).load("user", table, 1, state_of(lru.ranks[1]), {}, options);
            });
        };
        check_error(load(), ErrorCode::mismatch, {"the eviction policy differs: saved LFU, current LRU", "say so"});
        options.fill = {{"last_access_iter", 5}};
        check_error(load(), ErrorCode::mismatch, {"column 'counts' differs: saved 8 bytes, current none"});
        options.drop = {"counts"};
        CHECK(load().code == ErrorCode::none);
        CHECK(done.saved.eviction == MchEviction::lru);
        World const expected = loaded_by_position(saved.world, 2);
        CHECK(lru.ranks[1].raw == expected.ranks[1].raw);
        for (std::size_t i = 0; i < lru.ranks[1].raw.size(); ++i) {
            CHECK(lru.ranks[1].last[i] == (lru.ranks[1].raw[i] == no_id ? 0 : 5));
        }
        options.drop = {"counts", "age"};
        check_error(load(), ErrorCode::mismatch, {"column 'age' is to be dropped, but 'user' was saved without it"});
        options.drop = {};
        options.fill = {{"age", 0}};
        check_error(load(), ErrorCode::mismatch, {"column 'age' is to be filled, but the table has none"});

        World both(90, 1, Policy::distance_lfu);  // nothing dropped, one filled, and a wide one beside it
        MchTable wide = table_of(both);
        wide.decay_exponent = 0.5;  // that of a policy that has none says nothing
        wide.metadata.push_back({"note", 12, 7});
        std::vector<std::uint8_t> notes(90 * 12, 9);
        MchState state = state_of(both.ranks[0]);
        state.metadata.push_back({"note", TensorView<std::uint8_t>(notes.data(), Shape{90, 12})});
        options.fill = {{"last_access_iter", 1}, {"note", -1}};
        MchCheckpoint files = MchCheckpoint::open(saved.path());
        files.load("user", wide, 0, state, {}, options);
        CHECK(both.ranks[0].counts == loaded_by_position(saved.world, 1).ranks[0].counts);
        for (std::size_t i = 0; i < 90; ++i) CHECK(notes[12 * i + 5] == (both.ranks[0].raw[i] == no_id ? 7 : 0xff));
        options.fill = {{"last_access_iter", 1}, {"note", 3}};
        check_error(checkpoint_test::caught([&] { files.load("user", wide, 0, state, {}, options); }),
                    ErrorCode::mismatch, {"column 'note' of 12 bytes an entry cannot be filled with 3"});
        options.fill = {{"counts", 1}, {"last_access_iter", 1}, {"note", 0}};
        check_error(checkpoint_test::caught([&] { files.load("user", wide, 0, state, {}, options); }),
                    ErrorCode::mismatch, {"column 'counts' is to be filled, but it was saved"});
    }

    TEST_CASE("another policy for the same columns: the error says how to go on with it") {
        World saved = trained(17, 90, 2, Policy::distance_lfu);
        TempFolder const folder;
        save_world(folder.path(), saved);
        World loaded = fresh_like(saved, 3);
        MchTable lfu = table_of(loaded);
        lfu.eviction = MchEviction::lfu;  // and keeps the access times
        std::swap(lfu.metadata[0], lfu.metadata[1]);
        auto const load = [&](MchTable const& table) {
            return checkpoint_test::caught(
                [&] { MchCheckpoint::open(folder.path()).load("user", table, 0, state_of(loaded.ranks[0])); });
        };
        check_error(load(lfu), ErrorCode::mismatch,
                    {"the eviction policy differs: saved DistanceLFU, current LFU. Fix: configure the policy the table "
                     "was saved with, or give a copy of the table with it here, and go on with the other"});
        MchTable copy = lfu;
        copy.eviction = MchEviction::distance_lfu;
        CHECK(load(copy).code == ErrorCode::none);
        CHECK(loaded.ranks[0].counts == loaded_by_position(saved, 3).ranks[0].counts);
    }

    TEST_CASE("zeros all over are a state that was never loaded") {
        Folder const saved;
        std::string const leaf = saved.leaf(3);
        rewrite(saved.path(), leaf, [](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            if (spec.name == "user.ids" || spec.name == "user.slots")
                std::fill(bytes.begin(), bytes.end(), std::byte{});
        });
        CHECK(saved.load(2).code == ErrorCode::none);  // rank 0 of 2 reads other files
        check_error(saved.load(1), ErrorCode::mismatch,
                    {"table 'user': on rank 0: entries 0 to 21 of", leaf, "were never loaded: all zeros"});
    }

    TEST_CASE("an id of INT64_MAX among others is none that a sorted table can have") {
        Folder const saved;
        std::string const leaf = saved.leaf(0);
        rewrite(saved.path(), leaf, [](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            if (spec.name == "user.ids") numbers(bytes)[4] = INT64_MAX;
        });
        check_error(saved.load(1), ErrorCode::format,
                    {leaf, "the ids of table 'user' do not ascend: entry 5 is",
                     "behind 9223372036854775807, which marks an empty place"});
    }

    TEST_CASE("a list of segments that cannot hold the saved offsets is refused where it is to hold them") {
        Folder const saved;
        World loaded = fresh_like(saved.world, 2);
        loaded.ranks[0].segments.resize(4);
        check_error(checkpoint_test::caught([&] {
                        MchCheckpoint::open(saved.path()).load("user", table_of(loaded), 0, state_of(loaded.ranks[0]));
                    }),
                    ErrorCode::buffer, {"the list of segments has 4 places for the 5 offsets that were saved"});
        MchLoadOptions const only_ids{.leave_rows = {"weights", "momentum"}};
        static_cast<void>(
            MchCheckpoint::open(saved.path())
                .load_redistributed("user", table_of(loaded), 0, state_of(loaded.ranks[0]), {}, {}, only_ids));
        CHECK(loaded.ranks[0].segments[2] == loaded.slots);  // of the 3 that there are now
    }

    TEST_CASE("load_redistributed() takes the threads that it is given, one at least") {
        Folder const saved;
        World loaded = fresh_like(saved.world, 2);
        auto const error = checkpoint_test::caught([&] {
            MchOptions mode;
            mode.threads = 0;
            static_cast<void>(
                MchCheckpoint::open(saved.path())
                    .load_redistributed("user", table_of(loaded), 0, state_of(loaded.ranks[0]), {}, mode));
        });
        CHECK(error.message == "reshard::MchOptions: 0 threads. Fix: give at least 1, the calling thread.");
    }

    TEST_CASE("rows that lie over other rows, or over ids, are refused") {
        Folder const saved;
        World loaded = fresh_like(saved.world, 2);
        Module& module = loaded.ranks[0];
        Rows rows(module);
        auto const before = buffers(loaded);
        auto const error = [&](void* memory) {
            std::vector<MchRows> views = rows.views();
            views[1].view = DynamicView(memory, DType::f64, Shape{module.z});
            return checkpoint_test::caught(
                [&] { MchCheckpoint::open(saved.path()).load("user", table_of(loaded), 0, state_of(module), views); });
        };
        check_error(error(rows.weights.data()), ErrorCode::buffer,
                    {"on rank 0: rows 'momentum' overlaps rows 'weights'. Fix: "});
        check_error(error(module.raw.data()), ErrorCode::buffer, {"rows 'momentum' overlaps the column of ids. Fix: "});
        CHECK(buffers(loaded) == before);
        CHECK(error(rows.momenta.data()).message == "");
    }

    TEST_CASE("an exported copy of a table, and tables inside wrappers, find their source by a map") {
        Folder const saved;
        MchCheckpoint files = MchCheckpoint::open(saved.path());
        std::vector<std::string> const current{"module.user", "user_exported"};
        MchNames names;
        names.prefixes = {"module."};
        names.rename = {{"user", "user_exported"}};
        std::vector<std::string> const sources = match_tables(current, files.names(), names);
        CHECK(sources == std::vector<std::string>{"user", "user"});
        World first = fresh_like(saved.world, 1);
        World second = fresh_like(saved.world, 1);
        files.load(sources[0], table_of(first, current[0]), 0, state_of(first.ranks[0]));
        files.load(sources[1], table_of(second, current[1]), 0, state_of(second.ranks[0]));
        CHECK(buffers(first) == buffers(loaded_by_position(saved.world, 1)));
        CHECK(buffers(second) == buffers(first));
    }
}
