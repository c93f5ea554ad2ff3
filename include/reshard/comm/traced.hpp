// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/traced.hpp
/// \brief  Traced<C>: any communicator, with a record of each collective call. Observation as a policy, not as a
///         feature of transports.
/// \depends comm/policy.hpp, comm/trace.hpp, core/detail/watched.hpp.
#pragma once

#include <reshard/comm/policy.hpp>
#include <reshard/comm/trace.hpp>
#include <reshard/core/detail/watched.hpp>

namespace reshard::inline v0_1 {

/// An exchange that notes when it starts and when it is done.
template <class C>
class [[nodiscard]] TracedExchange {
public:
    TracedExchange() = default;
    TracedExchange(C& comm, typename C::inner_type::exchange_type inner, std::span<transport::Send const> sends,
                   std::span<transport::Receive const> receives) noexcept
        : inner_(std::move(inner)), call_{&comm, sends, receives} {}
    TracedExchange(TracedExchange&& other) noexcept
        : inner_(std::move(other.inner_)), call_(std::exchange(other.call_, Call{})) {}
    TracedExchange& operator=(TracedExchange&& other) noexcept {
        if (this == &other) return *this;
        detail::quietly([&] { wait(); });
        inner_ = std::move(other.inner_);
        call_ = std::exchange(other.call_, Call{});
        return *this;
    }
    ~TracedExchange() {
        if (call_.under_way) detail::quietly([&] { wait(); });
    }

    void start() {
        if (call_.under_way && inner_.done()) wait();
        if (call_.comm == nullptr || call_.under_way) return inner_.start();  // says what is wrong
        call_.id = call_.comm->note(TraceOperation::exchange, call_.sends, call_.receives);
        call_.under_way = true;
        noted([&] { inner_.start(); });
        if (inner_.done()) finish(ErrorCode::none);
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
    /// As transport::InOrder.
    void become_part_of(transport::BoundTransfers const& whole) noexcept { transport::become_part_of(whole, inner_); }

private:
    /// What is noted.
    struct Call {
        C* comm = nullptr;
        std::span<transport::Send const> sends;
        std::span<transport::Receive const> receives;
        Trace::Id id{};
        bool under_way = false;
    };

    template <class Body>
    decltype(auto) noted(Body&& body) {
        return detail::watched(body, [&](ErrorCode code, std::string_view) noexcept { finish(code); });
    }
    void finish(ErrorCode code) noexcept {
        if (std::exchange(call_.under_way, false)) call_.comm->trace().finish(call_.id, code);
    }

    typename C::inner_type::exchange_type inner_;
    Call call_;
};

/// Records what passes through and changes nothing: no message more, no other ranks needed that trace as well.
/// Communicators split from it write to the same trace, as a group of their own.
template <class C>
class Traced : public PolicyBase<Traced<C>, C> {
    static_assert(Communicator<C>, "reshard::Traced: wraps a communicator. Fix: see the concept Communicator.");
    using Base = PolicyBase<Traced, C>;

public:
    using exchange_type = TracedExchange<Traced>;
    using Base::split;

    Traced(C inner, Trace& trace) noexcept : Traced(std::move(inner), trace, 0) {}

    [[nodiscard]] Trace& trace() const noexcept { return *trace_; }

    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return {*this, this->inner_.bind(sends, receives), sends, receives};
    }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) {
        Trace::Id const id = note(TraceOperation::agree);
        transport::Verdict joint = noted(id, [&] { return Base::agree(std::move(mine)); });
        trace_->finish(id);
        return joint;
    }
    [[nodiscard]] Traced split(int colour, int key) {
        Trace::Id const id = note(TraceOperation::split);
        C part = noted(id, [&] { return this->inner_.split(colour, key); });
        TraceGroup const made{trace_->next_group(), part.rank(), part.size()};
        trace_->finish(id, ErrorCode::none, made);
        return Traced(std::move(part), *trace_, made.id);
    }

private:
    friend class TracedExchange<Traced>;

    Traced(C inner, Trace& trace, int group) noexcept : Base(std::move(inner)), trace_(&trace), group_(group) {}

    [[nodiscard]] Trace::Id note(TraceOperation operation, std::span<transport::Send const> sends = {},
                                 std::span<transport::Receive const> receives = {}) noexcept {
        TraceRecord record;
        record.operation = operation;
        record.transport = Base::name;
        record.group = group_;
        record.start = Trace::now();
        return trace_->start(record, sends, receives, this->rank());
    }
    template <class Body>
    decltype(auto) noted(Trace::Id id, Body&& body) {
        return detail::watched(body, [&](ErrorCode code, std::string_view) noexcept { trace_->finish(id, code); });
    }

    Trace* trace_;
    int group_;
};

template <>
inline constexpr PolicyKind policy_kind<Traced> = PolicyKind::observation;

}  // namespace reshard::inline v0_1
