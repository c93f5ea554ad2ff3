// SPDX-License-Identifier: Apache-2.0
// A manifest that is larger than readers take: over a gigabyte of memory.
#include <reshard/checkpoint/save.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include <atomic>
#include <string>
#include <vector>

#include "../support/thrown.hpp"
#include "save_support.hpp"

using namespace reshard;
using namespace checkpoint_test;

TEST_SUITE("checkpoint/save large") {
    TEST_CASE("a manifest that readers would find too long is not written: the same error on all, the old save stays") {
        TempFolder const folder;
        std::vector<PlacedTensor> const model{source("w", DType::f32, "(2):(S0)", Shape{10, 3})};
        SaveOptions options;
        std::atomic<int> pieces{0};
        options.progress = [&](Index, Index) { ++pieces; };
        auto const save_version = [&](int version) {
            return test::thrown_by(2, [&](ThreadCommunicator& comm) {
                Trained mine(model, comm.rank(), version);
                save(folder.path(), mine.list(), comm, options);
            });
        };
        CHECK(save_version(1)[0].code == ErrorCode::none);
        auto const before = folder.leaves();
        int const written = pieces;
        CHECK(written > 0);
        // Six characters in the manifest for each of these.
        options.metadata = {{"note", std::string(static_cast<std::size_t>(max_manifest_bytes / 6), '\1')}};
        test::check_same(save_version(2), ErrorCode::format,
                         {"rank 0 of 2: ", "the manifest of 2 boxes takes 500",
                          "more than the 500000000 that readers take. Fix: save fewer"});
        CHECK(pieces == written);  // it is known before
        CHECK(folder.leaves() == before);
        CHECK(damage(folder.path()) == "");
        CHECK(holds_version(folder.path(), model, 1));
    }
}
