// SPDX-License-Identifier: Apache-2.0
// How exec/redistribute.hpp is done.
#pragma once

#include <reshard/exec/detail/job.hpp>
#include <reshard/exec/detail/prepare_check.hpp>
#include <reshard/exec/redistribute.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE void detail::redistribute_into(Means const& means, PlanValue const& plan, CommunicatorRef comm,
                                              ConstDynamicView const& source, DType dtype,
                                              FunctionRef<DynamicView(DynamicShape const& shape)> make,
                                              FunctionRef<void()> keep) {
    DynamicView destination{nullptr, dtype, {}};
    transport::Verdict const found = verdict_of([&] {
        if (plan.to.contains(comm.rank())) destination = make(plan.to.local_shape(comm.rank()));
    });
    PreparedPlan job = prepare_with(means, plan, comm, source, destination, {}, found);
    watched([&] { job.run(); }, [&](ErrorCode, std::string_view) noexcept { keep(); });
}

RESHARD_INLINE void detail::run_locally(Means const& means, PlanValue const& plan, ConstDynamicView const& source,
                                        DynamicView const& destination, int rank, PrepareOptions const& options) {
    if (plan.kind == TransitionKind::collective) {
        raise(ErrorCode::transition, "reshard::redistribute: ", to_string(plan.from), " -> ", to_string(plan.to),
              " needs communication. Fix: pass a communicator.");
    }
    // Types know axes of size 1, values do not.
    RankSteps const mine(plan, steps_locally(plan), rank, source, destination, options, means.host.convert);
    Index const ranks = plan.from.mesh().last_rank() + 1;
    check_arguments(means, means.host.policy, plan, mine, rank, ranks, source, destination, options.cast);
    check_views(means.host.policy, plan, rank, source, destination);
    Job(plan, mine, rank, source, destination, {}, means.host.policy, means.work).work(0);
}

}  // namespace reshard::inline v0_1
