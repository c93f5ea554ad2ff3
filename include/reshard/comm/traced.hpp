// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/traced.hpp
/// \brief  Traced<C>: any communicator, with a record of each exchange. Observation as a policy, not as a feature of
/// transports. \depends comm/communicator.hpp, <vector>.
#pragma once

#include <reshard/comm/communicator.hpp>

#include <utility>  // move
#include <vector>

namespace reshard::inline v0 {

/// One side of one exchange, transfers to oneself left out.
struct TraceSide {
    Index messages = 0;
    Index bytes = 0;
    int peers = 0;  ///< different ranks
    friend constexpr bool operator==(TraceSide const&, TraceSide const&) = default;
};

/// What one rank asked of one exchange.
struct TraceRecord {
    TraceSide sent;
    TraceSide received;
    Index bytes_local = 0;
    friend constexpr bool operator==(TraceRecord const&, TraceRecord const&) = default;
};

/// Where records go: memory of the caller, set aside beforehand, because an exchange does not allocate.
/// A trace belongs to one rank and outlives the communicators that write to it.
class Trace {
public:
    /// Keeps the first `capacity` records and counts the rest.
    explicit Trace(std::size_t capacity) { records_.reserve(capacity); }

    void add(TraceRecord const& record) noexcept {
        if (records_.size() < records_.capacity())
            records_.push_back(record);
        else
            ++dropped_;
    }
    [[nodiscard]] std::span<TraceRecord const> records() const noexcept { return records_; }
    [[nodiscard]] Index dropped() const noexcept { return dropped_; }
    void clear() noexcept {
        records_.clear();
        dropped_ = 0;
    }

private:
    std::vector<TraceRecord> records_;
    Index dropped_ = 0;
};

/// Records what passes through and changes nothing. Communicators split from it write to the same trace.
template <Communicator C>
class Traced : public MeshSplit<Traced<C>> {
public:
    static constexpr std::string_view name = C::name;
    using request_type = typename C::request_type;
    using MeshSplit<Traced<C>>::split;

    Traced(C inner, Trace& trace) : inner_(std::move(inner)), trace_(&trace) {}

    [[nodiscard]] C& inner() noexcept { return inner_; }
    [[nodiscard]] int rank() const noexcept { return inner_.rank(); }
    [[nodiscard]] int size() const noexcept { return inner_.size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return inner_.traffic(); }

    /// Recorded when it has started; one that fails to start leaves no record.
    request_type exchange(std::span<Send const> sends, std::span<Receive const> receives) {
        request_type request = inner_.exchange(sends, receives);
        TraceRecord record;
        record.sent = side(sends, record.bytes_local);
        Index same = 0;
        record.received = side(receives, same);
        trace_->add(record);
        return request;
    }
    [[nodiscard]] Verdict agree(Verdict mine) { return inner_.agree(std::move(mine)); }
    [[nodiscard]] Traced split(int colour, int key) { return Traced(inner_.split(colour, key), *trace_); }
    void abort(ErrorCode code, std::string_view reason) noexcept { inner_.abort(code, reason); }

private:
    template <class T>
    [[nodiscard]] TraceSide side(std::span<T const> transfers, Index& local) const noexcept {
        TraceSide result;
        int last = -1;
        for (auto const& transfer : transfers) {
            Index const bytes = transfer.payload_bytes();
            if (transfer.peer == inner_.rank()) {
                local += bytes;
                continue;
            }
            ++result.messages;
            result.bytes += bytes;
            if (transfer.peer != last) ++result.peers;
            last = transfer.peer;
        }
        return result;
    }

    C inner_;
    Trace* trace_;
};

}  // namespace reshard::inline v0
