// SPDX-License-Identifier: Apache-2.0
#include <reshard/cuda/merge_runs.hpp>

#include "cuda/support/host_work.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace reshard;
using namespace reshard::test;

TEST_CASE("merge of runs: the stable sort of what the runs hold, whatever their number, lengths and keys") {
    for (std::uint64_t seed : seeds(60)) {
        Random random(seed);
        Index const runs = random.pick(std::vector<Index>{0, 1, 2, 3, 4, 5, 7, 8, 9, 33});
        Index const longest = random.pick(std::vector<Index>{1, 10, detail::merge_tile, 3 * detail::merge_tile});
        Index const most = random.pick(std::vector<Index>{3, 1000, INT64_MAX / 2});
        std::vector<Index> begins{0};
        std::vector<Index> keys;
        for (Index r = 0; r < runs; ++r) {
            for (Index i = random.between(1, longest); i > 0; --i) keys.push_back(random.between(-most, most));
            std::sort(keys.begin() + begins.back(), keys.end());
            begins.push_back(static_cast<Index>(keys.size()));
        }
        std::vector<std::uint32_t> values(keys.size());
        std::iota(values.begin(), values.end(), 0U);
        auto expected = values;
        std::stable_sort(expected.begin(), expected.end(), [&](auto a, auto b) { return keys[a] < keys[b]; });
        for (ThreadOrder order : {ThreadOrder::down, ThreadOrder::shuffled}) {
            CAPTURE(seed);
            CAPTURE(runs);
            HostDevice device;
            device.order = order;
            HostWork work(device);
            detail::WorkList<Index, HostWork> here(work, std::span<Index const>(keys));
            detail::WorkList<Index, HostWork> there(work, here.size());
            detail::WorkList<std::uint32_t, HostWork> here_values(work, std::span<std::uint32_t const>(values));
            detail::WorkList<std::uint32_t, HostWork> there_values(work, here_values.size());
            bool const in_other = detail::merge_runs(work, begins, {here.data(), here_values.data()},
                                                     {there.data(), there_values.data()});
            CHECK(in_other == (detail::merge_rounds(runs) % 2 == 1));
            auto const merged = (in_other ? there : here).host(work);
            CHECK(((in_other ? there_values : here_values).host(work) == expected));
            CHECK(std::is_sorted(merged.begin(), merged.end()));
            auto sorted = keys;
            std::sort(sorted.begin(), sorted.end());
            CHECK((merged == sorted));
        }
    }
}

TEST_CASE("merge of runs: is preferred to a sort that needs more passes, and where it is asked for") {
    CHECK(detail::merge_rounds(0) == 0);
    CHECK(detail::merge_rounds(1) == 0);
    CHECK(detail::merge_rounds(2) == 1);
    CHECK(detail::merge_rounds(8) == 3);
    CHECK(detail::merge_rounds(9) == 4);
    CHECK(detail::prefers_merge(ReceiveOrder::automatic, 8, 63));
    CHECK(detail::prefers_merge(ReceiveOrder::automatic, 128, 63));
    CHECK_FALSE(detail::prefers_merge(ReceiveOrder::automatic, 129, 63));
    CHECK_FALSE(detail::prefers_merge(ReceiveOrder::automatic, 8, 24));
    CHECK_FALSE(detail::prefers_merge(ReceiveOrder::automatic, 1, 0));
    CHECK(detail::prefers_merge(ReceiveOrder::merge, 4000, 1));
    CHECK_FALSE(detail::prefers_merge(ReceiveOrder::sort, 1, 63));
}
