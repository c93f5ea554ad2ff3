// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/hash_zch.hpp
/// \brief  The simulator of TorchRec's HashZCH tables, which examples show and tests use.
#pragma once

#include "../../../examples/support/hash_zch.hpp"

namespace reshard::test::torchrec {
using namespace demo::torchrec;
}
