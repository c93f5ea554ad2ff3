// SPDX-License-Identifier: Apache-2.0
// expect-only: reshard: this communicator has no `int rank() const noexcept`. Fix: declare it so.
#include <reshard/comm/self.hpp>
#include <reshard/exec/batch.hpp>

using namespace reshard;

struct Mine : SelfCommunicator {
    int rank() = delete;  // as where there is none
    [[nodiscard]] int get_rank() const noexcept { return 0; }
};

#ifndef RESHARD_FAIL
PreparedPlan sample(Batch const& batch, SelfCommunicator& comm) { return prepare(batch, comm); }
#else
PreparedPlan sample(Batch const& batch, Mine& comm) { return prepare(batch, comm); }
#endif
