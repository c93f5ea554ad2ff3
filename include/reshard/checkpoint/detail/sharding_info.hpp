// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/sharding_info.hpp
/// \brief  Headers of files of a save, and DCP_SHARDING_INFO in them: which box of its tensor each entry is.
/// \depends checkpoint/safetensors_layout, checkpoint/detail/manifest_json. No I/O.
#pragma once

#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>

#include <span>  // span

namespace reshard::inline v0::detail {

inline constexpr std::string_view dcp_sharding_info = "DCP_SHARDING_INFO";

/// `{"w": {"saved_offsets": [4, 0]}}`: what PyTorch's reader of sharded safetensors files wants to know.
[[nodiscard]] inline std::string sharding_info(Manifest const& manifest, std::span<Extent const> extents) {
    std::string json = "{";
    for (Extent const& extent : extents) {
        if (json.size() > 1) json += ", ";
        append_json_string(json, key_of(manifest, extent));
        json += ": {\"saved_offsets\": [";
        for (int dim = 0; dim < extent.box.rank(); ++dim) json += concat(dim == 0 ? "" : ", ", extent.box.begin(dim));
        json += "]}";
    }
    return json + '}';
}

/// The header of a file of a save, with these extents. Throws as safetensors_layout().
[[nodiscard]] inline SafetensorsLayout shard_layout(Manifest const& manifest, std::span<Extent const> extents,
                                                    Metadata metadata) {
    std::vector<TensorSpec> entries;
    for (Extent const& extent : extents)
        entries.push_back({key_of(manifest, extent), manifest.tensors[extent.tensor].dtype, extent.box.shape()});
    metadata.emplace_back(dcp_sharding_info, sharding_info(manifest, extents));
    metadata.emplace_back("reshard_save", manifest.save);
    return safetensors_layout(std::move(entries), std::move(metadata));
}

}  // namespace reshard::inline v0::detail
