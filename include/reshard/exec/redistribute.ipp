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
    transport::Verdict found = verdict_of([&] {
        if (plan.to.contains(comm.rank())) destination = make(plan.to.local_shape(comm.rank()));
    });
    PreparedPlan job = prepare_with(means, plan, comm, source, destination, {}, std::move(found));
    watched([&] { job.run(); }, [&](ErrorCode, std::string_view) noexcept { keep(); });
}

RESHARD_INLINE void detail::run_locally(Means const& means, PlanValue const& plan, ConstDynamicView const& source,
                                        DynamicView const& destination, int rank, PrepareOptions const& options) {
    if (plan.kind == TransitionKind::collective) {
        raise(ErrorCode::transition, "reshard::redistribute: ", brief(plan.from), " -> ", brief(plan.to),
              " needs communication. Fix: pass a communicator.");
    }
    // Types know axes of size 1, values do not.
    RankSteps const mine({plan, rank, source, destination}, steps_locally(plan), options, means.host.convert);
    check_arguments(means, means.host.policy, mine, plan.from.mesh().last_rank() + 1, options.cast);
    check_views(means.host.policy, mine);
    Job(mine, {}, means.host.policy, means.work).work(0);
}

}  // namespace reshard::inline v0_1
