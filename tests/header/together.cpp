// SPDX-License-Identifier: Apache-2.0
#if __has_include(<mpi.h>)
#include <reshard/comm/mpi.hpp>
#endif
#include <together_public_headers.hpp>

static_assert(RESHARD_VERSION_MAJOR == PACKAGE_MAJOR && RESHARD_VERSION_MINOR == PACKAGE_MINOR &&
                  RESHARD_VERSION_PATCH == PACKAGE_PATCH,
              "the version in reshard/core/config.hpp is not the one in CMakeLists.txt");

// Versions that may break their users have namespaces of their own, so that one program can have both.
#define NAMESPACE_NAMED(major, minor) reshard::v##major##_##minor
#define NAMESPACE_OF(major, minor) NAMESPACE_NAMED(major, minor)
static_assert(NAMESPACE_OF(RESHARD_VERSION_MAJOR, RESHARD_VERSION_MINOR)::max_dims == reshard::max_dims,
              "the namespace in reshard/core/config.hpp, and in all headers, is not that of the version");

int main() {}
