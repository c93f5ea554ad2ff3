// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/names.hpp
/// \brief  Which saved table each table is filled from, when the two do not go by the same name.
/// \depends core, <vector>. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/mch/detail/mode.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// How names are compared: as they are, if nothing is said.
///
///     MchNames names;
///     names.prefixes = {"module."};                  // a wrapper's, taken off both sides, as often as they are there
///     names.rename = {{"user", "user_exported"}};    // saved name, current name: as in LoadOptions::rename
struct MchNames {
    std::vector<std::string> prefixes{};
    std::vector<std::pair<std::string, std::string>> rename{};
};

namespace detail {

/// `'a', 'b'`, or `none`.
[[nodiscard]] std::string list_of(std::span<std::string const> names);

}  // namespace detail

/// For each current name, the saved one that its table is filled from; one saved table may fill several. Throws
/// MismatchError for a table without a source, listing the candidates; for saved names that are one without their
/// prefixes; and for renames that name no current table, or one twice.
[[nodiscard]] std::vector<std::string> match_tables(std::span<std::string const> current,
                                                    std::span<std::string const> saved, MchNames const& names = {});

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/names.ipp>
#endif
