// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/checkpoint.hpp>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <vector>

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>

#include "sharded_support.hpp"

using namespace checkpoint_test;

static_assert(std::is_nothrow_move_constructible_v<Checkpoint>);
static_assert(!std::is_copy_constructible_v<Checkpoint>);

namespace {

constexpr char const* index_leaf = "/model.safetensors.index.json";

void write_one(std::string const& path, std::vector<TensorSpec> const& list) {
    write_safetensors(path, list, fill_expected);
}

TensorSpec bytes(std::string text, Index count) { return {std::move(text), DType::u8, Shape{count}}; }

std::vector<std::string> names(Checkpoint const& checkpoint) {
    std::vector<std::string> list;
    for (auto const& tensor : checkpoint.tensors()) list.push_back(tensor.name);
    return list;
}

/// Two files whose names no parser would understand, and their index.
void write_two(TempFolder const& folder) {
    write_one(folder / "model.safetensors-00002-of-00002.safetensors", {bytes("a", 3), bytes("x", 5)});
    std::filesystem::create_directory(folder / "sub");
    write_one(folder / "sub/other", {bytes("c", 7), bytes("b", 2)});
    write_text(folder.path() + index_leaf, R"({"metadata":{"total_size":1e99,"x":[{"weight_map":1}]},"weight_map":{
        "c":"sub/other","a":"model.safetensors-00002-of-00002.safetensors","b":"sub/other"},"more":[[],{}]})");
}

}  // namespace

TEST_SUITE("checkpoint/checkpoint") {
    TEST_CASE("what a checkpoint returns that is about to go stays") {
        TempFolder const folder;
        write_safetensors(folder / "model.safetensors", {{"a", DType::u8, Shape{3}}, {"b", DType::u8, Shape{2}}},
                          fill_expected);
        auto const open = [&] { return Checkpoint::open(folder.path()); };
        std::string names;
        for (StoredTensor const& tensor : open().manifest().tensors) names += tensor.name;
        for (CheckpointTensor const& tensor : open().tensors()) names += tensor.name;
        for (SafetensorsFile const& file : open().files()) names += file.tensors()[0].name;
        for (TensorInfo const& tensor : SafetensorsFile::open(folder / "model.safetensors").tensors())
            names += tensor.name;
        for (auto const& [key, value] : SafetensorsFile::open(folder / "model.safetensors").metadata()) names += value;
        for (StoredTensor const& tensor : Catalogue(open()).tensors()) names += tensor.name;
        for (Extent const& extent : Catalogue(open()).extents()) names += std::to_string(extent.begin);
        CheckpointTensor const& tensor = open().at("b");
        std::string const& place = open().folder();
        CHECK(names == "ababaabptab03");
        CHECK(tensor.shape == DynamicShape(Shape{2}));
        CHECK(place == folder.path());
    }

    TEST_CASE("a file, a folder with one file and a folder with model.safetensors are the same checkpoint") {
        TempFolder const folder;
        write_one(folder / "anything.safetensors", {bytes("a", 3)});
        CHECK(names(Checkpoint::open(folder / "anything.safetensors")) == std::vector<std::string>{"a"});
        CHECK(names(Checkpoint::open(folder.path())) == std::vector<std::string>{"a"});
        CHECK(names(Checkpoint::open(folder.path() + "/")) == std::vector<std::string>{"a"});
        write_one(folder / "model.safetensors", {bytes("b", 3)});
        CHECK(names(Checkpoint::open(folder.path())) == std::vector<std::string>{"b"});
    }

    TEST_CASE("an index decides which files and tensors there are, whatever the files are called") {
        TempFolder const folder;
        write_two(folder);
        for (std::string const& path : {folder.path(), folder.path() + index_leaf}) {
            for (Access const access : {Access::pread, Access::mmap}) {
                auto const checkpoint = Checkpoint::open(path, access);
                REQUIRE(checkpoint.files().size() == 2);
                CHECK(names(checkpoint) == std::vector<std::string>{"a", "b", "c"});  // 'x' is not in the index
                CHECK(checkpoint.total_bytes() == 12);
                CHECK(checkpoint.at("a").file == 0);
                CHECK(checkpoint.at("c").file == 1);
                CHECK(checkpoint.file_of(checkpoint.at("c")).path() == folder / "sub/other");
                CHECK(checkpoint.find("x") == nullptr);
                check_rule(SafetensorsRule::tensor_not_found, [&] { (void)checkpoint.at("x"); });
                for (auto const& tensor : checkpoint.tensors()) {
                    std::vector<std::byte> all(static_cast<std::size_t>(tensor.bytes()));
                    checkpoint.read(tensor, all);
                    CHECK(holds_expected(tensor, 0, all));
                    std::vector<std::byte> part(1);
                    checkpoint.read_range(tensor, 1, 2, part);
                    CHECK(holds_expected(tensor, 1, part));
                    if (access == Access::mmap) {
                        CHECK(*checkpoint.view(tensor).data() == all[0]);
                    } else {
                        CHECK(caught([&] { (void)checkpoint.view(tensor); }).code == ErrorCode::buffer);
                    }
                }
            }
        }
    }

    TEST_CASE("tensors are ordered by file and position") {
        TempFolder const folder;
        write_one(folder / "2.safetensors", {{"z", DType::f64, {}}, {"a", DType::u8, {}}});
        write_one(folder / "1.safetensors", {{"m", DType::u8, {}}});
        write_text(folder.path() + index_leaf,
                   R"({"weight_map":{"a":"2.safetensors","m":"1.safetensors","z":"2.safetensors"}})");
        CHECK(names(Checkpoint::open(folder.path())) == std::vector<std::string>{"m", "z", "a"});
    }

    TEST_CASE("a path relative to the working folder works") {
        TempFolder const folder;
        write_two(folder);
        auto const before = std::filesystem::current_path();
        std::filesystem::current_path(folder.path());
        CHECK(Checkpoint::open(".").tensors().size() == 3);
        CHECK(Checkpoint::open("model.safetensors.index.json").tensors().size() == 3);
        CHECK(Checkpoint::open("sub/other").tensors().size() == 2);
        std::filesystem::current_path(before);
    }

    TEST_CASE("an index that is not one is refused by name") {
        struct Row {
            SafetensorsRule rule;
            std::string_view json;
        };
        auto const bad = SafetensorsRule::invalid_index;
        Row const rows[] = {
            {bad, ""},
            {bad, "[]"},
            {bad, "null"},
            {bad, "{}"},
            {bad, "{\"weight_map\":{\"a\":\"\xff\"}}"},
            {bad, R"({"metadata":{"weight_map":{}}})"},
            {bad, R"({"weight_map":null})"},
            {bad, R"({"weight_map":[]})"},
            {bad, R"({"weight_map":"a"})"},
            {bad, R"({"weight_map":{"a":1}})"},
            {bad, R"({"weight_map":{"a":null}})"},
            {bad, R"({"weight_map":{"a":["f"]}})"},
            {bad, R"({"weight_map":{"a":{}}})"},
            {bad, R"({"weight_map":{"a":""}})"},
            {bad, R"({"weight_map":{"a":"/etc/passwd"}})"},
            {bad, R"({"weight_map":{"a":"../f"}})"},
            {bad, R"({"weight_map":{"a":"sub/../../f"}})"},
            {bad, R"({"weight_map":{"a":".."}})"},
            {bad, R"({"weight_map":{"a":"sub/"}})"},
            {bad, R"({"weight_map":{"a":"f\u0000g"}})"},
            {bad, R"({"weight_map":{"a":"f"}} x)"},
            {SafetensorsRule::duplicate_key, R"({"weight_map":{"a":"f","a":"f"}})"},
            {SafetensorsRule::duplicate_key, R"({"weight_map":{},"weight_map":{}})"},
        };
        TempFolder const folder;
        write_one(folder / "f", {bytes("a", 1)});
        for (Row const& row : rows) {
            CAPTURE(std::string(row.json));
            write_text(folder.path() + index_leaf, row.json);
            check_rule(row.rule, [&] { (void)Checkpoint::open(folder.path()); });
        }
        write_text(folder.path() + index_leaf, R"({"weight_map":{"a":"./f"}})");
        CHECK(Checkpoint::open(folder.path()).tensors().size() == 1);
        write_text(folder.path() + index_leaf, R"({"weight_map":{"a..b":"f"}})");
        check_rule(SafetensorsRule::tensor_not_found, [&] { (void)Checkpoint::open(folder.path()); });
    }

    TEST_CASE("tensors that the index does not name are counted") {
        TempFolder const folder;
        write_two(folder);
        auto const files = Checkpoint::open(folder.path()).manifest().files;
        REQUIRE(files.size() == 2);
        CHECK(files[0].unlisted == 1);
        CHECK(files[1].unlisted == 0);
        CHECK(
            reshard::detail::unlisted_text(reshard::detail::with_unlisted(files)) ==
            "note: the index does not name 1 tensor of 'model.safetensors-00002-of-00002.safetensors': no part of the "
            "checkpoint\n");
        CHECK(reshard::detail::unlisted_text(reshard::detail::with_unlisted({})).empty());
    }

    TEST_CASE("missing files are all named at once") {
        TempFolder const folder;
        write_one(folder / "f", {bytes("a", 1)});
        write_text(folder.path() + index_leaf, R"({"weight_map":{"a":"f","b":"g","c":"h","d":"g"}})");
        check_io("2 of the 3 files it names are missing: 'g', 'h'", [&] { (void)Checkpoint::open(folder.path()); });
        CHECK(caught([&] { (void)Checkpoint::open(folder.path()); }).rule == SafetensorsRule::missing_files);
    }

    TEST_CASE("a folder without a checkpoint says what was looked for") {
        TempFolder const folder;
        auto const looked = [&](std::string_view found) {
            check_io(found, [&] { (void)Checkpoint::open(folder.path()); });
            check_io(
                "looked for reshard.manifest.json, model.safetensors.index.json, model.safetensors or exactly one "
                "whole *.safetensors",
                [&] { (void)Checkpoint::open(folder.path()); });
        };
        looked("found 0 *.safetensors.");
        write_one(folder / "a.safetensors", {});
        write_one(folder / "b.safetensors", {});
        write_text(folder / ".c.safetensors", "hidden");
        looked("found 2 *.safetensors (a.safetensors, b.safetensors). Fix: add the index");
        std::string const index = folder / "diffusion_pytorch_model.safetensors.index.json";
        write_text(index, R"({"weight_map":{}})");
        looked("Fix: name the index, " + index + ", in place of the folder. Pickles");
        check_io("cannot open the checkpoint: No such file", [&] { (void)Checkpoint::open(folder / "absent"); });
    }

    TEST_CASE("a folder of torch.distributed.checkpoint's own format is told apart") {
        for (char const* const leaf : {".metadata", "__0_0.distcp"}) {
            TempFolder const folder;
            write_text(folder / leaf, "pickled");
            check_io("save with its HuggingFaceStorageWriter", [&] { (void)Checkpoint::open(folder.path()); });
            write_one(folder / "a.safetensors", {bytes("a", 1)});
            CHECK(Checkpoint::open(folder.path()).tensors().size() == 1);
        }
    }

    TEST_CASE("one file of several does not pass for the whole") {
        TempFolder const folder;
        std::string const part = folder / "model-00001-of-00002.safetensors";
        write_one(part, {bytes("a", 1)});
        check_io("found 1 *.safetensors", [&] { (void)Checkpoint::open(folder.path()); });
        CHECK(Checkpoint::open(part).tensors().size() == 1);  // who names it means it
        for (char const* const whole : {"model-00001-of-00001.safetensors", "state-of-art.safetensors",
                                        "a-of-7.safetensors", "1-of-2x.safetensors"}) {
            CAPTURE(whole);
            TempFolder const other;
            write_one(other / whole, {bytes("a", 1)});
            CHECK(Checkpoint::open(other.path()).tensors().size() == 1);
        }
    }

    TEST_CASE("links are followed wherever they lead, as those of the Hub's cache; one that leads nowhere is missing") {
        TempFolder const cache;
        std::filesystem::create_directories(cache / "blobs");
        std::filesystem::create_directories(cache / "snapshots/main");
        write_one(cache / "blobs/1a", {bytes("a", 3)});
        write_one(cache / "blobs/2b", {bytes("b", 2)});
        write_text(cache / "blobs/3c", R"({"weight_map":{"a":"f.safetensors","b":"g.safetensors"}})");
        std::string const snapshot = cache / "snapshots/main";
        std::filesystem::create_symlink("../../blobs/1a", snapshot + "/f.safetensors");
        std::filesystem::create_symlink("../../blobs/2b", snapshot + "/g.safetensors");
        std::filesystem::create_symlink("../../blobs/3c", snapshot + index_leaf);
        std::filesystem::create_directory_symlink("snapshots/main", cache / "latest");
        for (std::string const& path : {snapshot, cache / "latest", snapshot + index_leaf})
            CHECK(names(Checkpoint::open(path)) == std::vector<std::string>{"a", "b"});
        std::filesystem::remove(cache / "blobs/2b");
        CHECK(caught([&] { (void)Checkpoint::open(snapshot); }).rule == SafetensorsRule::missing_files);
    }

    TEST_CASE("one shard that is named by its path does not pass for all of them") {
        for (Described const how : {Described::by_manifest, Described::by_shards}) {
            TempFolder const folder;
            Saved saved{{"w", DType::f32, Shape{4, 2}}, 1, {}};
            for (int f = 0; f < 2; ++f) saved.parts.push_back({0, f, Box{{2 * f, 2 * f + 2}, {0, 2}}});
            for (CheckpointFile const& file : write_sharded(folder.path(), {saved}, 2, how).files) {
                Caught const error = caught([&] { (void)Checkpoint::open(folder / file.leaf); });
                CHECK(error.code == ErrorCode::io);  // it may be sound
                CHECK(contains(error.message,
                               folder / file.leaf + ": no checkpoint: it is one of the files of a checkpoint"));
                CHECK(contains(error.message, "Fix: name the folder"));
                CHECK(SafetensorsFile::open(folder / file.leaf).tensors().size() == 1);  // a file is one
            }
            CHECK(Checkpoint::open(folder.path()).manifest().tensors.size() == 1);
        }
    }

    TEST_CASE("an index beside a model.safetensors it does not name is ambiguous") {
        TempFolder const folder;
        write_two(folder);
        write_one(folder / "model.safetensors", {bytes("other", 1)});
        check_rule(SafetensorsRule::invalid_index, [&] { (void)Checkpoint::open(folder.path()); });
        CHECK(Checkpoint::open(folder.path() + index_leaf).tensors().size() == 3);
        CHECK(Checkpoint::open(folder / "model.safetensors").tensors().size() == 1);
        write_text(folder.path() + index_leaf, R"({"weight_map":{"other":"model.safetensors"}})");
        CHECK(Checkpoint::open(folder.path()).tensors().size() == 1);
    }

    TEST_CASE("a bad file among good ones is named") {
        TempFolder const folder;
        write_two(folder);
        write_text(folder / "sub/other", safetensors_text("{}", 1));
        auto const error = caught([&] { (void)Checkpoint::open(folder.path()); });
        CHECK(error.rule == SafetensorsRule::metadata_incomplete_buffer);
        CHECK(contains(error.message, "sub/other"));
    }

    TEST_CASE("a tensor of another checkpoint is refused") {
        TempFolder const folder;
        write_two(folder);
        auto const checkpoint = Checkpoint::open(folder.path());
        CheckpointTensor stranger = checkpoint.at("a");
        std::vector<std::byte> out(3);
        for (int const file : {-1, 2}) {
            stranger.file = file;
            CHECK(caught([&] { checkpoint.read(stranger, out); }).code == ErrorCode::buffer);
        }
    }
}
