// SPDX-License-Identifier: Apache-2.0
// expect-error: (use of deleted function|call to deleted)
#include <reshard/checkpoint/checkpoint.hpp>

reshard::Index bytes_of(char const* path) {
#ifndef RESHARD_FAIL
    auto const checkpoint = reshard::Checkpoint::open(path);
    auto const* const tensor = checkpoint.find("w");
#else
    auto const* const tensor = reshard::Checkpoint::open(path).find("w");
#endif
    return tensor->bytes();
}
