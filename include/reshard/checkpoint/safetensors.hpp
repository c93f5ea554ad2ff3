// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/safetensors.hpp
/// \brief  Reads one safetensors file: its list of tensors at once, their bytes on demand.
/// \depends checkpoint/safetensors_header.hpp, POSIX. Never copies the file; never changes it.
#pragma once

#include <reshard/checkpoint/detail/file.hpp>
#include <reshard/checkpoint/safetensors_header.hpp>
#include <reshard/core/tensor_view.hpp>

namespace reshard::inline v0 {

/// How the data section is reached. `pread` is the default: on network file systems page faults of a map are an
/// order of magnitude slower, and a failed one kills the process. `mmap` adds `view`.
enum class Access : int { pread, mmap };

/// An open file whose header obeys every rule of the format. Move-only; reads from several threads are safe.
class SafetensorsFile {
public:
    /// Opens and checks. Throws IoError when the file cannot be read, FormatError when it breaks a rule
    /// (`safetensors_rule(error)` says which).
    [[nodiscard]] static SafetensorsFile open(std::string path, Access access = Access::pread) {
        SafetensorsFile result;
        result.path_ = std::move(path);
        result.file_ = detail::open_for_reading(result.path_, result.file_bytes_);
        std::byte first[8]{};
        auto const head = std::span(first).first(static_cast<std::size_t>(smaller<Index>(result.file_bytes_, 8)));
        detail::read_fully(result.file_, result.path_, 0, head);
        Index const length = safetensors_header_length(head, result.file_bytes_, result.path_);
        std::string json(static_cast<std::size_t>(length), '\0');
        detail::read_fully(result.file_, result.path_, 8, std::as_writable_bytes(std::span(json)));
        result.header_ = parse_safetensors_json(json, result.file_bytes_, result.path_);
        result.header_digest_ = safetensors_header_digest(json);
        result.stamp_ = detail::stamp_of(result.file_, result.path_);
        if (access == Access::mmap) result.map_ = detail::FileMap(result.file_, result.file_bytes_, result.path_);
        return result;
    }

    // What refers into this object is returned by value where the object is about to go, or not at all.
    [[nodiscard]] std::string const& path() const& noexcept { return path_; }
    [[nodiscard]] std::string path() && noexcept { return std::move(path_); }
    [[nodiscard]] SafetensorsHeader const& header() const& noexcept { return header_; }
    [[nodiscard]] SafetensorsHeader header() && noexcept { return std::move(header_); }
    /// In file order.
    [[nodiscard]] std::span<TensorInfo const> tensors() const& noexcept { return header_.tensors(); }
    [[nodiscard]] std::vector<TensorInfo> tensors() && noexcept { return std::move(header_).tensors(); }
    [[nodiscard]] Metadata const& metadata() const& noexcept { return header_.metadata(); }
    [[nodiscard]] Metadata metadata() && noexcept { return std::move(header_).metadata(); }
    /// Where the data section begins, in bytes from the start of the file.
    [[nodiscard]] Index data_offset() const noexcept { return header_.data_offset(); }
    [[nodiscard]] Index file_bytes() const noexcept { return file_bytes_; }
    /// A 64-bit digest of the header: files of different versions almost always differ in it, or in file_bytes().
    [[nodiscard]] std::uint64_t header_digest() const noexcept { return header_digest_; }
    [[nodiscard]] bool is_mapped() const noexcept { return map_.data() != nullptr; }

    /// The tensor of that name, or null.
    [[nodiscard]] TensorInfo const* find(std::string_view tensor) const& noexcept { return header_.find(tensor); }
    TensorInfo const* find(std::string_view tensor) const&& = delete;
    /// The tensor of that name. Throws FormatError (TensorNotFound).
    [[nodiscard]] TensorInfo const& at(std::string_view tensor) const& {
        TensorInfo const* const info = find(tensor);
        if (info == nullptr) {
            detail::raise_rule(SafetensorsRule::tensor_not_found,
                               concat(path_, ": none of its ", tensors().size(), " tensors is called ",
                                      detail::quote_name(tensor), ". Fix: check the name against tensors()."));
        }
        return *info;
    }
    [[nodiscard]] TensorInfo at(std::string_view tensor) && { return std::as_const(*this).at(tensor); }

    /// All bytes of the tensor into `out`, which has exactly tensor.bytes() bytes.
    /// Throws BufferError on another size, IoError when the file cannot deliver.
    void read(TensorInfo const& tensor, std::span<std::byte> out) const { read_range(tensor, 0, tensor.bytes(), out); }

    /// Bytes [byte_begin, byte_end) of the tensor into `out`, which has exactly that many bytes.
    void read_range(TensorInfo const& tensor, Index byte_begin, Index byte_end, std::span<std::byte> out) const {
        check_range(tensor, byte_begin, byte_end);
        if (static_cast<Index>(out.size()) != byte_end - byte_begin) {
            raise(ErrorCode::buffer,
                  concat("reshard::SafetensorsFile: bytes [", byte_begin, ", ", byte_end, ") of tensor ",
                         detail::quote_name(tensor.name), " do not fill a buffer of ", out.size(),
                         " bytes. Fix: pass a span of exactly that size."));
        }
        // Also when mapped: a short file is an error here, but would be a signal there.
        detail::read_fully(file_, path_, data_offset() + tensor.begin + byte_begin, out);
    }

    /// Bytes of the data section from `begin` on into `out`, whatever tensors they belong to. Throws like read_range.
    void read_data(Index begin, std::span<std::byte> out) const {
        if (begin < 0 || static_cast<Index>(out.size()) > header_.data_bytes() - begin) {
            raise(ErrorCode::buffer,
                  concat("reshard::SafetensorsFile: ", path_, " has no ", out.size(), " bytes at offset ", begin,
                         " of its data section. Fix: read within its ", header_.data_bytes(), " bytes."));
        }
        detail::read_fully(file_, path_, data_offset() + begin, out);
    }
    /// Bytes of the data section from `begin` on, to byte `offset` of another file, by the system: without a way
    /// through this process, and shared where the file system can. How many were copied: fewer than `bytes` where the
    /// system cannot go on, or the file ends. Throws BufferError like read_data().
    [[nodiscard]] Index copy_data(Index begin, Index bytes, detail::FileDescriptor const& to, Index offset) const {
        if (begin < 0 || bytes > header_.data_bytes() - begin) {
            raise(ErrorCode::buffer,
                  concat("reshard::SafetensorsFile: ", path_, " has no ", bytes, " bytes at offset ", begin,
                         " of its data section. Fix: copy within its ", header_.data_bytes(), " bytes."));
        }
        return detail::copy_between(file_, data_offset() + begin, to, offset, bytes);
    }
    /// Throws IoError if somebody has written to the file, or cut it short, since it was opened.
    void check_unchanged() const {
        if (detail::stamp_of(file_, path_) == stamp_) return;
        raise(ErrorCode::io, concat("IoError: ", path_,
                                    ": it was written to while it was read. Fix: write checkpoints under another name "
                                    "and rename them; load again."));
    }

    /// The tensor's bytes inside the map. They stay valid until this object is destroyed; it may be moved.
    /// Throws BufferError unless the file was opened with Access::mmap.
    [[nodiscard]] std::span<std::byte const> mapped_bytes(TensorInfo const& tensor) const {
        check_range(tensor, 0, tensor.bytes());
        if (!is_mapped()) {
            raise(ErrorCode::buffer,
                  concat("reshard::SafetensorsFile: ", path_, " is not mapped. Fix: open it with Access::mmap."));
        }
        return {map_.data() + data_offset() + tensor.begin, static_cast<std::size_t>(tensor.bytes())};
    }

    /// The tensor as a dense view into the map; its address is aligned only as well as its file was written.
    /// Throws BufferError unless mapped, DTypeError for 4- and 6-bit types, whose elements have no address.
    [[nodiscard]] ConstDynamicView view(TensorInfo const& tensor) const& {
        auto const bytes = mapped_bytes(tensor);
        if (!is_byte_sized(tensor.dtype)) {
            raise(ErrorCode::dtype, concat("reshard::SafetensorsFile: tensor ", detail::quote_name(tensor.name), " is ",
                                           name(tensor.dtype),
                                           ", whose elements are smaller than a byte. Fix: use "
                                           "mapped_bytes() or read()."));
        }
        return {bytes.data(), tensor.dtype, tensor.shape};
    }
    ConstDynamicView view(TensorInfo const& tensor) const&& = delete;

private:
    SafetensorsFile() = default;

    void check_range(TensorInfo const& tensor, Index byte_begin, Index byte_end) const {
        bool const ours = 0 <= tensor.begin && tensor.begin <= tensor.end && tensor.end <= header_.data_bytes();
        if (!ours || byte_begin < 0 || byte_end < byte_begin || byte_end > tensor.bytes()) {
            raise(ErrorCode::buffer, concat("reshard::SafetensorsFile: ", path_, " has no bytes [", byte_begin, ", ",
                                            byte_end, ") of tensor ", detail::quote_name(tensor.name),
                                            ". Fix: pass a tensor of this file and a range inside it."));
        }
    }

    std::string path_;
    detail::FileDescriptor file_;
    detail::FileMap map_;
    SafetensorsHeader header_;
    detail::FileStamp stamp_;
    Index file_bytes_ = 0;
    std::uint64_t header_digest_ = 0;
};

}  // namespace reshard::inline v0
