// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/core/detail/own_process.hpp.
#include <reshard/core/detail/own_process.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

TEST_SUITE("core/own_process") {
    TEST_CASE("what a process made is its own, and its children know that, and theirs") {
        reshard::detail::OfProcess const mine;
        CHECK(mine.is_ours());
        CHECK(reshard::detail::own_pid() == getpid());
        pid_t const child = fork();
        if (child == 0) {
            reshard::detail::OfProcess const made_there;
            bool const as_it_is = !mine.is_ours() && made_there.is_ours() && reshard::detail::own_pid() == getpid();
            pid_t const grandchild = fork();
            if (grandchild == 0) _exit(!mine.is_ours() && !made_there.is_ours() ? 0 : 1);
            int status = 1;
            waitpid(grandchild, &status, 0);
            _exit(as_it_is && status == 0 ? 0 : 1);
        }
        REQUIRE(child > 0);
        int status = 1;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        CHECK(mine.is_ours());
    }
}
