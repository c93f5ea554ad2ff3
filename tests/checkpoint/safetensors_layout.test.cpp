// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/safetensors_layout.hpp>

#include <doctest/doctest.h>

#include "../support/random.hpp"

#include <reshard/checkpoint/consolidate_options.hpp>
#include <reshard/checkpoint/safetensors_header.hpp>

#include "support.hpp"

#include <string>
#include <vector>

using namespace checkpoint_test;

TEST_SUITE("checkpoint/safetensors_layout") {
    TEST_CASE("the widest dtype comes first, names decide among equals") {
        auto const layout = safetensors_layout({{"b", DType::u8, Shape{3}},
                                                {"z", DType::f32, Shape{2}},
                                                {"a", DType::u8, {}},
                                                {"i", DType::i64, Shape{1}},
                                                {"d", DType::f64, Shape{1}}});
        REQUIRE(layout.tensors.size() == 5);
        CHECK(layout.tensors[0] == TensorInfo{"i", DType::i64, Shape{1}, 0, 8});
        CHECK(layout.tensors[1] == TensorInfo{"d", DType::f64, Shape{1}, 8, 16});
        CHECK(layout.tensors[2] == TensorInfo{"z", DType::f32, Shape{2}, 16, 24});
        CHECK(layout.tensors[3] == TensorInfo{"a", DType::u8, {}, 24, 25});
        CHECK(layout.tensors[4] == TensorInfo{"b", DType::u8, Shape{3}, 25, 28});
        CHECK(layout.data_bytes == 28);
    }

    TEST_CASE("the header is written byte for byte as the reference writes it") {
        auto const layout = safetensors_layout({{"a\"\n", DType::bf16, Shape{2, 3}}});
        std::string const json =
            R"({"__metadata__":{"format":"pt"},"a\"\n":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})";
        CHECK(layout.start.substr(8).starts_with(json));
        CHECK(layout.start.find_first_not_of(' ', 8 + json.size()) == std::string::npos);
        CHECK(layout.start.size() % 8 == 0);
        CHECK(layout.start.size() - 8 - json.size() < 8);
        CHECK(layout.start.substr(0, 8) == length_bytes(layout.start.size() - 8));
        CHECK(safetensors_layout({}, {}).start == length_bytes(8) + "{}      ");
    }

    TEST_CASE("what is laid out is read back") {
        std::vector<TensorSpec> list;
        for (int i = 0; i < dtype_count; ++i) {
            auto const dtype = static_cast<DType>(i);
            list.push_back({errors::concat("full.", name(dtype)), dtype, Shape{3, 8}});
            list.push_back({errors::concat("empty.", name(dtype)), dtype, Shape{8, 0}});
            if (is_byte_sized(dtype)) list.push_back({errors::concat("scalar.", name(dtype)), dtype, {}});
        }
        auto const layout = safetensors_layout(list, {{"k", "v"}, {"a", "\xc3\xa4\x01"}});
        auto const header = parse_header(layout.start, static_cast<Index>(layout.start.size()) + layout.data_bytes);
        CHECK(header.metadata() == Metadata{{"a", "\xc3\xa4\x01"}, {"k", "v"}});
        CHECK(header.data_offset() == static_cast<Index>(layout.start.size()));
        REQUIRE(header.tensors().size() == list.size());
        for (auto const& tensor : layout.tensors) {
            auto const* const found = header.find(tensor.name);
            REQUIRE(found != nullptr);
            CHECK(*found == tensor);
        }
    }

    TEST_CASE("lists that make no valid file are refused") {
        using Rule = SafetensorsRule;
        auto const refuses = [](Rule rule, std::vector<TensorSpec> const& list, Metadata const& metadata = {}) {
            check_rule(rule, [&] { (void)safetensors_layout(list, metadata); });
        };
        refuses(Rule::duplicate_key, {{"a", DType::u8, {}}, {"b", DType::u8, {}}, {"a", DType::f32, {}}});
        refuses(Rule::duplicate_key, {}, {{"a", "1"}, {"a", "2"}});
        refuses(Rule::invalid_header, {{"\xff", DType::u8, {}}});
        refuses(Rule::invalid_header, {}, {{"a", "\xff"}});
        refuses(Rule::invalid_header, {}, {{"\xff", "a"}});
        refuses(Rule::invalid_header_deserialization, {{"__metadata__", DType::u8, {}}});
        refuses(Rule::misaligned_slice, {{"a", DType::f4, {}}});
        refuses(Rule::validation_overflow, {{"a", DType::u64, Shape{Index{1} << 60}}});
        std::vector<TensorSpec> huge;
        for (int i = 0; i < 9; ++i) huge.push_back({std::to_string(i), DType::u8, Shape{(Index{1} << 60) - 1}});
        refuses(Rule::validation_overflow, huge);
        if (!test::fewer_seeds()) {  // two characters each
            refuses(Rule::header_too_large, {{std::string(50'000'000, '"'), DType::u8, {}}});
        }
    }

    TEST_CASE("files are filled greedily in the order given") {
        auto const tensor = [](char const* text, Index bytes) { return TensorSpec{text, DType::u8, Shape{bytes}}; };
        auto const names = [](std::vector<FileSpec> const& files) {
            std::string text;
            for (auto const& file : files) {
                for (auto const& item : file.tensors) text += item.name;
                text += '|';
            }
            return text;
        };
        static_assert(default_max_file_bytes == 5'000'000'000, "Hugging Face's 5GB");
        CHECK(ConsolidateOptions{}.max_file_bytes == default_max_file_bytes);
        CHECK(names(split_into_files({}, 10)) == "|");
        CHECK(names(split_into_files({tensor("a", 10)}, 10)) == "a|");
        CHECK(names(split_into_files({tensor("a", 4), tensor("b", 6), tensor("c", 1)}, 10)) == "ab|c|");
        CHECK(names(split_into_files({tensor("a", 4), tensor("b", 7), tensor("c", 3)}, 10)) == "a|bc|");
        CHECK(names(split_into_files({tensor("a", 1), tensor("b", 50), tensor("c", 1)}, 10)) == "a|b|c|");
        CHECK(names(split_into_files({tensor("a", 50), tensor("b", 0), tensor("c", 0)}, 10)) == "a|bc|");
        CHECK(names(split_into_files({tensor("a", 10), tensor("b", 0), tensor("c", 1)}, 10)) == "ab|c|");
        CHECK(split_into_files({tensor("a", 1)}, 10)[0].leaf == "model.safetensors");
        CHECK(split_into_files({tensor("a", 1), tensor("b", 50)}, 10)[1].leaf == "model-00002-of-00002.safetensors");
    }

    TEST_CASE("file names count from one with five digits") {
        CHECK(checkpoint_file_name(0, 1) == "model.safetensors");
        CHECK(checkpoint_file_name(0, 2) == "model-00001-of-00002.safetensors");
        CHECK(checkpoint_file_name(122, 123456) == "model-00123-of-123456.safetensors");
    }
}
