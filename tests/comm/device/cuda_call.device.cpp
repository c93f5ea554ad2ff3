// SPDX-License-Identifier: Apache-2.0
// include/reshard/memory/cuda_call.hpp.
#include "support/allocations.hpp"
#include "support/fake_cuda_runtime.hpp"

#include <reshard/memory/cuda_call.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>

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

    TEST_CASE("no memory on a device that has failed is its failure") {
        fake::Stream const stream;
        fake::set_elsewhere(fake::Elsewhere::current_device);
        CHECK_THROWS_WITH_AS(detail::raise_no_memory(stream, "none. Fix: free some."), "none. Fix: free some.",
                             OutOfMemory);
        std::atomic<bool> const never = false;
        fake::hold(stream, never);  // busy is no failure
        CHECK_THROWS_AS(detail::raise_no_memory(stream, "none. Fix: free some."), OutOfMemory);
        fake::fail("cudaStreamQuery", cudaErrorIllegalAddress);
        CHECK_THROWS_WITH_AS(detail::raise_no_memory(stream, "none. Fix: free some."),
                             doctest::Contains("cudaStreamQuery failed"), TransportError);
    }

    TEST_CASE("a wait for a stream ends with it, with what CUDA says, or at the deadline; then all who share it know") {
        fake::Stream const stream;
        detail::StreamPatience const patience{std::chrono::milliseconds(20)};
        detail::StreamPatience const other = patience;
        int done = 0;
        fake::enqueue(stream, [&] { ++done; });
        patience.wait(stream, "a test");
        CHECK(done == 1);
        fake::fail("cudaStreamQuery", cudaErrorIllegalAddress);
        CHECK_THROWS_WITH_AS(patience.wait(stream, "a test"), doctest::Contains("cudaStreamQuery failed"),
                             TransportError);
        CHECK(cudaGetLastError() == cudaSuccess);  // told once
        CHECK_FALSE(other.is_stuck(stream));
        std::atomic<bool> goes_on = false;
        fake::hold(stream, goes_on);
        detail::CudaEvent event;
        event.record(stream);
        CHECK_THROWS_WITH_AS(patience.wait(stream, "the ", "test"),
                             "reshard: the test waited 20 ms for its device to be done. Fix: look for what keeps the "
                             "stream busy, or raise the deadline.",
                             DeadlineExceeded);
        CHECK(other.is_stuck(stream));
        CHECK(event.outlasts(std::chrono::steady_clock::now(), patience.deadline));
        goes_on = true;
        CHECK_FALSE(event.outlasts(std::chrono::steady_clock::now(), patience.deadline));
        CHECK_FALSE(other.is_stuck(stream));  // it has caught up
        CHECK_FALSE(*patience.stuck);
    }

    TEST_CASE("memory that CUDA manages is the device's, whatever it is of; freed memory is the host's") {
        int value = 0;
        fake::claim(&value, sizeof(value), fake::managed);
        CHECK(detail::memory_kind(0, &value) == detail::MemoryKind::device);
        CHECK(detail::reachable_kind("test", 0, &value) == detail::MemoryKind::device);
        detail::check_device_memory("test", "it", -1, &value, sizeof(value), alignof(int));
        CHECK_THROWS_WITH_AS(detail::check_device_memory("test", "it", -1, nullptr, 4), doctest::Contains("it is null"),
                             BufferError);
        fake::claim(&value, sizeof(value), fake::pageable_host);  // as CUDA says of what was freed
        CHECK_THROWS_WITH_AS(detail::check_device_memory("test", "it", -1, &value, sizeof(value), alignof(int)),
                             doctest::Contains("it is memory of the host"), BufferError);
        fake::claim(&value, sizeof(value), 0);
    }
}
