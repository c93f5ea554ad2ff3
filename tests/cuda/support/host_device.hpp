// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/host_device.hpp
/// \brief  Which memory of the host counts as a device's.
#pragma once

#include <reshard/core/index.hpp>

#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace reshard::test {

enum class ThreadOrder { up, down, shuffled };
inline constexpr std::size_t guard_bytes = 64;  ///< behind the shared memory of a block

/// Told of the memory that devices allocate, with what allocation leaves there, and of what is read and written there
/// by other means than kernels.
struct MemoryWatcher {
    virtual void allocated(void const* memory, Index bytes) = 0;
    virtual void freed(void const* memory) = 0;
    virtual void filled(void const* memory, Index bytes) = 0;
    virtual void read(std::string const& who, void const* memory, Index bytes) = 0;

protected:
    ~MemoryWatcher() = default;
};

/// Several ranks may share one.
class HostDevice {
public:
    HostDevice() = default;
    HostDevice(HostDevice const&) = delete;
    HostDevice& operator=(HostDevice const&) = delete;
    ~HostDevice() {
        for (void const* memory : unwritten_) watcher->freed(memory);
    }

    static inline MemoryWatcher* watcher = nullptr;  ///< of all devices
    static void filled(void const* memory, Index bytes) {
        if (watcher != nullptr) watcher->filled(memory, bytes);
    }
    static void read(char const* who, void const* memory, Index bytes) {
        if (watcher != nullptr) watcher->read(who, memory, bytes);
    }

    ThreadOrder order = ThreadOrder::up;
    std::atomic<Index> downloaded{0};  ///< bytes
    std::atomic<Index> downloads{0};   ///< each of which waits for the device
    std::atomic<Index> uploads{0};
    std::atomic<Index> allocations{0};
    std::atomic<Index> launches{0};  ///< of kernels; a scan or a sort of CUB counts as one
    Index refused_from = INT64_MAX;  ///< the first allocation that fails

    /// Memory of a test's that counts as the device's.
    void claim(void const* memory, Index bytes) {
        std::lock_guard const lock(mutex_);
        if (bytes != 0) memory_[number(memory)] = number(memory) + static_cast<std::uintptr_t>(bytes);
    }
    void release(void const* memory) {
        std::lock_guard const lock(mutex_);
        memory_.erase(number(memory));
    }
    /// claim(), of what kernels have to write before anybody reads it; until this device is gone.
    void claim_unwritten(void const* memory, Index bytes) {
        claim(memory, bytes);
        if (watcher == nullptr || bytes == 0) return;
        watcher->allocated(memory, bytes);
        unwritten_.push_back(memory);
    }
    [[nodiscard]] bool has(void const* memory, Index bytes) const {
        std::lock_guard const lock(mutex_);
        auto const behind = memory_.upper_bound(number(memory));
        if (bytes == 0) return true;
        return behind != memory_.begin() &&
               number(memory) + static_cast<std::uintptr_t>(bytes) <= std::prev(behind)->second;
    }
    [[nodiscard]] std::size_t pieces() const {
        std::lock_guard const lock(mutex_);
        return memory_.size();
    }

private:
    [[nodiscard]] static std::uintptr_t number(void const* memory) { return reinterpret_cast<std::uintptr_t>(memory); }
    std::map<std::uintptr_t, std::uintptr_t> memory_;
    std::vector<void const*> unwritten_;  ///< as it was claimed
    mutable std::mutex mutex_;
};

}  // namespace reshard::test
