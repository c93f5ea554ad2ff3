// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/function_ref.hpp
/// \brief  A reference to something callable: what visitors of the planner take, so that each is compiled once.
/// \depends <type_traits>. As std::function_ref of C++26 (wg21.link/p0792).
#pragma once

#include <type_traits>  // is_same, remove_reference

namespace reshard::inline v0::detail {

template <class Signature>
class FunctionRef;

/// \pre what it refers to outlives it.
template <class R, class... A>
class FunctionRef<R(A...)> {
public:
    template <class F>
        requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
    FunctionRef(F&& function)
    noexcept
        : object_(const_cast<void*>(static_cast<void const*>(__builtin_addressof(function)))),
          call_([](void* object, A... arguments) -> R {
              return (*static_cast<std::remove_reference_t<F>*>(object))(static_cast<A>(arguments)...);
          }) {}

    R operator()(A... arguments) const { return call_(object_, static_cast<A>(arguments)...); }

private:
    void* object_;
    R (*call_)(void* object, A... arguments);
};

}  // namespace reshard::inline v0::detail
