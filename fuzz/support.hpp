// SPDX-License-Identifier: Apache-2.0
/// \file   fuzz/support.hpp
/// \brief  What the fuzzers share: the input as text, and what may come out of it.
#pragma once

#include <reshard/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

namespace fuzz {

// A reader each, in the file of its name; program.cpp is the fuzzer of one.
void dcp(std::uint8_t const* data, std::size_t size);
void header(std::uint8_t const* data, std::size_t size);
void index(std::uint8_t const* data, std::size_t size);
void manifest(std::uint8_t const* data, std::size_t size);
void mch(std::uint8_t const* data, std::size_t size);
void texts(std::uint8_t const* data, std::size_t size);

inline std::string_view text_of(std::uint8_t const* data, std::size_t size) {
    return {reinterpret_cast<char const*>(data), size};
}

/// Ends the program, which libFuzzer reports with the input.
inline void expect(bool holds, char const* what) {
    if (holds) return;
    std::fputs(what, stderr);
    std::fputc('\n', stderr);
    std::abort();
}

/// Errors of the library with a remedy are answers; anything else is a finding. Whether `call` came to its end.
template <class Call>
bool answers(Call&& call, std::initializer_list<reshard::ErrorCode> codes = {reshard::ErrorCode::format}) {
    try {
        call();
        return true;
    } catch (reshard::Error const& error) {
        bool about_the_text = false;
        for (reshard::ErrorCode const code : codes) about_the_text = about_the_text || error.code() == code;
        expect(about_the_text, "an error that is not about the file");
        expect(error.message().find("Fix: ") != std::string::npos, "an error without a remedy");
        return false;
    }
}

}  // namespace fuzz
