// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/folder_lock.hpp: one holder, also among threads, and no trace of the dead.
#include <reshard/checkpoint/detail/folder_lock.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../faults_support.hpp"
#include "../support.hpp"
#include "support/standard_streams.hpp"

using namespace reshard;
using namespace checkpoint_test;
using detail::FolderLock;

TEST_SUITE("checkpoint/detail/folder_lock") {
    TEST_CASE("a new folder that a writer takes away as it fails is made again by the one that has just found it") {
        TempFolder const folder;
        std::string const path = folder / "new";
        detail::PassingPath first = detail::make_folder(path, false);
        detail::PassingPath second;
        FolderLock lock;
        int turns = 0;
        detail::make_and_lock(path, false, second, [&] {
            if (turns++ == 0) {
                CHECK(second.get().empty());  // it would not take away what it has not made
                first = {};
                CHECK_FALSE(std::filesystem::exists(path));
            }
            lock = FolderLock(path, ".x.lock");
        });
        CHECK(lock.is_held());
        CHECK(turns == 2);
        lock = {};
        second = {};
        CHECK_FALSE(std::filesystem::exists(path));

        CHECK_THROWS_AS(detail::make_and_lock(path, false, second, [] { throw IoError("no"); }), IoError);
        second = {};
        CHECK_FALSE(std::filesystem::exists(path));
    }

    TEST_CASE("is held where standard streams are closed, whose numbers its file does not keep") {
        TempFolder const folder;
        bool held = false;
        bool refused = false;
        {
            reshard::test::WithoutStandardStreams const closed;
            FolderLock const lock(folder.path(), ".x.lock");
            held = lock.is_held();
            try {
                FolderLock const other(folder.path(), ".x.lock");
            } catch (IoError const&) {
                refused = true;
            }
        }
        CHECK(held);
        CHECK(refused);
    }

    TEST_CASE("a second holder is refused, naming the folder, until the first lets go; the file goes with the lock") {
        TempFolder const folder;
        FolderLock first(folder.path(), ".x.lock");
        CHECK(first.is_held());
        CHECK(folder.leaves() == std::vector<std::string>{".x.lock"});
        check_io(folder.path() + ": another save into this folder is under way",
                 [&] { FolderLock(folder.path(), ".x.lock"); });
        FolderLock const other(folder.path(), ".y.lock");
        FolderLock moved = std::move(first);
        CHECK_FALSE(first.is_held());  // NOLINT(bugprone-use-after-move): this is the question
        moved = FolderLock();
        FolderLock again(folder.path(), ".x.lock");
        CHECK(again.is_held());
        again.release();
        CHECK(folder.leaves() == std::vector<std::string>{".y.lock"});
    }

    TEST_CASE("who is refused is told which process holds it, whatever that is about, and how to find it") {
        TempFolder const folder;
        char host[256] = {};
        REQUIRE(::gethostname(host, sizeof host - 1) == 0);
        std::string const me = errors::concat("it holds .x.lock (process ", ::getpid(), " on ", host, "). Fix: wait");
        std::string const remedy = "if its job is over, end that process (`fuser " + folder / ".x.lock";
        auto const refused = [&] { return caught([&] { FolderLock(folder.path(), ".x.lock"); }).message; };
        for (std::string const left :
             {"", "- process 1 on a host of a long name that is dead by now, and more than it\n",
              "-eshard gives names to\n"}) {  // notes that are void
            CAPTURE(left);
            write_text(folder / ".x.lock", left);
            FolderLock lock(folder.path(), ".x.lock");
            CHECK_FALSE(lock.has_inherited());
            CHECK(contains(refused(), me));
            CHECK(contains(refused(), remedy));
            lock.note("what it names", false);
            CHECK(lock.read_note() == "what it names");
            CHECK(contains(refused(), "it holds .x.lock. Fix: wait"));
            CHECK(contains(refused(), remedy));
            lock.note({}, false);
            CHECK(contains(refused(), me));
        }
        CHECK(folder.leaves().empty());
        write_text(folder / ".x.lock", "a note");
        FolderLock const lock(folder.path(), ".x.lock");
        CHECK(lock.has_inherited());
        CHECK(lock.read_note() == "a note");
        CHECK(contains(refused(), "it holds .x.lock. Fix: wait"));
    }

    TEST_CASE("a full disk keeps nobody from holding it") {
        TempFolder const folder;
        std::optional<FolderLock> lock;
        CHECK(while_one_fails("pwrite", ENOSPC, [&] { lock.emplace(folder.path(), ".x.lock"); }) == "pwrite");
        CHECK(lock->is_held());
    }

    TEST_CASE("who asks for a moment whether it is held refuses nobody; who holds it for good does") {
        TempFolder const folder;
        write_text(folder / ".x.lock", "");
        detail::FileDescriptor const reader(::open((folder / ".x.lock").c_str(), O_RDONLY | O_CLOEXEC));
        REQUIRE(::flock(reader.get(), LOCK_SH) == 0);
        check_io(
            folder.path() + ": another save into this folder is under way: it holds .x.lock. Fix: wait for it, or save",
            [&] { FolderLock(folder.path(), ".x.lock"); });
        int tries = 0;
        before_open = [&](std::string_view path) {
            if (path == folder / ".x.lock" && ++tries == 5) static_cast<void>(::flock(reader.get(), LOCK_UN));
        };
        Caught const refused = caught([&] { CHECK(FolderLock(folder.path(), ".x.lock").is_held()); });
        before_open = {};
        CHECK(refused.message == "");
        CHECK(tries == 5);
    }

    TEST_CASE("where the server has no locks to give, now or ever, the file of who may hold one stays") {
        for (bool const for_now : {true, false}) {
            TempFolder const folder;
            write_text(folder / ".x.lock", "");
            bool held = true;
            CHECK(while_one_fails("flock", for_now ? ENOLCK : ENOSYS,
                                  [&] { held = FolderLock(folder.path(), ".x.lock").is_held(); }) == "flock");
            CHECK_FALSE(held);
            CHECK(folder.leaves().size() == (for_now ? 1 : 0));
        }
    }

    TEST_CASE("what a dead process left is taken over") {
        TempFolder const folder;
        pid_t const child = ::fork();
        if (child == 0) {
            FolderLock const lock(folder.path(), ".x.lock");
            ::_exit(lock.is_held() ? 0 : 1);  // no destructor runs
        }
        int status = -1;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        CHECK(folder.leaves() == std::vector<std::string>{".x.lock"});
        FolderLock lock(folder.path(), ".x.lock");
        CHECK(lock.is_held());
        lock.release();
        CHECK(folder.leaves().empty());
    }

    TEST_CASE("a child that was forked meanwhile does not keep the lock") {
        TempFolder const folder;
        FolderLock lock(folder.path(), ".x.lock");
        int wake[2];
        REQUIRE(::pipe(wake) == 0);
        pid_t const child = ::fork();
        if (child == 0) {
            char byte = 0;
            static_cast<void>(::close(wake[1]));
            static_cast<void>(!::read(wake[0], &byte, 1));  // until the parent has closed it
            ::_exit(0);
        }
        lock.release();
        CHECK(FolderLock(folder.path(), ".x.lock").is_held());
        ::close(wake[0]);
        ::close(wake[1]);
        CHECK(::waitpid(child, nullptr, 0) == child);
    }

    TEST_CASE("among many threads there is one holder at any time") {
        TempFolder const folder;
        std::atomic<int> holders{0};
        std::atomic<int> held{0};
        std::atomic<bool> twice{false};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                for (int i = 0; i < 300; ++i) {
                    try {
                        FolderLock const lock(folder.path(), ".x.lock");
                        if (holders.fetch_add(1) != 0) twice = true;
                        ++held;
                        holders.fetch_sub(1);
                    } catch (IoError const&) {
                    }
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK_FALSE(twice);
        CHECK(held > 0);
        CHECK(folder.leaves().empty());
    }

    TEST_CASE("a file that another user has left is said to be that user's; a folder that refuses is a folder") {
        TempFolder const folder;
        for (bool const is_there : {false, true}) {
            if (is_there) write_text(folder / ".x.lock", "");
            for (int const error : {EACCES, EPERM}) {
                Caught refused;
                while_one_fails("open", error,
                                [&] { refused = caught([&] { FolderLock(folder.path(), ".x.lock"); }); });
                CAPTURE(refused.message);
                CHECK(refused.code == ErrorCode::io);
                std::string const owner =
                    errors::concat("cannot open .x.lock, which belongs to user ", ::getuid(), " (uid)");
                CHECK(contains(refused.message, is_there ? owner : "cannot create .x.lock"));
                CHECK(contains(refused.message, is_there ? "remove the file, or save to another" : "is writable"));
            }
        }
    }

    TEST_CASE("a note that cannot be made durable says what helps, as writes do") {
        TempFolder const folder;
        for (int const error : {EIO, ENOSPC}) {
            FolderLock lock(folder.path(), ".x.lock");
            Caught refused;
            while_one_fails("fdatasync", error, [&] { refused = caught([&] { lock.note("text", true); }); });
            CHECK(contains(refused.message, detail::fix_of_write(error)));
        }
    }

    TEST_CASE("a folder that cannot hold it is named") {
        TempFolder const folder;
        check_io(folder / "none" + ": cannot create .x.lock", [&] { FolderLock(folder / "none", ".x.lock"); });
        write_text(folder / "file", "text");
        check_io("file: cannot create .x.lock", [&] { FolderLock(folder / "file", ".x.lock"); });
    }
}
