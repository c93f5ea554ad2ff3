// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/file.hpp>

#include <doctest/doctest.h>

#include "support.hpp"
#include "support/standard_streams.hpp"

#include <sys/resource.h>

#include <vector>

using namespace checkpoint_test;
using namespace reshard::detail;

TEST_SUITE("checkpoint/file") {
    TEST_CASE("reads fill the buffer or say how far they came") {
        TempFolder const folder;
        write_text(folder / "f", "0123456789");
        Index size = 0;
        auto const file = open_for_reading(folder / "f", size);
        CHECK(size == 10);
        std::vector<std::byte> out(4);
        read_fully(file, "f", 3, out);
        CHECK(out[0] == std::byte{'3'});
        CHECK(out[3] == std::byte{'6'});
        check_io("f: the file ends at offset 10, 2 bytes early", [&] { read_fully(file, "f", 8, out); });
        check_io("cannot read 4 bytes at offset -1: Invalid argument", [&] { read_fully(file, "f", -1, out); });
    }

    TEST_CASE("a descriptor closes once, with its last owner") {
        TempFolder const folder;
        write_text(folder / "f", "x");
        Index size = 0;
        auto first = open_for_reading(folder / "f", size);
        int const fd = first.get();
        FileDescriptor second = std::move(first);
        CHECK_FALSE(first.is_open());
        CHECK(::fcntl(fd, F_GETFD) >= 0);
        second = FileDescriptor();
        CHECK(::fcntl(fd, F_GETFD) == -1);
    }

    TEST_CASE("an error when a written file is closed is an error") {
        TempFolder const folder;
        FileDescriptor file(::open((folder / "f").c_str(), O_WRONLY | O_CREAT, 0666));
        REQUIRE(::close(file.get()) == 0);  // behind its back
        check_io("f: cannot close it, bytes may be lost: Bad file descriptor", [&] { file.close_written("f"); });
        CHECK_FALSE(file.is_open());
        file.close_written("f");
    }

    TEST_CASE("descriptors do not leak into programs we start") {
        TempFolder const folder;
        write_text(folder / "f", "x");
        Index size = 0;
        auto const file = open_for_reading(folder / "f", size);
        CHECK((::fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
    }

    TEST_CASE("what a program prints to streams that are closed is not written into files") {
        TempFolder const folder;
        {
            reshard::test::WithoutStandardStreams const closed;
            FileDescriptor const file(::open((folder / "f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
            CHECK(file.get() > STDERR_FILENO);
            CHECK((::fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
            write_fully(file, "f", 0, std::as_bytes(std::span("0123", 4)));
            for (int stream : {STDOUT_FILENO, STDERR_FILENO}) CHECK(::write(stream, "word", 4) == -1);
        }
        CHECK(read_text(folder / "f") == "0123");
    }

    TEST_CASE("remedies are of what is wrong: too many open files, too long a name") {
        TempFolder const folder;
        CHECK(contains(fix_of_create(ENAMETOOLONG), "a shorter name"));
        CHECK(fix_of_create(EMFILE) == fix_of_open(EMFILE));
        rlimit old{};
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
        rlimit none = old;
        none.rlim_cur = 0;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
        Caught const listed = caught([&] { static_cast<void>(leaves_of(folder.path())); });
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
        CHECK(contains(listed.message, "cannot list the folder: Too many open files"));
        CHECK(contains(listed.message, "Fix: raise the limit on open files (ulimit -n)."));
        check_io("Fix: check the path", [&] { static_cast<void>(leaves_of(folder / "nothing")); });
    }

    TEST_CASE("paths are taken apart and put together") {
        CHECK(folder_of("a/b") == "a");
        CHECK(folder_of("/a") == "/");
        CHECK(folder_of("a") == ".");
        CHECK(join_path("a", "b") == "a/b");
        CHECK(join_path("a/", "b") == "a/b");
        CHECK(join_path("", "b") == "b");
        TempFolder const folder;
        write_text(folder / "f", "x");
        CHECK(path_kind(folder.path()) == PathKind::folder);
        CHECK(path_kind(folder / "f") == PathKind::file);
        CHECK(path_kind(folder / "g") == PathKind::missing);
        CHECK(path_kind(folder / "f/g") == PathKind::missing);
    }
}
