// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/name_reader.hpp
/// \brief  Whether a file's name is one that a save gives: what else lies in a folder is not a save's to remove.
/// \depends standard library only.
#pragma once

#include <reshard/core/config.hpp>

#include <cstddef>      // size_t
#include <string_view>  // string_view

/// For names of files that a save gives.
namespace reshard::inline v0::detail {

/// Reads a text from the left, as far as it is what is expected.
class NameReader {
public:
    explicit NameReader(std::string_view text) noexcept : rest_(text) {}
    [[nodiscard]] bool word(std::string_view expected) noexcept {
        if (rest_.substr(0, expected.size()) != expected) return false;
        rest_.remove_prefix(expected.size());
        return true;
    }
    /// From `fewest` to `most` characters of `alphabet`, as many as there are.
    [[nodiscard]] bool run(std::string_view alphabet, std::size_t fewest, std::size_t most) noexcept {
        std::size_t count = 0;
        while (count < most && count < rest_.size() && alphabet.find(rest_[count]) != std::string_view::npos) ++count;
        rest_.remove_prefix(count);
        return count >= fewest;
    }
    [[nodiscard]] bool digits(std::size_t fewest, std::size_t most) noexcept { return run("0123456789", fewest, most); }
    /// A number of up to nine digits.
    [[nodiscard]] bool number(int& value) noexcept {
        std::string_view const text = rest_;
        if (!digits(1, 9)) return false;
        value = 0;
        for (char const digit : text.substr(0, text.size() - rest_.size())) value = 10 * value + (digit - '0');
        return true;
    }
    [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }

private:
    std::string_view rest_;
};

/// Whether a TemporaryFile of a file that `is_ours` accepts has such names: `.NAME.tmp.PID.N`.
template <class IsOurs>
[[nodiscard]] bool is_temporary_of(std::string_view leaf, IsOurs const& is_ours) {
    auto const mark = leaf.rfind(".tmp.");
    if (leaf.substr(0, 1) != "." || mark == std::string_view::npos || mark == 0) return false;
    NameReader in(leaf.substr(mark));
    if (!in.word(".tmp.") || !in.digits(1, 10) || !in.word(".") || !in.digits(1, 10) || !in.at_end()) return false;
    return is_ours(leaf.substr(1, mark - 1));
}

}  // namespace reshard::inline v0::detail
