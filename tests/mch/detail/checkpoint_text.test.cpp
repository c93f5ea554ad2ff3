// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/checkpoint_text.hpp: what a table's text says of ids is compared with them.
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

/// The manifest with the bounds of ids changed.
std::string with_ids(std::string const& path, std::string const& ids) {
    Manifest manifest = manifest_in(path);
    std::string& text = manifest.metadata.at(0).second;
    auto const begin = text.find("\"ids\":") + 6;
    text.replace(begin, text.find("]]", begin) + 2 - begin, ids);
    return to_json(manifest);
}

}  // namespace

TEST_SUITE("mch/checkpoint_text") {
    TEST_CASE("a table is read from the text that it was written as") {
        for (std::uint64_t const seed : {1U, 2U, 3U}) {
            World const world = trained(seed, 97, 4, Policy::distance_lfu, reshard::test::torchrec::Kind::any);
            detail::MchSavedTable saved;
            saved.table = table_of(world);
            saved.table.name = "a.\"b\"\n";
            saved.table.hash_function = "murmur \\ 3";
            saved.iteration = 77;
            saved.rows = {{"w", DType::bf16, {3, 4}}, {"m", DType::f64, {}}};
            for (Module const& module : world.ranks) saved.ids.push_back(id_bounds(MchLayout::sorted, module.raw));
            Metadata const metadata{{"mch.table." + saved.table.name, detail::table_text(saved)}, {"other", "{"}};
            auto const tables = detail::tables_from(metadata, "m");
            REQUIRE(tables.size() == 1);
            CHECK(tables[0].table == saved.table);
            CHECK(tables[0].iteration == 77);
            CHECK(tables[0].rows == saved.rows);
            CHECK(tables[0].ids == saved.ids);
            CHECK(detail::table_text(tables[0]) == detail::table_text(saved));
        }
    }

    TEST_CASE("wrong bounds of ids never lose an id: they contradict themselves, the sum or the ids") {
        TempFolder const folder;
        World saved = trained(3, 300, 2, Policy::lfu);
        save_world(folder.path(), saved);
        std::vector<MchIdBounds> const bounds = MchCheckpoint::open(folder.path()).ids("user");
        std::string const index = folder / "reshard.manifest.json";
        auto const refused = [&](std::string const& ids, std::string const& part) {
            CAPTURE(ids);
            std::string const good = read_text(index);
            write_text(index, with_ids(folder.path(), ids));
            auto const error = checkpoint_test::caught([&] { load_apart(folder.path(), saved); });
            CAPTURE(error.message);
            CHECK(error.code == ErrorCode::format);
            CHECK(contains(error.message, part));
            CHECK(contains(error.message, "Fix: "));
            write_text(index, good);
        };
        std::string const one = text_of_bounds(bounds[1]);
        refused(errors::concat("[[", bounds[0].live, ",0],", one, "]"), "contradicts itself");
        refused(errors::concat("[[3,4,5,6],", one, "]"), "contradicts itself");
        refused(errors::concat("[[3,3,5,6],", one, "]"), "contradicts itself");
        refused(errors::concat("[[3,0,6,5],", one, "]"), "contradicts itself");
        refused(errors::concat("[[151,0,5,6],", one, "]"), "has more ids than the shard has slots");
        refused(errors::concat("[", one, "]"), "has 1 entries for 2 shards");
        MchIdBounds wrong = bounds[0];
        wrong.live -= 1;
        refused(errors::concat("[", text_of_bounds(wrong), ",", one, "]"),
                errors::concat("; its text says ", wrong.live, ", "));
    }
}
