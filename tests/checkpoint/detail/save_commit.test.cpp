// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/detail/save_commit.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "../../support/thrown.hpp"
#include "../faults_support.hpp"
#include "../support.hpp"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace checkpoint_test;
using reshard::detail::SaveCommit;
using reshard::detail::SaveNames;

namespace {

SaveNames names() {
    return {manifest_name, [](std::string const&) { return std::vector<std::string>(); },
            [](std::string_view leaf) { return leaf.starts_with("data"); }, [](std::string_view) { return false; }};
}
auto const new_text = [](auto const& take) { take("new"); };

}  // namespace

TEST_SUITE("checkpoint/commit") {
    TEST_CASE("a rank that comes too late says what it had to say all the same") {
        TempFolder const folder;
        ThreadOptions options;
        options.deadline = std::chrono::milliseconds(100);
        std::atomic<bool> given_up = false;
        auto const thrown = test::thrown_by(
            2,
            [&](ThreadCommunicator& comm) {
                SaveCommit commit(folder / "here", comm, names(), false);
                try {
                    commit.agree([&] {
                        if (comm.rank() == 1) return;
                        while (!given_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        errors::raise(ErrorCode::io, "no space left. Fix: make room.");
                    });
                } catch (...) {
                    given_up = true;
                    throw;
                }
            },
            options);
        CHECK(thrown[0].code == ErrorCode::peer_failed);
        CHECK(thrown[0].message.find("(This rank's own error: no space left. Fix: make room.)") != std::string::npos);
        CHECK(thrown[1].code == ErrorCode::deadline);
    }

    TEST_CASE("an agreement that breaks down says what the folder may hold by then, as far as the rank knows") {
        constexpr std::string_view complete = "(The save is complete: the folder holds it.)";
        constexpr std::string_view unknown = "(The folder holds this save, or what it held before.)";
        enum Step { publish, write, rename, tidy };
        for (Step const last : {publish, write, rename, tidy}) {
            CAPTURE(last);
            TempFolder const folder;
            write_text(folder / "reshard.manifest.json", "old");
            auto const thrown = test::thrown_by(3, [&](ThreadCommunicator& comm) {
                SaveCommit commit(folder.path(), comm, names());
                commit.agree([&] { commit.claim(); });
                auto const step = [&](Step one, auto const& work) {
                    commit.agree([&] {
                        work();
                        if (one == last && comm.rank() == 1) comm.abort(ErrorCode::user, "no more");
                    });
                };
                step(publish, [] {});
                if (last != publish) commit.expect_index();
                step(write, [&] { commit.write_index_in_pieces(new_text); });
                step(rename, [&] { commit.rename_index(); });
                step(tidy, [&] { commit.tidy({}); });
            });
            for (std::size_t rank = 0; rank < 3; ++rank) {
                CAPTURE(rank);
                CAPTURE(thrown[rank].message);
                CHECK(thrown[rank].code != ErrorCode::none);
                bool const knows = last == tidy || (last == rename && rank == 0);
                bool const guesses = !knows && last != publish && rank != 0;
                CHECK(contains(thrown[rank].message, complete) == knows);
                CHECK(contains(thrown[rank].message, unknown) == guesses);
            }
            CHECK(read_text(folder / "reshard.manifest.json") == (last < rename ? "old" : "new"));
        }
    }

    TEST_CASE("a rank that says that it has failed leaves no doubt: its words are all that ranks are told") {
        TempFolder const folder;
        auto const thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {
            SaveCommit commit(folder.path(), comm, names(), false);
            commit.expect_index();
            commit.agree([&] {
                if (comm.rank() == 0) errors::raise(ErrorCode::io, "no space left. Fix: make room.");
            });
        });
        for (auto const& each : thrown) CHECK(each.message == "rank 0 of 2: no space left. Fix: make room.");
    }

    TEST_CASE("what goes wrong after the new index has its name says that the save is complete") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "here");
        SelfCommunicator alone;
        SaveCommit commit(folder / "here", alone, names(), false);
        commit.claim();
        commit.write_index_in_pieces(new_text);
        commit.rename_index();
        CHECK(read_text(folder / "here/reshard.manifest.json") == "new");
        std::filesystem::rename(folder / "here", folder / "there");
        check_io("here: the new save is complete, but what others left cannot be listed: No such file",
                 [&] { commit.tidy({}); });
    }

    TEST_CASE("a folder that cannot be synced once the new index has its name holds the new save") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "here");
        SelfCommunicator alone;
        SaveCommit commit(folder / "here", alone, names());
        commit.claim();
        commit.write_index_in_pieces(new_text);
        while_one_fails("fsync", EIO, [&] {
            check_io(
                "here: the new save is complete and is what loads read, but a power cut may undo that: cannot sync the "
                "folder: Input/output error",
                [&] { commit.rename_index(); });
        });
        CHECK(read_text(folder / "here/reshard.manifest.json") == "new");
    }

    TEST_CASE("an index is written piece by piece, and goes again where one cannot be made") {
        TempFolder const folder;
        SelfCommunicator alone;
        {
            SaveCommit commit(folder.path(), alone, names(), false);
            commit.claim();
            commit.write_index_in_pieces([](auto const& take) {
                take("first, ");
                take("second");
            });
            commit.rename_index();
            commit.tidy({});
        }
        CHECK(read_text(folder / "reshard.manifest.json") == "first, second");
        auto const before = folder.leaves();
        {
            SaveCommit commit(folder.path(), alone, names(), false);
            commit.claim();
            Caught const error = caught([&] {
                commit.write_index_in_pieces([](auto const& take) {
                    take("third");
                    errors::raise(ErrorCode::format, "no more");
                });
            });
            CHECK(error.code == ErrorCode::format);
        }
        CHECK(folder.leaves() == before);
        CHECK(read_text(folder / "reshard.manifest.json") == "first, second");
    }

    TEST_CASE("an index that cannot be looked at is not one that another save has put there") {
        TempFolder const folder;
        SelfCommunicator alone;
        write_text(folder / "reshard.manifest.json", "old");
        SaveCommit commit(folder.path(), alone, names(), false);
        commit.claim();
        commit.write_index_in_pieces(new_text);
        std::filesystem::remove(folder / "reshard.manifest.json");
        std::filesystem::create_symlink("reshard.manifest.json", folder / "reshard.manifest.json");  // to itself
        check_io("reshard.manifest.json: cannot stat: Too many levels of symbolic links",
                 [&] { commit.rename_index(); });
        std::filesystem::remove(folder / "reshard.manifest.json");
        write_text(folder / "reshard.manifest.json", "another");
        check_io("reshard.manifest.json: another save has replaced it", [&] { commit.rename_index(); });
        CHECK(read_text(folder / "reshard.manifest.json") == "another");
    }

    TEST_CASE("a folder in place of the index is refused before anything has its name") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "reshard.manifest.json");
        SelfCommunicator alone;
        SaveCommit commit(folder.path(), alone, names(), false);
        commit.claim();
        check_io("reshard.manifest.json: cannot rename the new one to it: Is a directory",
                 [&] { commit.write_index_in_pieces(new_text); });
    }
}
