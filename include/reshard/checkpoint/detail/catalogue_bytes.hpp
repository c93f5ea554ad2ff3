// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/catalogue_bytes.hpp
/// \brief  Manifests as bytes: what one rank sends to the others. Both ends are the same program.
/// \depends checkpoint/manifest.hpp.
///
/// pass() says once what a value consists of: with a ByteWriter it is written, with a ByteReader read.
#pragma once

#include <reshard/checkpoint/manifest.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0_1::detail {

/// Numbers take as many bytes as they need, seven bits in each. Of a text only what differs from the one before is
/// written: names of tensors have most in common. So a list of thousands of tensors stays a matter of microseconds.
class ByteWriter {
public:
    template <class T>
    void number(T const& value) {
        put(static_cast<std::uint64_t>(value));
    }
    template <class List>
    void size(List const& list) {
        number(list.size());
    }
    /// All bytes it has: of what is long whatever it is (a digest), or not known before a file is written.
    template <class T>
    void word(T const& value) {
        auto const raw = std::as_bytes(std::span(&value, 1));
        bytes_.insert(bytes_.end(), raw.begin(), raw.end());
    }
    void text(std::string_view text) {
        std::size_t const shorter = smaller(text.size(), last_.size());
        std::size_t same = 0;
        while (same < shorter && text[same] == last_[same]) ++same;
        number(same);
        number(text.size() - same);
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
    void shape(DynamicShape const& shape) { box(Box(shape)); }
    [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

private:
    [[gnu::noinline]] void put(std::uint64_t number) {
        std::byte digits[10];
        std::byte* end = digits;
        for (; number >= 0x80; number >>= 7U) *end++ = static_cast<std::byte>(0x80U | (number & 0x7fU));
        *end++ = static_cast<std::byte>(number);
        bytes_.insert(bytes_.end(), digits, end);
    }

    std::vector<std::byte> bytes_;
    std::string last_;
};

/// \pre the bytes are a ByteWriter's.
class ByteReader {
public:
    explicit ByteReader(std::span<std::byte const> bytes) noexcept : rest_(bytes) {}
    template <class T>
    void number(T& result) noexcept {
        result = static_cast<T>(get());
    }
    template <class List>
    void size(List& list) {
        std::size_t count = 0;
        number(count);
        list.resize(count);
    }
    template <class T>
    void word(T& value) noexcept {
        std::memcpy(&value, rest_.data(), sizeof(T));
        rest_ = rest_.subspan(sizeof(T));
    }
    void text(std::string& text) {
        std::size_t same = 0;
        std::size_t size = 0;
        number(same);
        number(size);
        last_.resize(same);
        last_.append(reinterpret_cast<char const*>(rest_.data()), size);
        rest_ = rest_.subspan(size);
        text = last_;
    }
    void box(Box& box) noexcept {
        box = Box();
        int rank = 0;
        for (number(rank); rank > 0; --rank) {
            Index begin = 0;
            Index extent = 0;
            number(begin);
            number(extent);
            box.push_back({begin, begin + extent});
        }
    }
    void shape(DynamicShape& shape) {
        Box whole;
        box(whole);
        shape = whole.shape();
    }
    [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }

private:
    [[gnu::noinline]] std::uint64_t get() noexcept {
        std::uint64_t value = 0;
        for (unsigned shift = 0;; shift += 7) {
            auto const byte = std::to_integer<std::uint64_t>(rest_.front());
            rest_ = rest_.subspan(1);
            value |= (byte & 0x7fU) << shift;
            if (byte < 0x80) return value;
        }
    }

    std::span<std::byte const> rest_;
    std::string last_;
};

/// Texts of one kind come one after the other, so that they share what they begin with.
template <class Io, class Value>
void pass(Io& io, Value& manifest) {
    io.text(manifest.save);
    io.number(manifest.world_size);
    io.number(manifest.block_bytes);
    io.size(manifest.metadata);
    for (auto& [key, value] : manifest.metadata) {
        io.text(key);
        io.text(value);
    }
    io.size(manifest.files);
    for (auto& file : manifest.files) {
        io.text(file.leaf);
        io.number(file.file_bytes);
        io.word(file.header_digest);
        io.word(file.writer);
        io.number(file.unlisted);
    }
    for (auto& file : manifest.files) io.text(file.contradicts);
    io.text(manifest.format);
    io.size(manifest.tensors);
    for (auto& tensor : manifest.tensors) io.text(tensor.name);
    for (auto& tensor : manifest.tensors) io.text(tensor.distribution);
    for (auto& tensor : manifest.tensors) {
        io.number(tensor.dtype);
        io.shape(tensor.shape);
        io.number(tensor.replicas);
    }
    io.size(manifest.extents);
    for (auto& extent : manifest.extents) io.text(extent.key);
    for (auto& extent : manifest.extents) {
        io.number(extent.tensor);
        io.number(extent.replica);
        io.number(extent.file);
        io.number(extent.begin);
        io.box(extent.box);
        io.number(extent.has_checksum);
        if (extent.has_checksum) io.number(extent.crc32c);
        io.size(extent.block_sums);
        for (auto& sum : extent.block_sums) io.word(sum);
    }
}

}  // namespace reshard::inline v0_1::detail
