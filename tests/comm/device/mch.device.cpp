// SPDX-License-Identifier: Apache-2.0
#include "devices.hpp"
#include "mch_on_streams.hpp"

using namespace reshard;
using namespace reshard::test;

TEST_CASE("redistribute on devices: ranks that are threads, everything in the order of their streams") {
    check_mch_on_streams(40, [](int ranks, auto const& body) {
        check_none(on_devices(ranks, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
            DeviceThreadCommunicator comm(std::move(host), stream);
            body(comm, stream);
        }));
    });
    check_nothing_left();
}
