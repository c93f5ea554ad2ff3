// SPDX-License-Identifier: Apache-2.0
// What a file pays that includes the umbrella and uses nothing of it.
#include <reshard/reshard.hpp>
