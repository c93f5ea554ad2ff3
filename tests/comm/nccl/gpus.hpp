// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/nccl/gpus.hpp
/// \brief  Runs a body on ranks that the test double of NCCL calls GPUs: threads with a device and a stream each.
#pragma once

#include "support/ended.hpp"
#include "support/fake_nccl.hpp"

#include <reshard/comm/nccl.hpp>
#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace reshard::test {

/// Runs body(host, stream) on `ranks` threads, the device of each its rank; returns what each threw.
template <class Body>
std::vector<Ended> on_devices(int ranks, Body const& body) {
    std::vector<Ended> ended(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](ThreadCommunicator& host) {
        static_cast<void>(cudaSetDevice(host.rank()));
        Ended& mine = ended[static_cast<std::size_t>(host.rank())];
        try {
            fake_nccl::Stream stream;
            keep_end(mine, [&] { body(host, stream); });
        } catch (std::exception const&) {  // is in `ended`
        }
        int device = -1;
        static_cast<void>(cudaGetDevice(&device));
        CHECK(device == host.rank());  // whatever happened, the program's device is current again
        barrier(host);                 // what the double shares lives as long as anybody uses it
    });
    return ended;
}

/// Runs body(comm) on `ranks` ranks of NCCL; returns what each threw.
template <class Body>
std::vector<Ended> on_gpus(int ranks, NcclOptions const& options, Body const& body) {
    return on_devices(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
        NcclCommunicator comm = nccl_from(host, stream, options);
        body(comm);
    });
}

}  // namespace reshard::test
