// SPDX-License-Identifier: Apache-2.0
// The shared library libcuda.so.1 as far as device_memory.hpp knows it: one stretch of memory is a device's, or
// managed.
#include <atomic>

namespace {
std::atomic<unsigned long long> first{0};
std::atomic<unsigned long long> last{0};
std::atomic<unsigned> is_managed{0};
}  // namespace

extern "C" int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
    if (pointer < first || pointer >= last) return 1;  // CUDA_ERROR_INVALID_VALUE: never heard of it
    if (attribute == 2) {
        *static_cast<unsigned*>(data) = 2;  // CU_MEMORYTYPE_DEVICE
    } else {
        *static_cast<unsigned*>(data) = is_managed;
    }
    return 0;
}

extern "C" void fake_cuda_claim(unsigned long long begin, unsigned long long bytes, unsigned managed) {
    first = begin;
    last = begin + bytes;
    is_managed = managed;
}
