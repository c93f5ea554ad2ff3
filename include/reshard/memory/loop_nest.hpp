// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/loop_nest.hpp
/// \brief  The loops that visit two strided boxes element by element, for rooms that visit boxes of their own.
/// \depends memory/detail/loop_nest. Private to the library.
#pragma once

#include <reshard/memory/detail/loop_nest.hpp>
