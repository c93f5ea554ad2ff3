// SPDX-License-Identifier: Apache-2.0
// How checkpoint/safetensors_writer.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // find_if

namespace reshard::inline v0 {

RESHARD_INLINE SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
RESHARD_INLINE SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
RESHARD_INLINE SafetensorsWriter::~SafetensorsWriter() = default;

RESHARD_INLINE SafetensorsWriter SafetensorsWriter::create(std::string path, std::vector<TensorSpec> tensors,
                                                           Metadata metadata) {
    return {safetensors_layout(std::move(tensors), std::move(metadata)), std::move(path)};
}

RESHARD_INLINE void SafetensorsWriter::write(std::span<std::byte const> bytes) {
    if (static_cast<Index>(bytes.size()) > data_bytes_ - written_) {
        raise(
            ErrorCode::buffer,
            concat("reshard::SafetensorsWriter: ", path(), ": ", bytes.size(), " bytes given, ", data_bytes_ - written_,
                   " are left of what the tensors take. Fix: write the tensors in the order of tensors()."));
    }
    file_->append(bytes);
    written_ += static_cast<Index>(bytes.size());
}

RESHARD_INLINE void SafetensorsWriter::commit() {
    finish();
    publish();
    detail::sync_folder(detail::folder_of(path()));
}

RESHARD_INLINE void SafetensorsWriter::finish() {
    if (written_ != data_bytes_) {
        auto const next = std::find_if(tensors_.begin(), tensors_.end(),
                                       [&](TensorInfo const& tensor) { return tensor.end > written_; });
        raise(ErrorCode::buffer, concat("reshard::SafetensorsWriter: ", path(), ": ", written_, " of ", data_bytes_,
                                        " bytes were written; the next belong to tensor ",
                                        detail::quote_name(next->name), ". Fix: write every tensor before commit()."));
    }
    file_->finish();
}

RESHARD_INLINE SafetensorsWriter::SafetensorsWriter(SafetensorsLayout&& layout, std::string path)
    : file_(std::make_unique<detail::TemporaryFile>(std::move(path))),
      tensors_(std::move(layout.tensors)),
      data_bytes_(layout.data_bytes) {
    file_->append(std::as_bytes(std::span<char const>(layout.start)));
}

RESHARD_INLINE std::string const& SafetensorsWriter::path() const noexcept { return file_->path(); }

RESHARD_INLINE void SafetensorsWriter::publish() { file_->publish(); }

RESHARD_INLINE CheckpointWriter CheckpointWriter::create(std::string folder, std::vector<TensorSpec> tensors,
                                                         Index max_file_bytes, Metadata metadata) {
    detail::refuse_duplicate_names(tensors);
    CheckpointWriter result;
    result.folder_ = std::move(folder);
    result.metadata_ = std::move(metadata);
    result.parts_ = split_into_files(std::move(tensors), max_file_bytes);
    for (int file = 0; file < result.files(); ++file) {
        auto const& part = result.parts_[static_cast<std::size_t>(file)];
        for (TensorInfo& tensor : safetensors_layout(part, result.metadata_).tensors) {
            result.total_bytes_ += tensor.bytes();
            result.tensors_.push_back({std::move(tensor), file});
        }
    }
    detail::make_folder(result.folder_, true);
    result.refuse_what_is_in_the_way();
    if (result.files() > 1) static_cast<void>(result.index_text());  // refused before anything is written
    return result;
}

RESHARD_INLINE void CheckpointWriter::write(std::span<std::byte const> bytes) {
    if (static_cast<Index>(bytes.size()) > total_bytes_ - written_) {
        raise(ErrorCode::buffer,
              concat("reshard::CheckpointWriter: ", folder_, ": ", bytes.size(), " bytes given, ",
                     total_bytes_ - written_,
                     " are left of what the tensors take. Fix: write the tensors in the order of tensors()."));
    }
    while (!bytes.empty()) {
        while (left_in_file_ == 0) open_next();  // a file may hold empty tensors only
        auto const piece =
            bytes.first(static_cast<std::size_t>(smaller(static_cast<Index>(bytes.size()), left_in_file_)));
        writers_.back().write(piece);
        left_in_file_ -= static_cast<Index>(piece.size());
        written_ += static_cast<Index>(piece.size());
        bytes = bytes.subspan(piece.size());
    }
}

RESHARD_INLINE void CheckpointWriter::commit() {
    if (written_ != total_bytes_) {
        raise(ErrorCode::buffer, concat("reshard::CheckpointWriter: ", folder_, ": ", written_, " of ", total_bytes_,
                                        " bytes were written. Fix: write every tensor before commit()."));
    }
    while (writers_.size() < parts_.size()) open_next();  // files of empty tensors only
    writers_.back().finish();
    if (files() == 1) {
        writers_.back().publish();
    } else {
        detail::TemporaryFile index(detail::join_path(folder_, index_name));
        std::string const text = index_text();
        index.append(std::as_bytes(std::span<char const>(text)));
        index.finish();
        refuse_what_is_in_the_way();
        // The index first: readers miss files that it names until all are there, whenever this process dies.
        detail::PublishedNames names;
        names.add(index);
        detail::sync_folder(folder_);
        for (SafetensorsWriter& writer : writers_) names.add(writer);
        names.keep();
    }
    detail::sync_folder(folder_);
}

RESHARD_INLINE void CheckpointWriter::open_next() {
    if (!writers_.empty()) writers_.back().finish();
    int const file = static_cast<int>(writers_.size());
    auto const& part = parts_[static_cast<std::size_t>(file)];
    writers_.push_back(SafetensorsWriter::create(detail::join_path(folder_, file_name(file)), part, metadata_));
    left_in_file_ = 0;
    for (TensorInfo const& tensor : writers_.back().tensors()) left_in_file_ += tensor.bytes();
}

RESHARD_INLINE void CheckpointWriter::refuse_what_is_in_the_way() const {
    std::vector<std::string> obstacles{std::string(index_name)};
    if (files() > 1) {
        obstacles.emplace_back("model.safetensors");
        for (int file = 0; file < files(); ++file) obstacles.push_back(file_name(file));
    }
    for (std::string const& leaf : obstacles) {
        std::string const path = detail::join_path(folder_, leaf);
        if (detail::path_kind(path) != detail::PathKind::missing) {
            detail::raise_io(path, "a checkpoint is in the way", EEXIST,
                             "write to an empty folder: several files cannot be replaced in one step.");
        }
    }
}

RESHARD_INLINE std::string CheckpointWriter::index_text() const {
    std::vector<std::pair<std::string, std::string>> map;
    for (CheckpointTensor const& tensor : tensors_) map.emplace_back(tensor.name, file_name(tensor.file));
    detail::sort_list(map);
    return detail::weight_map_text(map, total_bytes_);
}

}  // namespace reshard::inline v0
