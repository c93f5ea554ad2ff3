// SPDX-License-Identifier: Apache-2.0
// expect-error: MpiCommunicator or NcclCommunicator, not a pointer to one.
#include <reshard/checkpoint/load.hpp>
#include <reshard/comm/self.hpp>

using namespace reshard;

LoadReport sample(std::span<LocalTensor const> tensors, SelfCommunicator* comm) {
#ifndef RESHARD_FAIL
    return load("folder", tensors, *comm, CooperativeRead{});
#else
    return load("folder", tensors, comm, CooperativeRead{});
#endif
}
