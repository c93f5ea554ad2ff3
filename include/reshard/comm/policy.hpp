// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/policy.hpp
/// \brief  Composed<C, Policies...>: a transport with policies around it, and compose() which makes one.
/// \depends comm/communicator.hpp. The policies: comm/staged.hpp, comm/traced.hpp, comm/abort_on_failure.hpp.
///
/// A policy is a class template over a communicator that is a communicator itself: Staged<C>, Traced<C>. What is not
/// asked for costs nothing: Composed<C> is C.
#pragma once

#include <reshard/comm/communicator.hpp>

namespace reshard::inline v0_1 {

/// What a policy is about. One of each kind at most; they wrap the transport in this order, the first innermost:
/// a trace shows the boxes of the caller and the time of everything below it, and whoever ends the process sees all.
enum class PolicyKind : std::uint8_t {
    undeclared,   ///< of templates that are no policy
    memory,       ///< where transfers pass through: host (none), Staged
    observation,  ///< who watches: nobody (none), Traced
    failure,      ///< what an error does: throw (none), AbortOnFailure
};

/// Specialise it for a policy of your own, which inherits PolicyBase, has a constructor from (C) or from (C, settings),
/// and splits into itself.
template <template <class> class Policy>
inline constexpr PolicyKind policy_kind = PolicyKind::undeclared;

namespace detail {

/// All is as the communicator inside has it, which Derived has by a member inner() that is const.
template <class Derived, class C>
class Around : public CommunicatorBase<Derived> {
public:
    static constexpr std::string_view name = C::name;
    using inner_type = C;
    using exchange_type = typename C::exchange_type;

    [[nodiscard]] int rank() const noexcept { return inside().rank(); }
    [[nodiscard]] int size() const noexcept { return inside().size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return inside().traffic(); }
    exchange_type bind(std::span<Send const> sends, std::span<Receive const> receives) {
        return inside().bind(sends, receives);
    }
    [[nodiscard]] Verdict agree(Verdict mine) { return inside().agree(std::move(mine)); }
    void abort(ErrorCode code, std::string_view reason) noexcept { inside().abort(code, reason); }
    void check_memory(void const* memory) { inside().check_memory(memory); }
    [[nodiscard]] auto memory() { return inside().memory(); }
    [[noreturn]] void terminate() noexcept {
        inside().terminate();
        std::abort();
    }

private:
    [[nodiscard]] decltype(auto) inside() const noexcept { return static_cast<Derived const&>(*this).inner(); }
    [[nodiscard]] C& inside() noexcept { return static_cast<Derived&>(*this).inner(); }
};

/// C wrapped in the policy of that kind, or C itself.
template <PolicyKind Kind, class C, template <class> class... Policies>
struct WrappedByKind {
    using type = C;
};
template <PolicyKind Kind, class C, template <class> class First, template <class> class... Others>
struct WrappedByKind<Kind, C, First, Others...>
    : std::conditional_t<policy_kind<First> == Kind, std::type_identity<First<C>>, WrappedByKind<Kind, C, Others...>> {
};

template <template <class> class... Policies>
[[nodiscard]] constexpr int policies_of([[maybe_unused]] PolicyKind kind) noexcept {
    return (0 + ... + (policy_kind<Policies> == kind ? 1 : 0));
}

template <class C, template <class> class... Policies>
struct ComposedType {
    static_assert(Communicator<C>, "reshard::Composed: policies go around a communicator, named first.");
    static_assert(policies_of<Policies...>(PolicyKind::undeclared) == 0,
                  "reshard::Composed: one of these templates is no policy. Fix: include the policy's header, or "
                  "specialise reshard::policy_kind for a policy of your own.");
    static_assert(policies_of<Policies...>(PolicyKind::memory) <= 1,
                  "reshard::Composed: two memory policies, such as Staged twice. Fix: name one.");
    static_assert(policies_of<Policies...>(PolicyKind::observation) <= 1,
                  "reshard::Composed: two observation policies, such as Traced twice. Fix: name one.");
    static_assert(policies_of<Policies...>(PolicyKind::failure) <= 1,
                  "reshard::Composed: two failure policies, such as AbortOnFailure twice. Fix: name one.");
    using staged = typename WrappedByKind<PolicyKind::memory, C, Policies...>::type;
    using traced = typename WrappedByKind<PolicyKind::observation, staged, Policies...>::type;
    using type = typename WrappedByKind<PolicyKind::failure, traced, Policies...>::type;
};

/// The policy around `inner`, with the first of the settings that it takes.
template <class Policy, class Inner>
[[nodiscard]] Policy with_settings(Inner&& inner) {
    static_assert(std::is_constructible_v<Policy, Inner>,
                  "reshard::compose: a policy lacks its settings. Fix: pass them, such as a Trace for Traced.");
    return Policy(std::forward<Inner>(inner));
}
template <class Policy, class Inner, class First, class... Others>
[[nodiscard]] Policy with_settings(Inner&& inner, First& first, Others&... others) {
    if constexpr (std::is_constructible_v<Policy, Inner, First&>) {
        return Policy(std::forward<Inner>(inner), first);
    } else {
        return with_settings<Policy>(std::forward<Inner>(inner), others...);
    }
}

/// Whether some layer of Outer above C takes this setting.
template <class Outer, class C, class Setting>
[[nodiscard]] constexpr bool takes_setting() noexcept {
    if constexpr (std::is_same_v<Outer, C>) {
        return false;
    } else {
        using Inner = typename Outer::inner_type;
        return std::is_constructible_v<Outer, Inner, Setting&> || takes_setting<Inner, C, Setting>();
    }
}

template <class Outer, class C, class... Settings>
[[nodiscard]] Outer wrapped(C inner, Settings&... settings) {
    if constexpr (std::is_same_v<Outer, C>) {
        return inner;
    } else {
        return with_settings<Outer>(wrapped<typename Outer::inner_type>(std::move(inner), settings...), settings...);
    }
}

}  // namespace detail

/// A policy before it changes anything: all is as the communicator inside has it. Inherit it, say
/// `using PolicyBase<Derived, C>::split;` beside your split(colour, key), and replace the members it is about.
template <class Derived, class C>
class PolicyBase : public detail::Around<Derived, C> {
public:
    explicit PolicyBase(C inner) noexcept : inner_(std::move(inner)) {}

    [[nodiscard]] C& inner() noexcept { return inner_; }
    [[nodiscard]] C const& inner() const noexcept { return inner_; }
    /// Where the communicator inside has memory that peers read in place.
    template <class T>
        requires requires(C& inner) { inner.template allocate<T>(Index{}); }
    [[nodiscard]] auto allocate(Index elements) { return inner_.template allocate<T>(elements); }
    /// Where the communicator inside works in the order of a stream.
    [[nodiscard]] auto stream() const requires requires(C const& inner) { inner.stream(); }
    { return inner_.stream(); }
    /// And how long the host waits for it.
    [[nodiscard]] auto patience() const requires requires(C const& inner) { inner.patience(); }
    { return inner_.patience(); }

protected:
    C inner_;
};

/// C with these policies around it, in whatever order they are named: `Composed<ThreadCommunicator, Traced, Staged>`.
/// What it splits into is the same type: the policies stay.
template <Communicator C, template <class> class... Policies>
using Composed = typename detail::ComposedType<C, Policies...>::type;

/// Makes a Composed<C, Policies...>; `settings` are what the policies take (a Trace, StagingOptions), in any order:
///
///     auto comm = compose<Traced, AbortOnFailure>(std::move(plain), trace);
template <template <class> class... Policies, Communicator C, class... Settings>
[[nodiscard]] Composed<C, Policies...> compose(C inner, Settings&&... settings) {
    using Result = Composed<C, Policies...>;
    static_assert((true && ... && detail::takes_setting<Result, C, Settings>()),
                  "reshard::compose: none of the policies takes one of these settings. Fix: leave it out, or name the "
                  "policy that it is for.");
    return detail::wrapped<Result>(std::move(inner), settings...);
}

}  // namespace reshard::inline v0_1
