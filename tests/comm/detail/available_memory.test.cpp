// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/detail/available_memory.hpp: what systems of several kinds say.
#include <reshard/comm/detail/available_memory.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace {
using namespace reshard;
namespace fs = std::filesystem;
constexpr Index mib = 1 << 20;

/// A file system with what /proc and /sys would have.
class System {
public:
    System() : root_(fs::temp_directory_path() / ("reshard_system_" + std::to_string(::getpid()))) {
        fs::remove_all(root_);
        write("proc/meminfo",
              "MemTotal:    4194304 kB\nMemFree:   1024 kB\nMemAvailable:   2097152 kB\nCached: 1 kB\n");
    }
    System(System const&) = delete;
    System& operator=(System const&) = delete;
    ~System() { fs::remove_all(root_); }

    void write(std::string const& path, std::string const& text) const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    [[nodiscard]] Index available() const { return detail::available_memory(root_.c_str()); }

private:
    fs::path root_;
};
}  // namespace

TEST_SUITE("comm/detail") {
    TEST_CASE("available_memory: what the machine has, where no group has less") {
        System const system;
        CHECK(system.available() == 2048 * mib);
        system.write("proc/self/cgroup", "0::/user.slice/session-1.scope\n");
        CHECK(system.available() == 2048 * mib);
        system.write("sys/fs/cgroup/user.slice/session-1.scope/memory.max", "max\n");
        CHECK(system.available() == 2048 * mib);
        system.write("sys/fs/cgroup/user.slice/session-1.scope/memory.max", std::to_string(8192 * mib) + "\n");
        CHECK(system.available() == 2048 * mib);
        system.write("proc/meminfo", "nothing that is known\n");
        CHECK(system.available() == 8192 * mib);
    }

    TEST_CASE("available_memory: a group of version 2, or one that it lies in") {
        System const system;
        system.write("proc/self/cgroup", "0::/job_7/step_0/task\n");
        std::string const job = "sys/fs/cgroup/job_7/";
        system.write(job + "step_0/task/memory.max", "max\n");
        system.write(job + "step_0/memory.max", std::to_string(1000 * mib) + "\n");
        system.write(job + "step_0/memory.current", std::to_string(700 * mib) + "\n");
        CHECK(system.available() == 300 * mib);
        // Pages of files are given back, those of shared memory are not.
        system.write(job + "step_0/memory.stat", "anon 5\nfile " + std::to_string(500 * mib) + "\nshmem " +
                                                     std::to_string(350 * mib) + "\ninactive_file " +
                                                     std::to_string(100 * mib) + "\nactive_file " +
                                                     std::to_string(50 * mib) + "\n");
        CHECK(system.available() == 450 * mib);
        system.write(job + "memory.max", std::to_string(800 * mib) + "\n");
        system.write(job + "memory.current", std::to_string(800 * mib) + "\n");
        CHECK(system.available() == 0);
        system.write(job + "memory.current", std::to_string(801 * mib) + "\n");  // lowered below what is in use
        CHECK(system.available() == 0);
    }

    TEST_CASE("available_memory: a container that sees its own group as the outermost, of either version") {
        System const system;
        system.write("proc/self/cgroup", "0::/\n");
        system.write("sys/fs/cgroup/memory.max", std::to_string(512 * mib) + "\n");
        system.write("sys/fs/cgroup/memory.current", std::to_string(12 * mib) + "\n");
        CHECK(system.available() == 500 * mib);
        // Version 1 names the group as the machine does, but mounts it alone.
        System const old;
        old.write("proc/self/cgroup", "5:cpu,cpuacct:/docker/a1\n4:memory:/docker/a1\n0::/docker/a1\n");
        std::string const memory = "sys/fs/cgroup/memory/";
        old.write(memory + "memory.limit_in_bytes", std::to_string(256 * mib) + "\n");
        old.write(memory + "memory.usage_in_bytes", std::to_string(100 * mib) + "\n");
        old.write(memory + "memory.stat", "cache 9\ninactive_file 7\ntotal_inactive_file " + std::to_string(30 * mib) +
                                              "\ntotal_active_file " + std::to_string(4 * mib) + "\n");
        CHECK(old.available() == 190 * mib);
        old.write(memory + "memory.limit_in_bytes", "9223372036854771712\n");  // none
        CHECK(old.available() == 2048 * mib);
    }

    TEST_CASE("available_memory: this machine") { CHECK(detail::available_memory() > 0); }
}
