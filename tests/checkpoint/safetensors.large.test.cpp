// SPDX-License-Identifier: Apache-2.0
//
// One tensor beyond what a single system call moves (2 GiB - 4 KiB on Linux). Takes 2.2 GiB of memory and of disk.
#include <reshard/checkpoint/safetensors.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/safetensors_writer.hpp>

#include "support.hpp"

#include <algorithm>
#include <string>
#include <vector>

using namespace checkpoint_test;

TEST_SUITE("checkpoint/safetensors large") {
    TEST_CASE("a tensor of more than 2 GiB is written in one piece and read in one piece") {
        TempFolder const folder;
        Index const count = (Index{2200} << 20) + 5;
        std::vector<std::byte> bytes(static_cast<std::size_t>(count));
        // A mark every 64 KiB and at both ends: a piece moved wrongly moves a mark.
        auto const marked = [&](Index at) { return at % 65536 == 0 || at == count - 1; };
        {
            for (Index at = 0; at < count; at += 65536) bytes[static_cast<std::size_t>(at)] = expected_byte("w", at);
            bytes.back() = expected_byte("w", count - 1);
            auto const fill = [&](TensorInfo const&, Index begin, std::span<std::byte> out) {
                std::copy_n(bytes.data() + begin, out.size(), out.data());
            };
            write_safetensors(folder / "m.safetensors", {{"w", DType::u8, Shape{count}}}, fill, default_metadata(),
                              count + 64);
        }
        std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
        auto const file = SafetensorsFile::open(folder / "m.safetensors", Access::mmap);
        file.read(file.at("w"), bytes);
        auto const window = file.mapped_bytes(file.at("w"));
        Index wrong = 0;
        for (Index at = 0; at < count; ++at) {
            std::byte const expected = marked(at) ? expected_byte("w", at) : std::byte{0};
            if (bytes[static_cast<std::size_t>(at)] != expected) ++wrong;
        }
        CHECK(wrong == 0);
        for (Index at = 0; at < count; at += 65536) {
            if (window[static_cast<std::size_t>(at)] != expected_byte("w", at)) ++wrong;
        }
        CHECK(wrong == 0);
    }

    TEST_CASE("headers as large as allowed are read or refused, never fatal") {
        std::size_t const limit = 100'000'000;
        auto const parse = [](std::string const& json) {
            std::string const text = safetensors_text(json);
            return parse_header(text, static_cast<Index>(text.size()));
        };
        CHECK(parse("{}" + std::string(limit - 2, ' ')).tensors().empty());
        check_rule(SafetensorsRule::invalid_header_deserialization, [&] { (void)parse(std::string(limit, '[')); });
        check_rule(SafetensorsRule::invalid_header_deserialization,
                   [&] { (void)parse("{\"" + std::string(limit - 2, 'a')); });
        check_rule(SafetensorsRule::header_too_large, [&] { (void)parse("{}" + std::string(limit, ' ')); });
    }
}
