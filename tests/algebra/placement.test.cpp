// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/placement.hpp>

#include <doctest/doctest.h>

#include <type_traits>

using namespace reshard;

namespace {

static_assert(PlacementType<Replicate> && PlacementType<Shard<3>> && PlacementType<Shard<0, Balanced>> &&
              PlacementType<Shard<0, BlockCyclic>> && PlacementType<Partial<Reduce::max>>);
static_assert(!PlacementType<int> && !PlacementType<Placement> && !PlacementType<Replicate&> &&
              !PlacementType<Replicate const*>);
static_assert(std::is_same_v<Partial<>, Partial<Reduce::sum>>);
static_assert(std::is_same_v<Shard<0>, Shard<0, Chunk>>);
static_assert(std::is_trivially_copyable_v<Placement>);

static_assert(Placement{} == Placement::replicate() && Placement{}.is_replicate());
static_assert(Placement::shard(2).is_shard() && Placement::shard(2).dim() == 2);
static_assert(Placement::partial(Reduce::max).is_partial() && Placement::partial(Reduce::max).op() == Reduce::max);
static_assert(!(Placement::shard(0) == Placement::shard(1)));
static_assert(!(Placement::shard(0) == Placement::replicate()));
static_assert(!(Placement::partial(Reduce::sum) == Placement::partial(Reduce::avg)));
static_assert(!(Placement::shard(0) == Placement::shard(0, {SplitKind::balanced, 0, {}})));

static_assert(Placement::shard(256).dim() != 0, "a number that is out of range must not come round as a legal one");
static_assert(Placement::shard(-1).dim() == -1);

static_assert(Placement::shard(0, {SplitKind::chunk, 5, {0, 1}}) == Placement::shard(0), "numbers a rule does not use");
static_assert(Placement::shard(0, {SplitKind::cyclic, 5, {0, 1}}).rule().boundaries.empty());

// The types make the values.
static_assert(Replicate{}.placement(9, 2) == Placement::replicate());
static_assert(Shard<1>{}.placement(9, 2) == Placement::shard(1));
static_assert(Shard<1, Balanced>{}.placement(9, 2) == Placement::shard(1, {SplitKind::balanced, 0, {}}));
static_assert(Shard<0, Boundaries>{{0, 3, 9}}.placement(9, 2) ==
              Placement::shard(0, {SplitKind::boundaries, 0, {0, 3, 9}}));
static_assert(Shard<0, BlockCyclic>{{64}}.placement(9, 2) == Placement::shard(0, {SplitKind::cyclic, 64, {}}));
static_assert(Partial<Reduce::bxor>{}.placement(9, 2) == Placement::partial(Reduce::bxor));

}  // namespace

TEST_CASE("placements with long boundaries compare by the positions") {
    Index first[12]{};
    Index second[12]{};
    for (int i = 0; i < 12; ++i) first[i] = second[i] = i;
    auto const place = [](Index const* list) {
        return Placement::shard(0, {SplitKind::boundaries, 0, IndexList(list, 12)});
    };
    CHECK(place(first) == place(second));
    second[5] = 4;
    CHECK_FALSE(place(first) == place(second));
}
