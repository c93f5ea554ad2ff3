// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Composed: one of these templates is no policy.
#include <reshard/comm/self.hpp>
#include <reshard/comm/staged.hpp>

using namespace reshard;

template <class C>
class Stage;

#ifndef RESHARD_FAIL
using Comm = Composed<SelfCommunicator, Staged>;
#else
using Comm = Composed<SelfCommunicator, Stage>;
#endif
int size(Comm const& comm) { return comm.size(); }
