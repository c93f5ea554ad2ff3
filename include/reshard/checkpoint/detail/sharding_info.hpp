// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/sharding_info.hpp
/// \brief  Writes DCP_SHARDING_INFO: which box of its tensor each entry of a file is.
/// \depends checkpoint/detail/manifest_json. No I/O.
#pragma once

#include <reshard/checkpoint/detail/manifest_json.hpp>

#include <span>  // span

namespace reshard::inline v0::detail {

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

}  // namespace reshard::inline v0::detail
