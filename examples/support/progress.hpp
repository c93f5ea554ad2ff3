// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/progress.hpp
/// \brief  A progress bar on stderr: redrawn in place on a terminal, a line per tenth elsewhere.
#pragma once

#include <unistd.h>  // isatty

#include <chrono>
#include <cstdio>
#include <string>

namespace demo {

class Progress {
public:
    explicit Progress(long long total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

    /// `done` of the total, in the same unit (bytes).
    void update(long long done, std::string const& what) {
        int const percent =
            total_ == 0 ? 100 : static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total_));
        auto const now = std::chrono::steady_clock::now();
        bool const last = done >= total_;
        if (terminal_ ? (!last && now - drawn_ < std::chrono::milliseconds(50)) : percent / 10 == tenth_) return;
        drawn_ = now;
        tenth_ = percent / 10;
        double const seconds = std::chrono::duration<double>(now - start_).count();
        std::string bar(static_cast<std::size_t>(percent / 4), '#');
        bar.resize(25, '.');
        std::fprintf(stderr, "%s[%s] %3d %%  %.1f s  %-48.48s%s", terminal_ ? "\r" : "", bar.c_str(), percent, seconds,
                     what.c_str(), terminal_ && !last ? "" : "\n");
        std::fflush(stderr);
    }

private:
    using Clock = std::chrono::steady_clock;
    long long total_;
    bool terminal_;
    int tenth_ = -1;
    Clock::time_point start_ = Clock::now();
    Clock::time_point drawn_{};
};

}  // namespace demo
