// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/detail/temporary_file.hpp>

#include <doctest/doctest.h>

#include "../faults_support.hpp"
#include "../support.hpp"

#include <string>
#include <vector>

using namespace checkpoint_test;
using reshard::detail::TemporaryFile;

TEST_SUITE("checkpoint/detail/temporary_file") {
    TEST_CASE("the file appears under its name only when published, and replaces what was there") {
        TempFolder const folder;
        write_text(folder / "f", "old");
        {
            TemporaryFile file(folder / "f");
            file.append(as_bytes("ne"));
            file.append(as_bytes("w"));
            CHECK(folder.leaves().size() == 2);
            file.finish();
            file.finish();  // harmless
            CHECK(read_text(folder / "f") == "old");
            file.publish();
            CHECK(read_text(folder / "f") == "new");
        }
        CHECK(folder.leaves() == std::vector<std::string>{"f"});
        CHECK(read_text(folder / "f") == "new");
    }

    TEST_CASE("what is not published goes away, once, with its last owner") {
        TempFolder const folder;
        {
            TemporaryFile first(folder / "f");
            TemporaryFile second = std::move(first);
            TemporaryFile third(folder / "f");
            CHECK(folder.leaves().size() == 2);
            third = std::move(second);
            CHECK(folder.leaves().size() == 1);
            third.append(as_bytes("x"));
        }
        CHECK(folder.leaves().empty());
    }

    TEST_CASE("what cannot be made or renamed says what helps") {
        TempFolder const folder;
        auto const create = [&](int error) {
            Caught refused;
            while_one_fails("open", error, [&] { refused = caught([&] { TemporaryFile const file(folder / "f"); }); });
            return refused.message;
        };
        for (int const full : {ENOSPC, EDQUOT}) CHECK(contains(create(full), "Fix: free space, or remove files"));
        CHECK(contains(reshard::detail::fix_of_write(ENOSPC), "free space"));
        CHECK(contains(reshard::detail::fix_of_write(EIO), "the disk, or its server"));
        CHECK(contains(create(EMFILE), "Fix: raise the limit on open files"));
        CHECK(contains(create(EACCES), "Fix: check that the folder exists and is writable."));
        TemporaryFile lost(folder / "f");
        lost.finish();
        std::filesystem::remove(lost.temporary_path());
        check_io("No such file or directory (errno 2). Fix: write again, and let nobody remove files",
                 [&] { lost.publish(); });
        std::filesystem::create_directories(folder / "g/inner");
        TemporaryFile blocked(folder / "g");
        blocked.finish();
        check_io("Fix: check what is in the way.", [&] { blocked.publish(); });
    }

    TEST_CASE("a name without a folder lies in the working folder") {
        TempFolder const folder;
        auto const before = std::filesystem::current_path();
        std::filesystem::current_path(folder.path());
        {
            TemporaryFile file("f");
            file.finish();
            file.publish();
        }
        reshard::detail::sync_folder(reshard::detail::folder_of("f"));
        std::filesystem::current_path(before);
        CHECK(folder.leaves() == std::vector<std::string>{"f"});
        check_io("absent", [&] { reshard::detail::sync_folder(folder / "absent"); });
    }
}
