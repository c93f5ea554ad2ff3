// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/routing.hpp.
#include <reshard/mch/routing.hpp>

#include <doctest/doctest.h>

#include <array>
#include <type_traits>
#include <vector>

namespace {
using namespace reshard;

constexpr Router router(Index parts, Index hash_size = INT64_MAX) {
    return Router(mch_slots(Mesh{parts}, 1000), hash_size, parts);
}

TEST_CASE("ids are unsigned: negative ones are beyond the last block or in it") {
    constexpr std::array<Index, 6> ids{0, Index{1} << 62, INT64_MAX - 1, -1, INT64_MIN, -7};
    constexpr std::array<std::int32_t, 6> of_3{0, 1, 2, 0, 2, 0};  // 3 blocks reach 2^63 + 1, beyond a signed integer
    constexpr std::array<std::int32_t, 6> of_4{0, 2, 3, 3, 0, 1};
    for (std::size_t i = 0; i < ids.size(); ++i) {
        CAPTURE(ids[i]);
        CHECK(router(3).part_of_id(ids[i]) == of_3[i]);
        CHECK(router(4).part_of_id(ids[i]) == of_4[i]);
        CHECK(router(1).part_of_id(ids[i]) == 0);
    }
    CHECK(router(5).part_of_id(INT64_MIN) == 4);          // 5 blocks reach 2^63 + 2; by remainder it would be 3
    static_assert(router(3).part_of_id(INT64_MIN) == 2);  // a constant, where the arguments are
    static_assert(std::is_trivially_copyable_v<Router>);
}

TEST_CASE("small ids all go to the first part of a large hash size") {
    for (Index parts = 1; parts <= 8; ++parts) CHECK(router(parts).part_of_id((Index{1} << 60) - 1) == 0);
}

TEST_CASE("ids beyond the hash size are dealt out by their remainder") {
    Router const r = router(3, 10);  // blocks of 4: 12 ids are counted off
    CHECK(r.part_of_id(11) == 2);
    CHECK(r.part_of_id(12) == 0);
    CHECK(r.part_of_id(13) == 1);
    CHECK(r.part_of_id(10) == 2);
}

TEST_CASE("parts own whole buckets") {
    Router const r(mch_slots(Mesh{4}, 96), 100, 12);  // blocks of 9, 3 buckets a part: 108 ids are counted off
    CHECK(r.bucket_of_id(26) == 2);
    CHECK(r.part_of_id(26) == 0);
    CHECK(r.part_of_id(27) == 1);
    CHECK(r.bucket_of_id(107) == 11);
    CHECK(r.bucket_of_id(108) == 0);  // 108 mod 12
    CHECK(r.bucket_of_id(119) == 11);
    CHECK(r.part_of_id(119) == 3);
    CHECK(r.part_of_id(114) == 2);

    Router const all_dealt(mch_slots(Mesh{4}, 96), 0, 12);  // no hash size: what 1 is as well
    Router const one(mch_slots(Mesh{4}, 96), 1, 12);
    for (Index id : {Index{0}, Index{11}, Index{12}, Index{119}, INT64_MAX, Index{-1}, INT64_MIN}) {
        CAPTURE(id);
        CHECK(all_dealt.bucket_of_id(id) == static_cast<Index>(static_cast<std::uint64_t>(id) % 12));
        CHECK(one.bucket_of_id(id) == all_dealt.bucket_of_id(id));
        CHECK(one.part_of_id(id) == all_dealt.part_of_id(id));
    }

    MchTable table = mch_table("item", Mesh{3}, 96, MchEviction::none);
    table.layout = MchLayout::buckets;
    table.buckets = 12;
    table.hash_size = 100;
    table.slots = mch_slots(Mesh{3}, IndexList{0, 8, 16, 96});  // 1, 1 and 10 buckets
    Router const uneven(table);
    CHECK(uneven.part_of_id(8) == 0);
    CHECK(uneven.part_of_id(9) == 1);
    CHECK(uneven.part_of_id(18) == 2);
    CHECK(uneven.part_of_id(119) == 2);
    CHECK(uneven.part_of_id(109) == 1);
}

TEST_CASE("the owner of a slot is whom the distribution says, not a quotient by this rank's size") {
    // The last of 3 shards is shorter; dividing by its size sends slots of the second to the third.
    Router const r(mch_slots(Mesh{3}, 10), 100, 3);
    std::vector<std::int32_t> owners;
    for (Index slot = 0; slot < 10; ++slot) owners.push_back(r.part_of_slot(slot));
    CHECK(owners == std::vector<std::int32_t>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2});
    constexpr Router cut(mch_slots(Mesh{4}, IndexList{0, 0, 9, 9, 10}), 100, 4);
    static_assert(cut.part_of_slot(0) == 1 && cut.part_of_slot(8) == 1 && cut.part_of_slot(9) == 3);
    static_assert(Router(mch_slots(Mesh{8}, 10), 100, 8).part_of_slot(9) == 4);
}

TEST_CASE("a search reads the offsets it is given") {
    std::array<Index, 4> const elsewhere{0, 1, 2, 10};
    SlotRouter const r(mch_slots(Mesh{3}, IndexList{0, 1, 2, 10}), elsewhere.data());
    CHECK(r(1) == 1);
    CHECK(r(2) == 2);
}

TEST_CASE("a table that is none has no router") {
    MchTable bad = mch_table("user", Mesh{3}, 10, MchEviction::lfu);
    bad.buckets = 4;
    CHECK_THROWS_AS(Router{bad}, MismatchError);
}

}  // namespace
