// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/mode.hpp
/// \brief  Whether managed-collision tables are headers alone or a compiled library: one mode for a program's files.
/// \depends core/config.hpp.
#pragma once

#include <reshard/core/config.hpp>

// clang-format off
#if defined(RESHARD_COMPILED_MCH)
RESHARD_MODE_OF(RESHARD_COMPILED_MCH, )
#else
RESHARD_MODE_OF(RESHARD_COMPILED_MCH, thread_local)
#endif
// clang-format on
