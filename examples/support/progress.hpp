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
    using Clock = std::chrono::steady_clock;
    /// `start`: of the work, where that was earlier.
    explicit Progress(long long total, Clock::time_point start = Clock::now())
        : total_(total), terminal_(isatty(STDERR_FILENO) != 0), start_(start) {}

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
        draw(percent, last, seconds_text(seconds, done, last) + "  " + what);
    }
    /// Of bytes: how many, and how fast.
    void update_bytes(long long done) {
        double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        double const rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
        constexpr double gib = 1 << 30;
        char text[96];
        std::snprintf(text, sizeof(text), "%.2f of %.2f GiB  %.2f GiB/s", static_cast<double>(done) / gib,
                      static_cast<double>(total_) / gib, rate / gib);
        update(done, text);
    }

private:
    /// Those that have passed, and to who looks on also those that are left.
    [[nodiscard]] std::string seconds_text(double seconds, long long done, bool last) const {
        char text[64];
        if (!terminal_ || last || done <= 0) {
            std::snprintf(text, sizeof(text), "%.1f s", seconds);
        } else {
            double const left = seconds * static_cast<double>(total_ - done) / static_cast<double>(done);
            std::snprintf(text, sizeof(text), "%.1f s, %.0f s left", seconds, left);
        }
        return text;
    }
    void draw(int percent, bool last, std::string const& what) const {
        std::string bar(static_cast<std::size_t>(percent / 4), '#');
        bar.resize(25, '.');
        // A line of a terminal, cut and padded, since it is written over; elsewhere all of it.
        std::fprintf(stderr, terminal_ ? "\r[%s] %3d %%  %-56.56s%s" : "[%s] %3d %%  %s%s", bar.c_str(), percent,
                     what.c_str(), terminal_ && !last ? "" : "\n");
        std::fflush(stderr);
    }

    long long total_;
    bool terminal_;
    int tenth_ = -1;
    Clock::time_point start_;
    Clock::time_point drawn_{};
};

}  // namespace demo
