// SPDX-License-Identifier: Apache-2.0
// How checkpoint/load_strategy.hpp is done.
#pragma once

#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/core/error.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE std::string to_string(Collectives const& collectives) {
    std::string text;
    auto const add = [&](Index count, std::string_view what) {
        if (count != 0) text += concat(text.empty() ? "" : ", ", count, " ", what, count == 1 ? "" : "s");
    };
    add(collectives.scatters, "scatter");
    add(collectives.broadcasts, "broadcast");
    add(collectives.exchanges, "exchange");
    add(collectives.agreements, "agreement");
    return text.empty() ? "none" : text;
}

}  // namespace reshard::inline v0
