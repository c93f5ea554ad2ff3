// SPDX-License-Identifier: Apache-2.0
// How mch/redistribute.hpp is done.
#pragma once

#include <reshard/mch/detail/passages.hpp>
#include <reshard/mch/redistribute.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE std::vector<MchChange> redistribute(std::span<MchTransition const> tables, CommunicatorRef comm,
                                                   MchOptions const& options) {
    detail::MchPassages passages(tables, options);
    return detail::carry(passages, comm, detail::terms_of(tables, options, "on hosts"));
}

RESHARD_INLINE MchChange redistribute(MchTable const& saved, MchTable const& current, MchState const& state,
                                      CommunicatorRef comm, MchOptions const& options) {
    std::vector<MchTransition> table;
    detail::attempt_before_agreement(comm, [&] { table.push_back({saved, current, state}); });
    return std::move(redistribute(std::span<MchTransition const>(table), comm, options)[0]);
}

}  // namespace reshard::inline v0
