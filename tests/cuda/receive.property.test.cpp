// SPDX-License-Identifier: Apache-2.0
#include <reshard/cuda/receive_report.hpp>

#include "cuda/support/host_block.hpp"
#include "cuda/support/receive_case.hpp"

#include <doctest/doctest.h>

#include <numeric>  // iota

using namespace reshard;
using namespace reshard::test;

namespace {

struct Emulated {
    detail::ReceivePlan plan;
    detail::ReceiveFaults faults;
    std::vector<std::uint32_t> taken, free, arrivals, order;
    std::vector<Index> free_before, ids, sorted;

    explicit Emulated(ReceiveCase const& given) {
        plan.received = reinterpret_cast<std::byte const*>(given.words.data());
        plan.begins = given.begins.data();
        plan.sources = static_cast<int>(given.begins.size()) - 1;
        plan.columns = given.columns;
        plan.entries = given.count();
        plan.first = given.first;
        plan.slots = given.slots;
        auto const words = static_cast<std::size_t>(plan.words());
        auto const n = given.entries.size();
        taken.assign(words, 0);
        free.assign(words + 1, 77);
        free_before.assign(words + 1, 77);
        ids.assign(n, 77);
        sorted.assign(n, 77);
        arrivals.assign(n, 77);
        order.assign(n, 77);
        plan.taken = taken.data();
        plan.free = free.data();
        plan.free_before = free_before.data();
        plan.ids = ids.data();
        plan.arrivals = arrivals.data();
        plan.sorted = sorted.data();
        plan.order = order.data();
        plan.faults = &faults;
    }
    void inspect(ThreadOrder how) {
        for (Index tile = 0; tile < ceil_div(plan.entries, detail::inspect_tile); ++tile) {
            HostBlock<detail::InspectState> block(how, 3);
            detail::InspectShared shared;
            std::memset(&shared, 0xa5, sizeof(shared));
            detail::inspect_tile_of(block, shared, plan, tile);
        }
    }
    /// What CUB does: a stable sort by bits [begin, end) of the keys with their sign flipped.
    void sort(detail::SortBits bits) {
        auto const digit = [&](std::uint32_t arrival) {
            std::uint64_t const key = static_cast<std::uint64_t>(ids[arrival]) ^ (std::uint64_t{1} << 63U);
            std::uint64_t const high =
                bits.end == 64 ? key : key & ((std::uint64_t{1} << static_cast<unsigned>(bits.end)) - 1U);
            return bits.end == bits.begin ? 0 : high >> static_cast<unsigned>(bits.begin);
        };
        order = arrivals;
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return digit(a) < digit(b); });
        for (std::size_t i = 0; i != order.size(); ++i) sorted[i] = ids[order[i]];
        plan.order = order.data();
        for (Index i = 0; i < plan.entries + 5; ++i) faults.duplicate_ids += detail::repeats(plan, i) ? 1 : 0;
        for (Index word = plan.words() + 3; word-- > 0;) detail::count_free(plan, word);
        Index sum = 0;
        for (std::size_t i = 0; i != free.size(); ++i) {
            free_before[i] = sum;
            sum += free[i];
        }
    }
    std::vector<std::vector<Index>> rebuild() {
        std::vector<std::vector<Index>> shard(static_cast<std::size_t>(plan.columns),
                                              std::vector<Index>(static_cast<std::size_t>(plan.slots), 77));
        detail::RebuildColumns columns;
        for (auto& column : shard) columns.data.push_back(column.data());
        for (Index row = plan.slots + 3; row-- > 0;) detail::rebuild_row(plan, columns, row);
        for (Index word = plan.words() + 3; word-- > 0;) detail::write_free(plan, shard[1].data(), word);
        return shard;
    }
};

bool same(detail::ReceiveFaults const& a, detail::ReceiveFaults const& b) {
    return a.slots_out_of_range == b.slots_out_of_range && a.duplicate_slots == b.duplicate_slots &&
           a.empty_ids == b.empty_ids && a.ids_or == b.ids_or && a.ids_and == b.ids_and;
}

}  // namespace

TEST_CASE("device receiver: its kernel bodies rebuild the shard of a sort and a list of free slots") {
    std::vector<std::uint64_t> const masks{~std::uint64_t{0}, 0xffff, 0xffff00, 0x7fffffffffffffff, 0xff00000000000000};
    for (std::uint64_t seed : seeds(60)) {
        Random random(seed);
        Index const slots = random.pick(std::vector<Index>{0, 1, 31, 32, 33, 100, random.between(0, 4000)});
        Index const entries = random.chance(20) ? slots : random.between(0, slots);
        auto const given = random_receive(random, slots, entries, static_cast<int>(random.between(1, 9)),
                                          static_cast<int>(random.between(2, 5)), random.pick(masks), false);
        for (ThreadOrder order : {ThreadOrder::up, ThreadOrder::shuffled}) {
            CAPTURE(seed);
            CAPTURE(slots);
            CAPTURE(entries);
            Emulated device(given);
            device.inspect(order);
            CHECK(same(device.faults, receive_faults(given)));
            Index words[ReceiveReport::words];
            std::memcpy(words, &device.faults, sizeof(device.faults));
            ReceiveReport const report(words);
            CHECK(report.none());
            device.sort(report.bits());
            CHECK(device.faults.duplicate_ids == 0);
            CHECK((device.rebuild() == receive_oracle(given)));
        }
    }
}

TEST_CASE("device receiver: slots of others, slots taken twice, ids of empty places and ids that repeat are counted") {
    for (std::uint64_t seed : seeds(30)) {
        Random random(seed);
        CAPTURE(seed);
        auto const given = random_receive(random, 2000, 1500, 5, 3, ~std::uint64_t{0}, true);
        Emulated device(given);
        device.inspect(ThreadOrder::shuffled);
        auto const expected = receive_faults(given);
        CHECK(same(device.faults, expected));
        Index words[ReceiveReport::words];
        std::memcpy(words, &device.faults, sizeof(device.faults));
        CHECK_FALSE(ReceiveReport(words).none());
        CHECK_THROWS_AS(ReceiveReport(words).check(), MismatchError);
        device.sort(detail::sort_bits(device.faults.ids_or, device.faults.ids_and));
        CHECK(device.faults.duplicate_ids == (expected.empty_ids == 0 ? 0 : expected.empty_ids - 1));
    }
    Index few[1] = {};
    CHECK_THROWS_AS(static_cast<void>(ReceiveReport(few)), BufferError);
}

TEST_CASE("device receiver: a sort looks at the bits that vary and no others") {
    auto const bits = [](std::vector<Index> const& ids) {
        std::uint64_t all_or = 0;
        std::uint64_t all_and = ~std::uint64_t{0};
        for (Index id : ids) {
            all_or |= static_cast<std::uint64_t>(id);
            all_and &= static_cast<std::uint64_t>(id);
        }
        auto const found = detail::sort_bits(all_or, all_and);
        return std::vector<int>{found.begin, found.end};
    };
    CHECK(bits({}) == std::vector<int>{0, 0});
    CHECK(bits({5}) == std::vector<int>{0, 0});
    CHECK(bits({-5, -5}) == std::vector<int>{0, 0});
    CHECK(bits({0, 1}) == std::vector<int>{0, 1});
    CHECK(bits({0, 255}) == std::vector<int>{0, 8});
    CHECK(bits({0, 256}) == std::vector<int>{8, 9});
    CHECK(bits({-1, 0}) == std::vector<int>{0, 64});
    CHECK(bits({-1, -2}) == std::vector<int>{0, 1});
    CHECK(bits({INT64_MIN, INT64_MAX}) == std::vector<int>{0, 64});
    CHECK(bits({INT64_MIN, 0}) == std::vector<int>{63, 64});
}
