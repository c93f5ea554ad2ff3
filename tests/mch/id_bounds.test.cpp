// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/id_bounds.hpp.
#include <reshard/mch/id_bounds.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {
using namespace reshard;

MchIdBounds bounds_of(std::vector<Index> ids, MchLayout layout = MchLayout::sorted) {
    MchTable table;
    table.layout = layout;
    MchShard shard;
    shard.entries = static_cast<Index>(ids.size());
    shard.ids = ids.data();
    return id_bounds(table, shard);
}

}  // namespace

TEST_SUITE("mch/id_bounds") {
    TEST_CASE("bounds are those of the live ids of 0 or more; negative ones are counted") {
        CHECK(bounds_of({}) == MchIdBounds{});
        CHECK(bounds_of({INT64_MAX, INT64_MAX}) == MchIdBounds{0, 0, -1, 0});
        CHECK(bounds_of({3, 9, INT64_MAX - 1, INT64_MAX}) == MchIdBounds{3, 3, INT64_MAX - 1, 0});
        CHECK(bounds_of({9, 0, 4}) == MchIdBounds{3, 0, 9, 0});
        CHECK(bounds_of({INT64_MIN, -1}) == MchIdBounds{2, 0, -1, 2});
        CHECK(bounds_of({-7, 5, INT64_MAX}) == MchIdBounds{2, 5, 5, 1});
        CHECK(bounds_of({-1, 5, INT64_MAX, -2}, MchLayout::buckets) == MchIdBounds{3, 5, INT64_MAX, 1});
    }

    TEST_CASE("bounds of runs add up to those of all") {
        Index const all[] = {-9, -7, 3, 5, 8, INT64_MAX, INT64_MAX};
        for (std::size_t cut = 0; cut <= std::size(all); ++cut) {
            CAPTURE(cut);
            std::vector<Index> const first(all, all + cut);
            std::vector<Index> const second(all + cut, std::end(all));
            CHECK(bounds_of(first) + bounds_of(second) == MchIdBounds{5, 3, 8, 2});
            CHECK(bounds_of(second) + bounds_of(first) == MchIdBounds{5, 3, 8, 2});
        }
        CHECK(MchIdBounds{} + MchIdBounds{} == MchIdBounds{});
    }
}
