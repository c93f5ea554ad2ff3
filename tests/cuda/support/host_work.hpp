// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/host_work.hpp
/// \brief  A device that is the host: runs the bodies of kernels thread by thread, and knows which memory is its own.
///
/// What CUB does is done by the standard library. Threads of a phase and blocks of a launch run in an order of the
/// test's choice. Memory that kernels or communicators are given has to be the device's: allocated here, or claimed.
#pragma once

#include "cuda/support/emulated.hpp"
#include "cuda/support/host_device.hpp"

#include <reshard/comm/communicator.hpp>
#include <reshard/cuda/report.hpp>
#include <reshard/cuda/work.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace reshard::test {

/// `Blocks`: what runs the blocks of a launch, such as HostBlocks (emulated.hpp).
template <class Blocks>
class BasicHostWork {
public:
    class Memory {
    public:
        Memory() = default;
        Memory(HostDevice& device, Index bytes)
            : device_(&device), words_(static_cast<std::size_t>(detail::ceil_div(bytes, 8) + 1), 0xa5a5a5a5a5a5a5a5) {
            device.claim(words_.data(), bytes);
            if (HostDevice::watcher != nullptr) HostDevice::watcher->allocated(words_.data(), bytes);
        }
        Memory(Memory&& other) noexcept
            : device_(std::exchange(other.device_, nullptr)), words_(std::move(other.words_)) {}
        Memory& operator=(Memory&& other) noexcept {
            std::swap(device_, other.device_);
            std::swap(words_, other.words_);
            return *this;
        }
        Memory(Memory const&) = delete;
        Memory& operator=(Memory const&) = delete;
        ~Memory() {
            if (device_ == nullptr) return;
            if (HostDevice::watcher != nullptr) HostDevice::watcher->freed(words_.data());
            device_->release(words_.data());
        }
        [[nodiscard]] std::byte* data() const noexcept {
            return const_cast<std::byte*>(reinterpret_cast<std::byte const*>(words_.data()));
        }

    private:
        HostDevice* device_ = nullptr;
        DeviceList<std::uint64_t> words_;
    };

    explicit BasicHostWork(HostDevice& device) : device_(&device) {}

    [[nodiscard]] Memory allocate(Index bytes) {
        if (device_->allocations++ >= device_->refused_from) {
            errors::raise(ErrorCode::out_of_memory,
                          errors::concat("tests: no ", bytes, " bytes of device memory. Fix: none."));
        }
        return Memory(*device_, bytes);
    }
    void fill(void* to, int byte, Index bytes) {
        own(to, bytes);
        if (bytes != 0) std::memset(to, byte, static_cast<std::size_t>(bytes));
        HostDevice::filled(to, bytes);
    }
    void copy(void* to, void const* from, Index bytes) {
        own(from, bytes);
        HostDevice::read("copy", from, bytes);
        write(to, from, bytes);
    }
    void upload(void* to, void const* from, Index bytes) {
        ++device_->uploads;
        write(to, from, bytes);
    }
    void write(void* to, void const* from, Index bytes) {
        own(to, bytes);
        if (bytes != 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
        HostDevice::filled(to, bytes);
    }
    void download(void* to, void const* from, Index bytes) {
        own(from, bytes);
        if (bytes != 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
        device_->downloaded += bytes;
        ++device_->downloads;
    }
    void wait() {}

    template <class State, class Shared, class Body>
    void tiles([[maybe_unused]] char const* what, Index count, Body const& body) {
        ++device_->launches;
        Blocks run{device_->order};
        if constexpr (requires { run.kernel; }) {
            run.kernel = what;
            run.device = device_;
        }
        run.template tiles<State, Shared>(count, body);
    }
    void sum(std::uint32_t const* from, Index* to, Index count) {
        ++device_->launches;
        own(from, 4 * count);
        own(to, 8 * count);
        HostDevice::read("sum", from, 4 * count);
        Index total = 0;
        for (Index i = 0; i < count; ++i) {
            Index const before = total;
            total += from[i];
            to[i] = before;
        }
        HostDevice::filled(to, 8 * count);
    }
    void sort(Index const* keys, Index* sorted, std::uint32_t const* values, std::uint32_t* order, Index count) {
        ++device_->launches;
        for (Index const* list : {keys, static_cast<Index const*>(sorted)}) own(list, 8 * count);
        for (std::uint32_t const* list : {values, static_cast<std::uint32_t const*>(order)}) own(list, 4 * count);
        HostDevice::read("sort", keys, 8 * count);
        HostDevice::read("sort", values, 4 * count);
        std::vector<std::size_t> at(static_cast<std::size_t>(count));
        std::iota(at.begin(), at.end(), std::size_t{0});
        std::stable_sort(at.begin(), at.end(), [&](auto a, auto b) { return keys[a] < keys[b]; });
        for (std::size_t i = 0; i != at.size(); ++i) {
            sorted[i] = keys[at[i]];
            order[i] = values[at[i]];
        }
        HostDevice::filled(sorted, 8 * count);
        HostDevice::filled(order, 4 * count);
    }
    void check(char const* who, char const* what, void const* memory, Index bytes, Index alignment) const {
        if (bytes != 0 && reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(alignment) != 0) {
            errors::raise(ErrorCode::buffer,
                          errors::concat(who, ": ", what, " is not aligned to its elements. Fix: align it."));
        }
        if (device_->has(memory, bytes)) return;
        errors::raise(ErrorCode::buffer,
                      errors::concat(who, ": ", what, " is memory of the host. Fix: copy it to the device first."));
    }

private:
    void own(void const* memory, Index bytes) const {
        if (!device_->has(memory, bytes))
            errors::raise(ErrorCode::buffer, "tests: the device was given memory of the host.");
    }
    HostDevice* device_;
};
using HostWork = BasicHostWork<HostBlocks>;

/// A communicator that moves memory of a device, and no other.
template <class C>
class OnDevice : public CommunicatorBase<OnDevice<C>> {
public:
    static constexpr std::string_view name = "device";
    using exchange_type = typename C::exchange_type;
    using CommunicatorBase<OnDevice>::split;

    OnDevice(C& inner, HostDevice& device) noexcept : inner_(&inner), device_(&device) {}
    OnDevice(OnDevice&&) noexcept = default;
    OnDevice& operator=(OnDevice&&) noexcept = default;
    OnDevice(OnDevice const&) = delete;
    OnDevice& operator=(OnDevice const&) = delete;
    ~OnDevice() = default;

    [[nodiscard]] int rank() const noexcept { return inner_->rank(); }
    [[nodiscard]] int size() const noexcept { return inner_->size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return inner_->traffic(); }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) { return inner_->agree(std::move(mine)); }
    [[nodiscard]] exchange_type bind(std::span<transport::Send const> sends,
                                     std::span<transport::Receive const> receives) {
        for (transport::Send const& one : sends) check_memory(one.base, one.payload_bytes());
        for (transport::Receive const& one : receives) {
            check_memory(one.base, one.payload_bytes());
            HostDevice::filled(one.base, one.payload_bytes());  // they are dense
        }
        return inner_->bind(sends, receives);
    }
    void check_memory(void const* memory, Index bytes = 1) const {
        if (!device_->has(memory, bytes))
            errors::raise(ErrorCode::buffer, "tests: memory of the host is to be sent. Fix: no.");
    }
    [[nodiscard]] OnDevice split(int, int) { errors::raise(ErrorCode::transport, "tests: no split."); }
    void abort(ErrorCode code, std::string_view reason) noexcept { inner_->abort(code, reason); }

private:
    C* inner_;
    HostDevice* device_;
};

}  // namespace reshard::test
