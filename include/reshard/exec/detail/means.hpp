// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/means.hpp
/// \brief  What plans are carried out with, so that header-only programs compile no more than their plans need.
/// \depends plan/steps.hpp, memory/host_memory.hpp; <span>.
#pragma once

#include <reshard/memory/host_memory.hpp>
#include <reshard/plan/steps.hpp>

#include <span>  // span

namespace reshard::inline v0_1::detail {

struct JobWork;    // exec/detail/job.hpp
struct RankSteps;  // exec/detail/value_change.hpp

/// Binds a step that does more to values than move them: a fill, a scale, or, at the exchange of its addends, a fold.
void bind_work(JobWork& work, RankSteps const& mine, planning::Step const& step, std::span<std::byte> scratch);
using BindWork = decltype(&bind_work);
/// Throws DTypeError for values that this cannot be done to, TransitionError where `memory` only copies.
void check_work(MemoryPolicy const& memory, RankSteps const& mine);

/// What plans are carried out with. Those that only move values need no more than host_copies().
struct Means {
    HostMemory host;
    BindWork work = nullptr;
    decltype(&check_work) check = nullptr;
};
[[nodiscard]] inline Means all_means(HostMemory const& host) noexcept { return {host, bind_work, check_work}; }
/// All there are, or what plans between two types of distributions need where nothing is cast or scaled (no options).
template <class From, class To, class... Options>
[[nodiscard]] Means means_for() noexcept {
    if constexpr (sizeof...(Options) == 0 && moves_only<From, To>()) {
        return {host_copies()};
    } else {
        return all_means(host_memory());
    }
}

}  // namespace reshard::inline v0_1::detail
