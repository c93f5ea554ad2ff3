// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/box_kernels_on_host.cuh
/// \brief  The kernels of memory/on_device.cuh and comm/nccl.cuh as tasks of the host.
#pragma once

#include "support/kernels_on_host.hpp"

#include <reshard/comm/nccl.cuh>

namespace reshard::test {

/// Calls body(box, tile of the box, thread) as a kernel over a list of boxes does.
template <class Box, class Body>
void each_thread_of(Launch const& launch, Box const* boxes, Index const* starts, int count, Body&& body) {
    launch.each_thread([&](Index tile, int thread) {
        int const number = detail::part_at(starts, count, tile);
        body(boxes[number], tile - starts[number], thread);
    });
}

template <class Box, class... Packs>
void run_copies_on_host() {
    constexpr auto copy = [](Box const& box, Index tile, int thread) { detail::copy_thread(box, tile, thread); };
    run_on_host(detail::copy_boxes_kernel<Box>, [=](Launch const& launch, Box const* boxes, Index const* starts,
                                                    int count) { each_thread_of(launch, boxes, starts, count, copy); });
    (run_on_host(detail::copy_pack_kernel<Packs>,
                 [=](Launch const& launch, Packs const& pack) {
                     each_thread_of(launch, pack.boxes, pack.starts, pack.count, copy);
                 }),
     ...);
}

template <class A>
void run_folds_on_host() {
    run_on_host(detail::fold_box_kernel<A, detail::FoldBox>, [](Launch const& launch, detail::FoldBox const& box) {
        launch.each_thread([&](Index tile, int thread) { detail::fold_thread<A>(box, tile, thread); });
    });
    run_on_host(detail::fold_cast_kernel<A, detail::FoldCastBox>,
                [](Launch const& launch, detail::FoldCastBox const& box) {
                    launch.each_thread([&](Index tile, int thread) { detail::fold_cast_thread<A>(box, tile, thread); });
                });
}

inline void run_box_kernels_on_host() {
    run_copies_on_host<detail::CopyBox, detail::CopyPack, detail::LongCopyPack>();
    run_copies_on_host<detail::CastBox, detail::CastPack>();
    run_on_host(detail::fill_box_kernel<detail::FillBox>, [](Launch const& launch, detail::FillBox const& box) {
        launch.each_thread([&](Index tile, int thread) { detail::fill_thread(box, tile, thread); });
    });
    run_on_host(detail::scale_box_kernel<detail::ScaleBox>, [](Launch const& launch, detail::ScaleBox const& box) {
        launch.each_thread([&](Index tile, int thread) { detail::scale_thread(box, tile, thread); });
    });
    run_folds_on_host<float>();
    run_folds_on_host<double>();
    run_folds_on_host<std::int64_t>();
    run_folds_on_host<std::uint64_t>();
}

}  // namespace reshard::test
