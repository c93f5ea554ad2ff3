// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Staged: an AnyCommunicator may hold one of devices, and Staged packs on the host
#include <reshard/comm/any_communicator.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/staged.hpp>
#include <reshard/comm/traced.hpp>

using namespace reshard;

AnyCommunicator any(Trace& trace) {
#ifndef RESHARD_FAIL
    return AnyCommunicator(compose<Staged, Traced>(SelfCommunicator(), trace));
#else
    return AnyCommunicator(compose<Staged, Traced>(AnyCommunicator(SelfCommunicator()), trace));
#endif
}
