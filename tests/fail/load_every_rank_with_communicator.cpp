// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::load: with EveryRankReads every rank has the checkpoint, so that nothing is sent.
#include <reshard/checkpoint/load.hpp>
#include <reshard/comm/self.hpp>

using namespace reshard;

LoadReport loaded(Checkpoint const& checkpoint, std::span<LocalTensor const> tensors, SelfCommunicator& comm) {
#ifndef RESHARD_FAIL
    return load(checkpoint, tensors, comm.rank());
#else
    return load(checkpoint, tensors, comm, EveryRankReads{});
#endif
}
