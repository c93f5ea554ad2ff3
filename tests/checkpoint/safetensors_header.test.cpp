// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/safetensors_header.hpp>

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "support.hpp"
#include "support/random.hpp"

using namespace checkpoint_test;
using Rule = SafetensorsRule;

namespace {

SafetensorsHeader parse(std::string_view file) { return parse_header(file, static_cast<Index>(file.size())); }

/// One tensor 'a' with those fields, and bytes after the header.
std::string one(std::string_view fields, std::size_t data_bytes = 0) {
    return safetensors_text(errors::concat(R"({"a":{)", fields, "}}"), data_bytes);
}

}  // namespace

TEST_SUITE("checkpoint/safetensors_header") {
    TEST_CASE("a header gives its tensors in file order, its metadata by key, and finds names") {
        auto const header = parse(safetensors_text(
            R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},"__metadata__":{"z":"1","format":"pt"},)"
            R"("a":{"data_offsets":[0,2],"shape":[],"dtype":"BF16"},"c":{"dtype":"U8","shape":[0,7],"data_offsets":[26,26]}})",
            26));
        REQUIRE(header.tensors().size() == 3);
        CHECK(header.tensors()[0] == TensorInfo{"a", DType::bf16, {}, 0, 2});
        CHECK(header.tensors()[1] == TensorInfo{"b", DType::f32, Shape{2, 3}, 2, 26});
        CHECK(header.tensors()[2] == TensorInfo{"c", DType::u8, Shape{0, 7}, 26, 26});
        CHECK(header.metadata() == Metadata{{"format", "pt"}, {"z", "1"}});
        CHECK(header.data_bytes() == 26);
        REQUIRE(header.find("c") != nullptr);
        CHECK(header.find("c")->shape == DynamicShape(Shape{0, 7}));
        CHECK(header.find("d") == nullptr);
        CHECK(header.find("") == nullptr);
    }

    TEST_CASE("what the reference accepts is accepted") {
        CHECK(parse(safetensors_text("{}")).tensors().empty());
        CHECK(parse(safetensors_text("{}")).data_offset() == 10);
        CHECK(parse(safetensors_text(" \t\r\n{} \n")).tensors().empty());
        CHECK(parse(safetensors_text(R"({"__metadata__":null})")).metadata().empty());
        CHECK(parse(safetensors_text(R"({"__metadata__":{}})")).metadata().empty());
        CHECK(parse(one(R"("dtype":"F32","shape":[],"data_offsets":[0,4])", 4)).tensors().size() == 1);
        CHECK(parse(one(R"("dtype":"F32","shape":[0],"data_offsets":[0,0])")).tensors()[0].bytes() == 0);
        // Unknown fields, whatever they hold.
        CHECK(
            parse(
                one(R"("x":{"dtype":1,"shape":[[{}]]},"y":[1,[2.5,"z"],null],"v":-1,"dtype":"U8","shape":[1],"data_offsets":[0,1])",
                    1))
                .tensors()
                .size() == 1);
        // Escapes in keys are read, not kept.
        auto const plain = parse(one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])", 1));
        CHECK(plain.find("a") != nullptr);
        auto const escaped =
            parse(safetensors_text(R"({"\u00e4\n":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1));
        CHECK(escaped.find("\xc3\xa4\n") != nullptr);
    }

    TEST_CASE("every dtype is known by its name") {
        for (int i = 0; i < dtype_count; ++i) {
            auto const dtype = static_cast<DType>(i);
            Index const bytes = bits(dtype);  // of 8 elements
            CAPTURE(name(dtype));
            auto const header = parse(
                one(errors::concat(R"("dtype":")", name(dtype), R"(","shape":[8],"data_offsets":[0,)", bytes, "]"),
                    static_cast<std::size_t>(bytes)));
            CHECK(header.tensors()[0].dtype == dtype);
        }
    }

    TEST_CASE("each broken rule has its name") {
        struct Row {
            Rule rule;
            std::string what;
            std::string file;
        };
        std::string const good = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
        std::string const two =
            R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],)";
        Rule const json = Rule::invalid_header_deserialization;
        Row const rows[] = {
            {Rule::header_too_small, "empty file", ""},
            {Rule::header_too_small, "seven bytes", std::string(7, '\0')},
            {Rule::header_too_large, "one above the limit", length_bytes(100'000'001)},
            {Rule::header_too_large, "all ones", std::string(8, '\xff') + "{}"},
            {Rule::header_too_large, "2^63", length_bytes(std::uint64_t{1} << 63U) + "{}"},
            {Rule::invalid_header_length, "at the limit in a short file", length_bytes(100'000'000) + "{}"},
            {Rule::invalid_header_length, "one byte short", length_bytes(3) + "{}"},
            {Rule::invalid_header, "a bad byte", safetensors_text("{\"\xff\":1}")},
            {Rule::invalid_header, "an encoded surrogate", safetensors_text("{\"\xed\xa0\x80\":1}")},
            {json, "no JSON at all", safetensors_text("")},
            {json, "spaces", safetensors_text("   ")},
            {json, "an unknown dtype, and a text that ends there", safetensors_text(R"({"a":{"dtype":":32"},":)")},
            {Rule::duplicate_key, "an unknown dtype, and a key twice",
             safetensors_text(R"({"a":{"dtype":":32"},"b":1,"b":1})")},
            {json, "cut short", safetensors_text("{")},
            {json, "something after the object", safetensors_text("{}{}")},
            {json, "a zero byte after the object", safetensors_text(std::string_view("{}\0", 3))},
            {json, "a byte order mark", safetensors_text("\xef\xbb\xbf{}")},
            {json, "a list", safetensors_text("[]")},
            {json, "null", safetensors_text("null")},
            {json, "a number", safetensors_text("7")},
            {json, "an entry that is text", safetensors_text(R"({"a":"U8"})")},
            {json, "an entry that is null", safetensors_text(R"({"a":null})")},
            {json, "an entry that is a list", safetensors_text(R"({"a":["U8",[1],[0,1]]})", 1)},
            {json, "metadata that is text", safetensors_text(R"({"__metadata__":"pt"})")},
            {json, "metadata that is a list", safetensors_text(R"({"__metadata__":[]})")},
            {json, "metadata of a number", safetensors_text(R"({"__metadata__":{"a":1}})")},
            {json, "metadata of null", safetensors_text(R"({"__metadata__":{"a":null}})")},
            {json, "metadata of an object", safetensors_text(R"({"__metadata__":{"a":{}}})")},
            {Rule::unknown_dtype, "unknown dtype", one(R"("dtype":"F33","shape":[1],"data_offsets":[0,1])", 1)},
            {Rule::unknown_dtype, "dtype in lower case", one(R"("dtype":"u8","shape":[1],"data_offsets":[0,1])", 1)},
            {json, "dtype that is a number", one(R"("dtype":8,"shape":[1],"data_offsets":[0,1])", 1)},
            {json, "dtype that is a list", one(R"("dtype":["U8"],"shape":[1],"data_offsets":[0,1])", 1)},
            {json, "dtype that is an object", one(R"("dtype":{},"shape":[1],"data_offsets":[0,1])", 1)},
            {json, "no dtype", one(R"("shape":[1],"data_offsets":[0,1])", 1)},
            {json, "no shape", one(R"("dtype":"U8","data_offsets":[0,1])", 1)},
            {json, "no data_offsets", one(R"("dtype":"U8","shape":[1])", 1)},
            {json, "an empty entry", one("")},
            {json, "shape that is a number", one(R"("dtype":"U8","shape":1,"data_offsets":[0,1])", 1)},
            {json, "shape that is null", one(R"("dtype":"U8","shape":null,"data_offsets":[0,1])", 1)},
            {json, "an extent of 1.0", one(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", 1)},
            {json, "an extent of 1e0", one(R"("dtype":"U8","shape":[1e0],"data_offsets":[0,1])", 1)},
            {json, "a negative extent", one(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1)},
            {json, "an extent of -0", one(R"("dtype":"U8","shape":[-0],"data_offsets":[0,0])")},
            {json, "an extent that is text", one(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])", 1)},
            {json, "an extent that is a list", one(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])", 1)},
            {json, "an extent that is true", one(R"("dtype":"U8","shape":[true],"data_offsets":[0,1])", 1)},
            {json, "an extent of 2^64", one(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])", 1)},
            {json, "one offset", one(R"("dtype":"U8","shape":[1],"data_offsets":[0])", 1)},
            {json, "three offsets", one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])", 1)},
            {json, "no offset", one(R"("dtype":"U8","shape":[1],"data_offsets":[])", 1)},
            {json, "a negative offset", one(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])", 1)},
            {json, "an offset of 1.0", one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1.0])", 1)},
            {json, "offsets that are an object", one(R"("dtype":"U8","shape":[1],"data_offsets":{})", 1)},
            {json, "nested too deep where nobody looks",
             one(errors::concat(R"("x":)", std::string(200, '['), std::string(200, ']'), ",", good), 1)},
            {Rule::duplicate_key, "a tensor twice",
             safetensors_text(errors::concat(R"({"a":{)", good, R"(},"a":{)", good, "}}"), 1)},
            {Rule::duplicate_key, "a tensor twice, once escaped",
             safetensors_text(errors::concat(R"({"a":{)", good, R"(},"\u0061":{)", good, "}}"), 1)},
            {Rule::duplicate_key, "an empty tensor twice",
             safetensors_text(
                 R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})")},
            {Rule::duplicate_key, "a field twice", one(errors::concat(good, R"(,"shape":[1])"), 1)},
            {Rule::duplicate_key, "a key twice where nobody looks",
             one(errors::concat(good, R"(,"x":{"y":1,"y":2})"), 1)},
            {Rule::duplicate_key, "metadata twice", safetensors_text(R"({"__metadata__":{},"__metadata__":{}})")},
            {Rule::duplicate_key, "a metadata key twice", safetensors_text(R"({"__metadata__":{"a":"1","a":"1"}})")},
            {Rule::too_many_dimensions, "nine dimensions",
             one(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])", 1)},
            {Rule::invalid_offset, "a hole at the start", one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2)},
            {Rule::invalid_offset, "an end before its begin",
             safetensors_text(errors::concat(two, R"("data_offsets":[4,3]}})"), 8)},
            {Rule::invalid_offset, "an overlap", safetensors_text(errors::concat(two, R"("data_offsets":[3,7]}})"), 7)},
            {Rule::invalid_offset, "a hole", safetensors_text(errors::concat(two, R"("data_offsets":[5,9]}})"), 9)},
            {Rule::invalid_offset, "the same bytes twice",
             safetensors_text(errors::concat(two, R"("data_offsets":[0,4]}})"), 4)},
            {Rule::validation_overflow, "2^63 x 2 x 0",
             one(R"("dtype":"U8","shape":[9223372036854775808,2,0],"data_offsets":[0,0])")},
            {Rule::validation_overflow, "0 x 2^63 x 2, which the reference accepts",
             one(R"("dtype":"U8","shape":[0,9223372036854775808,2],"data_offsets":[0,0])")},
            {Rule::validation_overflow, "2^32 x 2^32, which wraps to zero",
             one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])")},
            {Rule::validation_overflow, "bits, not elements",
             one(R"("dtype":"U64","shape":[288230376151711744],"data_offsets":[0,0])")},
            {Rule::misaligned_slice, "three 4-bit elements",
             one(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])", 1)},
            {Rule::misaligned_slice, "one 6-bit element",
             one(R"("dtype":"F6_E2M3","shape":[],"data_offsets":[0,1])", 1)},
            {Rule::tensor_invalid_info, "a byte too many", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,5])", 5)},
            {Rule::tensor_invalid_info, "a byte too few", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,3])", 3)},
            {Rule::tensor_invalid_info, "an end near 2^64",
             one(R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615])", 1)},
            {Rule::tensor_invalid_info, "bytes for an empty tensor",
             one(R"("dtype":"U8","shape":[0],"data_offsets":[0,1])", 1)},
            {Rule::metadata_incomplete_buffer, "a byte left over", one(good, 2)},
            {Rule::metadata_incomplete_buffer, "a byte missing", one(good, 0)},
            {Rule::metadata_incomplete_buffer, "bytes that no tensor owns", safetensors_text("{}", 1)},
        };
        for (Row const& row : rows) {
            CAPTURE(row.what);
            check_rule(row.rule, [&] { (void)parse(row.file); });
        }
    }

    TEST_CASE("rules are checked in the reference's order") {
        // Each file breaks the named rule and one that comes later.
        check_rule(Rule::header_too_large, [] { (void)parse(length_bytes(100'000'001)); });
        auto const pointer = caught([] { (void)parse("version https://git-lfs.github.com/spec/v1\n"); });
        CHECK(contains(pointer.message, "git lfs pull"));
        check_rule(Rule::invalid_header, [] { (void)parse(safetensors_text("\xff", 3)); });
        check_rule(Rule::invalid_offset,
                   [] { (void)parse(one(R"("dtype":"F4","shape":[3],"data_offsets":[1,9])", 1)); });
        check_rule(Rule::misaligned_slice,
                   [] { (void)parse(one(R"("dtype":"F4","shape":[3],"data_offsets":[0,9])", 1)); });
        check_rule(Rule::tensor_invalid_info,
                   [] { (void)parse(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,9])", 1)); });
    }

    TEST_CASE("messages name the file and the tensor") {
        std::string const text = one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2);
        auto const error =
            caught([&] { (void)parse_header(text, static_cast<Index>(text.size()), "model.safetensors"); });
        CHECK(contains(error.message, "InvalidOffset: model.safetensors: tensor 'a' claims bytes [1, 2)"));
    }

    TEST_CASE("headers deeper than a stack and longer than a cache are read or refused, never fatal") {
        auto const limit = static_cast<std::size_t>(
            reshard::test::tries(10'000'000));  // ten times as much: safetensors.large.test.cpp
        CHECK(parse(safetensors_text("{}" + std::string(limit - 2, ' '))).tensors().empty());
        check_rule(Rule::invalid_header_deserialization,
                   [&] { (void)parse(safetensors_text(std::string(limit, '['))); });
        check_rule(Rule::invalid_header_deserialization,
                   [&] { (void)parse(safetensors_text(std::string(limit, '\0'))); });
        check_rule(Rule::invalid_header_deserialization,
                   [&] { (void)parse(safetensors_text("{\"" + std::string(limit - 2, 'a'))); });
        auto const error =
            caught([&] { (void)parse(safetensors_text("{\"" + std::string(limit - 6, 'a') + "\":1}")); });
        CHECK(error.rule == Rule::invalid_header_deserialization);
        CHECK(error.message.size() < 1000);
    }

    TEST_CASE("many tensors are read and found") {
        int const count = reshard::test::tries(100'000);
        std::string json = "{";
        for (int i = 0; i < count; ++i) {
            if (i != 0) json += ',';
            json += errors::concat(R"(")", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1, "]}");
        }
        auto const header = parse(safetensors_text(json + "}", static_cast<std::size_t>(count)));
        CHECK(header.tensors().size() == static_cast<std::size_t>(count));
        for (int i = 0; i < count; i += 97) {
            auto const* const info = header.find(std::to_string(i));
            REQUIRE(info != nullptr);
            REQUIRE(info->begin == i);
        }
    }

    TEST_CASE("any change to a valid file is either read consistently or refused by name") {
        auto const seed = 20260911U;
        CAPTURE(seed);
        std::mt19937 random(seed);
        std::string const valid = safetensors_text(
            R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
            R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"e":{"dtype":"F4","shape":[0,2],"data_offsets":[32,32]}}  )",
            32);
        constexpr char const letters[] = "{}[]\",:0123456789-.eE \\untrfaFUB\x00\xff\xc3\xa4";
        std::string_view const alphabet(letters, sizeof letters - 1);  // the zero byte too
        int read = 0;
        int refused = 0;
        for (int trial = 0; trial < reshard::test::tries(10'000); ++trial) {
            std::string file = valid;
            for (unsigned change = 0; change <= random() % 4; ++change) {
                std::size_t const at = random() % file.size();
                std::size_t const from = random() % file.size();  // drawn one by one: the same on every compiler
                std::size_t const count = random() % 40;
                char const letter = alphabet[random() % alphabet.size()];
                switch (random() % 5) {
                    case 0: file[at] = static_cast<char>(random() & 0xffU); break;
                    case 1: file[at] = letter; break;
                    case 2: file.erase(at, 1 + count % 8); break;
                    case 3: file.insert(at, 1 + count % 3, letter); break;
                    default: file.insert(at, file.substr(from, count)); break;
                }
                if (file.empty()) file = valid;
            }
            CAPTURE(trial);
            try {
                auto const header = parse(file);
                ++read;
                Index end = 0;
                for (auto const& tensor : header.tensors()) {
                    REQUIRE(tensor.begin == end);
                    REQUIRE(tensor.bytes() == stored_bytes({tensor.name, tensor.dtype, tensor.shape}));
                    REQUIRE(header.find(tensor.name) == &tensor);
                    end = tensor.end;
                }
                REQUIRE(header.data_offset() + end == static_cast<Index>(file.size()));
            } catch (FormatError const& error) {
                ++refused;
                REQUIRE(safetensors_rule(error) != Rule::none);
            }
        }
        CHECK(read > reshard::test::of_seeds(25));  // otherwise the loop tests only how we refuse
        CHECK(refused > reshard::test::of_seeds(2'500));
    }

    TEST_CASE("the digest of a header is what manifests have kept of it") {
        CHECK(safetensors_header_digest("{}") == 0x9caafcd328e9298bU);
        CHECK(safetensors_header_digest(R"({"a":{"dtype":"U8"}})") == 0x58a1df1eeb45aad3U);
    }
}
