// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/fake_cuda.hpp
/// \brief  Memory that the CUDA driver says is a device's, on machines without one: a driver of our own is loaded.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

namespace reshard::test {

/// Loads the driver RESHARD_FAKE_CUDA. `works()` is false where the real one is there already: that one is not asked
/// about memory it never gave out.
class FakeCuda {
public:
    FakeCuda() {
        void* const earlier = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        void* const ours = ::dlopen(RESHARD_FAKE_CUDA, RTLD_LAZY | RTLD_LOCAL);
        if (ours == nullptr || (earlier != nullptr && earlier != ours)) return;
        claim_ = reinterpret_cast<Claim>(::dlsym(ours, "fake_cuda_claim"));
    }
    ~FakeCuda() {
        if (works()) claim_(0, 0, 0);
    }
    FakeCuda(FakeCuda const&) = delete;
    FakeCuda& operator=(FakeCuda const&) = delete;

    [[nodiscard]] bool works() const noexcept { return claim_ != nullptr; }
    void claim(void const* memory, std::size_t bytes, bool managed = false) const {
        claim_(static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(memory)), bytes, managed ? 1 : 0);
    }

private:
    using Claim = void (*)(unsigned long long begin, unsigned long long bytes, unsigned managed);
    Claim claim_ = nullptr;
};

}  // namespace reshard::test
