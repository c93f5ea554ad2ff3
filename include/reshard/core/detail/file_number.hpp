// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/file_number.hpp
/// \brief  Numbers of open files that no program writes its output to.
/// \depends POSIX.
#pragma once

#include <fcntl.h>   // fcntl
#include <unistd.h>  // close

namespace reshard::inline v0_1::detail {

/// The file, under a number above those of the standard streams, if there is one to be had. In a program whose
/// standard streams are closed a new file gets their numbers, and what is printed would be written into it.
[[nodiscard]] inline int above_standard_streams(int file) noexcept {
    if (file < 0 || file > STDERR_FILENO) return file;
    int const above = ::fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (above < 0) return file;
    ::close(file);
    return above;
}

}  // namespace reshard::inline v0_1::detail
