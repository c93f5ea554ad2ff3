// SPDX-License-Identifier: Apache-2.0
#include "gpus.hpp"

#include "comm/device/mch_on_streams.hpp"

using namespace reshard;
using namespace reshard::test;

TEST_CASE("redistribute on devices: ranks of NCCL, everything in the order of their streams") {
    check_mch_on_streams(25, [](int ranks, auto const& body) {
        check_none(on_devices(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
            NcclCommunicator comm = nccl_from(host, stream);
            body(comm, stream);
        }));
    });
    CHECK(fake_nccl::live_communicators() == 0);
}
