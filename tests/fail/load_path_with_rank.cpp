// SPDX-License-Identifier: Apache-2.0
// expect-error: Fix: pass it instead of its path: load(Checkpoint::open(path), tensors, rank);
#include <reshard/checkpoint/load.hpp>

using namespace reshard;

LoadReport loaded(std::string const& path, std::span<LocalTensor const> tensors, int rank) {
#ifndef RESHARD_FAIL
    return load(Checkpoint::open(path), tensors, rank);
#else
    return load(path, tensors, rank);
#endif
}
