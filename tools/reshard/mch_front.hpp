// SPDX-License-Identifier: Apache-2.0
/// \file   tools/reshard/mch_front.hpp
/// \brief  How `reshard mch` uses PyTorch: mch_dcp.py is run, and folders appear when all is well.
#pragma once

#include "verbs.hpp"

#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/core/error.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern char** environ;

namespace command::mch {

using namespace reshard;
namespace fs = std::filesystem;

/// What cannot be told from the folder, and what can where names say nothing: passed on as it is.
struct FrontOptions {
    std::vector<std::string> hash_size, buckets, decay_exponent, rows, no_rows;

    [[nodiscard]] std::vector<std::string> arguments() const {
        std::vector<std::string> list;
        auto const add = [&](char const* option, std::vector<std::string> const& values) {
            for (std::string const& value : values) list.push_back(errors::concat(option, "=", value));
        };
        add("--hash-size", hash_size);
        add("--buckets", buckets);
        add("--decay-exponent", decay_exponent);
        add("--rows", rows);
        add("--no-rows", no_rows);
        return list;
    }
};

[[nodiscard]] inline std::string without_slash(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}
[[nodiscard]] inline std::string parent_of(std::string const& folder) {
    std::string const parent = fs::path(without_slash(folder)).parent_path().string();
    return parent.empty() ? "." : parent;
}

/// Whether torch.distributed.checkpoint wrote, or began to write, a folder. Throws for a folder of such folders.
[[nodiscard]] inline bool is_dcp(std::string const& folder) {
    std::error_code ignored;
    if (fs::exists(folder + "/.metadata", ignored)) return true;
    for (auto const& entry : fs::directory_iterator(folder, ignored)) {
        if (entry.path().extension() == ".distcp") return true;
    }
    if (fs::exists(folder + "/model/.metadata", ignored)) {
        errors::raise(ErrorCode::user, "'", folder,
                      "' has folders of torch.distributed.checkpoint inside. Fix: reshard "
                      "mch ",
                      folder, "/model OUT/model, and --also ", folder, "/optimizer OUT/optimizer if there is one.");
    }
    return false;
}

/// Throws unless the folder can be made: it is not there or empty, and its parent is. `saved`: by save(), which removes
/// what a run that was killed has left.
inline void check_new(std::string const& folder, bool saved) {
    check_empty(folder, saved);
    std::error_code ignored;
    if (fs::is_directory(parent_of(folder), ignored)) return;
    errors::raise(ErrorCode::user, "'", folder, "' has no parent folder. Fix: make that first, or correct the path.");
}

/// The same for all OUTs of (IN, OUT), which are made beside the first and renamed when all is well: each becomes the
/// path for that, without links and dots.
inline void check_to_rename(std::vector<std::pair<std::string, std::string>>& folders) {
    auto const disk_of = [](std::string const& folder) {
        struct stat status {};
        return ::stat(folder.c_str(), &status) == 0 ? status.st_dev : dev_t{};
    };
    for (std::size_t i = 0; i < folders.size(); ++i) {
        std::string& folder = folders[i].second;
        folder = without_slash(fs::weakly_canonical(fs::absolute(folder)).string());
        check_new(folder, false);
        std::error_code ignored;
        if (fs::is_symlink(folder, ignored)) {
            errors::raise(ErrorCode::user, "'", folder,
                          "' is a link to a folder that is not there. Fix: make that, or name another one.");
        }
        dev_t const disk = disk_of(parent_of(folder));
        if (fs::exists(folder, ignored) && disk_of(folder) != disk) {
            errors::raise(ErrorCode::user, "'", folder,
                          "' is a mount point, whose place no other folder can take. Fix: name a folder inside it.");
        }
        if (disk != disk_of(parent_of(folders[0].second))) {
            errors::raise(ErrorCode::user, "'", folder, "' is on another disk than '", folders[0].second,
                          "'. Fix: name OUTs on one, and copy one of them later.");
        }
        for (std::size_t before = 0; before < i; ++before) {
            std::string const& other = folders[before].second;
            bool const inside = folder.starts_with(other + "/") || other.starts_with(folder + "/");
            if (folder != other && !inside) continue;
            errors::raise(ErrorCode::user, "'", folder,
                          inside ? errors::concat("' and '", other, "' are one inside the other") : "' is named twice",
                          ". Fix: a folder of its own for each IN.");
        }
    }
}

/// A folder beside `out`, gone when this is. It holds a lock, so that those of runs that were killed are told from
/// others: they go when the next run begins.
class WorkFolder {
public:
    explicit WorkFolder(std::string const& out) {
        std::string const stem = errors::concat(without_slash(out), ".work-");
        remove_left(stem);
        path_ = errors::concat(stem, "XXXXXX");
        if (::mkdtemp(path_.data()) == nullptr) {
            errors::raise(ErrorCode::io, "cannot make '", path_, "': ", std::strerror(errno),
                          ". Fix: name an OUT whose parent folder can be written to.");
        }
        lock_ = reshard::detail::FolderLock(path_, lock_name);
    }
    WorkFolder(WorkFolder const&) = delete;
    WorkFolder& operator=(WorkFolder const&) = delete;
    ~WorkFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    [[nodiscard]] std::string const& path() const noexcept { return path_; }

private:
    static constexpr char const* lock_name = ".reshard-mch.lock";

    static void remove_left(std::string const& stem) {
        std::error_code ignored;
        for (fs::directory_entry const& entry : fs::directory_iterator(parent_of(stem), ignored)) {
            std::string const name = entry.path().filename().string();
            if (!name.starts_with(fs::path(stem).filename().string()) || entry.is_symlink(ignored)) continue;
            if (!fs::exists(entry.path() / lock_name, ignored)) continue;  // not ours
            try {
                reshard::detail::FolderLock const lock(entry.path().string(), lock_name);
                if (lock.is_held()) fs::remove_all(entry.path(), ignored);
            } catch (Error const&) {  // somebody is at work there
            }
        }
    }

    std::string path_;
    reshard::detail::FolderLock lock_;
};

/// mch_dcp.py: where it was installed, or beside the program.
[[nodiscard]] inline std::string front_path() {
    std::error_code ignored;
    std::string const program = fs::read_symlink("/proc/self/exe", ignored).parent_path().string();
    std::string const installed = program + "/" RESHARD_SCRIPTS;
    for (std::string const& folder : {installed, program}) {
        if (fs::exists(folder + "/mch_dcp.py", ignored)) return folder + "/mch_dcp.py";
    }
    errors::raise(ErrorCode::user, "mch_dcp.py is missing: it is installed in '", installed,
                  "'. Fix: install the command as a whole, or put it, dcp_folder.py and dcp_error.py beside '", program,
                  "/reshard'.");
}

/// Runs it and waits. Throws what it refuses, which it leaves in a file.
inline void run_front(char const* what, std::string const& work, std::vector<std::string> const& arguments) {
    char const* const chosen = std::getenv("RESHARD_PYTHON");
    std::string const python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
    std::vector<std::string> words{python, "-B", front_path(), what, work};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);  // stdout is for the answer
    pid_t process = 0;
    int const error = ::posix_spawnp(&process, python.c_str(), &actions, nullptr, pointers.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        errors::raise(ErrorCode::user, "cannot start '", python, "': ", std::strerror(error),
                      ". Fix: set RESHARD_PYTHON to a Python that has PyTorch.");
    }
    int status = 0;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    std::string said;
    std::getline(std::ifstream(work + "/error"), said);
    if (!said.empty()) errors::raise(ErrorCode::user, said);
    errors::raise(ErrorCode::user, "'", python, "', which reads and writes such folders, ended with ",
                  WIFEXITED(status) ? errors::concat("status ", WEXITSTATUS(status))
                                    : errors::concat("signal ", WTERMSIG(status)),
                  "; nothing has changed. Fix: what it said above.");
}

inline void put_in_place(std::string const& made, std::string const& folder) {
    std::error_code error;
    fs::rename(made, folder, error);
    if (!error) return;
    errors::raise(ErrorCode::io, "'", made, "' cannot become '", folder, "': ", error.message(),
                  ". Fix: name an OUT that nobody else makes.");
}

}  // namespace command::mch
