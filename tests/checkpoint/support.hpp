// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/support.hpp
/// \brief  Folders that clean up after themselves, hand-made files, and how to ask which rule an error is about.
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
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
    std::ifstream in(path, std::ios::binary);
    REQUIRE(in.good());
    return {std::istreambuf_iterator<char>(in), {}};
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

/// Bytes that depend on tensor and position, so that a wrong offset shows.
inline std::byte expected_byte(std::string_view tensor, Index at) {
    std::uint64_t hash = 0x9e3779b97f4a7c15U;
    for (char const c : tensor) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    hash = (hash ^ (hash >> 32U)) * 0xc4ceb9fe1a85ec53U;  // so that the last letters count as well
    hash ^= static_cast<std::uint64_t>(at) * 0xff51afd7ed558ccdU;
    return static_cast<std::byte>((hash >> 29U) & 0xffU);
}

inline void fill_expected(TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = expected_byte(tensor.name, begin + static_cast<Index>(i));
}

inline bool holds_expected(TensorInfo const& tensor, Index begin, std::span<std::byte const> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != expected_byte(tensor.name, begin + static_cast<Index>(i))) return false;
    }
    return true;
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
