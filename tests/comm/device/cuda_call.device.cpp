// SPDX-License-Identifier: Apache-2.0
// include/reshard/memory/cuda_call.hpp.
#include "support/allocations.hpp"
#include "support/fake_cuda_runtime.hpp"

#include <reshard/memory/cuda_call.hpp>

#include <doctest/doctest.h>

namespace {
using namespace reshard;
namespace fake = test::fake_runtime;

void kernel_of_two(int, char const*) {}
}  // namespace

TEST_SUITE("memory/cuda_call") {
    TEST_CASE("a launch throws what CUDA says of it, nothing else, and allocates nothing where all is well") {
        fake::reset();
        fake::Stream const stream;
        auto const launch = [&] {
            detail::launch_kernel("one whose name is longer than fifteen characters", kernel_of_two, 7U, 32, stream, 5,
                                  "text");
        };
        fake::set_last_error(cudaErrorPeerAccessAlreadyEnabled);  // of a call of the program's, which ignored it
        CHECK(test::allocations_in(launch) == 0);
        CHECK(fake::counts().launches == 1);
        CHECK(cudaGetLastError() == cudaErrorPeerAccessAlreadyEnabled);  // still the program's
        fake::fail("cudaLaunchKernel", cudaErrorInvalidConfiguration);
        CHECK_THROWS_WITH_AS(launch(), doctest::Contains("the launch of reshard's kernel 'one whose name is longer"),
                             TransportError);
        CHECK(cudaGetLastError() == cudaSuccess);  // told once
    }
}
