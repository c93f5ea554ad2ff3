// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/catalogue_bytes.hpp
/// \brief  A catalogue as bytes: what one rank sends to the others. Both ends are the same program.
/// \depends checkpoint/catalogue.hpp, <cstring>.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0::detail {

class ByteWriter {
public:
    void number(std::int64_t value) {
        std::byte raw[sizeof(value)];
        std::memcpy(raw, &value, sizeof(value));
        bytes_.insert(bytes_.end(), std::begin(raw), std::end(raw));
    }
    void text(std::string_view text) {
        number(static_cast<std::int64_t>(text.size()));
        auto const raw = std::as_bytes(std::span(text));
        bytes_.insert(bytes_.end(), raw.begin(), raw.end());
    }
    [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

private:
    std::vector<std::byte> bytes_;
};

/// \pre the bytes are a ByteWriter's.
class ByteReader {
public:
    explicit ByteReader(std::span<std::byte const> bytes) noexcept : rest_(bytes) {}
    [[nodiscard]] std::int64_t number() noexcept {
        std::int64_t value = 0;
        std::memcpy(&value, rest_.data(), sizeof(value));
        rest_ = rest_.subspan(sizeof(value));
        return value;
    }
    [[nodiscard]] std::string text() {
        auto const size = static_cast<std::size_t>(number());
        std::string result(reinterpret_cast<char const*>(rest_.data()), size);
        rest_ = rest_.subspan(size);
        return result;
    }

private:
    std::span<std::byte const> rest_;
};

[[nodiscard]] inline std::vector<std::byte> to_bytes(Catalogue const& catalogue) {
    ByteWriter out;
    out.number(static_cast<std::int64_t>(catalogue.files().size()));
    for (CheckpointFile const& file : catalogue.files()) {
        out.text(file.leaf);
        out.number(file.file_bytes);
        out.number(static_cast<std::int64_t>(file.header_digest));
    }
    out.number(static_cast<std::int64_t>(catalogue.tensors().size()));
    for (CheckpointTensor const& tensor : catalogue.tensors()) {
        out.text(tensor.name);
        out.number(static_cast<std::int64_t>(tensor.dtype));
        out.number(tensor.shape.rank());
        for (Index extent : tensor.shape.extents()) out.number(extent);
        out.number(tensor.begin);
        out.number(tensor.end);
        out.number(tensor.file);
    }
    return out.take();
}

[[nodiscard]] inline Catalogue catalogue_from(std::span<std::byte const> bytes) {
    ByteReader in(bytes);
    std::vector<CheckpointFile> files(static_cast<std::size_t>(in.number()));
    for (CheckpointFile& file : files) {
        file.leaf = in.text();
        file.file_bytes = in.number();
        file.header_digest = static_cast<std::uint64_t>(in.number());
    }
    std::vector<CheckpointTensor> tensors(static_cast<std::size_t>(in.number()));
    for (CheckpointTensor& tensor : tensors) {
        tensor.name = in.text();
        tensor.dtype = static_cast<DType>(in.number());
        Indices extents;
        for (auto dims = in.number(); dims > 0; --dims) extents.push_back(in.number());
        tensor.shape = DynamicShape(extents);
        tensor.begin = in.number();
        tensor.end = in.number();
        tensor.file = static_cast<int>(in.number());
    }
    return {std::move(files), std::move(tensors)};
}

}  // namespace reshard::inline v0::detail
