// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/whole_files.hpp
/// \brief  Files of whole tensors as they will be: what is where in them, their headers, and the index that names them.
/// \depends checkpoint/{manifest,safetensors_layout}, checkpoint/detail/stored_replicas. No I/O.
#pragma once

#include <reshard/checkpoint/detail/stored_replicas.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/core/sorting.hpp>

namespace reshard::inline v0::detail {

/// A file to be written; its bytes are the layout's.
[[nodiscard]] inline CheckpointFile described_file(std::string leaf, SafetensorsLayout const& layout) {
    return {std::move(leaf), as_index(layout.start.size()) + layout.data_bytes,
            Digest{}.add_text(std::string_view(layout.start).substr(8)).value()};
}

struct WholeFiles {
    Manifest manifest;
    std::vector<std::string> starts;  ///< per file: length, header and padding
};
/// Throws as safetensors_layout(). \pre no two files have a tensor of one name
[[nodiscard]] inline WholeFiles whole_files(std::vector<FileSpec> files, Metadata const& metadata) {
    WholeFiles result;
    Manifest& manifest = result.manifest;
    for (FileSpec& file : files) {
        SafetensorsLayout layout = safetensors_layout(std::move(file.tensors), metadata);
        manifest.files.push_back(described_file(std::move(file.leaf), layout));
        for (TensorInfo& tensor : layout.tensors) add_whole(manifest, std::move(tensor));
        result.starts.push_back(std::move(layout.start));
    }
    sort_tensors(manifest);
    return result;
}

/// The index of such files. Throws FormatError for more text than readers take.
[[nodiscard]] inline std::string index_text(Manifest const& manifest) {
    std::vector<std::pair<std::string, std::string>> map;
    Index total = 0;
    for (Extent const& extent : manifest.extents) {
        map.emplace_back(manifest.tensors[extent.tensor].name, manifest.files[as_size(extent.file)].leaf);
        total += extent_bytes(manifest, extent);
    }
    sort_list(map);
    return weight_map_text(map, total);
}

/// The tensors that lie whole in one file, under the names they have there. In the order of the extents.
[[nodiscard]] inline std::vector<CheckpointTensor> whole_tensors(Manifest const& manifest) {
    std::vector<CheckpointTensor> list;
    for (Extent const& extent : manifest.extents) {
        StoredTensor const& tensor = manifest.tensors[extent.tensor];
        if (extent.box != Box(tensor.shape)) continue;
        Index const end = extent.begin + extent_bytes(manifest, extent);
        list.push_back({{key_of(manifest, extent), tensor.dtype, tensor.shape, extent.begin, end}, extent.file});
    }
    return list;
}

}  // namespace reshard::inline v0::detail
