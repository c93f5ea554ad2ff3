// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/safetensors.hpp
/// \brief  Reads one safetensors file: its list of tensors at once, their bytes on demand.
/// \depends checkpoint/safetensors_header.hpp, POSIX. Never copies the file; never changes it.
#pragma once

#include <reshard/checkpoint/safetensors_header.hpp>
#include <reshard/core/tensor_view.hpp>

#include <bit>     // endian
#include <memory>  // shared_ptr

namespace reshard::inline v0_1 {

static_assert(std::endian::native == std::endian::little,
              "reshard: files hold little-endian numbers, as they lie in memory.");

namespace detail {
struct OpenFile;
struct BareFile;
}  // namespace detail

/// How the data section is reached. `pread` is the default: on network file systems page faults of a map are an
/// order of magnitude slower, and a failed one kills the process. `mmap` adds `view`.
enum class Access : int { pread, mmap };

/// A file whose header obeys every rule of the format. Move-only; reads from several threads are safe. It stays open
/// while the process has descriptors to spare (half of `ulimit -n` are for checkpoints), and is opened again
/// when it is read: then a file that was replaced meanwhile is an IoError.
class SafetensorsFile {
public:
    SafetensorsFile(SafetensorsFile&&) noexcept = default;
    SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

    /// Opens and checks. Throws IoError when the file cannot be read, FormatError when it breaks a rule
    /// (`safetensors_rule(error)` says which).
    [[nodiscard]] static SafetensorsFile open(std::string path, Access access = Access::pread);

    // What refers into this object is returned by value where the object is about to go, or not at all.
    [[nodiscard]] std::string const& path() const& noexcept;
    [[nodiscard]] std::string path() && { return std::as_const(*this).path(); }
    [[nodiscard]] SafetensorsHeader const& header() const& noexcept { return header_; }
    [[nodiscard]] SafetensorsHeader header() && noexcept { return std::move(header_); }
    /// In file order.
    [[nodiscard]] std::span<TensorInfo const> tensors() const& noexcept { return header_.tensors(); }
    [[nodiscard]] std::vector<TensorInfo> tensors() && noexcept { return std::move(header_).tensors(); }
    [[nodiscard]] Metadata const& metadata() const& noexcept { return header_.metadata(); }
    [[nodiscard]] Metadata metadata() && noexcept { return std::move(header_).metadata(); }
    /// Where the data section begins, in bytes from the start of the file.
    [[nodiscard]] Index data_offset() const noexcept { return header_.data_offset(); }
    [[nodiscard]] Index file_bytes() const noexcept;
    /// A 64-bit digest of the header: files of different versions almost always differ in it, or in file_bytes().
    [[nodiscard]] std::uint64_t header_digest() const noexcept { return header_digest_; }
    /// The same with samples of the data, which are read: two trainings of one model have equal headers and sizes.
    /// Throws as read_data().
    [[nodiscard]] std::uint64_t version_digest() const;
    [[nodiscard]] bool is_mapped() const noexcept;

    /// The tensor of that name, or null.
    [[nodiscard]] TensorInfo const* find(std::string_view tensor) const& noexcept { return header_.find(tensor); }
    TensorInfo const* find(std::string_view tensor) const&& = delete;
    /// The tensor of that name. Throws FormatError (TensorNotFound).
    [[nodiscard]] TensorInfo const& at(std::string_view tensor) const&;
    [[nodiscard]] TensorInfo at(std::string_view tensor) && { return std::as_const(*this).at(tensor); }

    /// All bytes of the tensor into `out`, which has exactly tensor.bytes() bytes.
    /// Throws BufferError on another size, IoError when the file cannot deliver.
    void read(TensorInfo const& tensor, std::span<std::byte> out) const { read_range(tensor, 0, tensor.bytes(), out); }

    /// Bytes [byte_begin, byte_end) of the tensor into `out`, which has exactly that many bytes.
    void read_range(TensorInfo const& tensor, Index byte_begin, Index byte_end, std::span<std::byte> out) const;

    /// Bytes of the data section from `begin` on into `out`, whatever tensors they belong to. Throws like read_range.
    void read_data(Index begin, std::span<std::byte> out) const;
    /// Throws IoError if somebody has written to the file, or cut it short, since it was opened.
    void check_unchanged() const;

    /// The tensor's bytes inside the map. They stay valid until this object is destroyed; it may be moved.
    /// Throws BufferError unless the file was opened with Access::mmap.
    [[nodiscard]] std::span<std::byte const> mapped_bytes(TensorInfo const& tensor) const;

    /// The tensor as a dense view into the map; its address is aligned only as well as its file was written.
    /// Throws BufferError unless mapped, DTypeError for 4- and 6-bit types, whose elements have no address.
    [[nodiscard]] ConstDynamicView view(TensorInfo const& tensor) const&;
    ConstDynamicView view(TensorInfo const& tensor) const&& = delete;

private:
    friend detail::BareFile;
    SafetensorsFile() = default;

    [[nodiscard]] static SafetensorsFile open(std::string path, Access access, bool with_tensors);
    void check_range(TensorInfo const& tensor, Index byte_begin, Index byte_end) const;

    std::shared_ptr<detail::OpenFile> open_;  // never shared: it ends a class that is incomplete here
    SafetensorsHeader header_;
    std::uint64_t header_digest_ = 0;
};

namespace detail {
/// Files whose tensors somebody else lists: a list of their own would take as much memory again.
struct BareFile {
    /// Of the header only its length is checked: its digest is for the caller to compare.
    [[nodiscard]] static SafetensorsFile open(std::string path);
    /// Drops the list of a file. Returns its metadata.
    static Metadata bare(SafetensorsFile& file) noexcept;
};
}  // namespace detail

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/safetensors.ipp>
#endif
