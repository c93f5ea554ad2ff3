// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/traced.hpp
/// \brief  Traced<C>: any communicator, with a record of each collective call. Observation as a policy, not as a
///         feature of transports.
/// \depends comm/policy.hpp, comm/trace.hpp, core/detail/watched.hpp.
#pragma once

#include <reshard/comm/policy.hpp>
#include <reshard/comm/trace.hpp>
#include <reshard/core/detail/watched.hpp>

#include <utility>  // exchange, move

namespace reshard::inline v0 {

/// A request that notes when it is done.
template <class Inner>
class [[nodiscard]] TracedRequest {
public:
    TracedRequest() = default;
    TracedRequest(Inner inner, Trace& trace, Trace::Id id) noexcept
        : inner_(std::move(inner)), trace_(&trace), id_(id) {
        if (inner_.done()) finish(ErrorCode::none);
    }
    TracedRequest(TracedRequest&& other) noexcept
        : inner_(std::move(other.inner_)), trace_(std::exchange(other.trace_, nullptr)), id_(other.id_) {}
    TracedRequest& operator=(TracedRequest&& other) noexcept {
        if (this == &other) return *this;
        detail::quietly([&] { wait(); });
        inner_ = std::move(other.inner_);
        trace_ = std::exchange(other.trace_, nullptr);
        id_ = other.id_;
        return *this;
    }
    TracedRequest(TracedRequest const&) = delete;
    TracedRequest& operator=(TracedRequest const&) = delete;
    ~TracedRequest() {
        if (trace_ != nullptr) detail::quietly([&] { wait(); });
    }

    void wait() {
        noted([&] { inner_.wait(); });
        finish(ErrorCode::none);
    }
    [[nodiscard]] bool test() {
        bool const complete = noted([&] { return inner_.test(); });
        if (complete) finish(ErrorCode::none);
        return complete;
    }
    [[nodiscard]] bool done() const noexcept { return inner_.done(); }

private:
    template <class Body>
    decltype(auto) noted(Body&& body) {
        return detail::watched(body, [&](ErrorCode code, std::string_view) noexcept { finish(code); });
    }
    void finish(ErrorCode code) noexcept {
        if (trace_ != nullptr) std::exchange(trace_, nullptr)->finish(id_, code);
    }

    Inner inner_;
    Trace* trace_ = nullptr;
    Trace::Id id_;
};

/// Records what passes through and changes nothing: no message more, no other ranks needed that trace as well.
/// Communicators split from it write to the same trace, as a group of their own.
template <class C>
class Traced : public MeshSplit<Traced<C>> {
    static_assert(Communicator<C>, "reshard::Traced: wraps a communicator. Fix: see the concept Communicator.");

public:
    static constexpr std::string_view name = C::name;
    using inner_type = C;
    using request_type = TracedRequest<typename C::request_type>;
    using MeshSplit<Traced<C>>::split;

    Traced(C inner, Trace& trace) noexcept : Traced(std::move(inner), trace, 0) {}

    [[nodiscard]] C& inner() noexcept { return inner_; }
    [[nodiscard]] Trace& trace() const noexcept { return *trace_; }
    [[nodiscard]] int rank() const noexcept { return inner_.rank(); }
    [[nodiscard]] int size() const noexcept { return inner_.size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return inner_.traffic(); }

    request_type exchange(std::span<Send const> sends, std::span<Receive const> receives) {
        Trace::Id const id = start(TraceOperation::exchange, sends, receives);
        return request_type(noted(id, [&] { return inner_.exchange(sends, receives); }), *trace_, id);
    }
    [[nodiscard]] Verdict agree(Verdict mine) {
        Trace::Id const id = start(TraceOperation::agree);
        Verdict joint = noted(id, [&] { return inner_.agree(std::move(mine)); });
        trace_->finish(id);
        return joint;
    }
    [[nodiscard]] Traced split(int colour, int key) {
        Trace::Id const id = start(TraceOperation::split);
        C part = noted(id, [&] { return inner_.split(colour, key); });
        TraceGroup const made{trace_->next_group(), part.rank(), part.size()};
        trace_->finish(id, ErrorCode::none, made);
        return Traced(std::move(part), *trace_, made.id);
    }
    void abort(ErrorCode code, std::string_view reason) noexcept { inner_.abort(code, reason); }

private:
    Traced(C inner, Trace& trace, int group) noexcept : inner_(std::move(inner)), trace_(&trace), group_(group) {}

    [[nodiscard]] Trace::Id start(TraceOperation operation, std::span<Send const> sends = {},
                                  std::span<Receive const> receives = {}) noexcept {
        TraceRecord record;
        record.operation = operation;
        record.transport = name;
        record.group = group_;
        record.start = Trace::now();
        return trace_->start(record, sends, receives, rank());
    }
    template <class Body>
    decltype(auto) noted(Trace::Id id, Body&& body) {
        return detail::watched(body, [&](ErrorCode code, std::string_view) noexcept { trace_->finish(id, code); });
    }

    C inner_;
    Trace* trace_;
    int group_;
};

template <>
inline constexpr PolicyKind policy_kind<Traced> = PolicyKind::observation;

}  // namespace reshard::inline v0
