// SPDX-License-Identifier: Apache-2.0
// expect-error: Fix: pass the rank instead of the communicator: load(checkpoint, tensors, comm.rank()).
#include <reshard/checkpoint/load.hpp>
#include <reshard/comm/self.hpp>

using namespace reshard;

LoadReport loaded(Checkpoint const& checkpoint, std::vector<LocalTensor> const& tensors, SelfCommunicator& comm) {
#ifndef RESHARD_FAIL
    return load(checkpoint, tensors, comm.rank());
#else
    return load(checkpoint, tensors, comm);
#endif
}
