// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/manifest_support.hpp
/// \brief  Manifests to test with: the one of the documentation, and random ones whose tensors are cut at random.
#pragma once

#include <reshard/checkpoint/detail/manifest_json.hpp>

#include <support/random.hpp>

#include "support.hpp"

#include <string>
#include <vector>

namespace checkpoint_test {

/// The example of docs/manifest.md: a weight whose two copies are kept apart, a weight and a scalar that one rank
/// wrote, a tensor of 4-bit numbers.
inline Manifest example_manifest() {
    Manifest m;
    m.save = "0123456789abcdef";
    m.world_size = 4;
    m.metadata = {{"model", "tiny"}, {"step", "1000"}};
    m.files = {{"shard-00001-of-00004.0123456789abcdef.safetensors", 568, 0x5c1e0a7709d3b2f4U, 0},
               {"shard-00002-of-00004.0123456789abcdef.safetensors", 560, 0x00000000deadbeefU, 1},
               {"shard-00003-of-00004.0123456789abcdef.safetensors", 611, 0x91d7c3f0aa54e682U, 2},
               {"shard-00004-of-00004.0123456789abcdef.safetensors", 424, 0x1122334455667788U, 3}};
    m.tensors = {{"codes", DType::f4, DynamicShape(Indices{3, 2}), 1, ""},
                 {"layer.0.weight", DType::f32, DynamicShape(Indices{6, 2}), 2, "(2,2):(R,S0)"},
                 {"norm.weight", DType::f32, DynamicShape(Indices{2}), 1, "(2,2):(R,R)"},
                 {"step", DType::i64, DynamicShape(Indices{}), 1, "(4):(R)"}};
    std::string const first = "layer.0.weight.__tp_replica_0";
    std::string const second = "layer.0.weight.__tp_replica_1";
    // {tensor, replica, file, begin, box, key, has_checksum, crc32c}
    m.extents = {{1, 0, 0, 0, Box{{0, 3}, {0, 2}}, first, true, 0x62a8ab43U},
                 {2, 0, 0, 24, Box{{0, 2}}, "", true, 0xe3069283U},
                 {3, 0, 1, 0, Box{}, "", true, 0x8a9136aaU},
                 {1, 0, 1, 8, Box{{3, 6}, {0, 2}}, first, true, 0x46dd794eU},
                 {1, 1, 2, 0, Box{{0, 3}, {0, 2}}, second, true, 0x62a8ab43U},
                 {0, 0, 2, 24, Box{{0, 3}, {0, 2}}, "", false, 0},
                 {1, 1, 3, 0, Box{{3, 6}, {0, 2}}, second, true, 0x46dd794eU}};
    return m;
}

using reshard::test::guillotine;

/// Any manifest that a save could have written: tensors cut at random, boxes in any file.
inline Manifest random_manifest(reshard::test::Random& random) {
    Manifest m;
    m.save = reshard::detail::hex_text(random.engine()(), 16);
    m.world_size = static_cast<int>(random.between(1, 9));
    if (random.chance(50)) m.metadata = {{"", "\"quoted\"\n"}, {"a", "\xc3\xa4"}};
    Index const block_bytes = random.between(1, 40);
    int const files = static_cast<int>(random.between(1, 5));
    std::vector<Index> filled(static_cast<std::size_t>(files));
    for (int t = static_cast<int>(random.between(0, 6)); t > 0; --t) {
        StoredTensor tensor;
        tensor.name = errors::concat("t", 100 - t, random.chance(10) ? "\xe2\x82\xac\t" : "");
        tensor.dtype = static_cast<DType>(random.between(0, dtype_count - 1));
        auto const d = random.distribution(random.mesh(), random.shape());
        tensor.shape = is_byte_sized(tensor.dtype) ? d.shape() : DynamicShape(Indices{4, random.between(0, 5)});
        tensor.replicas = static_cast<int>(random.between(1, 3));
        if (is_byte_sized(tensor.dtype) && random.chance(80)) tensor.distribution = to_string(d);
        m.tensors.push_back(tensor);
        for (int replica = 0; replica < tensor.replicas; ++replica) {
            int const cuts = is_byte_sized(tensor.dtype) ? static_cast<int>(random.between(0, 12)) : 0;
            int number = 0;
            for (Box const& box : guillotine(random, Box(tensor.shape), cuts)) {
                Extent extent;
                extent.tensor = m.tensors.size() - 1;
                extent.replica = replica;
                extent.file = static_cast<int>(random.between(0, files - 1));
                extent.box = box;
                if (number + replica > 0) extent.key = errors::concat(tensor.name, ".", replica, ".", number);
                ++number;
                extent.has_checksum = random.chance(80);
                if (extent.has_checksum) extent.crc32c = static_cast<std::uint32_t>(random.engine()());
                if (extent.has_checksum && random.chance(50)) {
                    Index const bytes = reshard::detail::extent_bytes(m, extent);
                    Index const blocks = reshard::detail::block_count(bytes, block_bytes);
                    for (Index b = 0; b < blocks; ++b)
                        extent.block_sums.push_back(static_cast<std::uint32_t>(random.engine()()));
                    if (blocks > 0) m.block_bytes = block_bytes;  // else nothing of it is written
                }
                Index& end = filled[static_cast<std::size_t>(extent.file)];
                extent.begin = end;
                end += reshard::detail::extent_bytes(m, extent) + 8;
                m.extents.push_back(extent);
            }
        }
    }
    for (int f = 0; f < files; ++f) {
        m.files.push_back({errors::concat("f", f, ".safetensors"), filled[static_cast<std::size_t>(f)] + 10,
                           random.engine()(), static_cast<int>(random.between(-1, m.world_size - 1))});
    }
    reshard::detail::sort_extents(m, "made");
    return m;
}

/// `text` with its first `from` replaced.
inline std::string with(std::string text, std::string_view from, std::string_view to) {
    std::size_t const at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

}  // namespace checkpoint_test
