// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/trace.hpp
/// \brief  Trace: what one rank sent, where, how many bytes and how long it took, in memory set aside beforehand.
/// \depends comm/communicator.hpp, comm/detail/peers.hpp, <chrono>, <memory>, <vector>. Traced<C> (comm/traced.hpp)
/// writes it; trace_summary.hpp and trace_json.hpp read.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/detail/peers.hpp>

#include <chrono>   // steady_clock
#include <cstring>  // memcpy
#include <memory>   // unique_ptr
#include <span>     // span
#include <vector>

namespace reshard::inline v0_1 {

/// What one exchange moved between this rank and one other.
struct TracePeer {
    int rank = 0;   ///< in the numbering of the record's group
    Traffic moved;  ///< messages are transfers here
    friend constexpr bool operator==(TracePeer const&, TracePeer const&) = default;
};

namespace enums {
enum class TraceOperation : std::uint8_t { exchange, agree, split };
[[nodiscard]] constexpr std::string_view name(TraceOperation operation) noexcept {
    constexpr std::string_view names[] = {"exchange", "agree", "split"};
    return names[static_cast<int>(operation)];
}
}  // namespace enums
using enums::TraceOperation;

/// The group a split made: `id` counts the splits of this trace from 1.
struct TraceGroup {
    int id = 0;
    int rank = 0;  ///< of this rank in it
    int size = 0;
    friend constexpr bool operator==(TraceGroup const&, TraceGroup const&) = default;
};

/// One collective call of one rank. Times are nanoseconds of Trace::now(); an exchange ends when its request is done.
struct TraceRecord {
    TraceOperation operation = TraceOperation::exchange;
    ErrorCode error = ErrorCode::none;  ///< what it ended with; its bytes did not count then
    std::string_view transport;         ///< its name
    int group = 0;                      ///< 0: the communicator that was wrapped; else TraceGroup::id
    Index start = 0;
    Index end = -1;              ///< -1: under way
    Traffic moved;               ///< of all its peers, and what stayed with the rank
    std::size_t first_peer = 0;  ///< see Trace::peers()
    std::size_t peer_count = 0;
    TraceGroup made;  ///< of a split

    [[nodiscard]] constexpr bool under_way() const noexcept { return end < 0; }
    [[nodiscard]] constexpr bool completed() const noexcept { return end >= 0 && error == ErrorCode::none; }
};

/// A moment (start == end) or a phase of the program that the program named.
struct TraceLabel {
    static constexpr std::size_t longest = 47;
    char text[longest + 1] = {};  ///< the first bytes of the name, with a zero behind
    Index start = 0;
    Index end = -1;  ///< -1: under way
};

/// How much a trace keeps. What does not fit is counted and left out; nothing is allocated later.
struct TraceCapacity {
    std::size_t records = 4096;
    std::size_t peers = std::size_t{8} * 4096;  ///< entries of all records together: a record has one per peer
    std::size_t labels = 1024;
};

/// Where records go: memory of the caller, set aside beforehand, because an exchange does not allocate.
/// A trace belongs to one rank (one thread) and outlives the communicators and requests that write to it.
class Trace {
public:
    /// Names a record that is under way; of a record that was dropped or cleared it names nothing.
    struct Id {
        std::size_t index = detail::as_size(-1);
        unsigned generation = 0;
    };

    /// Keeps the first `records` records, with eight peers each on average.
    explicit Trace(std::size_t records) : Trace(TraceCapacity{records, 8 * records, records}) {}
    explicit Trace(TraceCapacity const& capacity = {}) {
        records_.reserve(capacity.records);
        peers_.reserve(capacity.peers);
        labels_.reserve(capacity.labels);
    }

    [[nodiscard]] std::span<TraceRecord const> records() const noexcept { return records_; }
    [[nodiscard]] std::span<TracePeer const> peers(TraceRecord const& record) const noexcept {
        return std::span(peers_).subspan(record.first_peer, record.peer_count);
    }
    [[nodiscard]] std::span<TraceLabel const> labels() const noexcept { return labels_; }
    /// Records and labels that did not fit.
    [[nodiscard]] Index dropped() const noexcept { return dropped_; }
    /// Forgets everything; what is under way leaves no record.
    void clear() noexcept {
        records_.clear();
        peers_.clear();
        labels_.clear();
        dropped_ = 0;
        ++generation_;
    }

    /// Notes a moment: `trace.mark("loaded")`.
    void mark(std::string_view text) noexcept {
        Index const at = now();
        finish_label(start_label(text, at), at);
    }
    struct EndOfPhase {
        Id id;
        void operator()(Trace* trace) const noexcept { trace->finish_label(id, now()); }
    };
    /// A phase that lasts as long as this object.
    using Scope = std::unique_ptr<Trace, EndOfPhase>;
    /// Notes a phase, from here to the end of the scope: `auto phase = trace.scope("load");`.
    [[nodiscard]] Scope scope(std::string_view text) noexcept { return {this, {start_label(text, now())}}; }

    /// Nanoseconds of the steady clock.
    [[nodiscard]] static Index now() noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }

    /// For writers: a record and its peers; finish() ends it. No group counts as one until it is made.
    [[nodiscard]] Id start(TraceRecord record, std::span<transport::Send const> sends,
                           std::span<transport::Receive const> receives, int me) noexcept {
        record.first_peer = peers_.size();
        bool fits = records_.size() < records_.capacity();
        detail::for_each_pair(sends, receives, [&](int rank, auto out, auto in) {
            Index const sent = detail::payload_of(out);
            Traffic const moved{detail::as_index(out.size()), sent, detail::as_index(in.size()), detail::payload_of(in),
                                0};
            record.moved += rank == me ? Traffic{0, 0, 0, 0, sent} : moved;
            if (rank == me) return;
            fits = fits && peers_.size() < peers_.capacity();
            if (fits) peers_.push_back({rank, moved});
        });
        if (!fits) {
            peers_.resize(record.first_peer);
            ++dropped_;
            return {};
        }
        record.peer_count = peers_.size() - record.first_peer;
        records_.push_back(record);
        return {records_.size() - 1, generation_};
    }
    void finish(Id id, ErrorCode error = ErrorCode::none, TraceGroup const& made = {}) noexcept {
        if (id.generation != generation_ || id.index >= records_.size()) return;
        TraceRecord& record = records_[id.index];
        record.end = now();
        record.error = error;
        record.made = made;
    }
    [[nodiscard]] int next_group() noexcept { return ++groups_; }

private:
    [[nodiscard]] Id start_label(std::string_view text, Index at) noexcept {
        if (labels_.size() == labels_.capacity()) {
            ++dropped_;
            return {};
        }
        TraceLabel label;
        label.start = at;
        std::memcpy(label.text, text.data(), detail::smaller(text.size(), TraceLabel::longest));
        labels_.push_back(label);
        return {labels_.size() - 1, generation_};
    }
    void finish_label(Id id, Index at) noexcept {
        if (id.generation == generation_ && id.index < labels_.size()) labels_[id.index].end = at;
    }

    std::vector<TraceRecord> records_;
    std::vector<TracePeer> peers_;
    std::vector<TraceLabel> labels_;
    Index dropped_ = 0;
    unsigned generation_ = 0;
    int groups_ = 0;
};

}  // namespace reshard::inline v0_1
