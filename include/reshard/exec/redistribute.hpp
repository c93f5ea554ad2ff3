// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/redistribute.hpp
/// \brief  Carry out a plan once: with a communicator, or, when the transition is provably local, without one.
/// \depends exec/prepare.
#pragma once

#include <reshard/core/tensor.hpp>
#include <reshard/exec/prepare.hpp>

namespace reshard::inline v0 {

/// prepare + run. Collective over `comm`. Throws what prepare and RunRequest::wait throw.
template <Communicator C>
void redistribute(Plan<> const& plan, C& comm, ConstDynamicView const& source, DynamicView const& destination,
                  PrepareOptions const& options = {}) {
    prepare(plan, comm, source, destination, options).run();
}
template <Communicator C, class From, class To, class S, class T,
          std::derived_from<PrepareOptions> Options = PrepareOptions>
void redistribute(Plan<From, To> const& plan, C& comm, TensorView<S> const& source, TensorView<T> const& destination,
                  Options const& options = {}) {
    prepare(plan, comm, source, destination, options).run();
}

/// The same into new memory of the destination's local shape (empty on ranks outside its mesh).
template <Communicator C, class From, class To, class S>
[[nodiscard]] Tensor<std::remove_const_t<S>> redistribute(Plan<From, To> const& plan, C& comm,
                                                          TensorView<S> const& source) {
    Tensor<std::remove_const_t<S>> destination;
    Plan<> const& any = plan;
    if (any.to().contains(comm.rank())) destination = Tensor<std::remove_const_t<S>>(any.to().local_shape(comm.rank()));
    redistribute(plan, comm, source, destination.view());
    return destination;
}

namespace detail {

/// The host's memory, by a name that depends on a type, so that only files that copy compile how.
template <class T>
struct HostMemoryOf {
    using type = BasicHostMemory<std::byte>;
};
template <class T>
using HostMemoryFor = typename HostMemoryOf<T>::type;

/// \pre nothing crosses ranks.
template <class Byte, class M = BasicHostMemory<Byte>>
void run_locally(Plan<> const& plan, ConstDynamicView const& source, BasicDynamicView<Byte> const& destination,
                 int rank, PrepareOptions const& options, M const& memory = {}) {
    Steps steps = plan.steps();
    if (steps.kind == Kind::collective) steps.kind = Kind::local;  // types know axes of size 1, values do not
    ValueChange const change = value_change(plan, steps, rank, source, destination, options.factor, options.cast);
    int const ranks = static_cast<int>(plan.from().mesh().last_rank() + 1);
    check_arguments(plan, steps, rank, ranks, source, destination, change, options.cast);
    check_views(memory, plan, rank, source, destination);
    check_work<M>(plan, steps, change);
    BasicJob<Byte, M> const job(plan, steps, rank, source, destination, {}, change, memory);
    job.begin();
    job.end();
}

}  // namespace detail

/// A transition within one rank: a copy or cast, identities, a factor. There is no communicator to pass, so this call
/// is the proof that nothing is sent. Does not compile for typed plans that are collective; throws TransitionError for
/// run-time plans that are. Throws BufferError and DTypeError like prepare. A rank outside the mesh has nothing to do.
/// Tensors of a device: pass a DeviceMemory (memory/on_device.cuh) behind the rank; the work is then its stream's.
template <std::convertible_to<DynamicView> Destination, MemoryPolicy M>
void redistribute(Plan<> const& plan, ConstDynamicView const& source, Destination const& destination, int rank,
                  M const& memory, PrepareOptions const& options = {}) {
    if (!plan.is_local()) {
        raise(ErrorCode::transition, concat("reshard::redistribute: ", to_string(plan.from()), " -> ",
                                            to_string(plan.to()), " needs communication. Fix: pass a communicator."));
    }
    detail::run_locally(plan, source, DynamicView(destination), rank, options, memory);
}
template <std::convertible_to<DynamicView> Destination>
void redistribute(Plan<> const& plan, ConstDynamicView const& source, Destination const& destination, int rank,
                  PrepareOptions const& options = {}) {
    redistribute(plan, source, destination, rank, detail::HostMemoryFor<Destination>{}, options);
}
template <class From, class To, class S, class T, MemoryPolicy M,
          std::derived_from<PrepareOptions> Options = PrepareOptions>
void redistribute(Plan<From, To> const& plan, TensorView<S> const& source, TensorView<T> const& destination, int rank,
                  M const& memory, Options const& options = {}) {
    static_assert(detail::check_types<From, To, S, T, Options>());
    if constexpr (TypedDistribution<From> && TypedDistribution<To>) {
        static_assert(transition_kind<From, To> != Kind::collective,
                      "reshard::redistribute: this transition needs communication. Fix: pass a communicator.");
        detail::run_locally(plan, ConstDynamicView(source), DynamicView(destination), rank, options, memory);
    } else {
        redistribute(static_cast<Plan<> const&>(plan), ConstDynamicView(source), DynamicView(destination), rank, memory,
                     static_cast<PrepareOptions const&>(options));
    }
}
template <class From, class To, class S, class T, std::derived_from<PrepareOptions> Options = PrepareOptions>
void redistribute(Plan<From, To> const& plan, TensorView<S> const& source, TensorView<T> const& destination, int rank,
                  Options const& options = {}) {
    redistribute(plan, source, destination, rank, detail::HostMemoryFor<T>{}, options);
}

namespace detail {

/// The whole tensor on one rank.
[[nodiscard]] inline DynamicDistribution on_one_rank(int rank, int size, DynamicShape const& shape) {
    if (rank < 0 || rank >= size) {
        raise(ErrorCode::mesh, concat("reshard: root ", rank, " is not one of the communicator's ", size,
                                      " ranks. Fix: roots count from 0."));
    }
    Indices extents;
    extents.push_back(1);
    Placements placements;
    placements.push_back(Placement::replicate());
    return DynamicDistribution(DynamicMesh(extents, first_rank(rank)), shape, placements);
}

}  // namespace detail

/// The plan that hands out a tensor which only rank `root` (a rank of the communicator) has, as a whole.
/// Use it where one rank has the data; where every rank has it, plan(whole, parts).view(...) sends nothing.
template <Communicator C>
[[nodiscard]] Plan<> plan_distribute(DynamicDistribution const& to, C const& comm, int root) {
    return plan_across(detail::on_one_rank(root, comm.size(), to.shape()), to);
}
/// The plan that brings a tensor together on rank `root` alone.
template <Communicator C>
[[nodiscard]] Plan<> plan_gather(DynamicDistribution const& from, C const& comm, int root) {
    return plan_across(from, detail::on_one_rank(root, comm.size(), from.shape()));
}

/// From rank `root` to everybody. `source` counts on the root only.
template <Communicator C, class S, class T, std::derived_from<PrepareOptions> Options = PrepareOptions>
void distribute(DynamicDistribution const& to, C& comm, int root, TensorView<S> const& source,
                TensorView<T> const& destination, Options const& options = {}) {
    redistribute(plan_distribute(to, comm, root), comm, source, destination, options);
}
/// From everybody to rank `root`. `destination` counts on the root only.
template <Communicator C, class S, class T, std::derived_from<PrepareOptions> Options = PrepareOptions>
void gather(DynamicDistribution const& from, C& comm, int root, TensorView<S> const& source,
            TensorView<T> const& destination, Options const& options = {}) {
    redistribute(plan_gather(from, comm, root), comm, source, destination, options);
}

}  // namespace reshard::inline v0
