// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/trace_summary.hpp
/// \brief  trace_summary(): what one rank did, as a table: per operation, per peer, per phase.
/// \depends comm/trace.hpp, core/detail/explain_text.hpp, <algorithm>, <map>, <vector>. For people; machines read
/// trace_json.hpp.
#pragma once

#include <reshard/comm/trace.hpp>
#include <reshard/core/detail/explain_text.hpp>

#include <algorithm>  // find_if
#include <map>
#include <vector>

namespace reshard::inline v0_1 {

namespace detail {

/// One line of a table.
struct TraceLine {
    std::string title;
    Index calls = 0;
    Index nanoseconds = 0;
    Traffic moved{};

    void add(Index time, Traffic const& more = {}) noexcept {
        ++calls;
        nanoseconds += time;
        moved += more;
    }
};

/// Rate: bytes sent and received per nanosecond, which is GB/s.
inline void append_line(std::string& text, TraceLine const& line) {
    char buffer[256];
    auto const& [messages_sent, sent, messages_received, received, local] = line.moved;
    Index const messages = messages_sent + messages_received;
    double const rate =
        line.nanoseconds > 0 ? static_cast<double>(sent + received) / static_cast<double>(line.nanoseconds) : 0.0;
    static_cast<void>(
        std::snprintf(buffer, sizeof(buffer), "%-16.47s %7lld %9lld %11s %11s %11s %11s %8s\n", line.title.c_str(),
                      static_cast<long long>(line.calls), static_cast<long long>(messages), bytes_text(sent).c_str(),
                      bytes_text(received).c_str(), bytes_text(local).c_str(),
                      number_text(static_cast<double>(line.nanoseconds) * 1e-6, 3, std::chars_format::fixed).c_str(),
                      number_text(rate, 2, std::chars_format::fixed).c_str()));
    text += buffer;
}

inline void append_head(std::string& text, char const* title) {
    char buffer[128];
    static_cast<void>(std::snprintf(buffer, sizeof(buffer), "%-16s %7s %9s %11s %11s %11s %11s %8s\n", title, "calls",
                                    "messages", "sent", "received", "local", "time ms", "GB/s"));
    text += buffer;
}

}  // namespace detail

/// Tables of what completed; what failed, is under way or was dropped is counted below them. GB/s: 10^9 bytes, sent
/// and received together. The time of a peer is that of all exchanges it took part in, with others or not. Ranks are
/// in the numbering of their group; phases are the scopes of the trace.
[[nodiscard]] inline std::string trace_summary(Trace const& trace) {
    using detail::TraceLine;
    std::vector<TraceLine> operations;
    for (TraceOperation const operation : {TraceOperation::exchange, TraceOperation::agree, TraceOperation::split}) {
        operations.push_back({std::string(name(operation))});
    }
    std::map<std::pair<int, int>, TraceLine> peers;  // by group and rank
    std::vector<TraceLine> phases;
    Index failed = 0;
    Index under_way = 0;
    for (TraceRecord const& record : trace.records()) {
        if (record.under_way()) ++under_way;
        if (record.error != ErrorCode::none) ++failed;
        if (!record.completed()) continue;
        Index const time = record.end - record.start;
        operations[static_cast<std::size_t>(record.operation)].add(time, record.moved);
        for (TracePeer const& peer : trace.peers(record)) {
            TraceLine& line = peers[{record.group, peer.rank}];
            if (line.title.empty()) {
                line.title = record.group == 0 ? errors::concat("rank ", peer.rank)
                                               : errors::concat("rank ", peer.rank, " of split ", record.group);
            }
            line.add(time, peer.moved);
        }
    }
    for (TraceLabel const& label : trace.labels()) {
        if (label.end <= label.start) continue;  // a moment, or still open
        std::string_view const text = label.text;
        auto found =
            std::find_if(phases.begin(), phases.end(), [&](TraceLine const& known) { return known.title == text; });
        if (found == phases.end()) found = phases.insert(phases.end(), {std::string(text)});
        found->add(label.end - label.start);
    }

    std::string text;
    detail::append_head(text, "operation");
    for (auto const& line : operations)
        if (line.calls != 0) detail::append_line(text, line);
    if (!peers.empty()) detail::append_head(text, "peer");
    for (auto const& [peer, line] : peers) detail::append_line(text, line);
    char buffer[128];
    if (!phases.empty()) {
        static_cast<void>(std::snprintf(buffer, sizeof(buffer), "%-48s %7s %23s\n", "phase", "calls", "time ms"));
        text += buffer;
    }
    for (auto const& line : phases) {
        static_cast<void>(std::snprintf(
            buffer, sizeof(buffer), "%-48s %7lld %23s\n", line.title.c_str(), static_cast<long long>(line.calls),
            detail::number_text(static_cast<double>(line.nanoseconds) * 1e-6, 3, std::chars_format::fixed).c_str()));
        text += buffer;
    }
    if (failed != 0) text += errors::concat("failed: ", failed, "\n");
    if (under_way != 0) text += errors::concat("under way: ", under_way, "\n");
    if (trace.dropped() != 0) text += errors::concat("dropped: ", trace.dropped(), ". Give the trace more room.\n");
    return text;
}

}  // namespace reshard::inline v0_1
