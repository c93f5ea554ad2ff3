// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/checkpoint.hpp and detail/checkpoint_load.hpp: simulated trainers save with some ranks
// and load with others; damaged folders are told apart from absent ones.
#include <reshard/mch/checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/mch/row_moves.hpp>
#include <reshard/mch/validate.hpp>

#include <mch/support/saved.hpp>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using checkpoint_test::TempFolder;
namespace torchrec = reshard::test::torchrec;

}  // namespace

TEST_SUITE("mch/checkpoint") {
    TEST_CASE("what any number of ranks saved is loaded by any other number, by position, with its rows") {
        for (Policy policy : {Policy::lfu, Policy::lru, Policy::distance_lfu}) {
            for (auto const& pair : {std::pair<Id, Id>{1, 4}, {4, 1}, {4, 3}, {3, 8}, {8, 8}, {2, 5}}) {
                CAPTURE(static_cast<int>(policy));
                CAPTURE(pair.first);
                CAPTURE(pair.second);
                TempFolder const folder;
                World saved = trained(17, 203, pair.first, policy, torchrec::Kind::any, 0.9);
                save_world(folder.path(), saved);
                World const expected = loaded_by_position(saved, pair.second);
                World loaded = fresh_like(saved, pair.second);
                MchTable const current = table_of(loaded);
                Index live = 0;
                for (std::size_t r = 0; r < loaded.ranks.size(); ++r) {
                    MchCheckpoint files = MchCheckpoint::open(folder.path());
                    CHECK(files.table("user") == table_of(saved));
                    CHECK(files.iteration("user") == saved.ranks[0].iteration[0]);
                    Rows rows(loaded.ranks[r]);
                    Rows const right = rows;
                    rows.clear();
                    MchLoaded const done =
                        files.load("user", current, static_cast<Index>(r), state_of(loaded.ranks[r]), rows.views());
                    CHECK(rows == right);
                    CHECK(done.saved == table_of(saved));
                    live += done.live;
                }
                CHECK(buffers(loaded) == buffers(expected));
                CHECK(live == static_cast<Index>(saved.live().size()));
            }
        }
    }
}
