// SPDX-License-Identifier: Apache-2.0
// expect-error: no matching function for call to .?to_string
#include <reshard/core/shape.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto text = to_string(Indices{3});
#else
auto text = to_string(3.7);  // no list of one index
#endif
