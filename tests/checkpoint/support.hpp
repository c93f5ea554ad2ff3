// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/support.hpp
/// \brief  Folders that clean up after themselves, hand-made files, and how to ask which rule an error is about.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/checkpoint/safetensors_header.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace checkpoint_test {

using namespace reshard;

class TempFolder {
public:
    TempFolder() {
        std::string form = (std::filesystem::temp_directory_path() / "reshard_checkpoint_XXXXXX").string();
        REQUIRE(::mkdtemp(form.data()) != nullptr);
        path_ = form;
    }
    TempFolder(TempFolder const&) = delete;
    TempFolder& operator=(TempFolder const&) = delete;
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] std::string path() const { return path_; }
    [[nodiscard]] std::string operator/(std::string_view leaf) const { return path_ + "/" + std::string(leaf); }
    /// Names of everything in it, hidden files too, sorted.
    [[nodiscard]] std::vector<std::string> leaves() const {
        std::vector<std::string> list;
        for (auto const& entry : std::filesystem::directory_iterator(path_)) list.push_back(entry.path().filename());
        std::sort(list.begin(), list.end());
        return list;
    }

private:
    std::string path_;
};

inline void write_text(std::string const& path, std::string_view text) {
    std::ofstream out(path, std::ios::binary);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    REQUIRE(out.good());
}

inline std::string read_text(std::string const& path) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    REQUIRE(in.good());
    std::string text(static_cast<std::size_t>(in.tellg()), '\0');
    in.seekg(0);
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    REQUIRE(in.good());
    return text;
}

inline std::string length_bytes(std::uint64_t length) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>((length >> (8 * i)) & 0xffU);
    return bytes;
}

/// A file with that header and `data_bytes` bytes after it.
inline std::string safetensors_text(std::string_view json, std::size_t data_bytes = 0) {
    return length_bytes(json.size()) + std::string(json) + std::string(data_bytes, 'x');
}

inline std::span<std::byte const> as_bytes(std::string_view text) {
    return std::as_bytes(std::span<char const>(text.data(), text.size()));
}

/// What the beginning of a file of `file_bytes` bytes says.
inline SafetensorsHeader parse_header(std::string_view start, Index file_bytes, std::string_view file = "safetensors") {
    Index const length = safetensors_header_length(as_bytes(start), file_bytes, file);
    return parse_safetensors_json(start.substr(8, static_cast<std::size_t>(length)), file_bytes, file);
}

/// Bytes that depend on tensor and position, so that a wrong offset shows.
class ExpectedBytes {
public:
    explicit ExpectedBytes(std::string_view tensor) noexcept {
        for (char const c : tensor) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
        hash_ = (hash_ ^ (hash_ >> 32U)) * 0xc4ceb9fe1a85ec53U;  // so that the last letters count as well
    }
    [[nodiscard]] std::byte at(Index position) const noexcept {
        return static_cast<std::byte>(((hash_ ^ (static_cast<std::uint64_t>(position) * 0xff51afd7ed558ccdU)) >> 29U) &
                                      0xffU);
    }

private:
    std::uint64_t hash_ = 0x9e3779b97f4a7c15U;
};

inline std::byte expected_byte(std::string_view tensor, Index at) { return ExpectedBytes(tensor).at(at); }

inline void fill_expected(TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
    ExpectedBytes const expected(tensor.name);
    for (std::byte& one : out) one = expected.at(begin++);
}

inline bool holds_expected(TensorInfo const& tensor, Index begin, std::span<std::byte const> bytes) {
    ExpectedBytes const expected(tensor.name);
    for (std::byte const one : bytes) {
        if (one != expected.at(begin++)) return false;
    }
    return true;
}

/// Calls visit(position, count) for each run of elements of a box that lie side by side in the whole tensor, too: in
/// the order of the box, where the first lies in the whole tensor, and how many.
template <class Visit>
void each_run(Box const& box, DynamicShape const& shape, Visit&& visit) {
    int const last = box.rank() - 1;
    Index const run = last < 0 ? 1 : box.extent(last);
    for (Index k = 0, size = box.size(); k < size; k += run) {
        Index position = 0;
        Index rest = k;
        Index step = 1;
        for (int dim = last; dim >= 0; --dim) {
            position += (box.begin(dim) + rest % box.extent(dim)) * step;
            rest /= box.extent(dim);
            step *= shape.extent(dim);
        }
        visit(position, run);
    }
}

/// What a call threw, if an Error.
struct Caught {
    ErrorCode code = ErrorCode::none;
    SafetensorsRule rule = SafetensorsRule::none;
    std::string message;
};

template <class Call>
Caught caught(Call&& call) {
    try {
        call();
    } catch (Error const& error) {
        return {error.code(), safetensors_rule(error), error.message()};
    }
    return {};
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// The call fails, breaking `rule`, with the rule's name in front and a remedy.
template <class Call>
void check_rule(SafetensorsRule rule, Call&& call) {
    Caught const error = caught(call);
    CAPTURE(error.message);
    CHECK(error.code == ErrorCode::format);
    CHECK(name(error.rule) == name(rule));
    CHECK(contains(error.message, "Fix: "));
    CHECK(error.message.find("Fix: ") == error.message.rfind("Fix: "));
}

/// The call fails with an IoError whose text has `part` and a remedy.
template <class Call>
void check_io(std::string_view part, Call&& call) {
    Caught const error = caught(call);
    CAPTURE(error.message);
    CHECK(error.code == ErrorCode::io);
    CHECK(contains(error.message, part));
    CHECK(contains(error.message, "Fix: "));
    CHECK(error.message.find("Fix: ") == error.message.rfind("Fix: "));
}

}  // namespace checkpoint_test
