// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/detail/manifest_json.hpp>

#include <reshard/checkpoint/safetensors.hpp>

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "../manifest_support.hpp"
#include "support/random.hpp"

using namespace checkpoint_test;

namespace {

/// The text is refused, and the message has all of the parts.
void check_refused(std::string const& text, std::vector<std::string> const& parts) {
    Caught const error = caught([&] { static_cast<void>(manifest_from(text, "the/manifest")); });
    CAPTURE(error.message);
    CHECK(error.code == ErrorCode::format);
    CHECK(contains(error.message, "the/manifest"));
    CHECK(contains(error.message, "Fix: "));
    CHECK(error.message.find("Fix: ") == error.message.rfind("Fix: "));
    for (std::string const& part : parts) {
        CAPTURE(part);
        CHECK(contains(error.message, part));
    }
}

/// The text with the sum that belongs to it, whatever was changed in it.
std::string sealed(std::string const& text) {
    std::size_t const seal = reshard::detail::manifest_seal("").size();
    if (text.size() < seal || !contains(text, reshard::detail::manifest_sum)) return text;
    std::string const body = text.substr(0, text.size() - seal);
    return body + reshard::detail::manifest_seal(body);
}

}  // namespace

TEST_SUITE("checkpoint/detail/manifest_json") {
    TEST_CASE("what is written is read again, equal manifests give equal texts, and docs/manifest.md shows one") {
        Manifest const m = example_manifest();
        std::string const text = to_json(m);
        CHECK(manifest_from(text, "m") == m);
        CHECK(to_json(manifest_from(text, "m")) == text);
        auto const page = std::filesystem::path(__FILE__).parent_path() / "../../../docs/manifest.md";
        CHECK(contains(read_text(page.string()), errors::concat("```json\n", text, "```\n")));
        for (std::uint64_t const seed : reshard::test::seeds(150)) {
            CAPTURE(seed);
            reshard::test::Random random(seed);
            Manifest const made = random_manifest(random);
            std::string const json = to_json(made);
            CAPTURE(json);
            REQUIRE(manifest_from(json, "m") == made);
        }
    }

    TEST_CASE("a header's digest is FNV-1a of the file up to its data, as docs/manifest.md says") {
        TempFolder folder;
        write_text(folder / "f.safetensors",
                   safetensors_text(R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}} )", 3));
        SafetensorsFile const file = SafetensorsFile::open(folder / "f.safetensors");
        std::uint64_t digest = 0xcbf29ce484222325U;
        for (char const c : read_text(folder / "f.safetensors").substr(0, static_cast<std::size_t>(file.data_offset())))
            digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
        CHECK(file.header_digest() == digest);
    }

    TEST_CASE("order does not matter, neither does what this version does not know") {
        Manifest m = example_manifest();
        std::string const text = R"json(
{"tensors": [{"name": "step", "later": [{}], "extents": [{"crc32c": "8a9136aa", "box": [], "begin": 0, "file": 0}],
              "distribution": "(4):(R)", "replicas": 1, "shape": [], "dtype": "I64"},
             {"name": "codes", "dtype": "F4", "shape": [3,2], "replicas": 1, "distribution": "",
              "extents": [{"file": 0, "begin": 56, "replica": 0, "key": "codes", "box": [[0,3],[0,2]]}]}],
 "files": [{"name": "f", "bytes": 100, "header_digest": "00000000deadbeef", "flags": -1.5}],
 "metadata": {"step": "1000", "model": "tiny"}, "world_size": 4, "save": "0123456789abcdef", "version": 1,
 "future": null, "format": "reshard-checkpoint"})json";
        m.files = {{"f", 100, 0xdeadbeefU, -1}};
        m.tensors = {m.tensors[0], m.tensors[3]};
        m.extents = {{1, 0, 0, 0, Box{}, "", true, 0x8a9136aaU}, {0, 0, 0, 56, Box{{0, 3}, {0, 2}}, "", false, 0}};
        CHECK(manifest_from(text, "m") == m);
        std::string behind = text;  // what stands behind the tensors ends like them
        behind.replace(behind.rfind("}"), 1, ",\n \"more\": [1]}");
        CHECK(manifest_from(behind, "m") == m);
    }

    TEST_CASE("tensors first and a list at the end, behind a number that they need") {
        Manifest m = example_manifest();
        std::string text = to_json(m);
        std::size_t const tensors = text.find("\n  \"tensors\": [");
        std::size_t const end = text.rfind("\n  ]");
        std::string const list = text.substr(tensors, end + 4 - tensors);
        text = errors::concat("{", list, ",", text.substr(1, tensors - 1), "\n  \"more\": [1]");
        std::string const seal = detail::manifest_seal(text);
        CHECK(manifest_from(text + seal, "m") == m);
    }

    TEST_CASE("every bit that flips is noticed, also in texts, in names of keys and in the sum itself") {
        std::string const valid = to_json(example_manifest());
        std::size_t accepted = 0;
        for (std::size_t bit = 0; bit < 8 * valid.size(); bit += reshard::test::step()) {
            std::string text = valid;
            text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
            Caught const error = caught([&] { static_cast<void>(manifest_from(text, "m")); });
            if (error.code == ErrorCode::format && contains(error.message, "Fix: ")) continue;
            ++accepted;
            if (accepted == 1) MESSAGE("bit " << bit << ": " << text << error.message);
        }
        CHECK(accepted == 0);
    }

    TEST_CASE("the sum is the CRC-32C of what stands before, and a text of version 1 needs none") {
        std::string const text = to_json(example_manifest());
        std::size_t const body = text.size() - 27;
        auto const sum = crc32c(std::as_bytes(std::span(text.data(), body)));
        CHECK(text.substr(body) == errors::concat(",\n  \"crc32c\": \"", reshard::detail::hex_text(sum, 8), "\"\n}\n"));
        CHECK(manifest_from(with(text.substr(0, body) + "\n}", "\"version\": 2", "\"version\": 1"), "m") ==
              example_manifest());
        check_refused(text.substr(0, body) + "\n}", {"another sum"});
        check_refused(with(text, "\"step\": \"1000\"", "\"step\": \"1008\""), {"another sum", "restore the file"});
        check_refused(text + " ", {"another sum"});
        // What this version does not know is no reason to refuse a whole text.
        CHECK(manifest_from(sealed(with(text, "\"world_size\"", "\"later\": [1], \"world_size\"")), "m") ==
              example_manifest());
    }

    TEST_CASE("a manifest that readers would refuse for its size is not written") {
        Manifest const m = example_manifest();
        auto const size = static_cast<Index>(to_json(m).size());
        CHECK(manifest_from(to_json(m, size), "m") == m);
        Caught const error = caught([&] { static_cast<void>(to_json(m, size - 1)); });
        CHECK(error.code == ErrorCode::format);
        CHECK(contains(error.message, errors::concat("of 7 boxes takes ", size, " bytes, more than the ", size - 1)));
        CHECK(contains(error.message, "Fix: save fewer, larger boxes"));
    }

    TEST_CASE("a long manifest is written in pieces, and no further than readers take it") {
        Manifest m;
        m.save = "0123456789abcdef";
        m.world_size = 1;
        m.files = {{"f", 12'010, 0, 0}};
        m.tensors = {{"a", DType::u8, DynamicShape(Indices{12'000}), 1, ""},
                     {"b", DType::u8, DynamicShape(Indices{0}), 1, ""}};
        for (Index i = 0; i < 12'000; ++i) m.extents.push_back({0, 0, 0, i, Box{{i, i + 1}}, "", true, 7});
        std::string const whole = to_json(m);
        std::vector<std::size_t> pieces;
        auto const written = [&](Index most_bytes) {
            std::string text;
            pieces.clear();
            Caught const error = caught([&] {
                reshard::detail::write_manifest(
                    m, false, reshard::detail::ExtentsByTensor(m),
                    [&](std::string_view piece) {
                        text += piece;
                        pieces.push_back(piece.size());
                    },
                    most_bytes);
            });
            CHECK(error.code == (std::ssize(whole) <= most_bytes ? ErrorCode::none : ErrorCode::format));
            if (error.code != ErrorCode::none)
                CHECK(contains(error.message, errors::concat("of 12000 boxes takes ", whole.size(), " bytes")));
            return text;
        };
        CHECK(written(max_manifest_bytes) == whole);
        CHECK(pieces.size() == 4);
        for (std::size_t const size : pieces) CHECK(size < (std::size_t{1} << 18) + 100);
        CHECK(whole.starts_with(written(std::ssize(whole) - 1)));
        CHECK(pieces.size() == 3);
    }

    TEST_CASE("a file's writer may be unknown, a manifest may hold nothing") {
        Manifest m;
        m.save = "ffffffffffffffff";
        m.world_size = 1;
        CHECK(manifest_from(to_json(m), "m") == m);
        m.format = "flax";
        m.files = {{"sub/f.safetensors", 0, 0, -1}};
        CHECK(manifest_from(to_json(m), "m") == m);
    }

    TEST_CASE("texts that are no manifest are refused with the key and the tensor") {
        std::string const good = to_json(example_manifest());
        struct Case {
            char const* from;
            char const* to;
            std::vector<std::string> parts;
        };
        std::string const name = "'tensors[layer.0.weight]";
        for (Case const& c : std::vector<Case>{
                 {"reshard-checkpoint", "reshard-mch", {"'format' is not 'reshard-checkpoint'"}},
                 {"\"version\": 2", "\"version\": 3", {"of version 3", "reads versions up to 2", "newer"}},
                 {"\"version\": 2", "\"version\": 0", {"'version' is 0"}},
                 {"\"version\": 2", "\"version\": -1", {"'version' is not an integer of 0 or more"}},
                 {"\"version\": 2,", "", {"it has no 'version'"}},
                 {"0123456789abcdef", "0123456789abcde", {"'save' is '0123456789abcde', not 16"}},
                 {"0123456789abcdef", "0123456789ABCDEF", {"'save' is"}},
                 {"\"world_size\": 4", "\"world_size\": 0", {"'world_size' is 0"}},
                 {"\"world_size\": 4", "\"world_size\": 4.0", {"'world_size' is not an integer"}},
                 {"\"world_size\": 4", "\"world_size\": 4294967297", {"'world_size' is 4294967297, above 2147483647"}},
                 {"\"tiny\"", "7", {"'metadata.model' is not text"}},
                 {"\"model\"", "\"step\"", {"'step' is given twice"}},
                 {"shard-00001", "../shard-00001", {"no data file inside the folder"}},
                 {"shard-00001", "/shard-00001", {"no data file inside the folder"}},
                 {"shard-00001", "./shard-00001", {"no data file inside the folder"}},
                 {"shard-00001", "a//shard-00001", {"no data file inside the folder"}},
                 {"shard-00001-of-00004.0123456789abcdef.safetensors", "reshard.manifest.json", {"no data file"}},
                 {"shard-00001", "shard-00002", {"'files' has 'shard-00002-of-00004", "twice"}},
                 {"\"bytes\": 611", "\"bytes\": 9223372036854775808", {"above 2^63 - 1"}},
                 {"\"bytes\": 611", "\"bytes\": 30", {"'tensors[codes].extents[0]' takes 3 bytes from 24 on", "of 30"}},
                 {"00000000deadbeef", "deadbeef", {"header_digest' is 'deadbeef'"}},
                 {"\"writer\": 1", "\"writer\": 4", {"writer' is 4, above 3"}},
                 {"\"writer\": 1", "\"writer\": -1", {"writer' is not an integer"}},
                 {"\"name\": \"codes\"", "\"name\": \"step\"", {"'tensors' has 'step' twice"}},
                 {"\"name\": \"codes\"", "\"name\": \"__metadata__\"", {"no tensor may have"}},
                 {"\"F32\"", "\"F33\"", {name, "unknown dtype 'F33'"}},
                 {"\"F32\"", "\"F6_E2M3\"", {name, "is a part of the tensor", "F6_E2M3 tensors cannot be cut"}},
                 {"[3,2]", "[3,1]", {"'tensors[codes]'", "does not fill its last byte"}},
                 {"[6,2]", "[4611686018427387904,8]", {name, "more bits than a 64-bit integer"}},
                 {"[6,2]", "[1,1,1,1,1,1,1,1,1]", {name, "more than 8 dimensions"}},
                 {"[6,2]", "[6,-2]", {name, "shape[1]' is not an integer of 0 or more"}},
                 {"\"replicas\": 2", "\"replicas\": 0", {name, "replicas' is 0"}},
                 {"\"replicas\": 2", "\"replicas\": 1", {name, "replica' is 1, above 0"}},
                 {"(2,2):(R,S0)", "(2,2):(R,S2)", {name, "is not the notation of one"}},
                 {"(2,2):(R,S0)", "(2,2)", {name, "is not the notation of one"}},
                 {"\"file\": 1", "\"file\": 4", {name, "file' is 4, but there are 4 files"}},
                 {"\"begin\": 8", "\"begin\": 9223372036854775807", {name, "beyond the end"}},
                 {"\"begin\": 24, \"box\": [[0,2]]",
                  "\"begin\": 23, \"box\": [[0,2]]",
                  {"byte 23", "two extents", "[0:3,0:2] of tensor 'layer.0.weight', replica 0",
                   "[0:2] of tensor 'norm.weight'"}},
                 {"[[3,6],[0,2]]", "[[3,7],[0,2]]", {name, "box[0]' is no [begin, end] within the extent 6"}},
                 {"[[3,6],[0,2]]", "[[6,3],[0,2]]", {name, "box[0]' is no [begin, end]"}},
                 {"[[3,6],[0,2]]", "[[3,6],[0,2,2]]", {name, "box[1]' is no [begin, end]"}},
                 {"[[3,6],[0,2]]", "[[3,6]]", {name, "fewer dimensions than [6,2]"}},
                 {"[[3,6],[0,2]]", "[[3,6],[0,2],[0,1]]", {name, "more dimensions than [6,2]"}},
                 {"[[0,3],[0,2]]", "[[0,3],[0,1]]", {"'tensors[codes].extents[0].box' is a part of the tensor", "F4"}},
                 {"62a8ab43", "62a8ab4", {name, "crc32c' is '62a8ab4', not 8"}},
                 {"62a8ab43", "62a8ab4g", {name, "crc32c' is '62a8ab4g'"}},
                 {"\"box\": [[0,2]]",
                  "\"box\": [[0,2]], \"key\": \"layer.0.weight.__tp_replica_0\"",
                  {"two extents have the name 'layer.0.weight.__tp_replica_0' in"}},
                 {"layer.0.weight.__tp_replica_0",
                  "norm.weight",
                  {"two extents have the name 'norm.weight' in 'shard-00001"}},
                 {"layer.0.weight.__tp_replica_0", "", {name, "key' is no name"}},
                 {"\"crc32c\": \"62a8ab43\"",
                  "\"crc32c\": \"62a8ab43\", \"crc32c_blocks\": \"0000000000000001\"",
                  {name, "crc32c_blocks' is there, but the manifest has no block_bytes"}},
                 {"\"files\": [", "\"block_bytes\": 0, \"files\": [", {"'block_bytes' is 0"}},
                 {"\"extents\": [", "\"extents\": 3, \"was\": [", {"extents' is not a list"}},
                 {"{\n", "[\n", {"not JSON at byte"}},
             }) {
            CAPTURE(c.from);
            CAPTURE(c.to);
            check_refused(sealed(with(good, c.from, c.to)), c.parts);
        }
        check_refused("", {"not JSON"});
        check_refused("[]", {"it is not an object"});
        check_refused("7", {"it is not an object"});
        check_refused("\xef\xbb\xbf" + good, {"a byte order mark"});
        check_refused(with(good, "tiny", "\xff"), {"not UTF-8"});
        check_refused(good + "x", {"not JSON at byte"});
        check_refused(std::string(200, '['), {"nested deeper than 128"});
        check_refused(good.substr(0, good.size() / 2), {"not JSON at byte"});
    }

    TEST_CASE("sums of blocks are as many as there are blocks, or none where there is one") {
        Manifest m = example_manifest();
        m.block_bytes = 10;
        m.extents[0].block_sums = {0x01234567U, 0x89abcdefU, 0x00000000U};  // of 24 bytes
        std::string const good = to_json(m);
        CHECK(contains(good, "\n  \"block_bytes\": 10,\n"));
        CHECK(contains(good, "\"crc32c\": \"62a8ab43\", \"crc32c_blocks\": \"0123456789abcdef00000000\""));
        CHECK(manifest_from(good, "m") == m);
        check_refused(sealed(with(good, "89abcdef0", "89abcdef")), {"has 23 digits, not 8 for each of 3 blocks"});
        check_refused(sealed(with(good, "89abcdef0", "89ABcdef0")), {"has '89ABcdef' for block 1"});
        check_refused(sealed(with(good, "block_bytes\": 10", "block_bytes\": 12")), {"24 digits, not 8 for each of 2"});
        check_refused(sealed(with(good, "block_bytes\": 10", "block_bytes\": 24")), {"24 digits, not 8 for each of 0"});
    }

    TEST_CASE("what cannot be written is refused before anything is written") {
        Manifest m = example_manifest();
        m.metadata[0].second = "\xff";
        Caught const error = caught([&] { static_cast<void>(to_json(m)); });
        CHECK(error.code == ErrorCode::format);
        CHECK(contains(error.message, "not UTF-8"));
    }

    TEST_CASE("any change to a manifest is either read or refused with a remedy") {
        auto const seed = 20261121U;
        CAPTURE(seed);
        std::mt19937 random(seed);
        std::string const valid =
            with(to_json(example_manifest()), "\"version\": 2", "\"version\": 1");  // without a sum
        int refused = 0;
        for (int trial = 0; trial < reshard::test::tries(5'000); ++trial) {
            std::string text = valid;
            for (unsigned change = 0; change <= random() % 3; ++change) {
                std::size_t const at = random() % text.size();
                if (random() % 2 == 0) {
                    text[at] = "{}[]\",:1e./\\u9"[random() % 14];
                } else {
                    std::size_t const from = random() % text.size();
                    text.insert(at, text.substr(from, random() % 20));
                }
            }
            Manifest read;
            Caught const error = caught([&] { read = manifest_from(text, "m"); });
            CAPTURE(text);
            if (error.code == ErrorCode::none) {
                REQUIRE(manifest_from(to_json(read), "m") == read);
            } else {
                REQUIRE(error.code == ErrorCode::format);
                REQUIRE(contains(error.message, "Fix: "));
                ++refused;
            }
        }
        CHECK(refused > reshard::test::of_seeds(2000));
    }
}
