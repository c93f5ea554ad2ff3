// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/standard_streams.hpp
/// \brief  A program that was started without standard streams.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace reshard::test {

/// While it lives, input, output and errors are closed, as where `>&- 2>&-` starts a program.
class WithoutStandardStreams {
public:
    WithoutStandardStreams() {
        for (int stream = 0; stream < 3; ++stream) {
            kept_[stream] = ::fcntl(stream, F_DUPFD_CLOEXEC, 3);
            ::close(stream);
        }
    }
    WithoutStandardStreams& operator=(WithoutStandardStreams&&) = delete;
    ~WithoutStandardStreams() {
        for (int stream = 0; stream < 3; ++stream) {
            if (kept_[stream] < 0) continue;
            ::dup2(kept_[stream], stream);
            ::close(kept_[stream]);
        }
    }

private:
    int kept_[3] = {};
};

}  // namespace reshard::test
