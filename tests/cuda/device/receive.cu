// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/device_test.cuh"
#include "cuda/support/receive_case.hpp"

#include <reshard/cuda/receive.cuh>

#include <memory>

using namespace reshard;
using namespace reshard::test;

namespace {

struct OnDevice {
    DeviceArray<Index> blocks;
    DeviceArray<Index> begins;
    DeviceReceive receive;
    DeviceArray<std::byte> workspace;
    std::vector<Index> words = std::vector<Index>(ReceiveReport::words, -1);
    Stream stream;

    explicit OnDevice(ReceiveCase const& given)
        : blocks(given.words),
          begins(given.begins),
          receive(given.count(), static_cast<int>(given.begins.size()) - 1, given.columns, given.first, given.slots),
          workspace(static_cast<std::size_t>(receive.workspace_bytes())) {}
    ReceiveReport inspect() {
        receive.inspect(std::as_bytes(blocks.span()), begins.data(), workspace.span(), stream);
        return report();
    }
    ReceiveReport report() {
        receive.copy_report(words, stream);
        stream.wait();
        return ReceiveReport(words);
    }
};

}  // namespace

DEVICE_TEST("device receiver: rebuilds the shard that a sort and a list of free slots make") {
    std::vector<std::uint64_t> const masks{~std::uint64_t{0}, 0xffff, 0xffff00, 0x7fffffffffffffff, 0xff00000000000000};
    for (std::uint64_t seed : device_seeds(60)) {
        Random random(seed);
        Index const slots = random.pick(std::vector<Index>{0, 1, 31, 32, 33, 100, random.between(0, 20000)});
        Index const entries = random.chance(20) ? slots : random.between(0, slots);
        auto const given = random_receive(random, slots, entries, static_cast<int>(random.between(1, 9)),
                                          static_cast<int>(random.between(2, 5)), random.pick(masks), false);
        device_case() = concat("seed ", seed, ", slots ", slots, ", entries ", entries);
        OnDevice device(given);
        auto const report = device.inspect();
        CHECK(report.none());
        auto const faults = receive_faults(given);
        auto const bits = detail::sort_bits(faults.ids_or, faults.ids_and);
        CHECK(report.bits().begin == bits.begin && report.bits().end == bits.end);
        device.receive.order(report, device.stream);
        CHECK(device.report().none());
        std::vector<std::unique_ptr<DeviceArray<Index>>> columns;
        std::vector<Index*> shard;
        for (int c = 0; c < given.columns; ++c) {
            columns.push_back(std::make_unique<DeviceArray<Index>>(static_cast<std::size_t>(slots)));
            shard.push_back(columns.back()->data());
        }
        device.receive.rebuild(shard, device.stream);
        device.stream.wait();
        auto const expected = receive_oracle(given);
        for (std::size_t c = 0; c != shard.size(); ++c) {
            CHECK(columns[c]->host() == expected[c]);
            CHECK(columns[c]->is_intact(static_cast<std::size_t>(slots) * 8));
        }
        CHECK(device.workspace.is_intact(device.workspace.size()));
    }
}

DEVICE_TEST("device receiver: faults are counted and refused, and misuse is a typed error") {
    Random random(4);
    auto const given = random_receive(random, 20000, 15000, 5, 3, ~std::uint64_t{0}, true);
    OnDevice device(given);
    std::vector<Index*> const none;
    CHECK_THROWS(TransitionError, device.receive.rebuild(none, device.stream));
    auto const report = device.inspect();
    auto const expected = receive_faults(given);
    CHECK(report.slots_out_of_range() == static_cast<Index>(expected.slots_out_of_range));
    CHECK(report.duplicate_slots() == static_cast<Index>(expected.duplicate_slots));
    CHECK(report.empty_ids() == static_cast<Index>(expected.empty_ids));
    CHECK_THROWS(MismatchError, device.receive.order(report, device.stream));
    CHECK_THROWS(TransitionError, device.receive.rebuild(none, device.stream));
    CHECK_THROWS(BufferError, device.receive.inspect(std::as_bytes(device.blocks.span()).first(8), device.begins.data(),
                                                     device.workspace.span(), device.stream));
    CHECK_THROWS(MismatchError, DeviceReceive(11, 1, 2, 0, 10));
    CHECK_THROWS(ShapeError, DeviceReceive(1, 0, 2, 0, 10));
    CHECK_THROWS(ShapeError, DeviceReceive(1, 1, 1, 0, 10));
}

DEVICE_TEST("device receiver: ids that repeat are found when they are sorted") {
    ReceiveCase given;
    given.columns = 2;
    given.slots = 4;
    given.begins = {0, 2, 3};
    given.words = {7, 9, 0, 1, 7, 3};  // ids 7, 9 at slots 0, 1; id 7 at slot 3
    given.entries = {{7, 0}, {9, 1}, {7, 3}};
    OnDevice device(given);
    auto const report = device.inspect();
    CHECK(report.none());
    device.receive.order(report, device.stream);
    CHECK(device.report().duplicate_ids() == 1);
}

int main() { return run_device_tests(); }
