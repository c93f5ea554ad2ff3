// SPDX-License-Identifier: Apache-2.0
// expect-error: need IEEE 754. Fix: compile this file without -ffast-math, -Ofast and their parts.
#ifdef RESHARD_FAIL
#define __FAST_MATH__ 1  // as -ffast-math does
#endif
#include <reshard/reshard.hpp>
