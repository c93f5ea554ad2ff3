// SPDX-License-Identifier: Apache-2.0
// NcclKernelCommunicator (comm/nccl.cuh) and DeviceThreadKernelCommunicator (comm/device_threads.cuh) against the test
// doubles of NCCL and the CUDA runtime, compiled by nvcc and run without a GPU: see support/kernels_on_host.hpp. What a
// device
// makes of the kernel is the business of the tests that have one.
#include "../../conformance.hpp"
#include "../../device/devices.hpp"
#include "../gpus.hpp"
#include "support/box_kernels_on_host.cuh"

#include <reshard/comm/device_threads.cuh>
#include <reshard/comm/nccl.cuh>
#include <reshard/memory/convert.hpp>

#include <chrono>
#include <cstring>  // memcpy

using namespace reshard;
namespace fake = test::fake_nccl;

TEST_SUITE("comm/nccl") {
    TEST_CASE("NcclKernelCommunicator: keeps the contract on 1 to 5 ranks, through any window, and packs by kernels") {
        test::run_box_kernels_on_host();
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
        CHECK(test::unknown_kernels().empty());
        CHECK(fake::live_communicators() == 0);
        CHECK(fake::live_allocations() == 0);
    }
    TEST_CASE("NcclKernelCommunicator: values that a kernel would convert are aligned, or the exchange fails") {
        test::run_box_kernels_on_host();
        auto const ended = test::on_devices(2, [&](ThreadCommunicator& host, cudaStream_t stream) {
            auto comm = nccl_from<NcclKernelCommunicator>(host, stream);
            std::vector<std::byte> memory(256);
            std::vector<std::byte> const before = memory;
            transport::Conversion const widens{DType::f64, DType::f32, 1.0, transport::convert};
            transport::Conversion const plain{DType::f32, DType::f32, 1.0, transport::convert};
            int const shift = comm.rank() == 0 ? 4 : 0;
            transport::Send const send{1 - comm.rank(), memory.data(), test::box_of(4, {{4, 4}}), plain};
            transport::Receive const receive{1 - comm.rank(), memory.data() + 128 + shift, test::box_of(8, {{4, 8}}),
                                             widens};
            auto request = comm.exchange({&send, 1}, {&receive, 1});
            try {
                request.wait();
            } catch (Error const&) {
                CHECK((memory == before));
                throw;
            }
        });
        CHECK(ended[0].code == ErrorCode::buffer);
        CHECK(ended[0].says("converted on the way are not aligned"));
        CHECK(ended[1].code == ErrorCode::peer_failed);
    }
    TEST_CASE(
        "what one side converts: the other, which travels as it is, is not given to a kernel where it is unaligned") {
        test::run_box_kernels_on_host();
        auto const exchange = [](auto& comm, std::vector<std::byte>& memory) {
            transport::Conversion const plain{DType::f32, DType::f32, 1.0, transport::convert};
            transport::Conversion const shortens{DType::bf16, DType::f32, 1.0, transport::convert};
            float const value = 3.5F;
            std::memcpy(memory.data() + 1, &value, sizeof(value));
            transport::Send const send{0, memory.data() + 1, test::box_of(4, {}), plain};
            transport::Receive const receive{0, memory.data() + 64, test::box_of(2, {}), shortens};
            comm.exchange({&send, 1}, {&receive, 1}).wait();
        };
        int const before = test::launches(detail::copy_boxes_kernel<detail::CastBox>);
        test::check_none(test::on_devices(1, 1, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
            DeviceThreadKernelCommunicator comm(std::move(host), stream, {});
            std::vector<std::byte> memory(128);
            exchange(comm, memory);
            BFloat16 got;
            std::memcpy(&got, memory.data() + 64, sizeof(got));
            CHECK(static_cast<float>(got) == 3.5F);
        }));
        CHECK(test::launches(detail::copy_boxes_kernel<detail::CastBox>) == before);  // the host converts
        auto const ended = test::on_devices(1, [&](ThreadCommunicator& host, cudaStream_t stream) {
            auto comm = nccl_from<NcclKernelCommunicator>(host, stream);
            std::vector<std::byte> memory(128);
            exchange(comm, memory);
        });
        CHECK(ended[0].code == ErrorCode::buffer);
        CHECK(ended[0].says("converted on the way are not aligned"));
    }
    TEST_CASE("NcclKernelCommunicator: a launch that CUDA refuses is its error, on every rank") {
        test::run_box_kernels_on_host();
        NcclOptions options;
        options.deadline = std::chrono::seconds(5);
        auto const ended = test::on_devices(2, [&](ThreadCommunicator& host, cudaStream_t stream) {
            auto comm = nccl_from<NcclKernelCommunicator>(host, stream, options);
            std::vector<float> from(64);
            std::vector<float> to(64);
            int const peer = 1 - comm.rank();
            transport::StridedBox const box = test::box_of(4, {{16, 8}});
            transport::Send const sends[] = {{peer, reinterpret_cast<std::byte const*>(from.data()), box}};
            transport::Receive const receives[] = {{peer, reinterpret_cast<std::byte*>(to.data()), box}};
            if (comm.rank() == 0) test::fail_launch(cudaErrorInvalidConfiguration);
            comm.exchange(sends, receives).wait();
        });
        CHECK(ended[0].code == ErrorCode::transport);
        CHECK(ended[0].says("the launch of reshard's kernel 'copy'"));
        CHECK(ended[1].code == ErrorCode::peer_failed);
    }

    TEST_CASE(
        "DeviceThreadKernelCommunicator: keeps the contract on 1 to 5 ranks of two devices, and copies by kernels") {
        test::run_box_kernels_on_host();
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
