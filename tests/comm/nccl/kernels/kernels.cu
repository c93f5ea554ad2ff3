// SPDX-License-Identifier: Apache-2.0
// NcclKernelCommunicator (comm/nccl.cuh) and DeviceThreadKernelCommunicator (comm/device_threads.cuh) against the test
// doubles of NCCL and the CUDA runtime, compiled by nvcc and run without a GPU: see kernels_on_host.cpp. What a device
// makes of the kernel is the business of the tests that have one.
#include "../../conformance.hpp"
#include "../../device/devices.hpp"
#include "../gpus.hpp"
#include "kernels_on_host.hpp"

#include <reshard/comm/device_threads.cuh>
#include <reshard/comm/nccl.cuh>

using namespace reshard;
namespace fake = test::fake_nccl;

TEST_SUITE("comm/nccl") {
    TEST_CASE("NcclKernelCommunicator: keeps the contract on 1 to 5 ranks, through any window, and packs by kernels") {
        for (int ranks : {1, 2, 3, 4, 5}) {
            for (Index window : {Index{256} << 20, Index{4096}}) {
                CAPTURE(ranks);
                CAPTURE(window);
                NcclOptions options;
                options.window_bytes = window;
                int const before = test::launches();
                test::check_none(test::on_devices(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
                    auto comm = nccl_from<NcclKernelCommunicator>(host, stream, options);
                    test::conforms(comm);
                }));
                CHECK(test::launches() > before);
            }
        }
        CHECK(fake::live_communicators() == 0);
        CHECK(fake::live_allocations() == 0);
    }

    TEST_CASE(
        "DeviceThreadKernelCommunicator: keeps the contract on 1 to 5 ranks of two devices, and copies by kernels") {
        for (int ranks : {1, 2, 3, 4, 5}) {
            for (Index window : {Index{16} << 20, Index{4096}}) {
                CAPTURE(ranks);
                CAPTURE(window);
                fake::reset();
                DeviceThreadOptions options;
                options.window_bytes = window;
                int const before = test::launches();
                test::check_none(test::on_devices(ranks, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
                    DeviceThreadKernelCommunicator comm(std::move(host), stream, options);
                    test::conforms(comm);
                }));
                CHECK(test::launches() > before);
                CHECK(fake::counts().opened_peers == (ranks == 1 ? 0 : 2));
                CHECK(fake::live_allocations() == 0);
            }
        }
    }
}
