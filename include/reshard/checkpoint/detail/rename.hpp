// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/rename.hpp
/// \brief  Lists of names and other names, single ones or beginnings.
/// \depends <string>, <string_view>, <utility>.
#pragma once

#include <string>       // string
#include <string_view>  // string_view
#include <utility>      // pair

namespace reshard::inline v0::detail {

/// Whether it is (name, other name), or `prefix*` to `other*`, which is about all that begin so. Of several the first
/// that fits counts.
[[nodiscard]] inline bool is_rename(std::pair<std::string, std::string> const& rename) noexcept {
    auto const& [name, other] = rename;
    return !name.empty() && !other.empty() && name.ends_with('*') == other.ends_with('*');
}
inline constexpr std::string_view rename_fix =
    ". Fix: name two tensors, or two beginnings of names with '*' behind each.";

/// The other name; false where `name` is not what the rename is about. \pre is_rename()
[[nodiscard]] inline bool rename_to(std::string_view from, std::string_view other, std::string_view name,
                                    std::string& to) {
    if (from == name) {
        to = other;
        return true;
    }
    if (!from.ends_with('*') || !name.starts_with(from.substr(0, from.size() - 1))) return false;
    to = other.substr(0, other.size() - 1);
    to += name.substr(from.size() - 1);
    return true;
}

}  // namespace reshard::inline v0::detail
