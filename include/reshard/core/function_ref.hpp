// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/function_ref.hpp
/// \brief  A reference to something callable: what visitors of the planner take, so that each is compiled once.
/// \depends <type_traits>. As std::function_ref of C++26 (wg21.link/p0792).
#pragma once

#include <type_traits>  // is_same

namespace reshard::inline v0_1::detail {

template <class Signature>
class FunctionRef;

/// \pre what it refers to outlives it.
template <class R, class... A>
class FunctionRef<R(A...)> {
public:
    // clang-format off
    template <class F>
        requires(!std::is_same_v<F, FunctionRef>)
    FunctionRef(F const& function) noexcept
        : object_(__builtin_addressof(function)), call_([](void const* object, A... arguments) -> R {
              return (*static_cast<F const*>(object))(static_cast<A>(arguments)...);
          }) {}
    // clang-format on

    R operator()(A... arguments) const { return call_(object_, static_cast<A>(arguments)...); }

private:
    void const* object_;
    R (*call_)(void const* object, A... arguments);
};

}  // namespace reshard::inline v0_1::detail
