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
            detail::MergeRuns<HostWork> merges;
            bool const in_other =
                merges.add(begins, {here.data(), here_values.data()}, {there.data(), there_values.data()});
            merges.run(work);
            auto const merged = (in_other ? there : here).host(work);
            CHECK(((in_other ? there_values : here_values).host(work) == expected));
            CHECK(std::is_sorted(merged.begin(), merged.end()));
            auto sorted = keys;
            std::sort(sorted.begin(), sorted.end());
            CHECK((merged == sorted));
        }
    }
}

TEST_CASE("merge of runs: threads that gather at once have each a bank of their own, wherever their entries lie") {
    using detail::MergeList;
    for (std::uint64_t seed : seeds(100)) {
        Random random(seed);
        CAPTURE(seed);
        Index const a_share = random.between(0, 8);  // of eight entries, about
        std::vector<detail::MergeShare> threads;
        int a = 0;
        for (int thread = 0; thread < detail::block_threads; ++thread) {
            auto const of_a =
                static_cast<int>(detail::smaller<Index>(8, detail::larger<Index>(0, a_share + random.between(-4, 4))));
            threads.push_back({a, of_a, thread * detail::merge_items - a, detail::merge_items - of_a});
            a += of_a;
        }
        std::vector<int> taken(static_cast<std::size_t>(detail::merge_tile), 0);
        for (int k = 0; k < detail::merge_items; ++k) {
            std::vector<std::uint32_t> key_banks;
            std::vector<std::uint32_t> value_banks;
            for (detail::MergeShare const& one : threads) {
                int const at = one.place(k);
                REQUIRE(at >= 0);
                CHECK(at % detail::merge_items == k);
                ++taken[static_cast<std::size_t>(at)];
                key_banks.push_back(MergeList<Index>::place(at) % 16);  // pairs of banks: half a warp is served at once
                value_banks.push_back(MergeList<std::uint32_t>::place(at) % 32);
            }
            auto const differ = [](std::vector<std::uint32_t> list, std::ptrdiff_t group) {
                for (auto first = list.begin(); first != list.end(); first += group) {
                    std::sort(first, first + group);
                    if (std::adjacent_find(first, first + group) != first + group) return false;
                }
                return true;
            };
            CHECK(differ(key_banks, 16));
            CHECK(differ(value_banks, 32));
        }
        CHECK(std::count(taken.begin(), taken.end(), 1) == detail::merge_tile);  // every entry, once
    }
}
