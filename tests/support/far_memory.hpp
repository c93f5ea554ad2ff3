// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/far_memory.hpp
/// \brief  Memory that the host cannot reach and that no driver knows: only the policy that the communicator states
///         works on it. Who takes it for the host's, ends the process.
#pragma once

#include <doctest/doctest.h>

#include <reshard/comm/policy.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/memory/host_memory.hpp>

#include <sys/mman.h>

#include <memory>
#include <vector>

namespace reshard::test {

/// Bytes that are mapped twice: where users see them nobody may read or write; the policy goes to the other place.
class FarMemory final : public MemoryPolicy {
public:
    FarMemory() {
        void* const first = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(first != MAP_FAILED);
        void* const second = ::mremap(first, 0, size, MREMAP_MAYMOVE);  // of nothing: the same pages once more
        REQUIRE(second != MAP_FAILED);
        REQUIRE(::mprotect(second, size, PROT_NONE) == 0);
        near = static_cast<std::byte*>(first);
        far = static_cast<std::byte*>(second);
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

}  // namespace reshard::test
