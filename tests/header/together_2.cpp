// SPDX-License-Identifier: Apache-2.0
#include <together_backwards.hpp>

int other_unit();

int other_unit() { return 0; }
