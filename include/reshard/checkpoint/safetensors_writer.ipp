// SPDX-License-Identifier: Apache-2.0
// How checkpoint/safetensors_writer.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/detail/whole_files.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// The files, whole and durable, under temporary names.
[[nodiscard]] inline std::vector<TemporaryFile> pour(std::string const& folder, WholeFiles const& made,
                                                     FillTensor const& fill, Index chunk_bytes) {
    Index const step = larger<Index>(chunk_bytes / 192 * 192, 192);  // whole elements, of 6 bits and of 16 bytes, too
    std::vector<std::byte> buffer;
    std::vector<TemporaryFile> files;
    auto const tensors = whole_tensors(made.manifest);
    auto tensor = tensors.begin();
    for (std::size_t i = 0; i < made.starts.size(); ++i) {
        TemporaryFile& file = files.emplace_back(join_path(folder, made.manifest.files[i].leaf));
        file.append(std::as_bytes(std::span<char const>(made.starts[i])));
        for (; tensor != tensors.end() && tensor->file == static_cast<int>(i); ++tensor) {
            for (Index begin = 0; begin < tensor->bytes(); begin += step) {
                auto const size = as_size(smaller(step, tensor->bytes() - begin));
                if (buffer.size() < size) buffer.resize(size);
                std::span<std::byte> const piece = std::span(buffer).first(size);
                fill(*tensor, begin, piece);
                file.append(piece);
            }
        }
        file.finish();
    }
    return files;
}

inline void refuse_what_is_in_the_way(std::string const& folder, std::span<CheckpointFile const> files) {
    std::vector<std::string> obstacles{std::string(manifest_name), std::string(index_name)};
    if (files.size() > 1) {
        obstacles.emplace_back(single_name);
        for (CheckpointFile const& file : files) obstacles.push_back(file.leaf);
    }
    for (std::string const& leaf : obstacles) {
        std::string const path = join_path(folder, leaf);
        if (path_kind(path) == PathKind::missing) continue;
        raise_io(path, "a checkpoint is in the way", EEXIST,
                 "write to an empty folder: several files cannot be replaced in one step.");
    }
}

}  // namespace detail

RESHARD_INLINE void write_safetensors(std::string path, std::vector<TensorSpec> tensors, FillTensor const& fill,
                                      Metadata const& metadata, Index chunk_bytes) {
    std::string const folder = detail::folder_of(path);
    auto const made = detail::whole_files({{std::move(path), std::move(tensors)}}, metadata);
    detail::pour({}, made, fill, chunk_bytes).front().publish();
    detail::sync_folder(folder);
}

RESHARD_INLINE void write_checkpoint(std::string const& folder, std::vector<TensorSpec> tensors, FillTensor const& fill,
                                     Index max_file_bytes, Metadata const& metadata, Index chunk_bytes) {
    detail::refuse_duplicate_names(tensors);
    auto const made = detail::whole_files(split_into_files(std::move(tensors), max_file_bytes), metadata);
    bool const one = made.starts.size() == 1;
    std::string const text = one ? std::string() : detail::index_text(made.manifest);
    detail::PassingPath made_folder;  // goes last, if nothing stays in it
    // Who saves or consolidates into the folder would take our files for what a run has left that died.
    detail::FolderLock locks[2];
    detail::make_and_lock(folder, true, made_folder, [&] {
        for (int i : {0, 1}) locks[i] = {folder, detail::lock_name(i == 0 ? manifest_name : detail::index_name)};
    });
    detail::refuse_what_is_in_the_way(folder, made.manifest.files);
    auto files = detail::pour(folder, made, fill, chunk_bytes);
    for (detail::FolderLock& lock : locks) lock.note({}, true);  // of files that are ours from here on
    if (one) {
        files.front().publish();
    } else {
        detail::TemporaryFile index = detail::text_file(detail::join_path(folder, detail::index_name), text);
        detail::refuse_what_is_in_the_way(folder, made.manifest.files);
        // The index first: readers miss files that it names until all are there, whenever this process dies.
        detail::PublishedNames names;
        names.add(index);
        detail::sync_folder(folder, detail::files_go_again);
        for (detail::TemporaryFile& file : files) names.add(file);
        names.keep();
    }
    made_folder.keep();
    detail::sync_folder(folder);
}

}  // namespace reshard::inline v0_1
