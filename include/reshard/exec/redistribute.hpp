// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/redistribute.hpp
/// \brief  Carry out a plan once: with a communicator, or, when the transition is provably local, without one.
/// \depends exec/prepare.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/core/detail/keep_for_good.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/core/tensor.hpp>
#include <reshard/exec/prepare.hpp>

#include <optional>  // optional

namespace reshard::inline v0_1 {

/// prepare + run. Collective over `comm`. Throws what prepare and RunRequest::wait throw.
inline void redistribute(Plan<> const& plan, CommunicatorRef comm, ConstDynamicView const& source,
                         DynamicView const& destination, PrepareOptions const& options = {}) {
    prepare(plan, comm, source, destination, options).run();
}
template <class From, class To, detail::Viewed S, detail::Viewed T, class... Options>
    requires detail::OptionsOrNone<Options...>
void redistribute(Plan<From, To> const& plan, CommunicatorRef comm, S&& source, T&& destination,
                  Options const&... options) {
    prepare(plan, comm, source, destination, options...).run();
}

namespace detail {
/// Into memory that `make` gives for the local shape, and that `keep` takes where the exchange has failed: it may still
/// be written to.
void redistribute_into(Means const& means, PlanValue const& plan, CommunicatorRef comm, ConstDynamicView const& source,
                       DType dtype, FunctionRef<DynamicView(DynamicShape const& shape)> make, FunctionRef<void()> keep);
}  // namespace detail

/// The same into new memory of the destination's local shape (empty on ranks outside its mesh). A rank that has no
/// memory for it is an OutOfMemory on all.
template <class From, class To, detail::Viewed S, class T = std::remove_const_t<detail::ElementOf<S>>>
[[nodiscard]] Tensor<T> redistribute(Plan<From, To> const& plan, CommunicatorRef comm, S&& source) {
    static_assert(detail::check_types<From, To, T, T>());
    Tensor<T> destination;
    detail::redistribute_into(
        detail::means_for<From, To>(), plan.value(), comm, detail::as_view(source), dtype_of<T>,
        [&](DynamicShape const& shape) -> DynamicView {
            destination = Tensor<T>(shape);
            return destination.view();
        },
        [&] { detail::keep_for_good(std::move(destination)); });
    return destination;
}

template <class From, class To, class S, class T, class... Options>
    requires detail::NoViews<S, T>
void redistribute(Plan<From, To> const&, CommunicatorRef, S&&, T&&, Options const&...) {
    static_assert(detail::check_views_given<S, T>());
}
template <class From, class To, class S>
    requires detail::NoViews<S, S>
void redistribute(Plan<From, To> const&, CommunicatorRef, S&&) { static_assert(detail::check_views_given<S, S>()); }
template <class From, class To, detail::TensorArgument... T>
auto redistribute(Plan<From, To> const&, T&&...) {  // auto: `auto x = ` is told this first, not that there is no x
    static_cast<void>(detail::check_communicator_given<Plan<From, To>>());
}
namespace detail {
/// A communicator, or a distribution, which stands where the plan should.
template <class First>
concept NotThePlan = AnyDistribution<First> || requires(std::remove_cvref_t<First>& comm) {
    comm.traffic();
};
}  // namespace detail
template <detail::NotThePlan First, class... Rest>
auto redistribute(First&&, Rest&&...) {
    static_assert(!detail::NotThePlan<First>,
                  "reshard::redistribute: the plan comes first, then the communicator. Fix: redistribute(plan(from, "
                  "to), comm, source, destination), or redistribute(batch, comm).");
}

namespace detail {
/// Throws TransitionError for plans that are collective.
void run_locally(Means const& means, PlanValue const& plan, ConstDynamicView const& source,
                 DynamicView const& destination, int rank, PrepareOptions const& options = {});
template <class From, class To, class S, class T, class... Options>
void run_locally(Means const& means, Plan<From, To> const& plan, TensorView<S> const& source,
                 TensorView<T> const& destination, int rank, Options const&... options) {
    static_assert(check_types<From, To, S, T, Options...>());
    if constexpr (TypedDistribution<From> && TypedDistribution<To>) {
        static_assert(transition_kind<From, To> != TransitionKind::collective,
                      "reshard::redistribute: this transition needs communication. Fix: pass a communicator.");
    }
    run_locally(means, plan.value(), source, destination, rank, options...);
}
}  // namespace detail

/// A transition within one rank: a copy or cast, identities, a factor. There is no communicator to pass, so this call
/// is the proof that nothing is sent. Does not compile for typed plans that are collective; throws TransitionError for
/// run-time plans that are. Throws BufferError and DTypeError like prepare. A rank outside the mesh has nothing to do.
/// Tensors of a device: pass a DeviceMemory (memory/on_device.cuh) behind the rank; the work is then its stream's.
inline void redistribute(Plan<> const& plan, ConstDynamicView const& source, DynamicView const& destination, int rank,
                         MemoryPolicy const& memory, PrepareOptions const& options = {}) {
    detail::run_locally(detail::all_means({memory, host_memory().convert}), plan.value(), source, destination, rank,
                        options);
}
inline void redistribute(Plan<> const& plan, ConstDynamicView const& source, DynamicView const& destination, int rank,
                         PrepareOptions const& options = {}) {
    redistribute(plan, source, destination, rank, host_memory().policy, options);
}
template <class From, class To, detail::Viewed S, detail::Viewed T, class... Options>
    requires detail::OptionsOrNone<Options...>
void redistribute(Plan<From, To> const& plan, S&& source, T&& destination, int rank, MemoryPolicy const& memory,
                  Options const&... options) {
    detail::run_locally(detail::all_means({memory, host_memory().convert}), plan, detail::as_view(source),
                        detail::as_view(destination), rank, options...);
}
template <class From, class To, detail::Viewed S, detail::Viewed T, class... Options>
    requires detail::OptionsOrNone<Options...>
void redistribute(Plan<From, To> const& plan, S&& source, T&& destination, int rank, Options const&... options) {
    detail::run_locally(detail::means_for<From, To, Options...>(), plan, detail::as_view(source),
                        detail::as_view(destination), rank, options...);
}

namespace detail {
/// Collective. The plan that make(whole) returns, of a tensor that rank `root` alone has as a whole: what this rank
/// alone gets wrong in it, all are told.
[[nodiscard]] inline Plan<> plan_with_root(CommunicatorRef comm, int root, DynamicShape const& shape,
                                           FunctionRef<Plan<>(DynamicDistribution const& whole)> make) {
    std::optional<Plan<>> plan;
    attempt_before_agreement(comm, [&] {
        if (root < 0 || root >= comm.size()) {
            raise(ErrorCode::mesh, "reshard: root ", root, " is not one of the communicator's ", comm.size(),
                  " ranks. Fix: roots count from 0.");
        }
        plan.emplace(make(replicated(DynamicMesh(Indices{1}, first_rank(root)), shape)));
    });
    return *plan;
}
}  // namespace detail

/// From rank `root` to everybody. `source` counts on the root only. Use it where one rank has the data; where every
/// rank has it, plan(whole, parts).view(...) sends nothing. Tensors, and views of any kind.
template <std::convertible_to<ConstDynamicView> S, std::convertible_to<ConstDynamicView> T, class... Options>
    requires detail::OptionsOrNone<Options...>
void distribute(DynamicDistribution const& to, CommunicatorRef comm, int root, S&& source, T&& destination,
                Options const&... options) {
    auto const parts = [&](DynamicDistribution const& whole) { return plan_across(whole, to); };
    redistribute(detail::plan_with_root(comm, root, to.shape(), parts), comm, source, destination, options...);
}
/// From everybody to rank `root`. `destination` counts on the root only.
template <std::convertible_to<ConstDynamicView> S, std::convertible_to<ConstDynamicView> T, class... Options>
    requires detail::OptionsOrNone<Options...>
void gather(DynamicDistribution const& from, CommunicatorRef comm, int root, S&& source, T&& destination,
            Options const&... options) {
    auto const together = [&](DynamicDistribution const& whole) { return plan_across(from, whole); };
    redistribute(detail::plan_with_root(comm, root, from.shape(), together), comm, source, destination, options...);
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/exec/redistribute.ipp>
#endif
