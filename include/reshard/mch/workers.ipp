// SPDX-License-Identifier: Apache-2.0
// How mch/workers.hpp is done.
#pragma once

#include <reshard/core/detail/workers.hpp>
#include <reshard/mch/workers.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE Workers::Workers(int threads) : threads_(threads) {
    if (threads >= 1) return;
    raise(ErrorCode::mesh,
          concat("reshard::Workers: ", threads, " threads. Fix: give at least 1, the calling thread."));
}

RESHARD_INLINE void Workers::operator()(int parts, detail::FunctionRef<void(int part)> body) const {
    detail::run_on_workers(static_cast<std::size_t>(parts), threads_,
                           [&](std::size_t part, int /*worker*/) { body(static_cast<int>(part)); });
}

}  // namespace reshard::inline v0
