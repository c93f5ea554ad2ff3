// SPDX-License-Identifier: Apache-2.0
/// \file   bench/cuda/bench_folder.hpp
/// \brief  Files by plain calls of the system, and the folder of a benchmark.
#pragma once

#include <reshard/core/index.hpp>

#include <fcntl.h>   // open
#include <unistd.h>  // read, write, close

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace reshard::bench {

namespace fs = std::filesystem;

[[noreturn]] inline void fail(std::string const& path, char const* what) {
    throw std::runtime_error(path + ": " + what + ": " + std::strerror(errno));
}

/// An open file.
class Descriptor {
public:
    Descriptor(std::string const& path, int flags) : path_(path), number_(::open(path.c_str(), flags, 0644)) {
        if (number_ < 0) fail(path, "open");
    }
    Descriptor(Descriptor const&) = delete;
    Descriptor& operator=(Descriptor const&) = delete;
    ~Descriptor() { ::close(number_); }
    void write(std::byte const* data, Index bytes) const {
        while (bytes > 0) {
            ssize_t const done = ::write(number_, data, static_cast<std::size_t>(bytes));
            if (done <= 0) fail(path_, "write");
            data += done;
            bytes -= done;
        }
    }
    void read(std::byte* data, Index bytes) const {
        while (bytes > 0) {
            ssize_t const done = ::read(number_, data, static_cast<std::size_t>(bytes));
            if (done <= 0) fail(path_, "read");
            data += done;
            bytes -= done;
        }
    }

private:
    std::string path_;
    int number_;
};

/// What this program makes in its folder, and removes.
class Folder {
public:
    Folder(std::string path, bool keep) : path_(std::move(path)), keep_(keep) {
        fs::create_directories(path_);
        remove();
    }
    Folder(Folder const&) = delete;
    Folder& operator=(Folder const&) = delete;
    ~Folder() {
        remove(keep_ ? 2 : 0);
        std::error_code ignored;
        fs::remove(path_, ignored);  // unless something is in it
    }
    [[nodiscard]] std::string saved_by(int ranks) const { return path_ + "/saved_by_" + std::to_string(ranks); }
    [[nodiscard]] std::string raw() const { return path_ + "/raw"; }

private:
    void remove(int first = 0) const {
        std::array<std::string, 3> const parts{saved_by(1), saved_by(4), raw()};
        for (auto i = static_cast<std::size_t>(first); i < parts.size(); ++i) {
            std::error_code ignored;
            fs::remove_all(parts[i], ignored);
        }
    }
    std::string path_;
    bool keep_;
};

/// \pre `path` is absolute.
inline bool has_room(std::string path, double bytes) {
    std::error_code error;
    while (!fs::exists(path, error) && path != "/") path = fs::path(path).parent_path().string();
    fs::space_info const space = fs::space(path, error);
    return !error && static_cast<double>(space.available) >= bytes;
}

}  // namespace reshard::bench
