// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::compose: a policy lacks its settings. Fix: pass them, such as a Trace for Traced.
#include <reshard/comm/self.hpp>
#include <reshard/comm/traced.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto make(Trace& trace) { return compose<Traced>(SelfCommunicator(), trace); }
#else
auto make(Trace&) { return compose<Traced>(SelfCommunicator()); }
#endif
