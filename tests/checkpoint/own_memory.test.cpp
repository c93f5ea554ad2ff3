// SPDX-License-Identifier: Apache-2.0
// Tensors in memory that the host cannot reach, and that no driver knows: only the policy that the communicator states
// works on it. A load, a save or a check that took it for the host's would be a fault of the process.
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/verify_replicas.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/policy.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/memory/host_memory.hpp>

#include "support.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <vector>

namespace {
using namespace checkpoint_test;

/// Bytes that are mapped twice: where users see them nobody may read or write; the policy goes to the other place.
class FarMemory final : public MemoryPolicy {
public:
    FarMemory() {
        int const file = ::memfd_create("far", 0);
        REQUIRE(::ftruncate(file, size) == 0);
        auto const map = [&](int how) {
            void* const memory = ::mmap(nullptr, size, how, MAP_SHARED, file, 0);
            REQUIRE(memory != MAP_FAILED);
            return static_cast<std::byte*>(memory);
        };
        far = map(PROT_NONE);
        near = map(PROT_READ | PROT_WRITE);
        ::close(file);
    }
    FarMemory(FarMemory const&) = delete;
    ~FarMemory() {
        ::munmap(far, size);
        ::munmap(near, size);
    }

    [[nodiscard]] bool holds(void const* memory) const noexcept override {
        return memory >= far && memory < far + size;
    }
    template <class T>
    [[nodiscard]] transport::Transfer<T> in_reach(transport::Transfer<T> transfer) const noexcept {
        if (holds(transfer.base)) transfer.base = near + (transfer.base - far);
        return transfer;
    }
    void check(std::string_view, void const*, Index) const override {}
    [[nodiscard]] Workspace allocate(Index bytes) const override { return host_memory().policy.allocate(bytes); }
    void deliver(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) const override {
        for (std::size_t k = 0; k < sends.size(); ++k) transport::deliver(in_reach(sends[k]), in_reach(receives[k]));
    }

    static constexpr std::size_t size = 1 << 16;
    std::byte* far = nullptr;
    std::byte* near = nullptr;
};

/// Threads that copy between memory of both kinds.
class OnFarMemory : public PolicyBase<OnFarMemory, ThreadCommunicator> {
public:
    using PolicyBase::split;
    OnFarMemory(ThreadCommunicator inner, FarMemory const& memory) : PolicyBase(std::move(inner)), memory_(&memory) {}

    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        Bound& bound = *bound_.emplace_back(std::make_unique<Bound>());
        for (auto const& send : sends) bound.sends.push_back(memory_->in_reach(send));
        for (auto const& receive : receives) bound.receives.push_back(memory_->in_reach(receive));
        return inner_.bind(bound.sends, bound.receives);
    }
    [[nodiscard]] MemoryPolicy const* memory() const noexcept { return memory_; }
    [[nodiscard]] OnFarMemory split(int colour, int key) { return {inner_.split(colour, key), *memory_}; }

private:
    struct Bound {
        std::vector<transport::Send> sends;
        std::vector<transport::Receive> receives;
    };
    FarMemory const* memory_;
    std::vector<std::unique_ptr<Bound>> bound_;  // as long as the communicator: nobody counts here
};

}  // namespace

TEST_SUITE("checkpoint/own_memory") {
    TEST_CASE("memory of a policy's own is saved, verified and loaded by that policy") {
        TempFolder const folder;
        run_on_threads(2, [&](ThreadCommunicator& threads) {
            int const rank = threads.rank();
            FarMemory memory;
            OnFarMemory comm(std::move(threads), memory);
            auto const far = [&](Index offset) { return reinterpret_cast<float*>(memory.far + 4 * offset); };
            auto* const near = reinterpret_cast<float*>(memory.near);
            std::vector<float> host(8, 3.0F);
            std::vector<LocalTensor> tensors{
                {"rows", distribution(Mesh{2}, Shape{64, 8}, "S0"), TensorView<float>(far(0), Shape{32, 8})},
                {"copies", distribution(Mesh{2}, Shape{9, 4}, "R"), TensorView<float>(far(256), Shape{9, 4})},
                {"host", distribution(Mesh{2}, Shape{8}, "R"), TensorView<float>(host.data(), Shape{8})}};
            auto const value = [&](int i) { return static_cast<float>(i < 256 ? 256 * rank + i : i); };
            for (int i = 0; i < 292; ++i) near[i] = value(i);
            save(folder.path(), tensors, comm);
            CHECK(verify_replicas(tensors, comm).differences.empty());
            near[260] += static_cast<float>(rank);
            auto const report = verify_replicas(tensors, comm, {.mode = VerifyMode::report});
            REQUIRE(report.differences.size() == 1);
            CHECK(report.differences[0].tensor == 1);
            auto const loads = [&](auto const& strategy) {
                CAPTURE(strategy.name);
                for (int i = 0; i < 292; ++i) near[i] = -1.0F;
                host.assign(8, -1.0F);
                load(folder.path(), tensors, comm, strategy);
                int wrong = 0;
                for (int i = 0; i < 292; ++i) wrong += near[i] == value(i) ? 0 : 1;
                CHECK(wrong == 0);
                CHECK(host == std::vector<float>(8, 3.0F));
            };
            loads(EachRankReadsItsBoxes{});
            loads(OneRankReads<Scatter>{});
            loads(OneRankReads<Broadcast>{});
            loads(CooperativeRead{});
        });
    }
}
