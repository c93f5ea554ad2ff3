// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/config.hpp
/// \brief  Version numbers and the annotations every other header relies on. Includes nothing.
#pragma once

// Older standards would say hundreds of other things.
#if __cplusplus < 202002L
#error "reshard is written in C++20. Fix: compile with -std=c++20."
#endif

#define RESHARD_VERSION_MAJOR 0
#define RESHARD_VERSION_MINOR 1
#define RESHARD_VERSION_PATCH 0

/// Functions that device code calls carry this mark, so that users never need --expt-relaxed-constexpr.
#if defined(__CUDACC__)
#define RESHARD_HOST_DEVICE __host__ __device__
#else
#define RESHARD_HOST_DEVICE
#endif

/// Definitions beside a header, in its .ipp, begin with this mark. Header-only programs see them, so they are inline
/// there; the compiled library (target reshard::compiled) has them in its own source files, which define
/// RESHARD_SOURCE. Who uses that library compiles with RESHARD_COMPILED, and sees declarations only.
#if defined(RESHARD_SOURCE)
#define RESHARD_INLINE
#else
#define RESHARD_INLINE inline
#endif

// All files of a program are compiled with RESHARD_COMPILED, or none is: else some functions would be there twice. So
// it is with the macro of each component among the files that include it, and with exceptions. The linker finds out by
// this name, which is a variable of each thread for some files and an ordinary one (no `storage`) for others.
// NOLINTBEGIN(bugprone-macro-parentheses): `storage` is a word, or nothing
// clang-format off
#define RESHARD_MODE_OF(macro, storage)                                         \
    extern "C" {                                                                \
    [[gnu::used, gnu::weak, gnu::visibility("hidden")]] storage int             \
        Fix_compile_all_files_of_this_program_with_##macro##_or_none = 0;       \
    }
#if defined(RESHARD_COMPILED)
RESHARD_MODE_OF(RESHARD_COMPILED, )
#else
RESHARD_MODE_OF(RESHARD_COMPILED, thread_local)
#endif
#if defined(__cpp_exceptions)
RESHARD_MODE_OF(exceptions, )
#else
RESHARD_MODE_OF(exceptions, thread_local)
#endif
// clang-format on
// NOLINTEND(bugprone-macro-parentheses)

namespace reshard {
inline namespace v0_1 {}  // major and, before 1.0, minor: two versions in one program never share a symbol
}  // namespace reshard
