// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/abort_on_failure.hpp
/// \brief  AbortOnFailure<C>: an error of a collective call is printed and ends the process. Failure as a policy.
/// \depends comm/policy.hpp, core/detail/watched.hpp.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/policy.hpp>
#include <reshard/core/detail/watched.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// The hook of the program, else stderr: in one write, so that the lines of several ranks do not mix.
inline void report_failure(FailureHook hook, ErrorCode code, std::string line) noexcept {
    if (hook != nullptr) return hook(code, line.c_str());
    line += '\n';
    static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
    static_cast<void>(std::fflush(stderr));
}

#if defined(__cpp_exceptions)
[[nodiscard]] inline FailureHook program_hook() noexcept { return failure_hook(); }
#else
/// What to do when this thread fails inside a collective call.
using FailingCall = FunctionRef<void(ErrorCode code, std::string_view reason)>;
inline FailingCall const*& failing_call() noexcept {
    static thread_local FailingCall const* call = nullptr;
    return call;
}
/// The hook the program set before ranks started; ours stands in its place from the first call on, because raise()
/// comes back to nobody who could tell the others.
inline FailureHook program_hook() noexcept {
    static FailureHook const before = std::exchange(failure_hook(), [](ErrorCode code, char const* text) {
        if (FailingCall const* const call = std::exchange(failing_call(), nullptr)) (*call)(code, text);
        report_failure(program_hook(), code, text);
    });
    return before;
}
#endif

}  // namespace detail

/// An exchange whose error ends the process. One that is destroyed without wait() leaves that to the next call.
template <class C>
class [[nodiscard]] AbortOnFailureExchange {
public:
    AbortOnFailureExchange() = default;
    AbortOnFailureExchange(typename C::inner_type::exchange_type inner, C& comm) noexcept
        : inner_(std::move(inner)), comm_(&comm) {}

    void start() {
        if (comm_ == nullptr) return inner_.start();  // says what is wrong
        comm_->guarded([&] { inner_.start(); });
    }
    void wait() {
        if (comm_ != nullptr) comm_->guarded([&] { inner_.wait(); });
    }
    [[nodiscard]] bool test() {
        return comm_ == nullptr || comm_->guarded([&] { return inner_.test(); });
    }
    [[nodiscard]] bool done() const noexcept { return inner_.done(); }
    /// As transport::InOrder.
    void become_part_of(transport::BoundTransfers const& whole) noexcept { transport::become_part_of(whole, inner_); }

private:
    typename C::inner_type::exchange_type inner_;
    C* comm_ = nullptr;
};

/// An error that would leave a collective call is printed with its rank ("reshard: rank 2 of 8 (threads): ..."), the
/// others are told by abort(), and the process ends: by the transport's terminate() where it has one, else by
/// std::abort. A failure_hook, if set, is called instead of printing.
///
/// For programs that would not know what to do with the error, and for builds without exceptions, where an error
/// could not reach the other ranks otherwise: there of what fails within a call of the communicator, not of what a
/// function finds wrong before it makes one. Errors in arguments that all ranks get wrong alike are thrown as ever: a
/// mesh that does not fit (split), a root that does not exist (broadcast). They leave the communicator whole.
template <class C>
class AbortOnFailure : public PolicyBase<AbortOnFailure<C>, C> {
    static_assert(Communicator<C>, "reshard::AbortOnFailure: wraps a communicator. Fix: see the concept Communicator.");
    using Base = PolicyBase<AbortOnFailure, C>;

public:
    using exchange_type = AbortOnFailureExchange<AbortOnFailure>;
    using Base::split;

    explicit AbortOnFailure(C inner) noexcept : Base(std::move(inner)) {}

    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return {guarded([&] { return this->inner_.bind(sends, receives); }), *this};
    }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) {
        return guarded([&] { return detail::agreed(this->inner_, std::move(mine)); });
    }
    [[nodiscard]] AbortOnFailure split(int colour, int key) {
        return AbortOnFailure(guarded([&] { return this->inner_.split(colour, key); }));
    }
    template <class T>
        requires requires(C& inner) { inner.template allocate<T>(Index{}); }
    [[nodiscard]] auto allocate(Index elements) {
        return guarded([&] { return Base::template allocate<T>(elements); });
    }

private:
    friend class AbortOnFailureExchange<AbortOnFailure>;

    template <class Body>
    decltype(auto) guarded(Body&& body) {
        auto const failing = [this](ErrorCode code, std::string_view reason) noexcept { end(code, reason); };
#if defined(__cpp_exceptions)
        return detail::watched(body, failing);
#else
        static_cast<void>(detail::program_hook());
        detail::FailingCall const call = failing;
        struct Scope {
            detail::FailingCall const* before;
            ~Scope() { detail::failing_call() = before; }
        } const scope{std::exchange(detail::failing_call(), &call)};
        return body();
#endif
    }

    [[noreturn]] void end(ErrorCode code, std::string_view reason) noexcept {
        detail::report_failure(detail::program_hook(), code,
                               errors::concat("reshard: rank ", this->rank(), " of ", this->size(), " (", Base::name,
                                              ") ends the program: ", reason));
        this->inner_.abort(code, reason);
        Base::terminate();
    }
};

template <>
inline constexpr PolicyKind policy_kind<AbortOnFailure> = PolicyKind::failure;

}  // namespace reshard::inline v0_1
