// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/checkpoint_old.hpp: folders that older releases wrote load as they did, and
// damaged ones are refused.
#include <reshard/mch/checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/mch/row_moves.hpp>

#include <mch/support/saved_old.hpp>

#include <algorithm>
#include <cstring>
#include <string>
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
    explicit Folder(Id ranks = 4, std::uint64_t id = 0xabc) : world(trained(3, 90, ranks, Policy::lfu)) {
        save_old(temporary.path(), world, id);
    }
    [[nodiscard]] std::string path() const { return temporary.path(); }
    [[nodiscard]] std::string leaf(Index rank) const {
        return detail::mch_file_name(detail::hex_text(0xabc, 16), rank, static_cast<Index>(world.ranks.size()));
    }
    [[nodiscard]] std::string file(Index rank) const { return temporary / leaf(rank); }
    [[nodiscard]] std::string index() const { return temporary / "mch.index.json"; }
    static void edit(std::string const& path, std::string const& from, std::string const& to) {
        std::string text = read_text(path);
        auto const at = text.find(from);
        REQUIRE(at != std::string::npos);
        write_text(path, sealed(text.replace(at, from.size(), to)));
    }
    [[nodiscard]] checkpoint_test::Caught load(Id ranks = 2) const { return load_error(path(), world, ranks); }

    TempFolder temporary;
    World world;
};

Index* numbers(std::vector<std::byte>& bytes) { return reinterpret_cast<Index*>(bytes.data()); }

/// The text with the bounds of its ids changed.
std::string with_ids(std::string text, std::string const& ids) {
    auto const begin = text.find("\"ids\":{\"user\":") + 14;
    return text.replace(begin, text.find("]]", begin) + 2 - begin, ids);
}

}  // namespace

TEST_SUITE("mch/checkpoint_old") {
    TEST_CASE("folders that the releases before wrote, byte by byte, load and go on") {
        World saved = trained(3, 40, 2, Policy::distance_lfu, torchrec::Kind::any, 0.6);
        for (std::string const version : {"version-1", "version-2"}) {
            CAPTURE(version);
            auto const data = std::filesystem::path(__FILE__).parent_path() / "../data" / version;
            TempFolder const folder;
            std::filesystem::copy(data, folder.path(), std::filesystem::copy_options::recursive);
            for (Id const count : {1, 2, 3}) {
                World loaded = fresh_like(saved, count);
                MchCheckpoint files = MchCheckpoint::open(folder.path());
                CHECK(files.save_id() == "0000000000000abc");
                CHECK(files.ranks() == 2);
                CHECK(files.table("user") == table_of(saved));
                for (std::size_t r = 0; r < loaded.ranks.size(); ++r) {
                    Rows rows(loaded.ranks[r]);
                    Rows const right = rows;
                    rows.clear();
                    files.load("user", table_of(loaded), static_cast<Index>(r), state_of(loaded.ranks[r]),
                               rows.views());
                    CHECK(rows == right);
                }
                CHECK(buffers(loaded) == buffers(loaded_by_position(saved, count)));
            }
            write_text(folder / ".mch-0000000000000abd-00000-of-00002.safetensors.tmp.1.0", "of a save that died");
            write_text(folder / "mch-notes.txt", "others'");
            save_world(folder.path(), saved);  // a save of today takes its place
            CHECK(MchCheckpoint::open(folder.path()).save_id() != "0000000000000abc");
            CHECK(std::filesystem::remove(folder / "mch-notes.txt"));
            CHECK(folder.leaves().size() == 3);
        }
        TempFolder const made;  // what this file's other tests damage is what those releases wrote
        save_old(made.path(), saved);
        auto const data = std::filesystem::path(__FILE__).parent_path() / "../data/version-2";
        for (std::string const& leaf : made.leaves())
            CHECK(read_text(made / leaf) == read_text((data / leaf).string()));
    }

    TEST_CASE("who takes such a folder for a checkpoint of today is told what makes it one") {
        auto const data = (std::filesystem::path(__FILE__).parent_path() / "../data/version-2").string();
        check_error(checkpoint_test::caught([&] { static_cast<void>(Checkpoint::open(data)); }), ErrorCode::io,
                    {"its mch.index.json is of managed-collision tables as older releases saved them",
                     "Fix: the command `reshard mch " + data + " OUT` writes them as a checkpoint"});
        Folder const of_one_rank(1);
        check_error(checkpoint_test::caught([&] { static_cast<void>(Checkpoint::open(of_one_rank.path())); }),
                    ErrorCode::io, {"its mch.index.json is of managed-collision tables"});
    }

    TEST_CASE("tables go by their names, in whatever order they were saved") {
        std::string const table = R"({"layout":"sorted","eviction":"none","offsets":[0,0],"ranks":[0],"hash_size":9,)"
                                  R"("hash_function":"","buckets":1,"columns":[],"iteration":0,"rows":[]})";
        std::string const text =
            errors::concat(R"({"format":"reshard-mch","version":1,"save":"0000000000000abc","files":[)",
                           R"("mch-0000000000000abc-00000-of-00001.safetensors"],"tables":{"z":)", table, R"(,"a":)",
                           table, R"(},"ids":{"z":[[0,0]],"a":[[0,0]]}})");
        auto const index = detail::index_from(text, "index");
        REQUIRE(index.tables.size() == 2);
        CHECK(index.tables[0].table.name == "a");
    }

    TEST_CASE("a folder of version 1 loads: by position, by exchange and apart") {
        TempFolder const folder;
        World saved = trained(3, 300, 2, Policy::lfu, reshard::test::torchrec::Kind::any, 0.6);
        save_old(folder.path(), saved);
        auto const right = load_apart(folder.path(), saved);
        make_version_1(folder);
        CHECK(load_apart(folder.path(), saved) == right);
        World loaded = fresh_like(saved, 2);
        MchTable const table = table_of(loaded);
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            MchState const state = state_of(loaded.ranks[r]);
            Rows rows(loaded.ranks[r]);
            Rows const wanted = rows;
            rows.clear();
            MchLoadResult const done =
                MchCheckpoint::open(folder.path()).load("user", table, comm.rank(), state, rows.views());
            CHECK(rows == wanted);
            CHECK(done.saved == table_of(saved));
        });
        CHECK(buffers(loaded) == buffers(saved));
        save_world(folder.path(), saved);  // and is followed by a save of today
        CHECK(load_apart(folder.path(), saved) == right);
    }

    TEST_CASE("a missing file is missing, also for a rank that would not read it; each is named") {
        Folder const saved;
        std::filesystem::remove(saved.file(1));
        std::filesystem::remove(saved.file(3));
        check_error(saved.load(4), ErrorCode::io,
                    {"2 of the 4 files it names are missing: '" + saved.leaf(1) + "', '" + saved.leaf(3) + "'"});
    }

    TEST_CASE("a corrupt file is not an absent one") {
        Folder const saved;
        std::string const good = read_text(saved.file(1));
        auto const check = [&](ErrorCode code, std::vector<std::string> const& parts) {
            check_error(saved.load(), code, parts);
            World untouched = fresh_like(saved.world, 2);
            check_error(checkpoint_test::caught([&] {
                            MchCheckpoint::open(saved.path())
                                .load("user", table_of(untouched), 0, state_of(untouched.ranks[0]));
                        }),
                        code, parts);
            CHECK(buffers(untouched) == buffers(fresh_like(saved.world, 2)));
            write_text(saved.file(1), good);
        };
        write_text(saved.file(1), std::string_view(good).substr(0, good.size() - 1));
        check(ErrorCode::format, {"MetadataIncompleteBuffer", saved.leaf(1)});
        write_text(saved.file(1), "");
        check(ErrorCode::format, {"HeaderTooSmall", saved.leaf(1)});
        write_text(saved.file(1), "not what it was, but long enough");
        check(ErrorCode::format, {"HeaderTooLarge", saved.leaf(1)});
        write_text(saved.file(1), read_text(saved.file(2)));
        check(ErrorCode::format, {saved.leaf(1), "'mch.rank' is '2', the index says '1'"});
        Folder const other(4, 0xdef);
        write_text(saved.file(1), read_text(other.temporary / "mch-0000000000000def-00001-of-00004.safetensors"));
        check(ErrorCode::format, {"'mch.save' is '0000000000000def', the index says '0000000000000abc'"});
        rewrite(saved.file(1), [](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            if (spec.name == "user.slots") {
                spec.shape = Shape{22};
                bytes.resize(22 * 8);
            }
        });
        check(ErrorCode::format, {"tensor 'user.slots' has shape [22], but the shard has 23 slots"});
        rewrite(saved.file(1), [](TensorSpec& spec, std::vector<std::byte>&, Metadata&) {
            if (spec.name == "user.ids") spec.dtype = DType::f64;
        });
        check(ErrorCode::format, {"tensor 'user.ids' is F64 [23], other ranks have I64 [90] in all"});
        rewrite(saved.file(1), [](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            if (spec.name != "user.metadata.counts") return;
            spec.dtype = DType::i32;
            bytes.resize(23 * 4);
        });
        check(ErrorCode::format, {"tensor 'user.metadata.counts' is I32 [23], other ranks have I64 [90] in all"});
        rewrite(saved.file(1), [](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            if (spec.name != "user.rows.weights") return;
            spec.shape = Shape{23, 1};
            bytes.resize(23 * 4);
        });
        check(ErrorCode::format, {"tensor 'user.rows.weights' is F32 [23,1], other ranks have F32 [90,2] in all"});
        rewrite(saved.file(1), [](TensorSpec& spec, std::vector<std::byte>&, Metadata&) {
            if (spec.name == "user.rows.momentum") spec.name = "";
        });
        check(ErrorCode::format, {"it has no tensor 'user.rows.momentum'"});
        rewrite(saved.file(1), [](TensorSpec&, std::vector<std::byte>&, Metadata& metadata) {
            std::erase_if(metadata, [](auto const& item) { return item.first == "table.user"; });
        });
        check(ErrorCode::format, {"its metadata has no 'table.user'"});
        CHECK(saved.load().code == ErrorCode::none);
    }

    TEST_CASE("an index that is damaged, of another version, or has a gap in its ranks") {
        Folder const saved;
        std::string const good = read_text(saved.index());
        auto const check = [&](std::string const& from, std::string const& to, std::string const& part) {
            CAPTURE(from);
            Folder::edit(saved.index(), from, to);
            check_error(saved.load(), ErrorCode::format, {"mch.index.json: ", part});
            write_text(saved.index(), good);
        };
        check("{", "[", "not JSON");
        check("\"format\":\"reshard-mch\"", "\"format\":\"other\"", "'format' is not 'reshard-mch'");
        check("\"version\":2", "\"version\":3", "it is of version 3, this library reads 1 to 2");
        check("\"version\":2", "\"version\":1", "'crc32c' is there, which version 1 does not have");
        check("\"version\":2", "\"version\":\"2\"", "'version' is not an integer of 0 or more");
        check("\"save\":", "\"saved\":", "it has no 'save'");
        for (std::string const save : {"", "abc", "0000000000000ABC", "/../../victim/x\\u0000", "0000000000000ab/"}) {
            check("\"save\":\"0000000000000abc", "\"save\":\"" + save, "not 16 hexadecimal digits in lower case");
        }
        check("\"" + saved.leaf(2) + "\",", "", "'files' has a gap: of rank 0 of 3 it should have");
        check(saved.leaf(2), saved.leaf(3), "has a gap: of rank 2 of 4 it should have '" + saved.leaf(2) + "'");
        check(saved.leaf(2), "../" + saved.leaf(2), "has a gap: of rank 2");
        check("\"offsets\":[0,23", "\"offsets\":[23", "'tables.user' has 4 offsets for 4 ranks");
        check("\"offsets\":[0,23", "\"offsets\":[0,99", "has offsets that do not ascend from 0");
        check("\"ranks\":[0,1,2,3]", "\"ranks\":[0,1,2,4]", "is held by rank 4, but only 4 ranks saved");
        check("\"ranks\":[0,1,2,3]", "\"ranks\":[0,1,2,2]", "is no table: ");
        check("\"eviction\":\"lfu\"", "\"eviction\":\"fifo\"", "has the eviction policy 'fifo'");
        check("\"layout\":\"sorted\"", "\"layout\":\"heap\"", "has the layout 'heap'");
        check("9223372036854775807", "9223372036854775808", "'tables.user.hash_size' is 9223372036854775808, above");
        check("\"buckets\":4", "\"buckets\":-4", "'tables.user.buckets' is not an integer of 0 or more");
        check("\"buckets\":4", "\"buckets\":4,\"buckets\":4", "'buckets' is given twice");
        check("\"buckets\":4", "\"buckets\":3", "is no table: reshard::mch: table 'user': 3 buckets cannot be shared");
        check("\"dtype\":\"F32\"", "\"dtype\":\"F33\"", "has the dtype 'F33'");
        check("]]}", "],[0,0]]}", "'ids.user' has 5 entries for 4 shards");
        check("\"ids\":{\"user\":", "\"ids\":{\"item\":", "'ids' has no 'user'");
        write_text(saved.index(), "");
        check_error(saved.load(), ErrorCode::format, {"not JSON"});
        std::filesystem::remove(saved.index());
        check_error(saved.load(), ErrorCode::io, {"no checkpoint: looked for reshard.manifest.json"});
    }

    TEST_CASE("files of other saves and other numbers of ranks in the folder mean nothing") {
        Folder const saved(3);
        Folder const other(8);
        for (Index rank = 0; rank < 8; ++rank) {
            write_text(saved.temporary / ("x" + other.leaf(rank)), "");
            write_text(saved.temporary / other.leaf(rank), read_text(other.file(rank)));
        }
        write_text(saved.temporary / detail::mch_file_name(detail::hex_text(1, 16), 3, 3), "not even a file");
        CHECK(MchCheckpoint::open(saved.path()).ranks() == 3);
        CHECK(saved.load().code == ErrorCode::none);
    }

    TEST_CASE("zeros all over are a state that was never loaded") {
        Folder const saved;
        rewrite(saved.file(3), [](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            if (spec.name == "user.ids" || spec.name == "user.slots")
                std::fill(bytes.begin(), bytes.end(), std::byte{});
        });
        CHECK(saved.load(2).code == ErrorCode::none);  // rank 0 of 2 reads other slots
        check_error(saved.load(1), ErrorCode::mismatch,
                    {"table 'user': on rank 0: entries 0 to 21 of", saved.leaf(3), "were never loaded: all zeros"});
    }

    TEST_CASE("an id of INT64_MAX among others is none that a sorted table can have") {
        Folder const saved;
        rewrite(saved.file(0), [](TensorSpec& spec, std::vector<std::byte>& bytes, Metadata&) {
            if (spec.name == "user.ids") numbers(bytes)[4] = INT64_MAX;
        });
        check_error(saved.load(1), ErrorCode::format,
                    {saved.leaf(0), "the ids of table 'user' do not ascend: entry 5 is",
                     "behind 9223372036854775807, which marks an empty place"});
    }

    TEST_CASE("wrong bounds of ids never lose an id: they contradict themselves, the sum or the ids") {
        TempFolder const folder;
        World saved = trained(3, 300, 2, Policy::lfu);
        save_old(folder.path(), saved);
        std::vector<MchIdBounds> const bounds = MchCheckpoint::open(folder.path()).ids("user");
        std::string const index = folder / "mch.index.json";
        auto const refused = [&](std::string const& ids, std::string const& part) {
            CAPTURE(ids);
            std::string const good = read_text(index);
            std::string const bad = with_ids(good, ids);
            write_text(index, bad);
            auto error = checkpoint_test::caught([&] { load_apart(folder.path(), saved); });
            if (contains(bad, "crc32c")) {
                CHECK(contains(error.message, "'crc32c' is '"));
                CHECK(contains(error.message, "but the text before it has another sum"));
                write_text(index, sealed(bad));
                error = checkpoint_test::caught([&] { load_apart(folder.path(), saved); });
            }
            CAPTURE(error.message);
            CHECK(error.code == ErrorCode::format);
            CHECK(contains(error.message, part));
            CHECK(contains(error.message, "Fix: "));
            write_text(index, good);
        };
        std::string const zero = text_of_bounds(bounds[0]);
        std::string const one = text_of_bounds(bounds[1]);
        auto const parsed = [&] {
            refused(errors::concat("[[", bounds[0].live, ",0],", one, "]"), "contradicts itself");
            refused(errors::concat("[[3,4,5,6],", one, "]"), "contradicts itself");
            refused(errors::concat("[[3,3,5,6],", one, "]"), "contradicts itself");
            refused(errors::concat("[[3,0,6,5],", one, "]"), "contradicts itself");
            refused(errors::concat("[[151,0,5,6],", one, "]"), "has more ids than the shard has slots");
        };
        parsed();
        MchIdBounds wrong = bounds[0];
        wrong.live -= 1;
        refused(errors::concat("[", text_of_bounds(wrong), ",", one, "]"),
                errors::concat("; its text says ", wrong.live, ", "));
        make_version_1(folder);
        parsed();
        wrong = bounds[1];
        wrong.highest /= 10;  // a digit less
        wrong.lowest /= 10;
        refused(errors::concat("[", zero, ",", text_of_bounds(wrong), "]"),
                errors::concat("; its text says ", wrong.live, ", 0 and from ", wrong.lowest));
        refused("[[0,0],[0,0]]", "; its text says 0, 0 and ");
        refused(errors::concat("[", zero, ",[0,0]]"), errors::concat("has ", bounds[1].live, " ids, "));
    }
}
