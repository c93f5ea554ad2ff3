// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/goal_lines.hpp
/// \brief  What scripts/bench prints at the end: goal NAME VALUE TARGET ok|short|skipped.
#pragma once

#include <cstdio>   // printf, snprintf
#include <cstring>  // strcmp
#include <string>   // string
#include <vector>   // vector

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

/// Whether a goal is to be measured: it is named among the program's arguments, or nothing is.
[[nodiscard]] inline bool is_wanted(char const* name, int argc, char** argv) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(name, argv[i]) == 0;
    return wanted;
}

/// Whether every argument names a goal; says which one does not. `Goals` is an array of things with a name.
template <class Goals>
[[nodiscard]] bool are_known(Goals const& goals, int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        bool known = false;
        for (auto const& goal : goals) known = known || std::strcmp(goal.name, argv[i]) == 0;
        if (known) continue;
        std::fprintf(stderr, "unknown goal '%s'; there are:", argv[i]);
        for (auto const& goal : goals) std::fprintf(stderr, " %s", goal.name);
        std::fprintf(stderr, "\n");
        return false;
    }
    return true;
}

/// What `--goals [NAME...]` does: measures and prints those named, or all. `arguments` begins with that flag. Returns
/// the program's exit status. `List` is an array of things with a name and `measure(Goals&)`.
template <class List>
[[nodiscard]] int measure_goals(List const& list, int count, char** arguments) {
    if (!are_known(list, count, arguments)) return 2;
    Goals goals;
    for (auto const& goal : list) {
        if (!is_wanted(goal.name, count, arguments)) continue;
        goal.measure(goals);
        std::fflush(stdout);
    }
    goals.print();
    return 0;
}

}  // namespace reshard::bench
