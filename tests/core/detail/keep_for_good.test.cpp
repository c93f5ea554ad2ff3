// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/core/detail/keep_for_good.hpp.
#include <reshard/core/detail/keep_for_good.hpp>

#include <doctest/doctest.h>

#include "support/allocations.hpp"

#include <sys/resource.h>  // setrlimit
#include <sys/wait.h>      // waitpid
#include <unistd.h>        // fork

#include <csignal>
#include <cstdint>
#include <string>

using namespace reshard;

TEST_CASE("what cannot be kept for a lack of memory ends the program, which says so") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        rlimit const none{0, 0};
        ::setrlimit(RLIMIT_CORE, &none);
        std::signal(SIGABRT, SIG_DFL);  // doctest has a handler of its own
        detail::keep_for_good(1);
        test::allocation_counter().refused_from = 0;
        detail::keep_for_good(2);
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    char buffer[512];
    for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
        said.append(buffer, static_cast<std::size_t>(got));
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
    CHECK(said.starts_with("reshard: out of memory after a failure"));
    CHECK(said.ends_with(".\n"));
}
