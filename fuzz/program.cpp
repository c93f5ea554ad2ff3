// SPDX-License-Identifier: Apache-2.0
// What libFuzzer calls: the reader that RESHARD_FUZZ_READER names.
#include "support.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    fuzz::RESHARD_FUZZ_READER(data, size);
    return 0;
}
