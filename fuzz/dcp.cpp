// SPDX-License-Identifier: Apache-2.0
// Shards of PyTorch DCP: every line of the input is the sharding info of one file, all of which have the same tensors.
#include <reshard/checkpoint/detail/file_entries.hpp>

#include "support.hpp"

void fuzz::dcp(std::uint8_t const* data, std::size_t size) {
    using namespace reshard;
    using namespace reshard::detail;
    std::vector<TensorInfo> const tensors{{"w", DType::f32, DynamicShape(Indices{2, 3}), 0, 24},
                                          {"w.1", DType::f32, DynamicShape(Indices{2, 3}), 24, 48},
                                          {"b", DType::f4, DynamicShape(Indices{4}), 48, 50},
                                          {"s", DType::u8, DynamicShape(Indices{}), 50, 51}};
    std::vector<Manifest> files;
    std::string_view text = fuzz::text_of(data, size);
    Manifest manifest;
    bool const whole = fuzz::answers([&] {
        for (bool more = true; more && files.size() < 8;) {
            auto const end = text.find('\n');
            more = end != std::string_view::npos;
            SafetensorsHeader const header(tensors, {{"DCP_SHARDING_INFO", std::string(text.substr(0, end))}}, 100);
            std::string const leaf =
                errors::concat("shard-0000", files.size() + 1, "-model-00001-of-00001.safetensors");
            files.push_back(dcp_header({leaf, 151, 0, -1}, header, leaf));
            text.remove_prefix(more ? end + 1 : text.size());
        }
        manifest = dcp_manifest(files, "folder");
    });
    if (whole) check_coverage(manifest, "folder");
}
