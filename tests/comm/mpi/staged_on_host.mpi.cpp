// SPDX-License-Identifier: Apache-2.0
// StagedOnHost over MpiCommunicator, with the double of the CUDA runtime: memory that MPI may not touch travels over
// it.
#include "comm/conformance.hpp"
#include "support/fake_cuda_runtime.hpp"

#include <reshard/comm/mpi.hpp>
#include <reshard/comm/staged_on_host.hpp>

namespace {
using namespace reshard;
namespace fake = test::fake_runtime;
}  // namespace

TEST_SUITE("comm/mpi") {
    TEST_CASE("StagedOnHost: keeps the contract over MPI, wherever memory lies and through any window") {
        for (fake::Elsewhere where : {fake::Elsewhere::current_device, fake::Elsewhere::mixed}) {
            for (Index window : {Index{64} << 20, Index{8} << 10}) {
                CAPTURE(static_cast<int>(where));
                CAPTURE(window);
                fake::set_elsewhere(where);
                fake::Stream stream;
                StagedOnHostOptions options(stream);
                options.window_bytes = window;
                auto comm = compose<StagedOnHost>(MpiCommunicator(MPI_COMM_WORLD), options);
                test::conforms(comm);
                CHECK(comm.staging_bytes() > 0);
                CHECK(comm.staging_bytes() <= detail::larger<Index>(window, 256 * comm.size()));
            }
        }
        CHECK(fake::counts().default_stream == 0);
        CHECK(fake::live_allocations() == 0);
        CHECK(fake::live_events() == 0);
    }
}
