// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/device/mch_on_streams.hpp
/// \brief  MCH tables on devices in the order of a stream: every launch, copy and exchange is a task of the double's
///         stream, which is done as late as can be, so that what is not waited for is not there.
#pragma once

#include "support/fake_cuda_runtime.hpp"

#include <mch/support/on_device.hpp>

#include <reshard/mch/detail/device_row_moves.hpp>
#include <reshard/memory/cuda_call.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace reshard::test {

/// HostWork whose calls are tasks of a stream.
class StreamWork {
public:
    /// Is given back when the stream gets there.
    class Memory {
    public:
        Memory() = default;
        Memory(HostWork::Memory memory, cudaStream_t stream)
            : memory_(std::make_shared<HostWork::Memory>(std::move(memory))), stream_(stream) {}
        Memory(Memory&&) noexcept = default;
        Memory& operator=(Memory&& other) noexcept {
            std::swap(memory_, other.memory_);
            std::swap(stream_, other.stream_);
            return *this;
        }
        Memory(Memory const&) = delete;
        Memory& operator=(Memory const&) = delete;
        ~Memory() {
            if (memory_ != nullptr) fake_runtime::add_task(stream_, [memory = std::move(memory_)] { return true; });
        }
        [[nodiscard]] std::byte* data() const noexcept { return memory_ == nullptr ? nullptr : memory_->data(); }

    private:
        std::shared_ptr<HostWork::Memory> memory_;
        cudaStream_t stream_ = nullptr;
    };

    StreamWork(HostDevice& device, cudaStream_t stream, reshard::detail::StreamPatience const& patience)
        : inner_(device), stream_(stream), patience_(patience) {}

    [[nodiscard]] Memory allocate(Index bytes) { return {inner_.allocate(bytes), stream_}; }
    void fill(void* to, int byte, Index bytes) {
        later([=](HostWork& host) { host.fill(to, byte, bytes); });
    }
    void copy(void* to, void const* from, Index bytes) {
        later([=](HostWork& host) { host.copy(to, from, bytes); });
    }
    void upload(void* to, void const* from, Index bytes) {
        auto const* const begin = static_cast<std::byte const*>(from);
        std::vector<std::byte> const now(begin, begin + bytes);
        later([=](HostWork& host) { host.upload(to, now.data(), bytes); });
    }
    void download(void* to, void const* from, Index bytes) {
        wait();  // where that is given up, `to` is gone
        later([=](HostWork& host) { host.download(to, from, bytes); });
        wait();
    }
    void wait() { patience_.wait(stream_, "StreamWork"); }
    template <class State, class Shared, class Body>
    void tiles(char const* what, Index count, Body const& body) {
        later([=](HostWork& host) { host.template tiles<State, Shared>(what, count, body); });
    }
    void sum(std::uint32_t const* from, Index* to, Index count) {
        later([=](HostWork& host) { host.sum(from, to, count); });
    }
    void sort(Index const* keys, Index* sorted, std::uint32_t const* values, std::uint32_t* order, Index count) {
        later([=](HostWork& host) { host.sort(keys, sorted, values, order, count); });
    }
    void check(char const* who, char const* what, void const* memory, Index bytes, Index alignment) const {
        inner_.check(who, what, memory, bytes, alignment);
    }

private:
    template <class Body>
    void later(Body const& body) {
        fake_runtime::add_task(stream_, [body, host = inner_]() mutable {
            body(host);
            return true;
        });
    }
    HostWork inner_;
    cudaStream_t stream_;
    reshard::detail::StreamPatience patience_;
};

/// Random worlds of 1 to 4 ranks against the oracle, rows included. `run(ranks, body)` calls body(comm, stream) on so
/// many ranks.
template <class Run>
void check_mch_on_streams(int count, Run const& run) {
    using namespace reference;
    for (std::uint64_t seed : seeds(count)) {
        Random random(seed);
        Setup setup;
        setup.from = random.between(1, 4);
        setup.to = random.between(1, 4);
        setup.slots = random.between(1, 300);
        setup.fill = random.pick(std::vector<Fill>{Fill::half, Fill::all_but_one, Fill::all});
        setup.kind = random.pick(std::vector<IdKind>{IdKind::small, IdKind::hash63, IdKind::any});
        setup.columns = static_cast<int>(random.between(0, 3));
        Scene const scene = draw_scene(setup, random);
        Table const& table = scene.table;
        Mode const mode = random.pick(std::vector<Mode>{Mode::route, Mode::slot_owner_keep, Mode::slot_owner_drop});
        MchTable const saved = library_table(table, table.saved_offsets, scene.saved_buckets);
        MchTable const current = library_table(table, table.offsets, table.buckets);
        Result result{scene.loaded, std::vector<Change>(scene.loaded.size()), std::vector<RankEnd>(table.parts())};
        std::vector<std::vector<Index>> rows(table.parts());
        HostDevice device;
        device.order = ThreadOrder::shuffled;
        for (std::size_t r = 0; r < table.parts(); ++r) {
            claim(device, result.shards[r]);
            for (Id slot = table.offsets[r]; slot < table.offsets[r + 1]; ++slot) rows[r].push_back(1000 + slot);
            device.claim(rows[r].data(), 8 * static_cast<Index>(rows[r].size()));
        }
        CAPTURE(seed);
        INFO(to_string(setup));
        CAPTURE(static_cast<int>(mode));
        run(static_cast<int>(table.parts()), [&](auto& comm, cudaStream_t stream) {
            auto const r = static_cast<std::size_t>(comm.rank());
            StreamWork work(device, stream, comm.patience());
            MchTransition const one{saved, current, library_state(table, result.shards[r])};
            auto changes = reshard::detail::redistribute_with(work, std::span(&one, 1), comm, library_options(mode));
            result.changes[r] = change_of(changes[0].on_host());
            auto const z = static_cast<Index>(rows[r].size());
            DynamicView const view = TensorView<Index>(rows[r].data(), Shape{z});
            reshard::detail::apply_row_moves_with(work, changes[0].moves(), current,
                                                  std::span<DynamicView const>(&view, 1), comm);
            work.wait();
        });
        Outcome const expected = redistribute(table, scene.loaded, mode);
        CHECK(difference(table, result, expected) == "");
        std::vector<Index> moved;
        for (Id slot = 0; slot < table.slots(); ++slot) moved.push_back(1000 + slot);
        for (Change const& change : expected.changes) {
            for (auto const& [from, to] : change.moves) moved[static_cast<std::size_t>(to)] = 1000 + from;
        }
        std::vector<Index> all;
        for (auto const& part : rows) all.insert(all.end(), part.begin(), part.end());
        CHECK((all == moved));
    }
}

}  // namespace reshard::test
