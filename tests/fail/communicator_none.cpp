// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: this is no communicator, it has no rank() and size(). Fix: pass a SelfCommunicator,
#include <reshard/checkpoint/save.hpp>
#include <reshard/comm/self.hpp>

using namespace reshard;

SaveReport sample(std::span<LocalTensor const> tensors, SelfCommunicator& comm) {
#ifndef RESHARD_FAIL
    return save("folder", tensors, comm);
#else
    return save("folder", tensors, comm.rank());
#endif
}
