// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/checkpoint_files.hpp: what a saved folder says of its own bytes, bit by bit.
#include <reshard/mch/detail/checkpoint_files.hpp>

#include <doctest/doctest.h>

#include <mch/support/saved_old.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "support/random.hpp"

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
namespace torchrec = reshard::test::torchrec;
using checkpoint_test::contains;
using checkpoint_test::read_text;
using checkpoint_test::TempFolder;
using checkpoint_test::write_text;

/// All that one rank has of a folder once it has loaded it by position, and three that read what is theirs.
struct Everything {
    std::vector<std::vector<Ids>> states;
    std::vector<Rows> rows;
    std::vector<std::vector<MchRowMove>> moves;
    std::vector<Ids> evicted;
    friend bool operator==(Everything const&, Everything const&) = default;
};
Everything load_all(std::string const& folder, World const& saved) {
    Everything all;
    for (bool const by_position : {true, false}) {
        World loaded = fresh_like(saved, by_position ? 1 : 3);
        MchTable const table = table_of(loaded);
        MchCheckpoint files = MchCheckpoint::open(folder);
        for (std::size_t r = 0; r < loaded.ranks.size(); ++r) {
            Rows rows(loaded.ranks[r]);
            rows.clear();
            MchState const state = state_of(loaded.ranks[r]);
            auto const rank = static_cast<Index>(r);
            if (by_position) {
                files.load("user", table, rank, state, rows.views());
            } else {
                MchChange change = files.load_redistributed("user", table, rank, state, rows.views()).change;
                all.moves.push_back(std::move(change.moves));
                all.evicted.push_back(std::move(change.evicted));
            }
            all.rows.push_back(std::move(rows));
        }
        all.states.push_back(buffers(loaded));
    }
    return all;
}

}  // namespace

TEST_SUITE("mch/checkpoint_files") {
    TEST_CASE(
        "every bit of a saved folder, of today and of an older release: flipped, it is refused or loads the same") {
        std::size_t const step = reshard::test::step() * (reshard::test::fewer_seeds() ? 3 : 1);
        for (bool const old : {false, true}) {
            CAPTURE(old);
            TempFolder const folder;
            World saved = trained(3, 8, 2, Policy::lfu, torchrec::Kind::any, 0.6);
            old ? save_old(folder.path(), saved) : save_world(folder.path(), saved);
            Everything const right = load_all(folder.path(), saved);
            Index flips = 0;
            Index refused = 0;
            for (std::string const& leaf : folder.leaves()) {
                CAPTURE(leaf);
                std::string const path = folder / leaf;
                std::string const good = read_text(path);
                std::string bad = good;
                for (std::size_t bit = 0; bit < 8 * good.size(); bit += step) {
                    auto const at = bit / 8;
                    bad[at] = static_cast<char>(static_cast<unsigned char>(good[at]) ^ (1U << (bit % 8)));
                    write_text(path, bad);
                    bad[at] = good[at];
                    ++flips;
                    bool same = false;
                    auto const error = checkpoint_test::caught([&] { same = load_all(folder.path(), saved) == right; });
                    bool const told = error.code == ErrorCode::format || error.code == ErrorCode::io ||
                                      error.code == ErrorCode::mismatch;
                    refused += told ? 1 : 0;
                    if (same || (told && contains(error.message, "Fix: "))) continue;
                    CAPTURE(bit);
                    CAPTURE(error.message);
                    FAIL_CHECK("neither refused nor the same");
                }
                write_text(path, good);
            }
            CHECK(flips > reshard::test::of_seeds(20000) / (step == 1 ? 1 : 3));
            CHECK(refused >= flips - 2 * 8 * 8);  // what both files say to others: {"format": "pt"}
            CHECK(load_all(folder.path(), saved) == right);
        }
    }
}
