// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: the sources of boxes are a list of DynamicView. Fix: make it one of ConstDynamicView
#include <reshard/comm/self.hpp>
#include <reshard/exec/boxes.hpp>

#include <vector>

using namespace reshard;

void move(BoxTable const& from, BoxTable const& to, SelfCommunicator& comm, std::vector<DynamicView> const& views) {
#ifndef RESHARD_FAIL
    std::vector<ConstDynamicView> const sources(views.begin(), views.end());
#else
    auto const& sources = views;
#endif
    redistribute(from, to, DType::f32, comm, sources, views, Reduce::sum);
}
