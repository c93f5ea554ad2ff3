// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/explain_text.hpp
/// \brief  Numbers of bytes and of things in words, for all that explain() something.
/// \depends plan/detail/explain_text. Private to the library.
#pragma once

#include <reshard/plan/detail/explain_text.hpp>
