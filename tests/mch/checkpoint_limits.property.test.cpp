// SPDX-License-Identifier: Apache-2.0
// Tables of about the sizes from which they are gone through in another way: blocks of entries that are looked at, or
// skipped, together, tiles and streams of the partition, pieces and gaps of what is read.
#include <reshard/mch/checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/mch/detail/checkpoint_route.hpp>
#include <reshard/mch/row_moves.hpp>

#include <mch/support/saved.hpp>
#include <mch/support/scenes.hpp>
#include <support/around.hpp>
#include <support/mch_kernels.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using reshard::test::around;
using reshard::test::fewer_seeds;
using reshard::test::Random;
using reshard::test::seeds;
namespace reference = reshard::test::reference;
namespace torchrec = reshard::test::torchrec;

/// A sorted table whose ids are looked up on the ranks that have them, in slots of any order.
torchrec::World world_of(Random& random, Index slots, Index ranks) {
    using Ids = std::vector<Index>;
    torchrec::World world(slots, ranks, torchrec::Policy::lfu);
    for (Index r = 0; r < ranks; ++r) {
        torchrec::Module& module = world.ranks[static_cast<std::size_t>(r)];
        Index const share = INT64_MAX / ranks;
        Ids ids;
        for (Index i = random.between(0, std::max<Index>(module.z - 1, 0)); i > 0; --i)
            ids.push_back(r * share + random.between(0, share - 2));
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        std::copy(ids.begin(), ids.end(), module.raw.begin());
        auto const live = static_cast<std::ptrdiff_t>(ids.size());
        if (module.z > 1) std::shuffle(module.mapping.begin(), module.mapping.end() - 1, random.engine());
        std::sort(module.mapping.begin() + live, module.mapping.end());
    }
    return world;
}

/// Rows of bytes that tell slots apart.
std::vector<std::uint8_t> row_of(Index slot, Index width) {
    std::vector<std::uint8_t> row(static_cast<std::size_t>(width), static_cast<std::uint8_t>(slot * 37 + 11));
    std::memcpy(row.data(), &slot, std::min<std::size_t>(sizeof slot, row.size()));
    row.back() = static_cast<std::uint8_t>(slot + 5);
    return row;
}
struct WideRows {
    Index width;
    std::vector<std::uint8_t> bytes;
    WideRows(Index rows, Index bytes_each)
        : width(bytes_each), bytes(static_cast<std::size_t>(rows * bytes_each + 1), 0xee) {}
    [[nodiscard]] MchRows view() {
        auto const rows = static_cast<Index>(bytes.size() - 1) / width;
        return {"weights", TensorView<std::uint8_t>(bytes.data(), Shape{rows, width})};
    }
    void set(Index row, Index slot) {
        auto const value = row_of(slot, width);
        std::memcpy(bytes.data() + row * width, value.data(), value.size());
    }
};

void check_rows(std::uint64_t seed, Index slots, Index width, Index from, Index to) {
    CAPTURE(seed);
    CAPTURE(slots);
    CAPTURE(width);
    Random random(seed);
    torchrec::World saved = world_of(random, slots, from);
    MchTable const table = torchrec::table_of(saved);
    checkpoint_test::TempFolder const folder;
    run_on_threads(static_cast<int>(from), [&](ThreadCommunicator& comm) {
        torchrec::Module& module = saved.ranks[static_cast<std::size_t>(comm.rank())];
        WideRows rows(module.z, width);
        for (Index i = 0; i < module.z; ++i) rows.set(i, module.o + i);
        SaveOptions options;
        options.durable = false;
        save(folder.path(), MchTableToSave{table, torchrec::state_of(module), {rows.view()}}, comm, options);
    });
    torchrec::World loaded = torchrec::fresh_like(saved, to);
    MchTable const current = torchrec::table_of(loaded);
    for (Index r = 0; r < to; ++r) {
        torchrec::Module& module = loaded.ranks[static_cast<std::size_t>(r)];
        WideRows rows(module.z, width);
        MchRows const views[] = {rows.view()};
        auto const done = MchCheckpoint::open(folder.path())
                              .load_redistributed("user", current, r, torchrec::state_of(module), views);
        WideRows expected(module.z, width);
        for (Index i = 0; i < module.z; ++i) expected.set(i, module.o + i);
        for (MchRowMove const& move : done.change.moves) expected.set(move.to - module.o, move.from);
        CHECK((rows.bytes == expected.bytes));
    }
}

}  // namespace

TEST_SUITE("mch/checkpoint_limits") {
    TEST_CASE("redistribute() equals the oracle: shards of about the blocks that are looked at together, any threads") {
        for (std::uint64_t seed : seeds(12)) {
            Random random(seed * 104729);
            reference::Setup setup;
            setup.from = random.between(1, 4);
            setup.to = random.between(1, 4);
            Index const limit = random.pick(std::vector<Index>{2, 64, 64, 128, 256, 512, 512, 1024, 4096});
            setup.slots = around(random, limit) * (random.chance(50) ? setup.from : setup.to);
            setup.fill = static_cast<reference::Fill>(random.between(2, 4));
            setup.kind = static_cast<reference::IdKind>(random.between(0, 2));
            setup.columns = static_cast<int>(random.between(0, 3));
            setup.one_destination = random.chance(20);
            setup.plain = random.chance(70);
            auto const mode = static_cast<reference::Mode>(random.between(0, 2));
            int const threads = static_cast<int>(random.between(1, 5));
            CAPTURE(seed);
            CAPTURE(threads);
            INFO(reference::to_string(setup));
            reference::Scene const scene = reference::draw_scene(setup, random);
            auto const expected = reference::redistribute(scene.table, scene.loaded, mode);
            CHECK(reference::difference(scene.table, reference::run_library(scene, mode, true, threads), expected) ==
                  "");
        }
    }

    TEST_CASE("a partition equals the oracle: about as many streams, columns and entries as each way takes") {
        for (std::uint64_t seed : seeds(16)) {
            CAPTURE(seed);
            Random random(seed);
            Index const columns = random.pick(std::vector<Index>{1, 7, 8, 9});
            Index const world = std::max<Index>(detail::most_streams / columns + random.between(-1, 1), 1);
            std::vector<Index> widths(static_cast<std::size_t>(columns), 8);
            if (random.chance(30)) widths[0] = random.pick(std::vector<Index>{1, 3, 4, 12, 16});
            int const parts = static_cast<int>(random.between(1, 3));
            Index const limit = random.pick(std::vector<Index>{4, 64, detail::tile_entries / 8, detail::tile_entries});
            Index const entries = around(random, limit) * (limit < 1000 ? parts : 1) + random.between(-1, 1);
            CAPTURE(columns);
            CAPTURE(world);
            CAPTURE(entries);
            CAPTURE(parts);
            auto given = test::random_partition(random, entries, world, widths,
                                                random.chance(50) ? test::Skew::even : test::Skew::few);
            given.parts = parts;
            CHECK((test::HostKernels::partition(given) == test::partition_oracle(given)));
        }
    }

    TEST_CASE("a partition equals the oracle: for as many destinations as there may be") {
        Random random(seeds(1)[0]);
        for (Index const world : {Partition::max_destinations - 1, Partition::max_destinations}) {
            auto given = test::random_partition(random, 25, world, {8, 3}, test::Skew::even);
            given.destinations[7] = world - 1;
            given.destinations[8] = world;
            CHECK((test::HostKernels::partition(given) == test::partition_oracle(given)));
        }
    }

    TEST_CASE("a partition equals the oracle: as many bytes as are written past the caches") {
        constexpr Index columns = 16;
        constexpr Index entries = detail::streaming_partition_bytes / (8 * columns);
        Random random(seeds(1)[0]);
        auto given = test::random_partition(random, entries, 2, {8}, test::Skew::even);
        for (Index& to : given.destinations) to = to == 1 ? 1 : 0;  // none is dropped
        given.widths.assign(columns, 8);
        for (Index c = 1; c < columns; ++c) {
            test::Bytes other = given.columns[0];
            std::rotate(other.begin(), other.begin() + 9 * c, other.end());
            given.columns.push_back(std::move(other));
        }
        given.parts = 3;
        auto const is = test::HostKernels::partition(given);
        CHECK(static_cast<Index>(is.packed.size()) == detail::streaming_partition_bytes);
        CHECK((is == test::partition_oracle(given)));
    }

    TEST_CASE("rows go with their ids: as wide as the gaps and the reads that are made of neighbours") {
        std::uint64_t seed = seeds(1)[0];
        constexpr Index gap = Index{64} << 10;
        constexpr Index read = Index{8} << 20;
        for (Index const width : {Index{1}, Index{24}, gap / 2, gap - 1, gap, gap + 1, read / 4 + 1, read + 1}) {
            ++seed;
            Random random(seed);
            Index const most = width < 1000 ? 3000 : std::min<Index>(4 * read / width + 3, 140);
            Index const from = random.between(1, 3);
            check_rows(seed, most, width, from, from + random.between(0, 1));
        }
    }

    TEST_CASE("tables of no slot, one, or fewer than ranks") {
        std::uint64_t seed = seeds(1)[0];
        for (Index const slots : {0, 1, 2, 5}) {
            for (Index const from : {1, 3})
                for (Index const to : {1, 2, 4}) check_rows(++seed, slots, 3, from, to);
        }
    }

    TEST_CASE("shards of a piece, and of an entry more or less, are read to the end") {
        constexpr Index piece = detail::MchPicker::piece_entries;
        std::uint64_t seed = seeds(1)[0];
        for (Index const entries : {piece, piece + 1}) {
            if (fewer_seeds() && entries != piece) continue;
            check_rows(++seed, entries, 1, 1, 2);
        }
    }
}
