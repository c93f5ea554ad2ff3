// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/box_kernels_on_host.cuh
/// \brief  The kernels of memory/copy.cuh as tasks of the host.
#pragma once

#include "support/kernels_on_host.hpp"

#include <reshard/memory/copy.cuh>

namespace reshard::test {

inline void run_box_kernels_on_host() {
    run_on_host(detail::copy_box_kernel<detail::CopyBox>, [](Launch const& launch, detail::CopyBox const& box) {
        launch.each_thread([&](Index tile, int thread) { detail::copy_thread(box, tile, thread); });
    });
    run_on_host(detail::copy_boxes_kernel<detail::CopyBox>,
                [](Launch const& launch, detail::CopyBox const* boxes, Index const* starts, int count) {
                    launch.each_thread([&](Index tile, int thread) {
                        int const number = detail::box_of_tile(starts, count, tile);
                        detail::copy_thread(boxes[number], tile - starts[number], thread);
                    });
                });
}

}  // namespace reshard::test
