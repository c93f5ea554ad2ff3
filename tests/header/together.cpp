// SPDX-License-Identifier: Apache-2.0
#if __has_include(<mpi.h>)
#include <reshard/comm/mpi.hpp>
#endif
#include <together_public_headers.hpp>

static_assert(RESHARD_VERSION_MAJOR == PACKAGE_MAJOR && RESHARD_VERSION_MINOR == PACKAGE_MINOR &&
                  RESHARD_VERSION_PATCH == PACKAGE_PATCH,
              "the version in reshard/core/config.hpp is not the one in CMakeLists.txt");

int main() {}
