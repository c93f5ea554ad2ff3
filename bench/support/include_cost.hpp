// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/include_cost.hpp
/// \brief  What including the umbrella costs a compiler, beside the standard headers it stands on.
/// POSIX: compilers are started as processes, and the time is their processor time.
#pragma once

#include <sys/resource.h>  // rusage
#include <sys/wait.h>      // wait4
#include <unistd.h>        // fork, execvp

#include <filesystem>  // path
#include <fstream>     // ifstream
#include <set>         // set
#include <string>      // string
#include <vector>      // vector

namespace reshard::bench {

/// Runs a program without its output; its user and system seconds, or -1 when it fails.
[[nodiscard]] inline double processor_seconds(std::vector<std::string> command) {
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t const child = fork();
    if (child == 0) {
        if (std::freopen("/dev/null", "w", stdout) == nullptr || std::freopen("/dev/null", "w", stderr) == nullptr) {
            _exit(127);
        }
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    int status = 0;
    rusage usage{};
    if (child < 0 || wait4(child, &status, 0, &usage) < 0 || status != 0) return -1;
    auto const seconds = [](timeval time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The headers in angle brackets that `header` and our headers behind it include, without ours.
inline void collect_foreign_includes(std::filesystem::path const& include_dir, std::string const& header,
                                     std::set<std::string>& seen, std::set<std::string>& foreign) {
    if (!seen.insert(header).second) return;
    std::ifstream file(include_dir / header);
    for (std::string line; std::getline(file, line);) {
        auto const open = line.find('<');
        auto const close = line.find('>');
        if (line.rfind("#include <", 0) != 0 || close == std::string::npos) continue;
        std::string const name = line.substr(open + 1, close - open - 1);
        if (name.rfind("reshard/", 0) == 0) {
            collect_foreign_includes(include_dir, name, seen, foreign);
        } else {
            foreign.insert(name);
        }
    }
}

/// Two translation units that do nothing but include: the umbrella, and the standard headers it uses.
class IncludeCost {
public:
    explicit IncludeCost(std::filesystem::path include_dir) : include_dir_(std::move(include_dir)) {
        folder_ = std::filesystem::temp_directory_path() / ("reshard_include_cost_" + std::to_string(getpid()));
        std::filesystem::create_directories(folder_);
        std::set<std::string> seen;
        collect_foreign_includes(include_dir_, "reshard/reshard.hpp", seen, standard_);
        std::ofstream(folder_ / "umbrella.cpp") << "#include <reshard/reshard.hpp>\n";
        std::ofstream file(folder_ / "standard.cpp");
        for (std::string const& header : standard_) file << "#include <" << header << ">\n";
    }
    IncludeCost(IncludeCost const&) = delete;
    IncludeCost& operator=(IncludeCost const&) = delete;
    ~IncludeCost() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    [[nodiscard]] double umbrella_seconds() const { return compile("umbrella"); }
    [[nodiscard]] double standard_seconds() const { return compile("standard"); }
    [[nodiscard]] std::set<std::string> const& standard_headers() const noexcept { return standard_; }

private:
    [[nodiscard]] double compile(std::string const& name) const {
        return processor_seconds({"g++", "-std=c++20", "-I" + include_dir_.string(), "-c", folder_ / (name + ".cpp"),
                                  "-o", folder_ / (name + ".o")});
    }

    std::filesystem::path include_dir_;
    std::filesystem::path folder_;
    std::set<std::string> standard_;
};

}  // namespace reshard::bench
