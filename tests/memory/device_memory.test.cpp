// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/device_memory.hpp.
#include <reshard/memory/device_memory.hpp>

#include <doctest/doctest.h>

#include "support/fake_cuda.hpp"

#if defined(__linux__)
#include <link.h>  // dl_phdr_info
#endif

#include <vector>

namespace {
using namespace reshard;

#if defined(__linux__)
// We read a field of it by our own words, for the sake of include time.
static_assert(offsetof(detail::LoadedObject, loads) == offsetof(dl_phdr_info, dlpi_adds));
static_assert(sizeof(detail::LoadedObject::loads) == sizeof(dl_phdr_info::dlpi_adds));
#endif

TEST_CASE("memory is a device's when a driver is loaded that says so") {
    std::vector<int> memory(16);
    CHECK_FALSE(is_device_memory(memory.data()));  // no driver, or one that never heard of it
    CHECK_FALSE(is_device_memory(nullptr));
    test::FakeCuda const cuda;
    if (!cuda.works()) return;
    CHECK_FALSE(is_device_memory(memory.data()));
    cuda.claim(memory.data() + 4, 4 * sizeof(int));
    CHECK(is_device_memory(memory.data() + 4));
    CHECK(is_device_memory(memory.data() + 7));
    CHECK_FALSE(is_device_memory(memory.data() + 8));
    CHECK_FALSE(is_device_memory(memory.data()));
    CHECK_THROWS_AS(refuse_device_memory("mpi", memory.data() + 4), BufferError);
    cuda.claim(memory.data(), 16 * sizeof(int), true);
    CHECK_FALSE(is_device_memory(memory.data()));  // managed: the host reads it
}

}  // namespace
