// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/checkpoint_reader.hpp.
#include <reshard/checkpoint/checkpoint_reader.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/safetensors_writer.hpp>

#include "support.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;
}  // namespace

TEST_SUITE("checkpoint/checkpoint_reader") {
    TEST_CASE("any part of an extent is read, the blocks it touches are compared, others are not") {
        constexpr Index block = 1000;
        TempFolder const folder;
        std::string const path = folder / "some.safetensors";
        for (Index const bytes : {Index{5}, block, 3 * block, 3 * block + 100}) {
            for (bool const blocks : {true, false}) {
                CAPTURE(bytes);
                CAPTURE(blocks);
                std::vector<std::byte> data(static_cast<std::size_t>(bytes));
                for (Index i = 0; i < bytes; ++i) data[static_cast<std::size_t>(i)] = expected_byte("t", i);
                auto const write = [&] {
                    write_safetensors(path, {{"s", DType::u8, Shape{16}}, {"t", DType::u8, Shape{bytes}}},
                                      [&](TensorInfo const& info, Index begin, std::span<std::byte> out) {
                                          if (info.name == "t")
                                              std::copy_n(data.begin() + begin, out.size(), out.begin());
                                      });
                    return SafetensorsFile::open(path);
                };
                SafetensorsFile const good = write();
                Manifest manifest;
                manifest.block_bytes = block;
                manifest.files = {{"some.safetensors", good.file_bytes(), good.header_digest(), 0}};
                manifest.tensors = {{"t", DType::u8, Shape{bytes}, 1, ""}};
                Extent extent{0, 0, 0, good.at("t").begin, Box(Shape{bytes}), {}, true, crc32c(data)};
                Index const count = blocks ? detail::block_count(bytes, block) : 0;
                for (Index b = 0; b < count; ++b) {
                    auto const first = static_cast<std::size_t>(b * block);
                    extent.block_sums.push_back(crc32c(std::span(data).subspan(
                        first, detail::smaller(data.size() - first, static_cast<std::size_t>(block)))));
                }
                manifest.extents = {extent};
                auto const read = [&](Index begin, Index end) {
                    std::vector<std::byte> part(static_cast<std::size_t>(end - begin));
                    detail::CheckpointReader reader(folder.path(), Catalogue(manifest));
                    Index const found = reader.read_part(extent, begin, end, part.data());
                    CHECK(reader.read_part(extent, end, end, part.data()) == 0);
                    CHECK(std::equal(part.begin(), part.end(), data.begin() + begin));
                    return found;
                };
                bool const checked = blocks || bytes <= block;
                Index const middle = bytes / 2;
                for (Index begin : {Index{0}, Index{1}, middle, detail::smaller(block, bytes), bytes - 1, bytes}) {
                    for (Index end :
                         {begin, detail::smaller(begin + 1, bytes), detail::larger(begin, middle),
                          detail::larger(begin, bytes / block * block), detail::larger(begin, bytes - 1), bytes}) {
                        Index const first = begin / block * block;
                        Index const last = detail::smaller(detail::ceil_div(end, block) * block, bytes);
                        Index const wanted = begin == end ? 0 : checked ? last - first : end - begin;
                        CHECK(read(begin, end) == wanted);
                    }
                }
                data[static_cast<std::size_t>(bytes - 1)] ^= std::byte{16};
                static_cast<void>(write());
                if (bytes > block) CHECK(read(1, 2) == (blocks ? block : 1));
                Index const first = checked ? (bytes - 1) / block * block : 0;
                Caught const error = caught([&] { static_cast<void>(read(0, bytes)); });
                CHECK(error.code == ErrorCode::format);
                CHECK(contains(error.message, errors::concat("bytes ", first, " to ", bytes, " of box [0:", bytes,
                                                             "] of tensor 't'")));
                CHECK(contains(error.message, "have CRC-32C "));
                CHECK(contains(error.message, "Fix: "));
            }
        }
    }
}
