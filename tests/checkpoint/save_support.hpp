// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/save_support.hpp
/// \brief  Models to save, each rank's part of them, and what a folder holds: every file and every sum checked.
#pragma once

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/coverage.hpp>
#include <reshard/checkpoint/detail/file_entries.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/checkpoint/safetensors.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_plan.hpp>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "../support/oracle.hpp"
#include "support.hpp"

namespace checkpoint_test {

/// The bytes of a tensor after the version'th training step; copies that are kept apart may differ.
class TrainedBytes {
public:
    TrainedBytes(std::string_view tensor, int version, int copy) {
        for (char const c : errors::concat(tensor, "@", version, "#", copy)) {
            seed_ = (seed_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
        }
    }
    [[nodiscard]] std::byte at(Index position) const noexcept {
        return static_cast<std::byte>(((seed_ ^ (static_cast<std::uint64_t>(position) * 0xff51afd7ed558ccdU)) >> 29U) &
                                      0xffU);
    }

private:
    std::uint64_t seed_ = 0x9e3779b97f4a7c15U;
};

inline PlacedTensor source(std::string name, DType dtype, std::string const& placed, DynamicShape const& shape) {
    return {std::move(name), parse(placed, shape), dtype};
}

/// The copy that a rank has along axes that are kept apart.
inline int copy_of(PlacedTensor const& source, Index rank, SaveOptions const& options) {
    auto const at = oracle::coordinates(source.distribution, rank);
    Index copy = 0;
    for (int axis = 0; axis < static_cast<int>(at.size()); ++axis) {
        bool apart = false;
        for (int named : options.replica_axes) apart = apart || named == axis;
        if (!apart || !source.distribution.placement(axis).is_replicate()) continue;
        copy = copy * source.distribution.mesh().extent(axis) + at[static_cast<std::size_t>(axis)];
    }
    return static_cast<int>(copy);
}

/// One rank's local tensors with memory of their own: dense, or with gaps between all elements.
class Trained {
public:
    Trained(std::vector<PlacedTensor> const& sources, int rank, int version, SaveOptions const& options = {},
            bool gaps = false) {
        for (PlacedTensor const& source : sources) {
            DynamicDistribution const& from = source.distribution;
            bool const holds = from.contains(rank);
            DynamicShape const shape = holds ? from.local_shape(rank) : DynamicShape(Shape{0});
            Indices strides = row_major_strides(shape);
            for (int dim = 0; gaps && dim < shape.rank(); ++dim) strides[dim] *= 2;
            Index const width = bytes(source.dtype);
            memory_.emplace_back(
                static_cast<std::size_t>(detail::larger<Index>(shape.size(), 1) * width * (gaps ? 2 : 1)));
            list_.push_back({source.name, from, DynamicView(memory_.back().data(), source.dtype, shape, strides)});
            if (!holds) continue;
            TrainedBytes const expected(source.name, version, copy_of(source, rank, options));
            std::byte* const memory = memory_.back().data();
            oracle::each_element(from, rank, strides, [&](Index position, Index offset) {
                for (Index b = 0; b < width; ++b) memory[offset * width + b] = expected.at(position * width + b);
            });
        }
    }
    [[nodiscard]] std::vector<LocalTensor>& list() noexcept { return list_; }

private:
    std::deque<std::vector<std::byte>> memory_;
    std::vector<LocalTensor> list_;
};

inline Manifest read_manifest(std::string const& folder) {
    std::string const path = folder + "/" + std::string(manifest_name);
    return manifest_from(read_text(path), path);
}

/// Reads back all that a folder holds and says what is wrong with it, or nothing: files are strict safetensors files
/// of the sizes and headers that the manifest says, extents lie where it says with the sums it says, every element of
/// every copy is there once. Headers are those that readers take for ours, and need not parse.
inline std::string damage(std::string const& folder) {
    try {
        Manifest const manifest = read_manifest(folder);
        check_coverage(manifest, folder);
        std::vector<SafetensorsFile> files;
        for (CheckpointFile const& file : manifest.files) {
            files.push_back(SafetensorsFile::open(folder + "/" + file.leaf));
            if (files.back().file_bytes() != file.file_bytes) return file.leaf + " has another size";
            if (files.back().header_digest() != file.header_digest) return file.leaf + " has another header";
            bool const ordered = std::none_of(manifest.extents.begin(), manifest.extents.end(),
                                              [](Extent const& extent) { return extent.box.empty(); });
            if (ordered && !detail::is_saved_header(manifest, files.size() - 1, files.back().data_offset() - 8))
                return file.leaf + " has a header that readers do not know";
        }
        for (Extent const& extent : manifest.extents) {
            StoredTensor const& tensor = manifest.tensors[extent.tensor];
            SafetensorsFile const& file = files[static_cast<std::size_t>(extent.file)];
            TensorInfo const* const info = file.find(extent.key.empty() ? tensor.name : extent.key);
            if (info == nullptr) return tensor.name + " is not in its file";
            if (info->begin != extent.begin || info->dtype != tensor.dtype || !(info->shape == extent.box.shape())) {
                return tensor.name + " is another in its file";
            }
            std::vector<std::byte> bytes(static_cast<std::size_t>(info->bytes()));
            file.read_data(info->begin, bytes);
            if (!extent.has_checksum || crc32c(bytes) != extent.crc32c) return tensor.name + " has another sum";
        }
    } catch (Error const& error) {
        return error.message();
    }
    return {};
}

/// Whether the folder holds exactly that version of the model, in every element of every copy.
inline bool holds_version(std::string const& folder, std::vector<PlacedTensor> const& sources, int version) {
    Manifest const manifest = read_manifest(folder);
    if (manifest.tensors.size() != sources.size()) return false;
    std::vector<SafetensorsFile> files;
    for (CheckpointFile const& file : manifest.files) files.push_back(SafetensorsFile::open(folder + "/" + file.leaf));
    for (Extent const& extent : manifest.extents) {
        StoredTensor const& tensor = manifest.tensors[extent.tensor];
        SafetensorsFile const& file = files[static_cast<std::size_t>(extent.file)];
        TrainedBytes const expected(tensor.name, version, extent.replica);
        Index const width = bytes(tensor.dtype);
        std::vector<std::byte> bytes(static_cast<std::size_t>(extent.box.size() * width));
        file.read_data(extent.begin, bytes);
        bool same = true;
        std::byte const* at = bytes.data();
        each_run(extent.box, tensor.shape, [&](Index position, Index count) {
            for (Index b = position * width; b < (position + count) * width; ++b)
                same = *at++ == expected.at(b) && same;
        });
        if (!same) return false;
    }
    return true;
}

/// Names of the files that the manifest names, and its own: what a tidy folder holds.
inline std::vector<std::string> named_leaves(std::string const& folder) {
    std::vector<std::string> leaves{std::string(manifest_name)};
    for (CheckpointFile const& file : read_manifest(folder).files) leaves.push_back(file.leaf);
    std::sort(leaves.begin(), leaves.end());
    return leaves;
}

}  // namespace checkpoint_test
