// SPDX-License-Identifier: Apache-2.0
// How checkpoint/safetensors.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/cached_file.hpp>
#include <reshard/checkpoint/safetensors.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// A file that is read, and what it was when it was opened first. Opened again, one that was replaced or removed is an
/// IoError, with the words by which loads know that a save has overtaken them.
struct OpenFile {
    std::string path;
    Index bytes = 0;
    std::optional<FileStamp> stamp{};
    CachedFile cached;
    FileMap map{};  ///< of all of it, where it was asked for

    explicit OpenFile(std::string name) : path(std::move(name)), cached([this] { return open(); }) {}
    [[nodiscard]] FileDescriptor open() {
        Index now = 0;
        auto const open_now = [&] { return open_for_reading(path, now); };
        FileDescriptor file = stamp ? open_saved(path, open_now, [] {}) : open_now();
        if (!stamp) {
            bytes = now;
            stamp = stamp_of(file, path);
        } else if (stamp_of(file, path) != stamp) {
            raise(ErrorCode::io, "IoError: ", path,
                  ": it is another file now than when it was first read: ", overtaken_words,
                  ". Fix: load again, and let saves and loads of one folder take turns.");
        }
        return file;
    }
    void read(Index offset, std::span<std::byte> out) { read_fully(*cached.use(), path, offset, out); }
};

}  // namespace detail

RESHARD_INLINE SafetensorsFile SafetensorsFile::open(std::string path, Access access) {
    return open(std::move(path), access, true);
}
RESHARD_INLINE SafetensorsFile detail::BareFile::open(std::string path) {
    return SafetensorsFile::open(std::move(path), Access::pread, false);
}
RESHARD_INLINE Metadata detail::BareFile::bare(SafetensorsFile& file) noexcept {
    SafetensorsHeader const bare(file.data_offset(), file.header_.data_bytes());
    return std::exchange(file.header_, bare).metadata();
}

RESHARD_INLINE SafetensorsFile SafetensorsFile::open(std::string path, Access access, bool with_tensors) {
    SafetensorsFile result;
    result.open_ = std::make_shared<detail::OpenFile>(std::move(path));
    detail::OpenFile& file = *result.open_;
    detail::CachedFile::Use const open = file.cached.use();
    std::byte first[8]{};
    auto const head = std::span(first).first(detail::as_size(detail::smaller<Index>(file.bytes, 8)));
    file.read(0, head);
    Index const length = safetensors_header_length(head, file.bytes, file.path);
    Index const piece = with_tensors ? length : detail::smaller<Index>(length, Index{1} << 20);
    std::string json;  // all of it, or one piece after the other
    detail::Digest digest = detail::Digest{}.add(static_cast<std::uint64_t>(length));
    for (Index at = 0; at < length; at += piece) {
        json.resize(detail::as_size(detail::smaller(piece, length - at)));
        file.read(8 + at, std::as_writable_bytes(std::span(json)));
        digest.add_bytes(json);
    }
    result.header_digest_ = digest.value();
    result.header_ = with_tensors ? parse_safetensors_json(json, file.bytes, file.path)
                                  : SafetensorsHeader(8 + length, file.bytes - 8 - length);
    if (access == Access::mmap) file.map = detail::FileMap(*open, file.bytes, file.path);
    return result;
}

RESHARD_INLINE TensorInfo const& SafetensorsFile::at(std::string_view tensor) const& {
    TensorInfo const* const info = find(tensor);
    if (info == nullptr) {
        detail::raise_rule(SafetensorsRule::tensor_not_found, path(), ": none of its ", tensors().size(),
                           " tensors is called ", detail::quote_name(tensor),
                           ". Fix: check the name against tensors().");
    }
    return *info;
}

RESHARD_INLINE void SafetensorsFile::read_range(TensorInfo const& tensor, Index byte_begin, Index byte_end,
                                                std::span<std::byte> out) const {
    check_range(tensor, byte_begin, byte_end);
    if (detail::as_index(out.size()) != byte_end - byte_begin) {
        errors::raise(ErrorCode::buffer, "reshard::SafetensorsFile: bytes [", byte_begin, ", ", byte_end,
                      ") of tensor ", detail::quote_name(tensor.name), " do not fill a buffer of ", out.size(),
                      " bytes. Fix: pass a span of exactly that size.");
    }
    // Also when mapped: a short file is an error here, but would be a signal there.
    open_->read(data_offset() + tensor.begin + byte_begin, out);
}

RESHARD_INLINE void SafetensorsFile::read_data(Index begin, std::span<std::byte> out) const {
    if (begin < 0 || detail::as_index(out.size()) > header_.data_bytes() - begin) {
        errors::raise(ErrorCode::buffer, "reshard::SafetensorsFile: ", path(), " has no ", out.size(),
                      " bytes at offset ", begin, " of its data section. Fix: read within its ", header_.data_bytes(),
                      " bytes.");
    }
    open_->read(data_offset() + begin, out);
}

RESHARD_INLINE std::uint64_t SafetensorsFile::version_digest() const {
    constexpr Index samples = 4;
    char sample[4096];
    Index const bytes = detail::smaller<Index>(header_.data_bytes(), sizeof sample);
    detail::Digest digest = detail::Digest{}.add_word(header_digest_);
    Index const last = header_.data_bytes() - bytes;
    for (Index i = 0; i < samples && bytes != 0; ++i) {  // the first bytes, the last, and some between
        std::span<char> const here(sample, detail::as_size(bytes));
        Index const place = last / (samples - 1) * i + last % (samples - 1) * i / (samples - 1);
        read_data(place, std::as_writable_bytes(here));
        digest.add_words({here.data(), here.size()});
    }
    return digest.value();
}

RESHARD_INLINE void SafetensorsFile::check_unchanged() const {
    if (detail::stamp_of(*open_->cached.use(), path()) == open_->stamp) return;
    errors::raise(ErrorCode::io, "IoError: ", path(),
                  ": it was written to while it was read. Fix: write checkpoints under another name "
                  "and rename them; load again.");
}

RESHARD_INLINE std::span<std::byte const> SafetensorsFile::mapped_bytes(TensorInfo const& tensor) const {
    check_range(tensor, 0, tensor.bytes());
    if (!is_mapped()) {
        errors::raise(ErrorCode::buffer, "reshard::SafetensorsFile: ", path(),
                      " is not mapped. Fix: open it with Access::mmap.");
    }
    return {open_->map.data() + data_offset() + tensor.begin, detail::as_size(tensor.bytes())};
}

RESHARD_INLINE ConstDynamicView SafetensorsFile::view(TensorInfo const& tensor) const& {
    auto const bytes = mapped_bytes(tensor);
    if (!is_byte_sized(tensor.dtype)) {
        errors::raise(ErrorCode::dtype, "reshard::SafetensorsFile: tensor ", detail::quote_name(tensor.name), " is ",
                      name(tensor.dtype),
                      ", whose elements are smaller than a byte. Fix: use "
                      "mapped_bytes() or read().");
    }
    return {bytes.data(), tensor.dtype, tensor.shape};
}

RESHARD_INLINE void SafetensorsFile::check_range(TensorInfo const& tensor, Index byte_begin, Index byte_end) const {
    bool const ours = 0 <= tensor.begin && tensor.begin <= tensor.end && tensor.end <= header_.data_bytes();
    if (!ours || byte_begin < 0 || byte_end < byte_begin || byte_end > tensor.bytes()) {
        errors::raise(ErrorCode::buffer, "reshard::SafetensorsFile: ", path(), " has no bytes [", byte_begin, ", ",
                      byte_end, ") of tensor ", detail::quote_name(tensor.name),
                      ". Fix: pass a tensor of this file and a range inside it.");
    }
}

RESHARD_INLINE std::string const& SafetensorsFile::path() const& noexcept { return open_->path; }
RESHARD_INLINE Index SafetensorsFile::file_bytes() const noexcept { return open_->bytes; }

RESHARD_INLINE bool SafetensorsFile::is_mapped() const noexcept {
    return open_ != nullptr && open_->map.data() != nullptr;
}

}  // namespace reshard::inline v0_1
