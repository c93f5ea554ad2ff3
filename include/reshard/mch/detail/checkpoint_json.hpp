// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_json.hpp
/// \brief  JSON of saved folders: read as a tree, with errors in the words of this room.
/// \depends checkpoint/json_tree.hpp. No I/O.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>

namespace reshard::inline v0::detail {

[[noreturn]] inline void refuse_mch_file(std::string_view file, std::string_view what, std::string_view fix) {
    raise(ErrorCode::format, concat("reshard::mch: ", file, ": ", what, ". Fix: ", fix));
}

/// Throws FormatError for what is not one JSON text. `where` begins the names of keys in messages.
[[nodiscard]] inline JsonTree parse_mch_json(std::string_view json, std::string_view file,
                                             std::string_view where = {}) {
    constexpr RefuseFile refuse = [](std::string_view name, std::string_view what) {
        refuse_mch_file(name, what, "restore the file, or save anew.");
    };
    return {json, file, refuse, where};
}

}  // namespace reshard::inline v0::detail
