// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/safetensors_writer.hpp
/// \brief  Writes safetensors files as a stream: one file, or a folder of files with their index.
/// \depends checkpoint/safetensors_layout.hpp, POSIX. Memory does not grow with the tensors.
///
/// Files are written under temporary names, made durable, renamed. Until commit() nothing visible changes; a
/// writer that fails or is dropped removes what it wrote, and what was there before is intact.
#pragma once

#include <reshard/checkpoint/safetensors_layout.hpp>

#include <memory>  // unique_ptr
#include <span>    // span

namespace reshard::inline v0 {

namespace detail {
class TemporaryFile;  // detail/temporary_file.hpp
}  // namespace detail

/// One file. Declare all tensors, hand over their bytes in the order of tensors(), commit.
class SafetensorsWriter {
public:
    SafetensorsWriter(SafetensorsWriter&&) noexcept;
    SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
    ~SafetensorsWriter();

    /// Throws FormatError as safetensors_layout does, IoError when the folder cannot be written.
    [[nodiscard]] static SafetensorsWriter create(std::string path, std::vector<TensorSpec> tensors,
                                                  Metadata metadata = default_metadata());

    /// In the order their bytes are expected: widest dtype first, then by name.
    [[nodiscard]] std::span<TensorInfo const> tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::string const& path() const noexcept;

    /// The next bytes of the data section; pieces may end anywhere.
    /// Throws BufferError when they are more than the tensors take, IoError when they cannot be written.
    void write(std::span<std::byte const> bytes);

    /// Makes the file durable and puts it in place. Throws BufferError when bytes are missing, IoError.
    void commit();

    /// The steps of commit(), for writers of several files: make durable; put in place.
    void finish();
    void publish();

private:
    SafetensorsWriter(SafetensorsLayout&& layout, std::string path);

    std::unique_ptr<detail::TemporaryFile> file_;
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

    /// Creates the folder if need be, and those that it lies in. A lone `model.safetensors` is replaced in one step by
    /// another; any other checkpoint in the way is an error, since several files cannot be replaced in one step.
    /// Throws FormatError as safetensors_layout does, IoError.
    [[nodiscard]] static CheckpointWriter create(std::string folder, std::vector<TensorSpec> tensors,
                                                 Index max_file_bytes = default_max_file_bytes,
                                                 Metadata metadata = default_metadata());

    /// In the order their bytes are expected: file by file, inside a file as SafetensorsWriter orders them.
    [[nodiscard]] std::span<CheckpointTensor const> tensors() const noexcept { return tensors_; }
    [[nodiscard]] int files() const noexcept { return static_cast<int>(parts_.size()); }
    [[nodiscard]] std::string file_name(int file) const { return checkpoint_file_name(file, files()); }
    [[nodiscard]] Index total_bytes() const noexcept { return total_bytes_; }

    /// The next bytes; pieces may end anywhere, also across files. Throws BufferError, IoError.
    void write(std::span<std::byte const> bytes);

    /// Makes all files durable, puts the index in place, then them. Throws BufferError when bytes are missing, IoError.
    void commit();

private:
    static constexpr std::string_view index_name = "model.safetensors.index.json";

    CheckpointWriter() = default;

    void open_next();

    void refuse_what_is_in_the_way() const;

    [[nodiscard]] std::string index_text() const;

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

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/safetensors_writer.ipp>
#endif
