// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/checkpoint_sums.hpp: what a saved folder says of its own bytes, run by run and bit
// by bit.
#include <reshard/mch/detail/checkpoint_sums.hpp>

#include <reshard/checkpoint/safetensors_writer.hpp>

#include <doctest/doctest.h>

#include <mch/support/saved.hpp>

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

TEST_SUITE("mch/checkpoint_sums") {
    TEST_CASE("every bit of a saved folder: with it flipped, the folder is refused or loads the same") {
        TempFolder const folder;
        World saved = trained(3, 8, 2, Policy::lfu, torchrec::Kind::any, 0.6);
        save_world(folder.path(), saved, {0xabc});
        Everything const right = load_all(folder.path(), saved);
        Index flips = 0;
        Index refused = 0;
        for (std::string const& leaf : folder.leaves()) {
            CAPTURE(leaf);
            std::string const path = folder / leaf;
            std::string const good = read_text(path);
            std::string bad = good;
            for (std::size_t bit = 0; bit < 8 * good.size(); bit += reshard::test::step()) {
                auto const at = bit / 8;
                bad[at] = static_cast<char>(static_cast<unsigned char>(good[at]) ^ (1U << (bit % 8)));
                write_text(path, bad);
                bad[at] = good[at];
                ++flips;
                bool same = false;
                auto const error = checkpoint_test::caught([&] { same = load_all(folder.path(), saved) == right; });
                bool const told = error.code == ErrorCode::format || error.code == ErrorCode::io;
                refused += told ? 1 : 0;
                if (same || (told && contains(error.message, "Fix: "))) continue;
                CAPTURE(bit);
                CAPTURE(error.message);
                FAIL_CHECK("neither refused nor the same");
            }
            write_text(path, good);
        }
        CHECK(flips > reshard::test::of_seeds(20000));
        CHECK(refused >= flips - 2 * 8 * 8);  // what both files say to others: {"format": "pt"}
        CHECK(load_all(folder.path(), saved) == right);
    }

    TEST_CASE("runs of 64 KiB: any part of a tensor is read, the runs it touches are compared, others are not") {
        constexpr Index run = detail::mch_run_bytes;
        CHECK(detail::sum_text(checkpoint_test::as_bytes("123456789")) == "e3069283");
        CHECK(detail::sums_text({}).empty());
        TempFolder const folder;
        std::string const path = folder / "some.safetensors";
        for (Index const bytes : {Index{5}, run, 3 * run, 3 * run + 1000}) {
            CAPTURE(bytes);
            std::vector<std::byte> data(static_cast<std::size_t>(bytes));
            for (Index i = 0; i < bytes; ++i)
                data[static_cast<std::size_t>(i)] = checkpoint_test::expected_byte("t", i);
            auto const write = [&](std::string const& sums) {
                write_safetensors(path, {{"t", DType::u8, Shape{bytes}}},
                                  [&](TensorInfo const&, Index begin, std::span<std::byte> out) {
                                      std::copy_n(data.begin() + begin, out.size(), out.begin());
                                  },
                                  {{detail::sums_key("t"), sums}});
                return SafetensorsFile::open(path);
            };
            std::string const sums = detail::sums_text(data);
            SafetensorsFile const good = write(sums);
            auto const read = [&](SafetensorsFile const& file, Index begin, Index end) {
                std::vector<std::byte> part(static_cast<std::size_t>(end - begin));
                Index const count = detail::MchSums(file, file.at("t")).read(begin, end, part.data());
                CHECK(std::equal(part.begin(), part.end(), data.begin() + begin));
                return count;
            };
            Index const middle = bytes / 2;
            for (Index begin : {Index{0}, Index{1}, middle, smaller(run, bytes), bytes - 1, bytes}) {
                for (Index end : {begin, smaller(begin + 1, bytes), larger(begin, middle),
                                  larger(begin, bytes / run * run), larger(begin, bytes - 1), bytes}) {
                    Index const first = begin / run * run;
                    Index const last = smaller(ceil_div(end, run) * run, bytes);
                    CHECK(read(good, begin, end) == (begin == end ? 0 : last - first));
                }
            }
            data[static_cast<std::size_t>(bytes - 1)] ^= std::byte{16};
            SafetensorsFile const bad = write(sums);
            if (bytes > run) CHECK(read(bad, 1, 2) == run);
            auto const error = checkpoint_test::caught([&] { static_cast<void>(read(bad, 0, bytes)); });
            CHECK(error.code == ErrorCode::format);
            CHECK(contains(error.message,
                           concat("bytes ", (bytes - 1) / run * run, " to ", bytes, " of tensor 't' have CRC-32C ")));
            CHECK(contains(error.message, "Fix: "));
            SafetensorsFile const less = write(sums.substr(8));
            CHECK(contains(checkpoint_test::caught([&] { detail::MchSums(less, less.at("t")); }).message,
                           "digits of sums for tensor 't', which has "));
        }
    }
}
