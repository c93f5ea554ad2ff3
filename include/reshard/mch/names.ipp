// SPDX-License-Identifier: Apache-2.0
// How mch/names.hpp is done.
#pragma once

#include <reshard/mch/names.hpp>

#include <algorithm>  // find_if, none_of

namespace reshard::inline v0_1 {

namespace detail {

[[nodiscard]] inline std::string_view without_prefixes(std::string_view name, MchNames const& names) noexcept {
    for (bool again = true; again;) {
        again = false;
        for (std::string const& prefix : names.prefixes) {
            if (prefix.empty() || !name.starts_with(prefix)) continue;
            name.remove_prefix(prefix.size());
            again = true;
        }
    }
    return name;
}

}  // namespace detail

RESHARD_INLINE std::string detail::list_of(std::span<std::string const> names) {
    if (names.empty()) return "none";
    std::string text;
    for (std::string const& name : names) text += concat(text.empty() ? "'" : ", '", name, "'");
    return text;
}

RESHARD_INLINE std::vector<std::string> match_tables(std::span<std::string const> current,
                                                     std::span<std::string const> saved, MchNames const& names) {
    auto const same = [&](std::string_view a, std::string_view b) {
        return detail::without_prefixes(a, names) == detail::without_prefixes(b, names);
    };
    auto const refuse = [](auto const&... parts) { errors::raise(ErrorCode::mismatch, "reshard::mch: ", parts...); };
    for (std::size_t i = 0; i < saved.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            if (!same(saved[i], saved[k])) continue;
            refuse("the saved tables '", saved[k], "' and '", saved[i], "' are both called '",
                   detail::without_prefixes(saved[i], names),
                   "' without their prefixes. Fix: strip fewer prefixes, and rename instead.");
        }
    }
    for (std::size_t i = 0; i < names.rename.size(); ++i) {
        auto const& [from, to] = names.rename[i];
        for (std::size_t k = 0; k < i; ++k) {
            if (!same(names.rename[k].second, to)) continue;
            refuse("table '", to, "' is to be filled from '", names.rename[k].first, "' and from '", from,
                   "'. Fix: name one.");
        }
        if (std::ranges::none_of(current, [&, &wanted = to](std::string const& name) { return same(name, wanted); })) {
            refuse("'", to, "' is to be filled from '", from, "', but the tables are ", detail::list_of(current),
                   ". Fix: correct the name.");
        }
    }
    std::vector<std::string> sources;
    for (std::string const& name : current) {
        std::string_view wanted = name;
        for (auto const& [from, to] : names.rename) {
            if (same(to, name)) wanted = from;
        }
        auto const found =
            std::find_if(saved.begin(), saved.end(), [&](std::string const& one) { return same(one, wanted); });
        if (found == saved.end()) {
            refuse("table '", name, "' has no source: nothing saved is called '", wanted,
                   "'; there are: ", detail::list_of(saved), ". Fix: rename it, or strip the prefix that differs.");
        }
        sources.push_back(*found);
    }
    return sources;
}

}  // namespace reshard::inline v0_1
