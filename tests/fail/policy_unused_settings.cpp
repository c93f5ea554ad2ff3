// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::compose: none of the policies takes one of these settings.
#include <reshard/comm/abort_on_failure.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/traced.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto make(Trace& trace) { return compose<Traced, AbortOnFailure>(SelfCommunicator(), trace); }
#else
auto make(Trace& trace) { return compose<AbortOnFailure>(SelfCommunicator(), trace); }
#endif
