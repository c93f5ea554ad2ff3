// SPDX-License-Identifier: Apache-2.0
// How checkpoint/load_strategy.hpp is done.
#pragma once

#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/error.hpp>
#include <reshard/plan/topology.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE std::string to_string(Collectives const& collectives) {
    std::string text;
    auto const add = [&](Index count, std::string_view what) {
        if (count != 0) detail::append(text, {text.empty() ? "" : ", ", count, " ", what, count == 1 ? "" : "s"});
    };
    add(collectives.scatters, "scatter");
    add(collectives.broadcasts, "broadcast");
    add(collectives.exchanges, "exchange");
    add(collectives.agreements, "agreement");
    return text.empty() ? "none" : text;
}

RESHARD_INLINE std::string detail::traffic_text(Collectives const& collectives, Traffic const& traffic) {
    return concat("  collectives: ", to_string(collectives), "\n  sent ", bytes_text(traffic.bytes_sent), " in ",
                  count_text(traffic.messages_sent, "message"), ", received ", bytes_text(traffic.bytes_received),
                  " in ", count_text(traffic.messages_received, "message"), "\n");
}

RESHARD_INLINE std::string detail::reads_text(LoadFigures const& figures, std::string_view behind) {
    std::string text = concat(bytes_text(figures.bytes_read), " in ", count_text(figures.reads, "read"), ", ",
                              count_text(figures.files_opened, "open file"), " and ", figures.lists_opened,
                              " for lists; ", behind, "verified ", bytes_text(figures.bytes_verified));
    Index const not_compared = figures.bytes_read - figures.bytes_verified;
    if (not_compared > 0) append(text, {", ", bytes_text(not_compared), " not compared with any checksum"});
    text += '\n';
    auto const& names = figures.not_listed;
    if (names.empty()) return text;
    append(text, {"  ", count_text(as_index(names.size()), "tensor"), " of the checkpoint not in the list: "});
    for (std::size_t i = 0; i < names.size() && i < 3; ++i) append(text, {i == 0 ? "" : ", ", quote_name(names[i])});
    return text + (names.size() > 3 ? ", ...\n" : "\n");
}

RESHARD_INLINE std::string explain(LoadReport const& report) {
    using detail::append, detail::bytes_text, detail::count_text;
    std::string text = errors::concat(report.strategy, report.read_directly ? ", read directly: " : ": ",
                                      count_text(report.tensors, "tensor"), ", ", bytes_text(report.bytes_loaded),
                                      " on this rank\n", detail::traffic_text(report.collectives, report.traffic));
    append(text, {"  read ", detail::reads_text(report, ""), "  memory beyond the local tensors: ",
                  bytes_text(report.extra_bytes), "\n  ", detail::seconds_text(report.seconds), "\n"});
    return text;
}

}  // namespace reshard::inline v0_1
