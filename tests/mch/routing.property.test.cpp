// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/routing.hpp: every answer against the rule written down in 128-bit arithmetic.
#include <reshard/mch/routing.hpp>

#include <doctest/doctest.h>

#include <support/random.hpp>

#include <algorithm>
#include <vector>

namespace {
using namespace reshard;

__extension__ using Wide = unsigned __int128;

/// Numbers at every scale, and the edges of 64 bits.
std::uint64_t any_number(test::Random& random) {
    std::uint64_t const bits = random.engine()();
    switch (random.between(0, 5)) {
        case 0: return bits;
        case 1: return bits >> random.between(0, 63);
        case 2: return std::uint64_t{1} << random.between(0, 63);
        case 3: return (std::uint64_t{1} << random.between(0, 63)) - 1;
        case 4: return UINT64_MAX - (bits >> random.between(1, 63));
        default: return (std::uint64_t{1} << 63) + (bits >> random.between(1, 63));
    }
}

TEST_CASE("a divider divides, whatever the numbers") {
    for (std::uint64_t seed : test::seeds(2000)) {
        test::Random random(seed);
        std::uint64_t const d = std::max<std::uint64_t>(any_number(random), 1);
        detail::Divider const divide(d);
        for (int i = 0; i < 20; ++i) {
            std::uint64_t v = any_number(random);
            if (random.chance(40)) v = v / d * d - (random.chance(50) ? 1 : 0);  // where quotients change
            CAPTURE(seed);
            CAPTURE(d);
            CAPTURE(v);
            CHECK(divide(v) == v / d);
            auto const small = static_cast<std::uint32_t>(v);  // in 32 bits, where the divisor has as many
            if (d <= UINT32_MAX) CHECK(divide(small) == small / static_cast<std::uint32_t>(d));
        }
    }
}

std::int32_t id_oracle(Index raw, Index hash_size, Index buckets, Index parts) {
    Wide const id = static_cast<std::uint64_t>(raw);
    Wide const nb = static_cast<Wide>(buckets);
    Wide const block = (static_cast<Wide>(hash_size) + nb - 1) / nb;
    Wide const local = nb / static_cast<Wide>(parts);
    return static_cast<std::int32_t>(id < block * nb ? id / (block * local) : id % nb / local);
}

TEST_CASE("the part of an id is that of the rule in 128-bit arithmetic") {
    for (std::uint64_t seed : test::seeds(2000)) {
        test::Random random(seed);
        Index const parts = random.pick(std::vector<Index>{1, 2, 3, 4, 5, 6, 7, 8, 12, 255, 256, 1024});
        Index const buckets = parts * random.pick(std::vector<Index>{1, 1, 2, 3, 768});
        auto hash_size = static_cast<Index>(std::max<std::uint64_t>(any_number(random) >> 1, 1));
        if (random.chance(30)) hash_size = INT64_MAX;
        Router const router(mch_slots(Mesh{parts}, 2 * parts), hash_size, buckets);
        for (int i = 0; i < 20; ++i) {
            auto raw = static_cast<Index>(any_number(random));
            if (random.chance(30)) {  // where one part ends
                auto const block = static_cast<std::uint64_t>(detail::ceil_div(hash_size, buckets));
                std::uint64_t const edge = block * static_cast<std::uint64_t>(random.between(0, buckets));
                raw = static_cast<Index>(edge - static_cast<std::uint64_t>(random.between(0, 1)));
            }
            CAPTURE(seed);
            CAPTURE(parts);
            CAPTURE(buckets);
            CAPTURE(hash_size);
            CAPTURE(raw);
            CHECK(router.part_of_id(raw) == id_oracle(raw, hash_size, buckets, parts));
            CHECK(router.bucket_of_id(raw) == id_oracle(raw, hash_size, buckets, buckets));
            for (Index part : {Index{router.part_of_id(raw)}, random.between(0, parts - 1)}) {
                auto const p = static_cast<std::int32_t>(part);
                CHECK(router.looks_up(p, router.slots_of(p), raw) == (p == router.part_of_id(raw)));
            }
            // Of all ids from one to another: the part of any between them, or nothing.
            auto const other = static_cast<Index>(static_cast<std::uint64_t>(raw) + (any_number(random) >> 3) / 2);
            std::int32_t const all = router.part_of_ids(raw, other);
            auto const low = static_cast<std::uint64_t>(raw);
            auto const high = static_cast<std::uint64_t>(other);
            if (low > high) CHECK(all == -1);
            for (std::uint64_t step = 0; all >= 0 && step <= 8; ++step) {
                auto const between = static_cast<Index>(low + (high - low) / 8 * step);
                CHECK(all == id_oracle(between, hash_size, buckets, parts));
            }
            CHECK(router.part_of_ids(raw, raw) ==
                  (Wide{low} < Wide{static_cast<std::uint64_t>(detail::ceil_div(hash_size, buckets))} *
                                   static_cast<Wide>(static_cast<std::uint64_t>(buckets))
                       ? router.part_of_id(raw)
                       : -1));
        }
    }
}

TEST_CASE("the part of a slot is the one whose range holds it") {
    for (std::uint64_t seed : test::seeds(1000)) {
        test::Random random(seed);
        Index const parts = random.between(1, 12);
        Index const size = random.chance(20) ? INT64_MAX - random.between(0, 40) : random.between(1, 60);
        std::vector<Index> offsets{0, size};
        while (static_cast<Index>(offsets.size()) < parts + 1) offsets.push_back(random.between(0, size));
        std::sort(offsets.begin(), offsets.end());
        DynamicMesh const mesh = Mesh{parts};
        std::vector<DynamicDistribution> all{
            mch_slots(mesh, size), mch_slots(mesh, IndexList(offsets.data(), parts + 1)),
            DynamicDistribution(mesh, DynamicShape(Indices{size}),
                                Placements{Placement::shard(0, {SplitKind::balanced, 0, {}})})};
        MchTable const chunked = mch_table("", mesh, size, MchEviction::none);
        std::vector<Index> const chunks = chunked.offsets();
        all.push_back(mch_slots(mesh, IndexList(chunks.data(), parts + 1)));
        for (DynamicDistribution const& slots : all) {
            MchTable const table = chunked.on(slots);
            Router const router(table);
            for (int i = 0; i < 20; ++i) {
                Index slot = random.between(0, size - 1);
                if (random.chance(50)) {
                    slot = table.part_range(random.between(0, parts - 1)).begin - random.between(0, 1);
                    slot = std::clamp<Index>(slot, 0, size - 1);
                }
                std::int32_t const part = router.part_of_slot(slot);
                CAPTURE(seed);
                CAPTURE(to_string(slots));
                CAPTURE(slot);
                REQUIRE(part >= 0);
                REQUIRE(part < parts);
                CHECK(table.part_range(part).contains(slot));
                for (std::int32_t p = 0; p < parts; ++p) CHECK(router.slots_of(p).has(slot) == (p == part));
                CHECK(!router.slots_of(part).has(-1 - slot));
            }
        }
    }
}

TEST_CASE("even buckets are owned by who owns their slots") {
    for (std::uint64_t seed : test::seeds(300)) {
        test::Random random(seed);
        Index const parts = random.between(1, 9);
        Index const buckets = parts * random.between(1, 5);
        MchTable table = mch_table("", Mesh{parts}, buckets * random.between(1, 7), MchEviction::none);
        table.buckets = buckets;
        table.hash_size = random.between(1, 1000);
        Router const counted(table);
        table.layout = MchLayout::buckets;
        Router const owned(table);
        for (int i = 0; i < 20; ++i) {
            auto const raw = static_cast<Index>(any_number(random));
            CAPTURE(seed);
            CAPTURE(raw);
            CHECK(owned.part_of_id(raw) == counted.part_of_id(raw));
            for (std::int32_t p = 0; p < parts; ++p) {
                CHECK(owned.looks_up(p, owned.slots_of(p), raw) == (p == owned.part_of_id(raw)));
            }
        }
    }
}

}  // namespace
