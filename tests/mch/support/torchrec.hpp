// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/torchrec.hpp
/// \brief  The simulator of TorchRec's managed collision, which examples show and tests use.
#pragma once

#include "../../../examples/support/torchrec.hpp"

namespace reshard::test::torchrec {
using namespace demo::torchrec;
}
