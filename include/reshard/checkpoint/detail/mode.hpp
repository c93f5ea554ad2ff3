// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/mode.hpp
/// \brief  Whether files of tensors are headers alone or a compiled library: the same in all files of a program.
/// \depends core/config.hpp.
#pragma once

#include <reshard/core/config.hpp>

// clang-format off
#if defined(RESHARD_COMPILED_CHECKPOINT)
RESHARD_MODE_OF(RESHARD_COMPILED_CHECKPOINT, )
#else
RESHARD_MODE_OF(RESHARD_COMPILED_CHECKPOINT, thread_local)
#endif
// clang-format on
