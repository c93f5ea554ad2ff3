// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/prepare.hpp
/// \brief  A plan bound to one rank's memory and communicator: check, agree, allocate once; then run at will.
/// \depends plan, comm/any_communicator.hpp, exec/detail/means.hpp.
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/core/tensor.hpp>
#include <reshard/core/tensor_view.hpp>
#include <reshard/exec/detail/means.hpp>
#include <reshard/exec/prepare_options.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::inline v0_1 {

/// Bytes of scratch memory one rank needs for a plan; zero unless a Partial is folded. `dtype` is the source's.
[[nodiscard]] Index workspace_bytes(Plan<> const& plan, Index rank, DType dtype, PrepareOptions const& options = {});
/// The same of this rank, where the tensors of `comm` lie: on a device all addends are folded at once by default.
[[nodiscard]] Index workspace_bytes(Plan<> const& plan, CommunicatorRef comm, DType dtype,
                                    PrepareOptions const& options = {});

namespace detail {
class BatchJob;      // exec/detail/batch_job.hpp
class ProgressWork;  // exec/progress_thread.ipp
struct RankMove;     // exec/detail/value_change.hpp
struct ValueChange;
}

/// A run under way. Move-only; wait() finishes the remaining phases; the destructor, and an assignment, waits, at most
/// the deadline. What was prepared may go before it; the tensors, a workspace and the communicator may not. Several
/// prepared plans may run at a time over one communicator, started in the same order on every rank; what one of them
/// writes no other reads or writes. Whoever waits for one first finishes those that started before, so the order of
/// waits is free; but before another starts, every rank has waited for the same. Where one fails, all that are under
/// way throw its error.
class [[nodiscard]] RunRequest {
public:
    RunRequest() = default;  ///< there is nothing to wait for
    explicit RunRequest(detail::BatchJob& job);
    RunRequest(RunRequest&& other) noexcept : job_(std::exchange(other.job_, nullptr)) {}
    RunRequest& operator=(RunRequest&& other) noexcept {
        RunRequest taken(std::move(other));
        std::swap(job_, taken.job_);
        return *this;
    }
    ~RunRequest();

    /// Returns when the destination is complete and nobody reads this rank's source any more. Throws PeerFailed,
    /// DeadlineExceeded, MismatchError or TransportError; then the destination is unspecified, the source untouched.
    void wait();
    /// Makes progress without blocking on other ranks; whether the exchange that is under way is complete. What comes
    /// behind it (folds, further exchanges: plans with Partial) is left to wait(), so that ranks that ask at different
    /// times start the same exchanges in the same order; a ProgressThread goes on by itself. Throws like wait(); after
    /// an error it is true.
    [[nodiscard]] bool test();

private:
    detail::BatchJob* job_ = nullptr;  ///< null: there is nothing left to do
};

/// A plan, or a batch of them, ready to run: run() and start() allocate nothing and check nothing that needs other
/// ranks. It is bound to the tensors' memory: other tensors are prepared again. That memory and the communicator stay
/// where they are and outlive it. It runs once at a time, and not where it was moved from: TransportError otherwise.
class PreparedPlan {
public:
    PreparedPlan() = default;  ///< as one that was moved from
    /// Takes what `new` made.
    explicit PreparedPlan(detail::BatchJob* job) noexcept : job_(job) {}
    PreparedPlan(PreparedPlan&& other) noexcept : job_(std::exchange(other.job_, nullptr)) {}
    PreparedPlan& operator=(PreparedPlan&& other) noexcept {
        std::swap(job_, other.job_);
        return *this;
    }
    ~PreparedPlan();

    void run();
    /// Starts the first exchange; the rest happens in wait(). Completes other runs over the communicator first, and so
    /// may wait for other ranks.
    RunRequest start() &;
    RunRequest start() && = delete;  ///< what runs once is run(), or redistribute()

private:
    friend class detail::ProgressWork;
    [[nodiscard]] PreparedPlan shared() const noexcept;

    detail::BatchJob* job_ = nullptr;
};

namespace detail {
/// Checks, allocates and binds one rank's side of a plan, by `new`. Communicates nothing. `change` becomes what becomes
/// of values, where it is given.
[[nodiscard]] BatchJob* bind_plan(Means const& means, RankMove const& move, CommunicatorRef comm,
                                  PrepareOptions const& options = {}, ValueChange* change = nullptr);
/// prepare() by these means, where what this rank has already found wrong is `found`.
[[nodiscard]] PreparedPlan prepare_with(Means const& means, PlanValue const& plan, CommunicatorRef comm,
                                        ConstDynamicView const& source, DynamicView const& destination,
                                        PrepareOptions const& options = {}, Verdict found = {});
}  // namespace detail

/// Collective over `comm`: checks the arguments, agrees among all ranks (the same error everywhere, naming the rank
/// and the reason) and allocates; until then nothing is touched. On ranks outside the plan's meshes only the element
/// type of the views counts: `DynamicView(nullptr, dtype, Shape{0})`, not `DynamicView()`, which is one of U8. Where a
/// plan does nothing but fold (P to R, all else as it is) both views may be the same memory; after a failure it is
/// unspecified.
///
/// Throws MeshError (mesh larger than the communicator), BufferError (shape, null, overlap), DTypeError (an op the
/// element type does not have; a cast or factor that cannot be), MismatchError (element types, plans or options
/// differ), OutOfMemory.
[[nodiscard]] inline PreparedPlan prepare(Plan<> const& plan, CommunicatorRef comm, ConstDynamicView const& source,
                                          DynamicView const& destination, PrepareOptions const& options = {}) {
    return detail::prepare_with(detail::all_means(host_memory()), plan.value(), comm, source, destination, options);
}

namespace detail {

/// Ops that the element type does not have are refused by the compiler where both are types.
template <class D, class T>
consteval bool check_ops() {
    if constexpr (TypedDistribution<D>) {
        for (auto const& placement : D::static_signature.placements) {
            if (placement.is_partial() && !supports(placement.op(), dtype_of<T>)) return false;
        }
    }
    return true;
}

/// What the compiler can tell about the element types of a move: instantiated with both, so that its trace names them.
template <class From, class To, class S, class T, class Options = PrepareOptions>
consteval bool check_types() {
    static_assert(!std::is_const_v<T>, "reshard: the destination is const. Fix: give it elements that can be written.");
    constexpr bool casts = std::derived_from<Options, Casting>;
    static_assert(casts || std::same_as<std::remove_const_t<S>, std::remove_const_t<T>>,
                  "reshard: source and destination have different element types. "
                  "Fix: give both the same type, or pass reshard::Casting{} to cast on the way.");
    if constexpr (casts) {
        static_assert(can_convert(dtype_of<S>, dtype_of<T>),
                      "reshard: there is no cast between these element types. Fix: cast numbers and booleans only.");
    }
    static_assert(check_ops<From, S>() && check_ops<To, T>(),
                  "reshard: a Partial op is not defined for this element type: bit operations need integers, "
                  "averages need floats, complex numbers have sums and averages only. Fix: use an op that the element "
                  "type supports.");
    return true;
}

/// What is meant where a view is: a tensor that owns its memory is seen through its view.
template <class T>
[[nodiscard]] TensorView<T> as_view(TensorView<T> const& view) noexcept {
    return view;
}
template <class T>
[[nodiscard]] TensorView<T const> as_view(Tensor<T> const& tensor) noexcept {
    return tensor.view();
}
template <class T>
[[nodiscard]] TensorView<T> as_view(Tensor<T>& tensor) noexcept {
    return tensor.view();
}
template <class A>
concept TensorArgument = requires(A& argument) {
    as_view(argument);
};
template <class A>
inline constexpr bool is_tensor = requires(A& argument) {
    argument.view();
};
/// A view or a tensor as A&&. Views may be temporaries, tensors may not.
template <class A>
concept Viewed = TensorArgument<A> &&(std::is_reference_v<A> || !is_tensor<A>);
template <Viewed A>
using ElementOf = typename decltype(as_view(std::declval<A&>()))::element_type;
template <class... Options>
concept OptionsOrNone = sizeof...(Options) < 2 && (std::derived_from<Options, PrepareOptions> && ...);

/// Neither a view nor a tensor, for one of the two: pointers, vectors and spans have no shape.
template <class S, class T>
concept NoViews = !(TensorArgument<S> && TensorArgument<T>)&&!(std::convertible_to<S&, ConstDynamicView> &&
                                                               std::convertible_to<T&, DynamicView>);
template <class S, class T>
consteval bool check_views_given() {
    static_assert(!NoViews<S, T>,
                  "reshard: source and destination are views. Fix: pass a Tensor, or TensorView<float>{pointer, shape} "
                  "where the shape is the distribution's local_shape(rank).");
    return true;
}

template <class Plan>
consteval bool check_communicator_given() {
    constexpr bool is_given = std::is_same_v<Plan, void>;
    static_assert(is_given,
                  "reshard: there is no communicator here. Fix: pass it behind the plan; where nothing crosses ranks, "
                  "redistribute(plan, source, destination, rank) needs none.");
    return is_given;
}

}  // namespace detail

/// The same of views, and of tensors that own their memory, whose element types the compiler knows. Different ones
/// compile with Casting only.
template <class From, class To, detail::Viewed S, detail::Viewed T, class... Options>
    requires detail::OptionsOrNone<Options...>
[[nodiscard]] PreparedPlan prepare(Plan<From, To> const& plan, CommunicatorRef comm, S&& source, T&& destination,
                                   Options const&... options) {
    static_assert(detail::check_types<From, To, detail::ElementOf<S>, detail::ElementOf<T>, Options...>());
    return detail::prepare_with(detail::means_for<From, To, Options...>(), plan.value(), comm, detail::as_view(source),
                                detail::as_view(destination), options...);
}
template <class From, class To, class S, class T, class... Options>
    requires detail::NoViews<S, T> PreparedPlan prepare(Plan<From, To> const& plan, CommunicatorRef comm, S&&, T&&,
                                                        Options const&...) {
        static_assert(detail::check_views_given<S, T>());
        return prepare(plan, comm, {}, {});
    }
template <class From, class To, detail::TensorArgument... T>
void prepare(Plan<From, To> const&, T&&...) {
    static_cast<void>(detail::check_communicator_given<Plan<From, To>>());
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/exec/prepare.ipp>
#endif
