// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/catalogue_bytes.hpp
/// \brief  Catalogues, and what they are made from, as bytes: what one rank sends to the others. Both ends are the same
///         program.
/// \depends checkpoint/catalogue.hpp.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/file_entries.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>

namespace reshard::inline v0::detail {

/// Numbers take as many bytes as they need, seven bits in each. Of a text only what differs from the one before is
/// written: names of tensors have most in common. So a list of thousands of tensors stays a matter of microseconds.
class ByteWriter {
public:
    void number(std::int64_t value) {
        auto rest = static_cast<std::uint64_t>(value);
        for (; rest >= 0x80; rest >>= 7U) bytes_.push_back(static_cast<std::byte>(0x80U | (rest & 0x7fU)));
        bytes_.push_back(static_cast<std::byte>(rest));
    }
    /// Always eight bytes: a digest is long whatever it is, and not known before a file is written.
    void digest(std::uint64_t value) {
        for (unsigned shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<std::byte>(value >> shift));
    }
    void text(std::string_view text) {
        std::size_t const shorter = smaller(text.size(), last_.size());
        std::size_t same = 0;
        while (same < shorter && text[same] == last_[same]) ++same;
        number(static_cast<std::int64_t>(same));
        number(static_cast<std::int64_t>(text.size() - same));
        auto const raw = std::as_bytes(std::span(text.substr(same)));
        bytes_.insert(bytes_.end(), raw.begin(), raw.end());
        last_.assign(text);
    }
    void box(Box const& box) {
        number(box.rank());
        for (int dim = 0; dim < box.rank(); ++dim) {
            number(box.begin(dim));
            number(box.extent(dim));
        }
    }
    void file(CheckpointFile const& file) {
        text(file.leaf);
        number(file.file_bytes);
        digest(file.header_digest);
        number(file.writer + 1);
    }
    [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

private:
    std::vector<std::byte> bytes_;
    std::string last_;
};

/// \pre the bytes are a ByteWriter's.
class ByteReader {
public:
    explicit ByteReader(std::span<std::byte const> bytes) noexcept : rest_(bytes) {}
    [[nodiscard]] std::int64_t number() noexcept {
        std::uint64_t value = 0;
        for (unsigned shift = 0;; shift += 7) {
            auto const byte = std::to_integer<std::uint64_t>(rest_.front());
            rest_ = rest_.subspan(1);
            value |= (byte & 0x7fU) << shift;
            if (byte < 0x80) return static_cast<std::int64_t>(value);
        }
    }
    [[nodiscard]] std::uint64_t digest() noexcept {
        std::uint64_t value = 0;
        for (unsigned byte = 0; byte < 8; ++byte) value |= std::to_integer<std::uint64_t>(rest_[byte]) << (8 * byte);
        rest_ = rest_.subspan(8);
        return value;
    }
    [[nodiscard]] std::string text() {
        auto const same = static_cast<std::size_t>(number());
        auto const size = static_cast<std::size_t>(number());
        last_.resize(same);
        last_.append(reinterpret_cast<char const*>(rest_.data()), size);
        rest_ = rest_.subspan(size);
        return last_;
    }
    [[nodiscard]] Box box() {
        Box result;
        for (auto dims = number(); dims > 0; --dims) {
            Index const begin = number();
            result.push_back({begin, begin + number()});
        }
        return result;
    }
    [[nodiscard]] CheckpointFile file() {
        CheckpointFile result;
        result.leaf = text();
        result.file_bytes = number();
        result.header_digest = digest();
        result.writer = static_cast<int>(number()) - 1;
        return result;
    }
    [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }

private:
    std::span<std::byte const> rest_;
    std::string last_;
};

/// Texts of one kind one after the other, so that they share what they begin with.
template <class Items, class Text>
void write_texts(ByteWriter& out, Items const& items, Text&& text) {
    for (auto const& item : items) out.text(text(item));
}
inline void write(ByteWriter& out, Metadata const& metadata) {
    out.number(static_cast<std::int64_t>(metadata.size()));
    for (auto const& [key, value] : metadata) {
        out.text(key);
        out.text(value);
    }
}
[[nodiscard]] inline Metadata read_metadata(ByteReader& in) {
    Metadata metadata(static_cast<std::size_t>(in.number()));
    for (auto& item : metadata) {
        item.first = in.text();
        item.second = in.text();
    }
    return metadata;
}
/// Without the sums of blocks, which nobody asks for who did not read the manifest.
inline void write(ByteWriter& out, Catalogue const& catalogue) {
    Manifest const& manifest = catalogue.manifest();
    out.number(static_cast<std::int64_t>(catalogue.kind()));
    out.text(manifest.save);
    out.number(manifest.world_size);
    write(out, manifest.metadata);
    out.number(static_cast<std::int64_t>(manifest.files.size()));
    for (CheckpointFile const& file : manifest.files) out.file(file);
    out.number(static_cast<std::int64_t>(manifest.tensors.size()));
    write_texts(out, manifest.tensors, [](StoredTensor const& tensor) { return std::string_view(tensor.name); });
    write_texts(out, manifest.tensors,
                [](StoredTensor const& tensor) { return std::string_view(tensor.distribution); });
    for (StoredTensor const& tensor : manifest.tensors) {
        out.number(static_cast<std::int64_t>(tensor.dtype));
        out.box(Box(tensor.shape));
        out.number(tensor.replicas);
    }
    out.number(static_cast<std::int64_t>(manifest.extents.size()));
    write_texts(out, manifest.extents, [](Extent const& extent) { return std::string_view(extent.key); });
    for (Extent const& extent : manifest.extents) {
        out.number(static_cast<std::int64_t>(extent.tensor));
        out.number(extent.replica);
        out.number(extent.file);
        out.number(extent.begin);
        out.box(extent.box);
        out.number(extent.has_checksum ? Index{extent.crc32c} + 1 : 0);
    }
}
[[nodiscard]] inline Catalogue read_catalogue(ByteReader& in) {
    Manifest manifest;
    auto const kind = static_cast<CheckpointKind>(in.number());
    manifest.save = in.text();
    manifest.world_size = static_cast<int>(in.number());
    manifest.metadata = read_metadata(in);
    manifest.files.resize(static_cast<std::size_t>(in.number()));
    for (CheckpointFile& file : manifest.files) file = in.file();
    manifest.tensors.resize(static_cast<std::size_t>(in.number()));
    for (StoredTensor& tensor : manifest.tensors) tensor.name = in.text();
    for (StoredTensor& tensor : manifest.tensors) tensor.distribution = in.text();
    for (StoredTensor& tensor : manifest.tensors) {
        tensor.dtype = static_cast<DType>(in.number());
        tensor.shape = in.box().shape();
        tensor.replicas = static_cast<int>(in.number());
    }
    manifest.extents.resize(static_cast<std::size_t>(in.number()));
    for (Extent& extent : manifest.extents) extent.key = in.text();
    for (Extent& extent : manifest.extents) {
        extent.tensor = static_cast<std::size_t>(in.number());
        extent.replica = static_cast<int>(in.number());
        extent.file = static_cast<int>(in.number());
        extent.begin = in.number();
        extent.box = in.box();
        Index const sum = in.number();
        extent.has_checksum = sum != 0;
        extent.crc32c = extent.has_checksum ? static_cast<std::uint32_t>(sum - 1) : 0;
    }
    return Catalogue(std::move(manifest), kind);
}

/// A list of files whose headers have to be read, without the path: ranks may know it by another. \pre list.kind is not
/// manifest
inline void write(ByteWriter& out, FileList const& list) {
    out.number(static_cast<std::int64_t>(list.kind));
    out.number(static_cast<std::int64_t>(list.leaves.size()));
    for (std::string const& leaf : list.leaves) out.text(leaf);
    for (IndexedTensor const& tensor : list.indexed) {
        out.text(tensor.name);
        out.number(tensor.file);
    }
}
[[nodiscard]] inline FileList read_file_list(ByteReader& in) {
    FileList list;
    list.kind = static_cast<CheckpointKind>(in.number());
    list.leaves.resize(static_cast<std::size_t>(in.number()));
    for (std::string& leaf : list.leaves) leaf = in.text();
    while (!in.at_end()) {
        std::string name = in.text();
        list.indexed.push_back({std::move(name), static_cast<int>(in.number())});
    }
    return list;
}

/// What a header says.
inline void write(ByteWriter& out, FileEntries const& entries) {
    out.file(entries.file);
    write(out, entries.metadata);
    out.number(static_cast<std::int64_t>(entries.entries.size()));
    write_texts(out, entries.entries, [](FileEntry const& entry) { return std::string_view(entry.name); });
    write_texts(out, entries.entries, [](FileEntry const& entry) { return std::string_view(entry.key); });
    for (FileEntry const& entry : entries.entries) {
        out.number(static_cast<std::int64_t>(entry.dtype));
        out.number(entry.begin);
        out.box(entry.box);
    }
}
[[nodiscard]] inline FileEntries read_file_entries(ByteReader& in) {
    FileEntries result;
    result.file = in.file();
    result.metadata = read_metadata(in);
    result.entries.resize(static_cast<std::size_t>(in.number()));
    for (FileEntry& entry : result.entries) entry.name = in.text();
    for (FileEntry& entry : result.entries) entry.key = in.text();
    for (FileEntry& entry : result.entries) {
        entry.dtype = static_cast<DType>(in.number());
        entry.begin = in.number();
        entry.box = in.box();
    }
    return result;
}

}  // namespace reshard::inline v0::detail
