// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/goal_lines.hpp
/// \brief  What scripts/bench prints at the end: goal NAME VALUE TARGET ok|short|skipped.
#pragma once

#include <cstdio>  // printf, snprintf
#include <string>  // string
#include <vector>  // vector

namespace reshard::bench {

/// The lines, printed together at the end.
class Goals {
public:
    void at_least(char const* name, double value, double target) { add(name, value, target, value >= target); }
    void at_most(char const* name, double value, double target) { add(name, value, target, value <= target); }
    void skipped(char const* name, char const* why) {
        std::printf("  %s: %s\n", name, why);
        lines_.push_back(std::string("goal ") + name + " - - skipped");
    }
    void print() const {
        std::printf("\n");
        for (std::string const& line : lines_) std::printf("%s\n", line.c_str());
    }

private:
    void add(char const* name, double value, double target, bool met) {
        char line[160];
        std::snprintf(line, sizeof line, "goal %s %.3g %.3g %s", name, value, target, met ? "ok" : "short");
        lines_.emplace_back(line);
    }

    std::vector<std::string> lines_;
};

}  // namespace reshard::bench
