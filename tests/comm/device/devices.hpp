// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/device/devices.hpp
/// \brief  Ranks as threads with a device and a stream each, in the double of the CUDA runtime.
#pragma once

#include "support/ended.hpp"
#include "support/fake_cuda_runtime.hpp"

#include <reshard/comm/device_threads.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace reshard::test {

namespace fake = fake_runtime;

/// Runs body(host, stream) on `ranks` threads, the device of each its rank modulo `gpus`; returns what each threw.
template <class Body>
std::vector<Ended> on_devices(int ranks, int gpus, ThreadOptions const& options, Body const& body) {
    std::vector<Ended> ended(static_cast<std::size_t>(ranks));
    std::vector<fake::Stream> streams(ended.size());  // what is in them may outlive a rank
    try {
        run_on_threads(ranks, options, [&](ThreadCommunicator& host) {
            auto const me = static_cast<std::size_t>(host.rank());
            int const device = host.rank() % gpus;
            static_cast<void>(cudaSetDevice(device));
            struct Look {
                int device;
                ~Look() {
                    int now = -1;
                    static_cast<void>(cudaGetDevice(&now));
                    CHECK(now == device);  // whatever happened, the program's device is current again
                }
            } const look{device};
            keep_end(ended[me], [&] { body(host, streams[me]); });
        });
    } catch (std::exception const&) {  // is in `ended`
    }
    return ended;
}

/// Windows that could not be freed: of devices that are never done, or below which an exchange failed.
inline int kept_windows = 0;

inline void check_nothing_left() {
    CHECK(fake::live_allocations() == kept_windows);
    CHECK(fake::live_events() == 0);
}
/// After an exchange has failed: what a transport may still write to, of so many ranks.
inline void check_only_windows_left(int least, int most) {
    int const kept = fake::live_allocations() - kept_windows;
    CHECK(kept >= least);
    CHECK(kept <= most);
    kept_windows += kept;
    CHECK(fake::live_events() == 0);
}

}  // namespace reshard::test
