// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/safetensors_writer.hpp
/// \brief  Writes safetensors files as a stream: one file, or a folder of files with their index.
/// \depends checkpoint/safetensors_layout.hpp, POSIX. Memory does not grow with the tensors.
///
/// Files are written under temporary names, made durable, renamed. Until commit() nothing visible changes; a
/// writer that fails or is dropped removes what it wrote, and what was there before is intact.
#pragma once

#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/detail/weight_map_text.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>

#include <span>  // span

namespace reshard::inline v0 {

/// One file. Declare all tensors, hand over their bytes in the order of tensors(), commit.
class SafetensorsWriter {
public:
    /// Throws FormatError as safetensors_layout does, IoError when the folder cannot be written.
    [[nodiscard]] static SafetensorsWriter create(std::string path, std::vector<TensorSpec> tensors,
                                                  Metadata metadata = default_metadata()) {
        return {safetensors_layout(std::move(tensors), std::move(metadata)), std::move(path)};
    }

    /// In the order their bytes are expected: widest dtype first, then by name.
    [[nodiscard]] std::span<TensorInfo const> tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::string const& path() const noexcept { return file_.path(); }

    /// The next bytes of the data section; pieces may end anywhere.
    /// Throws BufferError when they are more than the tensors take, IoError when they cannot be written.
    void write(std::span<std::byte const> bytes) {
        if (static_cast<Index>(bytes.size()) > data_bytes_ - written_) {
            raise(ErrorCode::buffer,
                  concat("reshard::SafetensorsWriter: ", path(), ": ", bytes.size(), " bytes given, ",
                         data_bytes_ - written_,
                         " are left of what the tensors take. Fix: write the tensors in the order of tensors()."));
        }
        file_.append(bytes);
        written_ += static_cast<Index>(bytes.size());
    }

    /// Makes the file durable and puts it in place. Throws BufferError when bytes are missing, IoError.
    void commit() {
        finish();
        publish();
        detail::sync_folder(detail::folder_of(path()));
    }

    /// The steps of commit(), for writers of several files: make durable; put in place.
    void finish() {
        if (written_ != data_bytes_) {
            auto const next = std::find_if(tensors_.begin(), tensors_.end(),
                                           [&](TensorInfo const& tensor) { return tensor.end > written_; });
            raise(ErrorCode::buffer,
                  concat("reshard::SafetensorsWriter: ", path(), ": ", written_, " of ", data_bytes_,
                         " bytes were written; the next belong to tensor ", detail::quote_name(next->name),
                         ". Fix: write every tensor before commit()."));
        }
        file_.finish();
    }
    void publish() { file_.publish(); }

private:
    SafetensorsWriter(SafetensorsLayout&& layout, std::string path)
        : file_(std::move(path)), tensors_(std::move(layout.tensors)), data_bytes_(layout.data_bytes) {
        file_.append(std::as_bytes(std::span<char const>(layout.start)));
    }

    detail::TemporaryFile file_;
    std::vector<TensorInfo> tensors_;
    Index data_bytes_ = 0;
    Index written_ = 0;
};

/// 5 GB, as Hugging Face writes.
inline constexpr Index default_max_file_bytes = 5'000'000'000;

/// A folder in Hugging Face form: `model.safetensors`, or `model-0000k-of-0000n.safetensors` with
/// `model.safetensors.index.json`, which appears first: whoever reads misses the files that it names until all are
/// there.
class CheckpointWriter {
public:
    CheckpointWriter(CheckpointWriter&&) noexcept = default;
    CheckpointWriter& operator=(CheckpointWriter&&) noexcept = default;

    /// Creates the folder if need be (not its parents). A lone `model.safetensors` is replaced in one step by
    /// another; any other checkpoint in the way is an error, since several files cannot be replaced in one step.
    /// Throws FormatError as safetensors_layout does, IoError.
    [[nodiscard]] static CheckpointWriter create(std::string folder, std::vector<TensorSpec> tensors,
                                                 Index max_file_bytes = default_max_file_bytes,
                                                 Metadata metadata = default_metadata()) {
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
        if (::mkdir(result.folder_.c_str(), 0777) != 0 && errno != EEXIST) {
            detail::raise_io(result.folder_, "cannot create the folder", errno,
                             "create its parent, or write elsewhere.");
        }
        result.refuse_what_is_in_the_way();
        if (result.files() > 1) static_cast<void>(result.index_text());  // refused before anything is written
        return result;
    }

    /// In the order their bytes are expected: file by file, inside a file as SafetensorsWriter orders them.
    [[nodiscard]] std::span<CheckpointTensor const> tensors() const noexcept { return tensors_; }
    [[nodiscard]] int files() const noexcept { return static_cast<int>(parts_.size()); }
    [[nodiscard]] std::string file_name(int file) const { return checkpoint_file_name(file, files()); }
    [[nodiscard]] Index total_bytes() const noexcept { return total_bytes_; }

    /// The next bytes; pieces may end anywhere, also across files. Throws BufferError, IoError.
    void write(std::span<std::byte const> bytes) {
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

    /// Makes all files durable, puts the index in place, then them. Throws BufferError when bytes are missing, IoError.
    void commit() {
        if (written_ != total_bytes_) {
            raise(ErrorCode::buffer,
                  concat("reshard::CheckpointWriter: ", folder_, ": ", written_, " of ", total_bytes_,
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

private:
    static constexpr std::string_view index_name = "model.safetensors.index.json";

    CheckpointWriter() = default;

    void open_next() {
        if (!writers_.empty()) writers_.back().finish();
        int const file = static_cast<int>(writers_.size());
        auto const& part = parts_[static_cast<std::size_t>(file)];
        writers_.push_back(SafetensorsWriter::create(detail::join_path(folder_, file_name(file)), part, metadata_));
        left_in_file_ = 0;
        for (TensorInfo const& tensor : writers_.back().tensors()) left_in_file_ += tensor.bytes();
    }

    void refuse_what_is_in_the_way() const {
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

    [[nodiscard]] std::string index_text() const {
        std::vector<std::pair<std::string, std::string>> map;
        for (CheckpointTensor const& tensor : tensors_) map.emplace_back(tensor.name, file_name(tensor.file));
        std::sort(map.begin(), map.end());
        return detail::weight_map_text(map, total_bytes_);
    }

    std::string folder_;
    Metadata metadata_;
    std::vector<std::vector<TensorSpec>> parts_;
    std::vector<CheckpointTensor> tensors_;
    std::vector<SafetensorsWriter> writers_;  // all but the last are finished
    Index total_bytes_ = 0;
    Index written_ = 0;
    Index left_in_file_ = 0;
};

namespace detail {

/// Asks `fill(tensor, byte_begin, out)` for every tensor's bytes in pieces of at most `chunk_bytes`.
template <class Writer, class Fill>
void pour(Writer& writer, Fill& fill, Index chunk_bytes) {
    Index const step = larger<Index>(chunk_bytes / 64 * 64, 64);  // whole elements of every byte-sized dtype
    std::vector<std::byte> buffer;
    for (auto const& tensor : writer.tensors()) {
        for (Index begin = 0; begin < tensor.bytes(); begin += step) {
            auto const size = static_cast<std::size_t>(smaller(step, tensor.bytes() - begin));
            if (buffer.size() < size) buffer.resize(size);
            std::span<std::byte> const piece = std::span(buffer).first(size);
            fill(tensor, begin, piece);
            writer.write(piece);
        }
    }
    writer.commit();
}

}  // namespace detail

inline constexpr Index default_chunk_bytes = Index{8} << 20;

/// Writes one file. `fill(TensorInfo const&, Index byte_begin, std::span<std::byte> out)` supplies bytes
/// [byte_begin, byte_begin + out.size()) of a tensor, in order, in pieces of whole elements; it may throw.
template <class Fill>
void write_safetensors(std::string path, std::vector<TensorSpec> tensors, Fill&& fill,
                       Metadata metadata = default_metadata(), Index chunk_bytes = default_chunk_bytes) {
    auto writer = SafetensorsWriter::create(std::move(path), std::move(tensors), std::move(metadata));
    detail::pour(writer, fill, chunk_bytes);
}

/// Writes a folder; `fill` as for write_safetensors, with a CheckpointTensor.
template <class Fill>
void write_checkpoint(std::string folder, std::vector<TensorSpec> tensors, Fill&& fill,
                      Index max_file_bytes = default_max_file_bytes, Metadata metadata = default_metadata(),
                      Index chunk_bytes = default_chunk_bytes) {
    auto writer = CheckpointWriter::create(std::move(folder), std::move(tensors), max_file_bytes, std::move(metadata));
    detail::pour(writer, fill, chunk_bytes);
}

}  // namespace reshard::inline v0
