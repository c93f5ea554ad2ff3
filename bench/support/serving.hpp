// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/serving.hpp
/// \brief  Command lines that the benchmarks share: lines of input answered one by one, --dir, and errors in words.
#pragma once

#include <reshard/core/error.hpp>

#include <cstdio>            // fgets, fprintf, printf
#include <cstring>           // strcmp, strcspn
#include <initializer_list>  // initializer_list
#include <string>            // string
#include <string_view>       // string_view

namespace reshard::bench {

/// For a program that runs beside this one in turn: each line of the standard input is one of `words`; answer(word)
/// prints a line of JSON. Returns the exit status, when the input ends.
template <class Answer>
[[nodiscard]] int serve_lines(std::initializer_list<std::string_view> words, Answer&& answer) {
    char line[32];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        line[std::strcspn(line, "\n")] = 0;
        bool known = false;
        for (std::string_view const word : words) known = known || word == line;
        if (!known) {
            std::fprintf(stderr, "unknown word '%s'; there are:", line);
            for (std::string_view const word : words) std::fprintf(stderr, " %s", std::string(word).c_str());
            std::fprintf(stderr, "\n");
            return 2;
        }
        answer(std::string_view(line));
        std::fflush(stdout);
    }
    return 0;
}

/// An answer: how long it took, and whether what it left was looked at and is right.
inline void print_answer(double seconds, bool right) {
    std::printf("{\"seconds\": %.6f, \"right\": %s}\n", seconds, right ? "true" : "false");
}

/// `--dir FOLDER` in front of all other arguments: takes both away.
inline void take_folder(int& argc, char**& argv, std::string& folder) {
    if (argc < 3 || std::strcmp(argv[1], "--dir") != 0) return;
    folder = argv[2];
    argc -= 2;
    argv += 2;
}

/// The exit status of run(), or that of an error, which is printed.
template <class Run>
[[nodiscard]] int report_errors(char const* program, Run&& run) {
    try {
        return run();
    } catch (Error const& error) {
        std::fprintf(stderr, "%s: %s\n", program, error.what());
        return 1;
    }
}

}  // namespace reshard::bench
