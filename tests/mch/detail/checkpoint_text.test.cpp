// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/checkpoint_text.hpp: what an index says of ids is compared with them, and folders
// of version 1 load.
#include <reshard/mch/detail/checkpoint_text.hpp>

#include <doctest/doctest.h>

#include <mch/support/damaged.hpp>

#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using checkpoint_test::contains;
using checkpoint_test::read_text;
using checkpoint_test::TempFolder;
using checkpoint_test::write_text;

/// Three ranks read what is theirs: what they have then, or the first error.
std::vector<Ids> load_apart(std::string const& folder, World const& saved) {
    World loaded = fresh_like(saved, 3);
    for (std::size_t r = 0; r < 3; ++r) {
        static_cast<void>(MchCheckpoint::open(folder).load_redistributed(
            "user", table_of(loaded), static_cast<Index>(r), state_of(loaded.ranks[r]), {}, {},
            MchLoadOptions{.leave_rows = {"weights", "momentum"}}));
    }
    return buffers(loaded);
}
/// The text with the bounds of its ids changed.
std::string with_ids(std::string text, std::string const& ids) {
    auto const begin = text.find("\"ids\":{\"user\":") + 14;
    return text.replace(begin, text.find("]]", begin) + 2 - begin, ids);
}
std::string text_of_bounds(MchIdBounds const& one) {
    return concat("[", one.live, ",", one.negative, ",", one.lowest, ",", one.highest, "]");
}

}  // namespace

TEST_SUITE("mch/checkpoint_text") {
    TEST_CASE("names of files are those of saves, and no others") {
        std::string const good = detail::mch_file_name(detail::save_id_text(0xab), 3, 4);
        CHECK(good == "mch-00000000000000ab-00003-of-00004.safetensors");
        CHECK(detail::is_mch_file(good));
        CHECK(detail::is_mch_file(detail::mch_file_name(detail::save_id_text(~0ULL), 123456, 1234567)));
        for (std::string_view const bad :
             {"", "mch-", "mch.index.json", "mch-00000000000000aB-00003-of-00004.safetensors",
              "mch-0000000000000ab-00003-of-00004.safetensors", "mch-00000000000000ab-0003-of-00004.safetensors",
              "mch-00000000000000ab-00003-of-00004.safetensors2", "../mch-00000000000000ab-00003-of-00004.safetensors",
              "mch-/../../x/x-00003-of-00004.safetensors"}) {
            CAPTURE(bad);
            CHECK_FALSE(detail::is_mch_file(bad));
        }
    }

    TEST_CASE("a folder of version 1 loads: by position, by exchange and apart") {
        TempFolder const folder;
        World saved = trained(3, 300, 2, Policy::lfu, reshard::test::torchrec::Kind::any, 0.6);
        save_world(folder.path(), saved);
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
            MchLoaded const done =
                MchCheckpoint::open(folder.path()).load("user", table, comm.rank(), state, rows.views());
            CHECK(rows == wanted);
            CHECK(done.saved == table_of(saved));
        });
        CHECK(buffers(loaded) == buffers(saved));
        save_world(folder.path(), saved);  // and is followed by a save of today
        CHECK(load_apart(folder.path(), saved) == right);
    }

    TEST_CASE("wrong bounds of ids never lose an id: they contradict themselves, the sum or the ids") {
        TempFolder const folder;
        World saved = trained(3, 300, 2, Policy::lfu);
        save_world(folder.path(), saved);
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
            refused(concat("[[", bounds[0].live, ",0],", one, "]"), "contradicts itself");
            refused(concat("[[3,4,5,6],", one, "]"), "contradicts itself");
            refused(concat("[[3,3,5,6],", one, "]"), "contradicts itself");
            refused(concat("[[3,0,6,5],", one, "]"), "contradicts itself");
            refused(concat("[[151,0,5,6],", one, "]"), "has more ids than the shard has slots");
        };
        parsed();
        MchIdBounds wrong = bounds[0];
        wrong.live -= 1;
        refused(concat("[", text_of_bounds(wrong), ",", one, "]"), concat(" ids, the index says ", wrong.live));
        make_version_1(folder);
        parsed();
        wrong = bounds[1];
        wrong.highest /= 10;  // a digit less
        wrong.lowest /= 10;
        refused(concat("[", zero, ",", text_of_bounds(wrong), "]"),
                concat(", the index says 0 and from ", wrong.lowest));
        refused("[[0,0],[0,0]]", " ids, the index says 0");
        refused(concat("[", zero, ",[0,0]]"), concat("has ", bounds[1].live, " ids, the index says 0"));
    }
}
