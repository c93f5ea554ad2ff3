// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/prepare.hpp
/// \brief  A plan bound to one rank's memory and communicator: check, agree, allocate once; then run at will.
/// \depends plan, comm/communicator.hpp, memory.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/exec/detail/check.hpp>
#include <reshard/exec/detail/job.hpp>
#include <reshard/exec/detail/value_change.hpp>

namespace reshard::inline v0 {

namespace detail {
[[nodiscard]] inline Index padded_bytes(Index elements, DType dtype) {
    constexpr Index padding = 192;  // each of at most three areas starts on a cache line
    Index count = 0;
    if (!multiply_fits(elements, bytes(dtype), count) || count > INT64_MAX - padding) {
        raise(ErrorCode::shape, concat("reshard::prepare: a workspace of ", elements, " elements does not fit 64-bit ",
                                       "sizes. Fix: check the shape for a wrong unit."));
    }
    return count == 0 ? 0 : count + padding;
}
}  // namespace detail

/// How a plan is prepared. Casts are asked for with Casting; a factor alone, `PrepareOptions{.factor = 0.5}`. Both need
/// <reshard/exec/casting.hpp>.
struct PrepareOptions {
    /// Scratch memory of workspace_bytes() bytes or more that outlives the prepared plan, where the tensors lie (on the
    /// device, over communicators of devices); allocated when empty.
    std::span<std::byte> workspace{};
    /// Every value is multiplied by it on its way; of floats only (f16, bf16, f32, f64), and finite. Where the
    /// destination is Partial it must commute with the reduction: any factor for sums and averages, positive ones for
    /// min and max, none for products.
    detail::ChangeOption<double> factor{1.0, nullptr};
    /// The element types of source and destination may differ, and count on every rank, also where a view is empty.
    detail::ChangeOption<bool> cast{false, nullptr};
};

/// The options of a move that casts: a type of its own, so that the compiler can tell whether views of two element
/// types are meant. `redistribute(plan, comm, floats, halves, Casting{})`, or `Casting{0.5}` to scale as well.
///
/// Every value becomes the nearest one of the destination's type to value * factor (memory/convert.hpp), once: addends
/// are folded in the source's type first. The smaller of the two types travels, except for addends.
struct Casting : PrepareOptions {
    template <class Changing = detail::ValueChanging>
    constexpr explicit Casting(double by = 1.0, std::span<std::byte> scratch = {}) noexcept
        : PrepareOptions{
              scratch, {by, detail::change_methods<Changing>()}, {true, detail::change_methods<Changing>()}} {}
    /// Whether there is a cast from one element type to the other.
    template <class Changing = detail::ValueChanging>
    [[nodiscard]] static consteval bool can_cast(DType from, DType to) {
        return Changing::can_cast(from, to);
    }
};

/// Bytes of scratch memory one rank needs for a plan; zero unless a Partial is folded. `dtype` is the source's.
template <class From, class To>
[[nodiscard]] Index workspace_bytes(Plan<From, To> const& plan, Index rank, DType dtype,
                                    PrepareOptions const& options = {}) {
    bool const changes = options.cast || options.factor != 1.0;
    Index const elements = detail::workspace_of(detail::changed_steps(plan.steps(), changes), plan.from(), rank);
    return detail::padded_bytes(elements, dtype);
}

namespace detail {

/// Runs `check` and turns what it throws into a verdict.
template <class Check>
[[nodiscard]] Verdict verdict_of(Check&& check) {
    Verdict verdict;
#if defined(__cpp_exceptions)
    try {
        check();
    } catch (Error const& error) {
        verdict.code = error.code();
        verdict.reason = error.message();
    } catch (std::bad_alloc const&) {
        verdict.code = ErrorCode::out_of_memory;
        verdict.reason =
            "reshard: out of memory. Fix: free some on this rank, or do less at once: fewer tensors, "
            "smaller rounds or windows.";
    } catch (std::exception const& error) {
        verdict.code = ErrorCode::user;
        verdict.reason = error.what();
    }
#else
    check();
#endif
    return verdict;
}

/// Throws BufferError for views of memory that `memory` cannot work on.
template <class M>
void check_views(M const& memory, Plan<> const& plan, int rank, ConstDynamicView const& source,
                 DynamicView const& destination) {
    if (plan.from().contains(rank) && source.size() != 0) {
        memory.check("source", source.data(), bytes(source.dtype()));
    }
    if (plan.to().contains(rank) && destination.size() != 0) {
        memory.check("destination", destination.data(), bytes(destination.dtype()));
    }
}

/// Throws BufferError for views of memory that the transport cannot reach.
template <Communicator C>
void check_memory(C& comm, Plan<> const& plan, ConstDynamicView const& source, DynamicView const& destination) {
    if (plan.from().contains(comm.rank()) && source.size() != 0) transport::check_memory(comm, source.data());
    if (plan.to().contains(comm.rank()) && destination.size() != 0) transport::check_memory(comm, destination.data());
    check_views(transport::memory_of(comm), plan, comm.rank(), source, destination);
}

/// Throws TransitionError for a plan that takes more than copies where `M` does no more.
template <class M>
void check_work([[maybe_unused]] Plan<> const& plan, [[maybe_unused]] Steps const& steps,
                [[maybe_unused]] ValueChange const& change) {
    if constexpr (!M::computes) {
        bool const scales = !change.is_active() && (steps.multiply != 1 || steps.divide != 1);
        bool const converts = change.is_active() && steps.kind != Kind::collective;
        if (!steps.fill && !steps.fold && !scales && !converts) return;
        raise(ErrorCode::transition,
              concat("reshard::prepare: ", to_string(plan.from()), " -> ", to_string(plan.to()), " ",
                     steps.fold   ? "folds addends"
                     : steps.fill ? "fills in identities"
                                  : "changes values in place",
                     ", and this communicator only copies memory of a device. Fix: ", M::remedy));
    }
}

/// Scratch memory of `needed` bytes: what the caller gave, or `own`, which is allocated. `fix` says how to ask for its
/// size. Throws BufferError where there is too little, or the wrong kind, OutOfMemory.
template <Communicator C, class M>
[[nodiscard]] std::span<std::byte> workspace_for(C& comm, M const& memory, std::span<std::byte> given, Index needed,
                                                 typename M::workspace_type& own, std::string_view what,
                                                 std::string_view fix) {
    if (needed == 0) return given;
    if (given.empty()) {
        own = memory.allocate(needed);
        return {own.data(), static_cast<std::size_t>(needed)};
    }
    if (static_cast<Index>(given.size()) < needed) {
        raise(ErrorCode::buffer, concat("reshard::prepare: the workspace of rank ", comm.rank(), " has ", given.size(),
                                        " bytes, the ", what, " needs ", needed, ". Fix: ask ", fix, "."));
    }
    transport::check_memory(comm, given.data());
    if constexpr (requires { memory.check_scratch(given.data()); }) {
        memory.check_scratch(given.data());
    } else {
        memory.check("workspace", given.data(), 1);
    }
    return given;
}

template <Communicator C>
void agree_or_raise(C& comm, Verdict mine) {
    Verdict const all = comm.agree(std::move(mine));
    if (!all.ok()) raise(all.code, concat("rank ", all.rank, " of ", comm.size(), ": ", all.reason));
}

}  // namespace detail

/// A run under way. Move-only; wait() finishes the remaining phases; the destructor waits, at most the deadline.
/// `J` is what is run: one plan, or a batch of them.
template <Communicator C, class J = detail::Job<C>>
class [[nodiscard]] RunRequest {
public:
    RunRequest(C& comm, J const& job) : comm_(&comm), job_(&job) {
        step(comm, [&] { job.begin(); });
        start_phase(job);
    }
    RunRequest(RunRequest&& other) noexcept
        : comm_(other.comm_), job_(other.job_), request_(std::move(other.request_)), phase_(other.phase_) {
        other.job_ = nullptr;
    }
    RunRequest& operator=(RunRequest&&) = delete;
    ~RunRequest() {
#if defined(__cpp_exceptions)
        try {
            wait();
        } catch (...) {  // the communicator is poisoned: the next call reports it
        }
#else
        wait();
#endif
    }

    /// Returns when the destination is complete and nobody reads this rank's source any more. Throws PeerFailed,
    /// DeadlineExceeded, MismatchError or TransportError; then the destination is unspecified, the source untouched.
    void wait() {
        if (job_ == nullptr) return;
        J const& job = *job_;
        C& comm = *comm_;
        job_ = nullptr;  // a failed wait is not repeated
        while (phase_ < job.phases()) {
            request_.wait();
            step(comm, [&] { job.after(phase_); });
            ++phase_;
            start_phase(job);
        }
        step(comm, [&] { job.end(); });
    }

private:
    /// This rank's own work. If it fails, the others must not wait for what would have followed.
    template <class Body>
    static void step(C& comm, Body&& body) {
#if defined(__cpp_exceptions)
        if constexpr (!J::works_quietly) {
            try {
                return body();
            } catch (Error const& error) {
                comm.abort(error.code(), error.message());
                throw;
            }
        }
#endif
        body();
    }
    void start_phase(J const& job) {
        if (phase_ >= job.phases()) return;
        // The cast is for nvcc 13, to which an assignment alone drops a request.
        static_cast<void>(request_ = comm_->exchange(job.exchange(phase_).sends, job.exchange(phase_).receives));
    }

    C* comm_;
    J const* job_;
    typename C::request_type request_{};
    int phase_ = 0;
};

/// A plan, ready to run: run() and start() allocate nothing and check nothing that needs other ranks.
/// The plan's memory and communicator must outlive it. One run at a time.
template <Communicator C, class J = detail::Job<C>>
class PreparedPlan {
public:
    PreparedPlan(C& comm, J&& job) : comm_(&comm), job_(std::move(job)) {}

    void run() {
        RunRequest<C, J> request(*comm_, job_);
        request.wait();
    }
    /// Starts the first exchange; the rest happens in wait().
    RunRequest<C, J> start() & { return RunRequest<C, J>(*comm_, job_); }
    RunRequest<C, J> start() && = delete;  ///< a run needs what was prepared: give that a name

private:
    C* comm_;
    J job_;
};

/// Collective over `comm`: checks the arguments, agrees among all ranks (the same error everywhere, naming the rank
/// and the reason) and allocates; until then nothing is touched. On ranks outside the plan's meshes only the element
/// type of the views counts.
///
/// Throws MeshError (mesh larger than the communicator), BufferError (shape, null, overlap), DTypeError (an op the
/// element type does not have; a cast or factor that cannot be), MismatchError (element types, plans or options
/// differ), OutOfMemory.
template <Communicator C>
[[nodiscard]] PreparedPlan<C> prepare(Plan<> const& plan, C& comm, ConstDynamicView const& source,
                                      DynamicView const& destination, PrepareOptions const& options = {}) {
    int const rank = comm.rank();
    detail::ValueChange change;
    using M = typename detail::JobOf<C>::memory;
    M const memory = transport::memory_of(comm);
    std::vector<detail::Job<C>> job;
    Verdict verdict = detail::verdict_of([&] {
        detail::Steps const planned = plan.steps();
        change = detail::value_change(plan, planned, rank, source, destination, options.factor, options.cast);
        detail::check_arguments(plan, planned, rank, comm.size(), source, destination, change, options.cast);
        detail::check_memory(comm, plan, source, destination);
        detail::Steps const steps = detail::changed_steps(planned, change.is_active());
        detail::check_work<M>(plan, steps, change);
        Index const needed = detail::padded_bytes(detail::workspace_of(steps, plan.from(), rank), change.from);
        typename M::workspace_type own{};
        std::span<std::byte> const workspace = detail::workspace_for(
            comm, memory, options.workspace, needed, own, "plan",
            change.is_active() ? "workspace_bytes(plan, rank, dtype, options)" : "workspace_bytes(plan, rank, dtype)");
        job.emplace_back(plan, steps, rank, source, destination, workspace, change, memory);
        job.back().own(std::move(own));
    });
    Digest digest;
    digest.add(plan.hash()).add(static_cast<std::uint64_t>(change.from));
    if (change.is_active()) {
        digest.add(static_cast<std::uint64_t>(change.to)).add(__builtin_bit_cast(std::uint64_t, options.factor.value));
    }
    verdict.digest = digest.value();
    if (verdict.ok()) {  // what the others show should this rank be the one that differs
        verdict.reason =
            concat("prepared ", to_string(plan.from()), " -> ", to_string(plan.to()), " of ",
                   to_string(plan.from().shape()), " ", name(change.from), detail::change_text(change, options.factor));
    }
    detail::agree_or_raise(comm, std::move(verdict));
    return PreparedPlan<C>(comm, std::move(job.back()));
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
template <class From, class To, class S, class T, class Options>
consteval bool check_types() {
    static_assert(!std::is_const_v<T>, "reshard: the destination is const. Fix: give it elements that can be written.");
    constexpr bool casts = std::derived_from<Options, Casting>;
    static_assert(casts || std::same_as<std::remove_const_t<S>, std::remove_const_t<T>>,
                  "reshard: source and destination have different element types. "
                  "Fix: give both the same type, or pass reshard::Casting{} to cast on the way.");
    if constexpr (casts) {
        static_assert(Options::can_cast(dtype_of<S>, dtype_of<T>),
                      "reshard: there is no cast between these element types. Fix: cast numbers and booleans only.");
    }
    static_assert(check_ops<From, S>() && check_ops<To, T>(),
                  "reshard: a Partial op is not defined for this element type: bit operations need integers, "
                  "averages need floats. Fix: use an op that the element type supports.");
    return true;
}

}  // namespace detail

/// The same for typed views. Views of different element types compile with Casting only.
template <Communicator C, class From, class To, class S, class T,
          std::derived_from<PrepareOptions> Options = PrepareOptions>
[[nodiscard]] PreparedPlan<C> prepare(Plan<From, To> const& plan, C& comm, TensorView<S> const& source,
                                      TensorView<T> const& destination, Options const& options = {}) {
    static_assert(detail::check_types<From, To, S, T, Options>());
    return prepare(static_cast<Plan<> const&>(Plan<>(plan)), comm, ConstDynamicView(source), DynamicView(destination),
                   static_cast<PrepareOptions const&>(options));
}

}  // namespace reshard::inline v0
