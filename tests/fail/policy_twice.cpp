// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Composed: two observation policies, such as Traced twice. Fix: name one.
#include <reshard/comm/self.hpp>
#include <reshard/comm/traced.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
using Comm = Composed<SelfCommunicator, Traced>;
#else
using Comm = Composed<SelfCommunicator, Traced, Traced>;
#endif
int size(Comm const& comm) { return comm.size(); }
