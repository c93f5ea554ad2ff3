// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/trace_json.hpp
/// \brief  Traces of all ranks as one file that Perfetto (ui.perfetto.dev) and chrome://tracing open.
/// \depends comm/collectives.hpp, comm/trace.hpp, nlohmann/json: link reshard::trace.
/// Source: "Trace Event Format", the JSON that Chrome's tracing and Perfetto read.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/trace.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>  // find, sort
#include <cerrno>     // errno
#include <chrono>     // system_clock
#include <cstring>    // strerror
#include <fstream>    // ofstream
#include <limits>     // numeric_limits
#include <vector>

namespace reshard::inline v0_1 {

namespace detail {

/// System clock minus steady clock, in nanoseconds: what makes the times of two processes comparable. Measured once,
/// so that ranks of one process keep the clock they share.
[[nodiscard]] inline Index clock_offset() noexcept {
    static Index const offset =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count() -
        Trace::now();
    return offset;
}

/// The events of one rank as JSON objects with commas between them. The process of the trace is the rank; its thread 0
/// are the labels, its thread g + 1 is group g: calls of one group follow each other, those of two may overlap.
class ChromeTraceText {
public:
    /// Of what the trace holds now: calls that are recorded later are not in the text.
    ChromeTraceText(Trace const& trace, int rank)
        : trace_(&trace), records_(trace.records()), labels_(trace.labels()), rank_(rank) {}

    /// `origin`: the time, of the system clock, that becomes 0.
    [[nodiscard]] std::string text(Index origin) {
        origin_ = origin;
        text_.clear();
        add_names();
        for (TraceLabel const& label : labels_) add(label);
        for (TraceRecord const& record : records_) add(record);
        add_counters();
        return std::move(text_);
    }

private:
    using Json = nlohmann::ordered_json;

    [[nodiscard]] double microseconds(Index time) const noexcept {
        return static_cast<double>(time + clock_offset() - origin_) / 1000.0;
    }
    void add(Json const& event) {
        if (!text_.empty()) text_ += ",\n";
        text_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);  // a name may be any bytes
    }
    [[nodiscard]] Json event(std::string_view name, char const* phase, int thread, Index time) const {
        return {{"name", name}, {"ph", phase}, {"pid", rank_}, {"tid", thread}, {"ts", microseconds(time)}};
    }
    void name_thread(int thread, std::string const& name) {
        add({{"name", "thread_name"}, {"ph", "M"}, {"pid", rank_}, {"tid", thread}, {"args", {{"name", name}}}});
    }
    void add_names() {
        add({{"name", "process_name"}, {"ph", "M"}, {"pid", rank_}, {"args", {{"name", concat("rank ", rank_)}}}});
        add({{"name", "process_sort_index"}, {"ph", "M"}, {"pid", rank_}, {"args", {{"sort_index", rank_}}}});
        if (!labels_.empty()) name_thread(0, "labels");
        std::vector<int> named;
        for (TraceRecord const& record : records_) {
            if (std::find(named.begin(), named.end(), record.group) != named.end()) continue;
            named.push_back(record.group);
            name_thread(record.group + 1,
                        record.group == 0 ? std::string(record.transport) : concat("split ", record.group));
        }
    }
    /// What has no end yet is a beginning ("B"): viewers draw it to the end, which is where a hang is seen.
    void add(TraceLabel const& label) {
        if (label.end == label.start) {
            Json moment = event(label.text, "i", 0, label.start);
            moment["s"] = "p";
            return add(moment);
        }
        Json phase = event(label.text, label.end < 0 ? "B" : "X", 0, label.start);
        if (label.end >= 0) phase["dur"] = static_cast<double>(label.end - label.start) / 1000.0;
        add(phase);
    }
    void add(TraceRecord const& record) {
        Json call = event(name(record.operation), record.under_way() ? "B" : "X", record.group + 1, record.start);
        if (!record.under_way()) call["dur"] = static_cast<double>(record.end - record.start) / 1000.0;
        call["cat"] = record.transport;
        Json args = Json::object();
        if (record.operation == TraceOperation::exchange) {
            args["bytes_sent"] = record.moved.bytes_sent;
            args["bytes_received"] = record.moved.bytes_received;
            args["bytes_local"] = record.moved.bytes_local;
            Json peers = Json::array();
            for (TracePeer const& peer : trace_->peers(record)) {
                peers.push_back({{"rank", peer.rank},
                                 {"bytes_sent", peer.moved.bytes_sent},
                                 {"bytes_received", peer.moved.bytes_received},
                                 {"messages_sent", peer.moved.messages_sent},
                                 {"messages_received", peer.moved.messages_received}});
            }
            args["peers"] = std::move(peers);
        } else if (record.operation == TraceOperation::split && record.completed()) {
            args = {{"split", record.made.id}, {"rank", record.made.rank}, {"size", record.made.size}};
        }
        if (record.error != ErrorCode::none) args["error"] = static_cast<int>(record.error);
        call["args"] = std::move(args);
        add(call);
    }
    /// Bytes moved so far, one point per exchange that completed.
    void add_counters() {
        std::vector<TraceRecord const*> done;
        for (TraceRecord const& record : records_) {
            if (record.operation == TraceOperation::exchange && record.completed()) done.push_back(&record);
        }
        std::sort(done.begin(), done.end(), [](TraceRecord const* a, TraceRecord const* b) { return a->end < b->end; });
        Index sent = 0;
        Index received = 0;
        for (TraceRecord const* record : done) {
            sent += record->moved.bytes_sent;
            received += record->moved.bytes_received;
            Json point = event("bytes", "C", 0, record->end);
            point["args"] = {{"sent", sent}, {"received", received}};
            add(point);
        }
    }

    Trace const* trace_;
    std::span<TraceRecord const> records_;
    std::span<TraceLabel const> labels_;
    int rank_;
    Index origin_ = 0;
    std::string text_;
};

/// The first time of a trace, of the system clock; the largest number for an empty one.
[[nodiscard]] inline Index first_time(Trace const& trace) noexcept {
    Index first = std::numeric_limits<Index>::max();
    for (auto const& record : trace.records()) first = smaller(first, record.start + clock_offset());
    for (auto const& label : trace.labels()) first = smaller(first, label.start + clock_offset());
    return first;
}

/// A document around the events of all ranks.
[[nodiscard]] inline std::string chrome_document(std::span<std::string const> ranks, Index dropped) {
    std::string text = "{\"displayTimeUnit\":\"ns\",\"otherData\":";
    text += nlohmann::ordered_json{{"producer", "reshard"}, {"ranks", ranks.size()}, {"dropped", dropped}}.dump();
    text += ",\"traceEvents\":[\n";
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        if (r != 0) text += ",\n";
        text += ranks[r];
    }
    text += "\n]}\n";
    return text;
}

}  // namespace detail

/// One rank's trace as a document; `rank` is what it is called in there. Not collective: for a rank whose group failed.
[[nodiscard]] inline std::string chrome_trace(Trace const& trace, int rank = 0) {
    std::string const text = detail::ChromeTraceText(trace, rank).text(detail::first_time(trace));
    return detail::chrome_document({&text, 1}, trace.dropped());
}

/// The traces of all ranks of `comm` as one document, on rank `root`; the others get an empty text. Collective; `comm`
/// may be the communicator that is traced, and what this call does is not in the document.
///
/// A rank is a process of the document, a group one of its threads, the labels another. Times are microseconds since
/// the first event of all; between machines they are as good as the system clocks agree.
///
/// Throws MeshError for a root that does not exist, and what exchange() throws.
template <Communicator C>
[[nodiscard]] std::string chrome_trace(C& comm, Trace const& trace, int root = 0) {
    if (root < 0 || root >= comm.size()) {
        errors::raise(ErrorCode::mesh, "reshard::chrome_trace: root ", root, " of ", comm.size(),
                      " ranks. Fix: name a rank that exists.");
    }
    detail::ChromeTraceText events(trace, comm.rank());
    auto const ranks = detail::as_size(comm.size());
    struct Head {
        Index first;
        Index dropped;
    };
    Head const mine{detail::first_time(trace), trace.dropped()};
    std::vector<Head> heads(ranks);
    all_gather(comm, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(heads)));
    Index origin = mine.first;
    Index dropped = 0;
    for (Head const& head : heads) {
        origin = detail::smaller(origin, head.first);
        dropped += head.dropped;
    }

    std::string const text = events.text(origin);
    auto const length = detail::as_index(text.size());
    std::vector<Index> lengths(ranks);
    all_gather(comm, std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)));
    std::vector<std::string> texts(comm.rank() == root ? ranks : 0);
    detail::TransferLists lists;
    lists.send(root, std::span(text));
    agree_on_errors(
        comm,
        [&] {
            for (std::size_t r = 0; r < texts.size(); ++r) {
                texts[r].resize(detail::as_size(lengths[r]));
                lists.receive(static_cast<int>(r), std::span(texts[r]));
            }
        },
        "chrome_trace");
    lists.deliver(comm);
    return comm.rank() == root ? detail::chrome_document(texts, dropped) : std::string();
}

/// Writes that document to `path`, as seen by rank `root`. Collective; the file is there when it returns.
/// Throws what chrome_trace() throws, and IoError, on every rank, when the file cannot be written: half of it may be
/// there then, in place of one that was.
template <Communicator C>
void write_chrome_trace(C& comm, Trace const& trace, std::string const& path, int root = 0) {
    std::string const document = chrome_trace(comm, trace, root);
    agree_on_errors(
        comm,
        [&] {
            if (comm.rank() != root) return;
            std::ofstream file(path, std::ios::binary);
            file << document;
            file.close();
            if (file) return;
            errors::raise(ErrorCode::io, "reshard::write_chrome_trace: rank ", root, " cannot write ", path, ": ",
                          std::strerror(errno), ". Fix: name a file in a folder that exists and has room.");
        },
        "write_chrome_trace");
}

}  // namespace reshard::inline v0_1
