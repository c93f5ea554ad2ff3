// SPDX-License-Identifier: Apache-2.0
// expect-only: reshard: this communicator has no `exchange_type bind(std::span<transport::Send const>,
// std::span<transport::Receive const>)`. Fix: declare it so.
#include <reshard/comm/self.hpp>
#include <reshard/exec/batch.hpp>

using namespace reshard;

struct Mine : SelfCommunicator {
    void bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives);
};

#ifndef RESHARD_FAIL
PreparedPlan sample(Batch const& batch, SelfCommunicator& comm) { return prepare(batch, comm); }
#else
PreparedPlan sample(Batch const& batch, Mine& comm) { return prepare(batch, comm); }
#endif
