// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard is written in C++20. Fix: compile with -std=c++20
#ifdef RESHARD_FAIL  // what -std=c++17 says
#undef __cplusplus
#define __cplusplus 201703L
#endif
#include <reshard/core/config.hpp>
