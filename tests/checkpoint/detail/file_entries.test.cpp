// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/detail/file_entries.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/safetensors_layout.hpp>

#include "../manifest_support.hpp"

#include <string>
#include <vector>

using namespace checkpoint_test;
using reshard::detail::dcp_header;
using reshard::detail::dcp_manifest;
using reshard::detail::dcp_name;

namespace {

struct Piece {
    std::string key;
    DType dtype = DType::f32;
    Box box;
    std::string tensor{};  ///< when it is not the key
};

Metadata sharding_info(std::vector<Piece> const& pieces) {
    std::string info = "{";
    for (Piece const& piece : pieces) {
        info += errors::concat(info.size() > 1 ? "," : "", "\"", piece.key, "\":{\"saved_offsets\":[");
        for (int d = 0; d < piece.box.rank(); ++d) info += errors::concat(d == 0 ? "" : ",", piece.box.begin(d));
        info += piece.tensor.empty() ? std::string("]}") : errors::concat("],\"logical_fqn\":\"", piece.tensor, "\"}");
    }
    return {{"DCP_SHARDING_INFO", info + "}"}, {"DCP_VERSION", "1.0"}, {"format", "pt"}};
}

SafetensorsHeader header_of(std::vector<Piece> const& pieces, Metadata metadata) {
    std::vector<TensorSpec> specs;
    for (Piece const& piece : pieces) specs.push_back({piece.key, piece.dtype, piece.box.shape()});
    SafetensorsLayout const layout = safetensors_layout(specs, std::move(metadata));
    std::string const file = layout.start + std::string(static_cast<std::size_t>(layout.data_bytes), 'x');
    return parse_header(file, static_cast<Index>(file.size()));
}

std::string shard_name(int shard, int file = 1, int files = 1) {
    auto const five = [](int number) {
        return std::string(5 - std::to_string(number).size(), '0') + std::to_string(number);
    };
    return errors::concat("shard-", five(shard), "-model-", five(file), "-of-", five(files), ".safetensors");
}

Manifest shard(std::string const& leaf, std::vector<Piece> const& pieces) {
    return dcp_header({leaf, 1000, 7, -1}, header_of(pieces, sharding_info(pieces)), leaf);
}

/// Rows of w in three files, a bias that everybody has, a scalar of the first.
std::vector<Manifest> example() {
    return {shard(shard_name(1),
                  {{"w", DType::bf16, {{0, 2}, {0, 3}}}, {"step", DType::i64, {}}, {"b", DType::f32, {{0, 3}}}}),
            shard(shard_name(2), {{"w", DType::bf16, {{2, 4}, {0, 3}}}, {"b", DType::f32, {{0, 3}}}}),
            shard(shard_name(3), {{"w", DType::bf16, {{4, 5}, {0, 3}}}, {"b", DType::f32, {{0, 3}}}})};
}

void check_refused(std::vector<Manifest> const& files, std::vector<std::string> const& parts) {
    Caught const error = caught([&] { static_cast<void>(dcp_manifest(files, "the/folder")); });
    CAPTURE(error.message);
    CHECK(error.code == ErrorCode::format);
    CHECK(contains(error.message, "the/folder: "));
    CHECK(contains(error.message, "Fix: "));
    for (std::string const& part : parts) {
        CAPTURE(part);
        CHECK(contains(error.message, part));
    }
}

}  // namespace

TEST_SUITE("checkpoint/detail/file_entries") {
    TEST_CASE("shards become one checkpoint: tensors reach as far as their boxes, replicas come from the lowest rank") {
        Manifest const m = dcp_manifest(example(), "f");
        CHECK(m.save.empty());
        CHECK(m.world_size == 3);
        REQUIRE(m.files.size() == 3);
        CHECK(m.files[2] == CheckpointFile{shard_name(3), 1000, 7, 2});
        CHECK(m.tensors == std::vector<StoredTensor>{{"b", DType::f32, DynamicShape(Indices{3}), 1, ""},
                                                     {"step", DType::i64, DynamicShape(Indices{}), 1, ""},
                                                     {"w", DType::bf16, DynamicShape(Indices{5, 3}), 1, ""}});
        CHECK(m.extents == std::vector<Extent>{{1, 0, 0, 0, Box{}},
                                               {0, 0, 0, 8, Box{{0, 3}}},
                                               {2, 0, 0, 20, Box{{0, 2}, {0, 3}}},
                                               {2, 0, 1, 12, Box{{2, 4}, {0, 3}}},
                                               {2, 0, 2, 12, Box{{4, 5}, {0, 3}}}});
        auto files = example();
        std::swap(files[0], files[2]);  // the order in which files are listed does not matter
        Manifest const other = dcp_manifest(files, "f");
        CHECK(other.tensors == m.tensors);
        for (Extent const& extent : other.extents)
            if (extent.tensor == 0) CHECK(other.files[static_cast<std::size_t>(extent.file)].writer == 0);
    }

    TEST_CASE("headers that PyTorch 2.15 wrote on four ranks are put together") {
        // A mesh of 2 x 2: rows (R, S0) of [7,5], grid (S0, S1) of [6,8], both (S0, S0) of [22], repl (R, R), and two
        // tensors that are no DTensor.
        struct Written {
            std::string json;
            Index data_bytes;
        };
        std::vector<Written> const written{
            {R"json({"__metadata__":{"DCP_SHARDING_INFO":"{\"rows\": {\"saved_offsets\": [0, 0]}, \"grid\": {\"saved_offsets\": [0, 0]}, \"both\": {\"saved_offsets\": [0]}}","DCP_VERSION":"1.0","format":"pt"},)json"
             R"json("rows":{"dtype":"F32","shape":[4,5],"data_offsets":[0,80]},)json"
             R"json("grid":{"dtype":"I32","shape":[3,4],"data_offsets":[80,128]},)json"
             R"json("both":{"dtype":"BF16","shape":[6],"data_offsets":[128,140]}})json",
             140},
            {R"json({"__metadata__":{"format":"pt","DCP_SHARDING_INFO":"{\"grid\": {\"saved_offsets\": [0, 4]}, \"both\": {\"saved_offsets\": [6]}, \"repl\": {\"saved_offsets\": [0]}}","DCP_VERSION":"1.0"},)json"
             R"json("repl":{"dtype":"F64","shape":[6],"data_offsets":[0,48]},)json"
             R"json("grid":{"dtype":"I32","shape":[3,4],"data_offsets":[48,96]},)json"
             R"json("both":{"dtype":"BF16","shape":[5],"data_offsets":[96,106]}})json",
             106},
            {R"json({"__metadata__":{"DCP_SHARDING_INFO":"{\"grid\": {\"saved_offsets\": [3, 0]}, \"both\": {\"saved_offsets\": [11]}, \"plain\": {\"saved_offsets\": [0]}}","DCP_VERSION":"1.0","format":"pt"},)json"
             R"json("plain":{"dtype":"I64","shape":[4],"data_offsets":[0,32]},)json"
             R"json("grid":{"dtype":"I32","shape":[3,4],"data_offsets":[32,80]},)json"
             R"json("both":{"dtype":"BF16","shape":[6],"data_offsets":[80,92]}})json",
             92},
            {R"json({"__metadata__":{"DCP_VERSION":"1.0","format":"pt","DCP_SHARDING_INFO":"{\"rows\": {\"saved_offsets\": [4, 0]}, \"grid\": {\"saved_offsets\": [3, 4]}, \"both\": {\"saved_offsets\": [17]}, \"scalar\": {\"saved_offsets\": []}}"},)json"
             R"json("rows":{"dtype":"F32","shape":[3,5],"data_offsets":[0,60]},)json"
             R"json("scalar":{"dtype":"F32","shape":[],"data_offsets":[60,64]},)json"
             R"json("grid":{"dtype":"I32","shape":[3,4],"data_offsets":[64,112]},)json"
             R"json("both":{"dtype":"BF16","shape":[5],"data_offsets":[112,122]}})json",
             122}};
        std::vector<Manifest> files;
        for (Written const& one : written) {
            std::string const leaf = shard_name(static_cast<int>(files.size()) + 1);
            Index const bytes = 8 + static_cast<Index>(one.json.size()) + one.data_bytes;
            SafetensorsHeader const header = parse_safetensors_json(one.json, bytes, leaf);
            files.push_back(dcp_header({leaf, bytes, 0, -1}, header, leaf));
        }
        Manifest const m = dcp_manifest(files, "f");
        CHECK(m.world_size == 4);
        CHECK(m.tensors == std::vector<StoredTensor>{{"both", DType::bf16, DynamicShape(Indices{22}), 1, ""},
                                                     {"grid", DType::i32, DynamicShape(Indices{6, 8}), 1, ""},
                                                     {"plain", DType::i64, DynamicShape(Indices{4}), 1, ""},
                                                     {"repl", DType::f64, DynamicShape(Indices{6}), 1, ""},
                                                     {"rows", DType::f32, DynamicShape(Indices{7, 5}), 1, ""},
                                                     {"scalar", DType::f32, DynamicShape(Indices{}), 1, ""}});
        CHECK(m.extents.size() == 13);
        CHECK(m.extents.back() == Extent{0, 0, 3, 112, Box{{17, 22}}});
    }

    TEST_CASE("several boxes of a tensor in one file go by their logical name") {
        Manifest const m = dcp_manifest(
            std::vector<Manifest>{shard(shard_name(1), {{"w", DType::u8, {{0, 2}}}, {"w.1", DType::u8, {{4, 6}}, "w"}}),
                                  shard(shard_name(2), {{"w", DType::u8, {{2, 4}}}})},
            "f");
        CHECK(m.tensors.size() == 1);
        CHECK(m.tensors[0].shape == DynamicShape(Indices{6}));
        CHECK(m.extents == std::vector<Extent>{
                               {0, 0, 0, 0, Box{{0, 2}}}, {0, 0, 0, 2, Box{{4, 6}}, "w.1"}, {0, 0, 1, 0, Box{{2, 4}}}});
    }

    TEST_CASE("files without sharding info hold whole tensors, names of other forms say nothing") {
        std::vector<Piece> const pieces{{"w", DType::f32, {{0, 4}}}};
        SafetensorsHeader const plain = header_of(pieces, default_metadata());
        CheckpointFile const any{"any.safetensors", 40, 0, -1};
        CHECK(dcp_header(any, plain, "f").extents[0].box == Box{{0, 4}});
        Manifest const m = dcp_manifest({dcp_header(any, plain, "f")}, "f");
        CHECK(m.world_size == 0);
        CHECK(m.files[0].writer == -1);
        CHECK(dcp_manifest({}, "f") == Manifest{});
    }

    TEST_CASE("names are read as PyTorch writes them") {
        CHECK(dcp_name(shard_name(12, 3, 45)).shard == 12);
        CHECK(dcp_name(shard_name(12, 3, 45)).files == 45);
        CHECK(dcp_name("shard-100000-model-00001-of-00001.safetensors").shard == 100'000);
        for (char const* const other :
             {"", "shard-", "model-00001-of-00002.safetensors", "shard-00001-of-00004.0123456789abcdef.safetensors",
              "shard-00001-model-00001-of-00001.safetensors.tmp", "shard-00001-model-00001-of-00000.safetensors",
              "shard-0000000001-model-00001-of-00001.safetensors", "shard--model--of-.safetensors"}) {
            CAPTURE(other);
            CHECK(dcp_name(other).shard == 0);
        }
    }

    TEST_CASE("a file that is not there is found: by its number, or by the hole it leaves") {
        auto files = example();
        files.erase(files.begin());
        check_refused(files, {"shard 1 of at least 3 is missing", "rank 0", "consolidate"});
        files = example();
        files.erase(files.begin() + 1);
        check_refused(files, {"shard 2 of at least 3 is missing", "'shard-00003-model-00001-of-00001.safetensors'"});
        files = example();
        for (Manifest& file : files) file.files[0].leaf = "renamed-" + file.files[0].leaf;
        files.erase(files.begin() + 1);
        check_refused(files, {"tensor 'w', replica 0: box [2:4,0:3] is missing", "files of all ranks"});
        // Ranks that write several files need not have each.
        files = {shard(shard_name(1, 1, 2), {{"a", DType::f32, {{0, 1}}}}),
                 shard(shard_name(1, 2, 2), {{"b", DType::f32, {{0, 1}}}}),
                 shard(shard_name(2, 2, 2), {{"b", DType::f32, {{1, 2}}}})};
        CHECK(dcp_manifest(files, "f").extents.size() == 3);
        files.push_back(shard(shard_name(3, 1, 3), {{"b", DType::f32, {{2, 3}}}}));
        check_refused(files, {"of 2 per rank", "shard-00003-model-00001-of-00003", "of 3", "different saves"});
    }

    TEST_CASE("files of an older save are found: by boxes that overlap or tensors that differ") {
        auto files = example();
        files.push_back(shard(shard_name(4), {{"w", DType::bf16, {{4, 6}, {0, 3}}}}));
        check_refused(files, {"tensor 'w', replica 0: box [4:5,0:3] is held more than once", "shard-00003",
                              "shard-00004", "one save only"});
        files = example();
        files.push_back(shard(shard_name(4), {{"w", DType::f32, {{5, 6}, {0, 3}}}}));
        check_refused(files, {"tensor 'w' is BF16 of 2 dimensions in 'shard-00001", "and F32 of 2 in 'shard-00004"});
        files = example();
        files.push_back(shard(shard_name(4), {{"w", DType::bf16, {{5, 6}}}}));
        check_refused(files, {"tensor 'w' is BF16 of 1 dimensions in 'shard-00004", "and BF16 of 2 in 'shard-00001"});
    }

    TEST_CASE("numbers that make no sense are refused") {
        auto const entries = [](std::string const& info, std::vector<Piece> const& pieces) {
            return caught([&] {
                static_cast<void>(dcp_header({}, header_of(pieces, {{"DCP_SHARDING_INFO", info}}), "the/file"));
            });
        };
        std::vector<Piece> const pieces{{"w", DType::f32, {{0, 4}}}};
        struct Case {
            char const* info;
            char const* part;
        };
        for (Case const& c : std::vector<Case>{
                 {"", "not JSON"},
                 {"[]", "'DCP_SHARDING_INFO' is not an object"},
                 {"{}", "DCP_SHARDING_INFO does not say where tensor 'w' lies"},
                 {R"({"v":{"saved_offsets":[0]}})", "does not say where tensor 'w' lies"},
                 {R"({"w":{}})", "'DCP_SHARDING_INFO.w' has no 'saved_offsets'"},
                 {R"({"w":{"saved_offsets":0}})", "'DCP_SHARDING_INFO.w.saved_offsets' is not a list"},
                 {R"({"w":{"saved_offsets":[-1]}})", "saved_offsets[0]' is not an integer of 0 or more"},
                 {R"({"w":{"saved_offsets":[0,0]}})", "'DCP_SHARDING_INFO.w' has 2 saved_offsets for the shape [4]"},
                 {R"({"w":{"saved_offsets":[9223372036854775804]}})", "beyond 2^63 - 1"},
                 {R"({"w":{"saved_offsets":[0],"logical_fqn":7}})", "logical_fqn' is not text"},
                 {R"({"w":{"saved_offsets":[0]},"w":{"saved_offsets":[0]}})", "'w' is given twice"},
             }) {
            CAPTURE(c.info);
            Caught const error = entries(c.info, pieces);
            CAPTURE(error.message);
            CHECK(error.code == ErrorCode::format);
            CHECK(contains(error.message, "the/file"));
            CHECK(contains(error.message, "Fix: "));
            CHECK(contains(error.message, c.part));
        }
        CHECK(entries(R"({"w":{"saved_offsets":[9223372036854775803]}})", pieces).code == ErrorCode::none);
        // What the file does not have is no concern of its reader's, as PyTorch sees it.
        CHECK(entries(R"({"v":{"saved_offsets":[9]},"w":{"saved_offsets":[0]}})", pieces).code == ErrorCode::none);
        // Each file is sound, together they are too large.
        Index const far = INT64_MAX / 64;  // bits are counted
        check_refused({shard(shard_name(1), {{"w", DType::f64, {{far, far + 1}}}})}, {"'w'", "64-bit"});
        check_refused({shard(shard_name(1), {{"w", DType::f64, {{far - 1, far}}}})}, {"'w'", "box [0:", "is missing"});
        check_refused(
            {shard(shard_name(1), {{"w", DType::f4, {{0, 2}}}}), shard(shard_name(2), {{"w", DType::f4, {{2, 4}}}})},
            {"tensor 'w' is cut, but F4"});
    }

    TEST_CASE("any tensor cut at random is found whole again") {
        for (std::uint64_t const seed : reshard::test::seeds(200)) {
            CAPTURE(seed);
            reshard::test::Random random(seed, {.max_dims = 4, .max_extent = 9, .max_elements = 400});
            int const ranks = static_cast<int>(random.between(1, 5));
            std::vector<std::vector<Piece>> pieces(static_cast<std::size_t>(ranks));
            std::vector<DynamicShape> shapes;
            for (int t = 0; t < 4; ++t) {
                shapes.push_back(random.shape());
                int number = 0;
                for (Box const& box : guillotine(random, Box(shapes.back()), 6)) {
                    std::string const key = number == 0 ? errors::concat("t", t) : errors::concat("t", t, "/", number);
                    Piece const piece{key, DType::u16, box, number++ == 0 ? "" : errors::concat("t", t)};
                    auto const owner = static_cast<std::size_t>(random.between(0, ranks - 1));
                    pieces[owner].push_back(piece);
                    auto const also = static_cast<std::size_t>(random.between(0, ranks - 1));
                    if (also != owner) pieces[also].push_back(piece);
                }
            }
            std::vector<Manifest> files;
            for (int r = 0; r < ranks; ++r)
                files.push_back(shard(shard_name(r + 1), pieces[static_cast<std::size_t>(r)]));
            Manifest const m = dcp_manifest(files, "f");
            REQUIRE(m.tensors.size() == 4);
            for (std::size_t t = 0; t < 4; ++t) REQUIRE(m.tensors[t].shape == shapes[t]);
            check_coverage(m, "f");
            for (Extent const& extent : m.extents) {  // of all that hold the box, the lowest
                if (extent.box.empty()) continue;
                for (int r = 0; r < extent.file; ++r)
                    for (Piece const& piece : pieces[static_cast<std::size_t>(r)])
                        REQUIRE_FALSE((piece.key == reshard::detail::key_of(m, extent) && piece.box == extent.box));
            }
        }
    }
}
