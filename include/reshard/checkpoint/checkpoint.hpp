// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/checkpoint.hpp
/// \brief  An open checkpoint: its files, the tensors that lie whole in one of them, and what is where of the others.
/// \depends checkpoint/{manifest,safetensors}. Link reshard::checkpoint.
#pragma once

#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/safetensors.hpp>

namespace reshard::inline v0_1 {

namespace detail {
struct FileList;  // detail/file_list.hpp
}  // namespace detail

/// Open files and what is in them. Move-only; reads from several threads are safe.
///
/// Tensors that are cut into boxes are loaded, not read: load(checkpoint, tensors, rank), Catalogue(checkpoint).
class Checkpoint {
public:
    Checkpoint(Checkpoint&&) noexcept = default;
    Checkpoint& operator=(Checkpoint&&) noexcept = default;

    /// `path` is a `.safetensors` file, a `.json` index or manifest, or a folder with (looked for in this order)
    /// `reshard.manifest.json`, `model.safetensors.index.json`, `model.safetensors`, shards of PyTorch DCP and no other
    /// `*.safetensors`, or exactly one `*.safetensors`. A folder with an index and a `model.safetensors` is refused
    /// unless the index names that very file. What is left of a save that never ended is not read.
    ///
    /// With an index, the files are the ones it names (file names mean nothing by themselves), each tensor must
    /// be in the file it names, and tensors it does not name are not part of the checkpoint.
    /// Without a manifest 16 KiB of each file's data are read as well: see SafetensorsFile::version_digest().
    /// Throws IoError (naming what is missing), FormatError, MismatchError for files that are not those the manifest
    /// names.
    [[nodiscard]] static Checkpoint open(std::string const& path, Access access = Access::pread);

    [[nodiscard]] CheckpointKind kind() const noexcept { return kind_; }
    /// All tensors, and the boxes of them that lie in the files.
    /// This, and whatever else refers into this object, is returned by value where the object is about to go, or not at
    /// all: `for (auto const& text : Checkpoint::open(path).manifest().metadata)` is right.
    [[nodiscard]] Manifest const& manifest() const& noexcept { return manifest_; }
    [[nodiscard]] Manifest manifest() && noexcept { return std::move(manifest_); }
    /// Those that lie whole in one file, under the name they have there (that of a replica, where it has one).
    /// Sorted by file, then by position in it.
    [[nodiscard]] std::span<CheckpointTensor const> tensors() const& noexcept { return tensors_; }
    [[nodiscard]] std::vector<CheckpointTensor> tensors() && noexcept { return std::move(tensors_); }
    /// What the files' names are relative to; empty for the working folder.
    [[nodiscard]] std::string const& folder() const& noexcept { return folder_; }
    [[nodiscard]] std::string folder() && noexcept { return std::move(folder_); }
    /// Sorted by name, where an index named them.
    [[nodiscard]] std::span<SafetensorsFile const> files() const& noexcept { return files_; }
    [[nodiscard]] std::vector<SafetensorsFile> files() && noexcept { return std::move(files_); }
    SafetensorsFile const& file_of(CheckpointTensor const& tensor) const&& = delete;
    [[nodiscard]] SafetensorsFile const& file_of(CheckpointTensor const& tensor) const&;
    /// Bytes of all tensors, replicas included.
    [[nodiscard]] Index total_bytes() const noexcept;

    /// The tensor of that name among tensors(), or null. Logarithmic in their number.
    [[nodiscard]] CheckpointTensor const* find(std::string_view tensor) const& noexcept {
        return detail::find_by_name(tensors_, by_name_, tensor);
    }
    CheckpointTensor const* find(std::string_view tensor) const&& = delete;
    /// The tensor of that name among tensors(). Throws FormatError (TensorNotFound).
    [[nodiscard]] CheckpointTensor const& at(std::string_view tensor) const&;

    [[nodiscard]] CheckpointTensor at(std::string_view tensor) && { return std::as_const(*this).at(tensor); }

    /// As SafetensorsFile, for the file the tensor lies in.
    void read(CheckpointTensor const& tensor, std::span<std::byte> out) const { file_of(tensor).read(tensor, out); }
    void read_range(CheckpointTensor const& tensor, Index byte_begin, Index byte_end, std::span<std::byte> out) const {
        file_of(tensor).read_range(tensor, byte_begin, byte_end, out);
    }
    [[nodiscard]] ConstDynamicView view(CheckpointTensor const& tensor) const& { return file_of(tensor).view(tensor); }
    ConstDynamicView view(CheckpointTensor const& tensor) const&& = delete;

private:
    Checkpoint(detail::FileList list, Access access);

    CheckpointKind kind_ = CheckpointKind::file;
    std::string folder_;
    std::vector<SafetensorsFile> files_;
    Manifest manifest_;
    std::vector<CheckpointTensor> tensors_;
    std::vector<std::size_t> by_name_;
};

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/checkpoint.ipp>
#endif
