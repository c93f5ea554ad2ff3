// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/catalogue.hpp
/// \brief  Catalogue: which tensors a checkpoint has and where their bytes lie, without an open file.
/// \depends checkpoint/{checkpoint,safetensors_layout}. What one rank reads from headers and tells the others, and what
/// a dry run works on.
#pragma once

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>

namespace reshard::inline v0 {

/// A list of files and of the tensors in them.
class Catalogue {
public:
    Catalogue() = default;
    /// \pre `tensors` have distinct names and name files of the list.
    Catalogue(std::vector<CheckpointFile> files, std::vector<CheckpointTensor> tensors)
        : files_(std::move(files)), tensors_(std::move(tensors)) {
        by_name_.resize(tensors_.size());
        for (std::size_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
        std::sort(by_name_.begin(), by_name_.end(),
                  [&](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
    }
    explicit Catalogue(Checkpoint const& checkpoint)
        : Catalogue(files_of(checkpoint), {checkpoint.tensors().begin(), checkpoint.tensors().end()}) {}
    /// A checkpoint that might be written: the tensors in files of at most `max_file_bytes` of data, as
    /// write_checkpoint would lay them out. Throws as safetensors_layout does.
    [[nodiscard]] static Catalogue of(std::vector<TensorSpec> tensors, Index max_file_bytes = 5'000'000'000) {
        auto const groups = split_into_files(std::move(tensors), max_file_bytes);
        std::vector<CheckpointFile> files;
        std::vector<CheckpointTensor> list;
        for (std::size_t file = 0; file < groups.size(); ++file) {
            SafetensorsLayout const layout = safetensors_layout(groups[file]);
            for (TensorInfo const& tensor : layout.tensors) list.push_back({tensor, static_cast<int>(file)});
            files.push_back({checkpoint_file_name(static_cast<int>(file), static_cast<int>(groups.size())),
                             static_cast<Index>(layout.start.size()) + layout.data_bytes, 0});
        }
        return {std::move(files), std::move(list)};
    }

    [[nodiscard]] std::span<CheckpointFile const> files() const noexcept { return files_; }
    /// Sorted by file, then by position in it.
    [[nodiscard]] std::span<CheckpointTensor const> tensors() const noexcept { return tensors_; }
    /// The tensor of that name, or null. Logarithmic in the number of tensors.
    [[nodiscard]] CheckpointTensor const* find(std::string_view tensor) const noexcept {
        auto const at = std::lower_bound(by_name_.begin(), by_name_.end(), tensor,
                                         [&](std::size_t i, std::string_view text) { return tensors_[i].name < text; });
        if (at == by_name_.end() || tensors_[*at].name != tensor) return nullptr;
        return &tensors_[*at];
    }
    /// Equal catalogues have equal digests: what ranks compare to know that they see the same files.
    [[nodiscard]] std::uint64_t digest() const noexcept {
        Digest digest;
        for (CheckpointFile const& file : files_) {
            digest.add_text(file.leaf).add_signed(file.file_bytes).add(file.header_digest);
        }
        for (CheckpointTensor const& tensor : tensors_) {  // an index may name some of a file's tensors only
            digest.add_text(tensor.name).add_signed(tensor.file).add_signed(tensor.begin);
        }
        return digest.value();
    }
    friend bool operator==(Catalogue const& a, Catalogue const& b) {
        return a.files_ == b.files_ && a.tensors_ == b.tensors_;
    }

private:
    [[nodiscard]] static std::vector<CheckpointFile> files_of(Checkpoint const& checkpoint) {
        std::vector<CheckpointFile> files;
        for (SafetensorsFile const& file : checkpoint.files()) {
            std::size_t skip = checkpoint.folder().size();  // and the slash behind it
            while (skip < file.path().size() && skip > 0 && file.path()[skip] == '/') ++skip;
            files.push_back({file.path().substr(skip), file.file_bytes(), file.header_digest()});
        }
        return files;
    }

    std::vector<CheckpointFile> files_;
    std::vector<CheckpointTensor> tensors_;
    std::vector<std::size_t> by_name_;
};

}  // namespace reshard::inline v0
