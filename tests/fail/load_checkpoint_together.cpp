// SPDX-License-Identifier: Apache-2.0
// expect-error: Fix: pass the path instead of the checkpoint: load(path, tensors, comm, strategy).
#include <reshard/checkpoint/load.hpp>
#include <reshard/comm/self.hpp>

using namespace reshard;

LoadReport loaded(std::string const& path, std::span<LocalTensor const> tensors, SelfCommunicator& comm) {
#ifndef RESHARD_FAIL
    return load(path, tensors, comm, {.options = {.replica_axes = {0}}});  // of no strategy that is named
#else
    return load(Checkpoint::open(path), tensors, comm, CooperativeRead{});
#endif
}
