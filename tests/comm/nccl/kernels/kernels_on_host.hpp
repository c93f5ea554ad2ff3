// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/nccl/kernels_on_host.hpp
/// \brief  How often the copy kernel of a batch was launched, on machines without a GPU.
#pragma once

namespace reshard::test {
int launches();
}
