// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/ieee.hpp
/// \brief  Refuses compiler options under which sums and conversions would silently have other values.
/// \depends nothing.
///
/// Rounding adds a constant and takes it away again, minima compare NaN with itself, and a sum of nothing is -0.0:
/// under -ffast-math, or a part of it, float 2.7 became int 2. (clang names no macro for -fassociative-math,
/// -freciprocal-math and -fno-signed-zeros by themselves, nor nvcc for --use_fast_math: those go unnoticed.)
#pragma once

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error \
    "reshard: folds and conversions need IEEE 754. Fix: compile this file without -ffast-math, -Ofast and their parts."
#elif defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "reshard: folds and conversions need floats that are computed as floats. Fix: -msse2 -mfpmath=sse."
#endif
