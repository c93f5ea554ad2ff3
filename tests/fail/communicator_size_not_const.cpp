// SPDX-License-Identifier: Apache-2.0
// expect-only: reshard: this communicator has no `int size() const noexcept`. Fix: declare it so.
#include <reshard/comm/self.hpp>
#include <reshard/exec/batch.hpp>

using namespace reshard;

struct Mine : SelfCommunicator {
    [[nodiscard]] int size() noexcept { return 1; }
};

#ifndef RESHARD_FAIL
PreparedPlan sample(Batch const& batch, SelfCommunicator& comm) { return prepare(batch, comm); }
#else
PreparedPlan sample(Batch const& batch, Mine& comm) { return prepare(batch, comm); }
#endif
