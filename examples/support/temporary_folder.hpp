// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/temporary_folder.hpp
/// \brief  A folder that goes when its owner goes, unless it is to be kept.
#pragma once

#include <unistd.h>  // getpid

#include <cstdio>
#include <filesystem>
#include <string>

namespace demo {

class TemporaryFolder {
public:
    TemporaryFolder() = default;
    TemporaryFolder(TemporaryFolder const&) = delete;
    TemporaryFolder& operator=(TemporaryFolder const&) = delete;
    ~TemporaryFolder() {
        if (path_.empty()) return;
        std::error_code ignored;
        if (keep_)
            std::printf("kept in %s\n", path_.c_str());
        else
            std::filesystem::remove_all(path_, ignored);
    }

    void make(bool keep) {
        keep_ = keep;
        path_ = (std::filesystem::temp_directory_path() / ("reshard-demo-" + std::to_string(getpid()))).string();
        std::filesystem::create_directories(path_);
    }
    [[nodiscard]] std::string const& path() const noexcept { return path_; }

private:
    std::string path_;
    bool keep_ = false;
};

}  // namespace demo
