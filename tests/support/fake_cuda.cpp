// SPDX-License-Identifier: Apache-2.0
// The shared library libcuda.so.1 as far as device_memory.hpp knows it: one stretch of memory is a device's, or
// managed.
#include <mutex>

namespace {
// Both ends change together: a rank that asks while another claims must not see the old begin and the new end.
std::mutex changing;
unsigned long long first = 0;
unsigned long long last = 0;
unsigned is_managed = 0;
}  // namespace

extern "C" int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
    std::lock_guard<std::mutex> const lock(changing);
    if (pointer < first || pointer >= last) return 1;                 // CUDA_ERROR_INVALID_VALUE: never heard of it
    *static_cast<unsigned*>(data) = attribute == 2 ? 2 : is_managed;  // CU_MEMORYTYPE_DEVICE
    return 0;
}

extern "C" void fake_cuda_claim(unsigned long long begin, unsigned long long bytes, unsigned managed) {
    std::lock_guard<std::mutex> const lock(changing);
    first = begin;
    last = begin + bytes;
    is_managed = managed;
}
