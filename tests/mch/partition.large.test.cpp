// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/partition.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;

TEST_CASE("partition: more entries than 31 bits count, for one rank more than 31 bits count as well") {
    constexpr Index entries = (Index{1} << 31) + (Index{1} << 29) + 5;
    constexpr Index favourite = 1;
    auto const rule = [](Index entry) { return entry % 16 == 0 ? entry / 16 % 3 * 2 : favourite; };  // 0, 2, or dropped
    auto const value = [](Index entry) {
        return static_cast<std::byte>((static_cast<std::uint64_t>(entry) * 0x9e3779b97f4a7c15U) >> 56);
    };
    std::vector<std::byte> column(static_cast<std::size_t>(entries));
    for (Index i = 0; i < entries; ++i) column[static_cast<std::size_t>(i)] = value(i);
    Partition partition(entries, 3, 2);
    partition.count(rule);
    PartitionColumn const columns[] = {{column.data(), 1}};
    std::vector<std::byte> packed(static_cast<std::size_t>(partition.lay_out(columns)));
    partition.scatter(rule, columns, packed);
    CHECK(partition.counts()[1] > INT32_MAX);
    Index next[3] = {partition.blocks()[0], partition.blocks()[1], partition.blocks()[2]};
    Index wrong = 0;
    Index dropped = 0;
    for (Index i = 0; i < entries; ++i) {
        Index const to = rule(i);
        if (to > 2) {
            ++dropped;
            continue;
        }
        wrong += packed[static_cast<std::size_t>(next[to]++)] != value(i);
    }
    CHECK(wrong == 0);
    CHECK(dropped == partition.dropped());
    for (Index d = 0; d < 3; ++d)
        CHECK(next[d] ==
              partition.blocks()[static_cast<std::size_t>(d)] + partition.counts()[static_cast<std::size_t>(d)]);
}
