// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/available_memory.hpp
/// \brief  How much memory the system could still give to this process: what the machine has, and its control groups.
/// \depends core/index.hpp, <cstring>, /proc and /sys of Linux; elsewhere the system does not say.
///
/// Who takes more is killed, not told: containers and jobs of batch systems are control groups. Sources: the Linux
/// kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
#pragma once

#include <reshard/core/index.hpp>

#include <cstring>  // strchr, strcspn, strncmp, strrchr, strstr

namespace reshard::inline v0_1::detail {

/// The text of a small file of the system; empty where it cannot be read. Allocates only what fopen() does.
class SystemFile {
public:
    /// Of the parts of its path, one behind the other.
    SystemFile(char const* root, char const* folder, char const* group, char const* leaf) noexcept {
        char path[4096];
        int const length = std::snprintf(path, sizeof(path), "%s%s%s%s", root, folder, group, leaf);
        if (length < 0 || length >= static_cast<int>(sizeof(path))) return;
        std::FILE* const file = std::fopen(path, "re");
        if (file == nullptr) return;
        text_[std::fread(text_, 1, sizeof(text_) - 1, file)] = '\0';
        std::fclose(file);
    }

    [[nodiscard]] char const* text() const noexcept { return text_; }
    /// The number behind `name` where a line begins with it; `otherwise` where there is none, as in "max".
    [[nodiscard]] Index number(char const* name, Index otherwise) const noexcept {
        std::size_t const length = std::strlen(name);
        for (char const* line = text_; line != nullptr; line = std::strchr(line, '\n')) {
            if (*line == '\n') ++line;
            if (std::strncmp(line, name, length) != 0) continue;
            char* end = nullptr;
            long long const value = std::strtoll(line + length, &end, 10);
            return end == line + length ? otherwise : as_index(value);
        }
        return otherwise;
    }

private:
    char text_[8192] = {};
};

/// One of the two hierarchies of control groups, and what its files are called.
struct GroupHierarchy {
    char const* controller;  ///< in /proc/self/cgroup, in front of the group's path
    char const* folder;
    char const* limit;
    char const* usage;
    char const* caches[2];  ///< in memory.stat: what is given back when it is needed
};
inline constexpr GroupHierarchy group_hierarchies[] = {
    {"0::", "/sys/fs/cgroup", "/memory.max", "/memory.current", {"inactive_file ", "active_file "}},
    {"memory:",
     "/sys/fs/cgroup/memory",
     "/memory.limit_in_bytes",
     "/memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "}},
};

/// Bytes that this process could still get; as many as there can be where nobody says. `root`: of the file system.
[[nodiscard]] inline Index available_memory(char const* root = "") noexcept {
    Index available = SystemFile(root, "/proc/meminfo", "", "").number("MemAvailable:", INT64_MAX >> 10) << 10;
    SystemFile const groups(root, "/proc/self/cgroup", "", "");
    for (GroupHierarchy const& hierarchy : group_hierarchies) {
        char const* const line = std::strstr(groups.text(), hierarchy.controller);
        if (line == nullptr) continue;
        char group[4096] = {};
        char const* const path = line + std::strlen(hierarchy.controller);
        std::size_t const length = std::strcspn(path, "\n");
        if (length < sizeof(group)) std::memcpy(group, path, length);
        for (;;) {  // the group, and those that it lies in; a container may see its own as the outermost
            Index const limit = SystemFile(root, hierarchy.folder, group, hierarchy.limit).number("", INT64_MAX);
            if (limit < INT64_MAX >> 1) {
                Index const usage = SystemFile(root, hierarchy.folder, group, hierarchy.usage).number("", 0);
                SystemFile const counts(root, hierarchy.folder, group, "/memory.stat");
                Index const caches = counts.number(hierarchy.caches[0], 0) + counts.number(hierarchy.caches[1], 0);
                available = smaller(available, larger<Index>(limit - usage + caches, 0));
            }
            char* const inner = std::strrchr(group, '/');
            if (inner == nullptr) break;
            *inner = '\0';
        }
    }
    return available;
}

}  // namespace reshard::inline v0_1::detail
