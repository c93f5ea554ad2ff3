// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/file_entries.hpp
/// \brief  What the headers of files of whole tensors say, put together to a Manifest.
/// \depends checkpoint/detail/{dcp_headers,stored_replicas}.hpp. No I/O.
///
/// A file of whole tensors and a shard differ in the boxes of their entries only: whoever reads a header says which box
/// of which tensor each entry is, and everything behind this header knows extents alone.
#pragma once

#include <reshard/checkpoint/detail/dcp_headers.hpp>
#include <reshard/checkpoint/detail/stored_replicas.hpp>

namespace reshard::inline v0::detail {

/// A file and what its header says, in file order. Whole tensors begin at the origin.
using FileEntry = DcpEntry;
using FileEntries = DcpFile;

[[nodiscard]] inline FileEntry whole_entry(TensorInfo const& tensor) {
    return {tensor.name, {}, tensor.dtype, tensor.begin, Box(tensor.shape)};
}

/// What files of whole tensors hold together. Copies that are stored apart become one tensor with replicas.
/// \pre names are distinct
[[nodiscard]] inline Manifest whole_manifest(std::vector<FileEntries> files) {
    Manifest result;
    std::size_t count = 0;
    for (FileEntries const& file : files) count += file.entries.size();
    result.files.reserve(files.size());
    result.extents.reserve(count);
    result.tensors.reserve(count);
    if (!files.empty()) result.metadata = std::move(files[0].metadata);
    for (std::size_t file = 0; file < files.size(); ++file) {
        result.files.push_back(std::move(files[file].file));
        for (FileEntry& entry : files[file].entries) {
            result.extents.push_back({result.tensors.size(), 0, static_cast<int>(file), entry.begin, entry.box});
            result.tensors.push_back({std::move(entry.name), entry.dtype, entry.box.shape(), 1, {}});
        }
    }
    sort_tensors(result);
    group_replicas(result);
    return result;
}

}  // namespace reshard::inline v0::detail
