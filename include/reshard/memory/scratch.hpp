// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/scratch.hpp
/// \brief  Scratch: memory that is written before it is read, of large pages where the system has them.
/// \depends core/large_memory, <memory>. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/core/large_memory.hpp>

#include <memory>  // unique_ptr
#include <span>    // span

namespace reshard::inline v0_1 {

/// Bytes of the host, not initialised, aligned to 64; the caller's until this dies. Move-only.
class Scratch {
public:
    Scratch() = default;
    /// Throws OutOfMemory. \pre bytes >= 0.
    explicit Scratch(Index bytes) {
        if (bytes == 0) return;
        detail::HostBlock const block = detail::allocate_host(detail::as_size(bytes), false);  // others want it next
        data_ = {static_cast<std::byte*>(block.data), block.release};
        bytes_ = bytes;
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
    [[nodiscard]] Index size() const noexcept { return data_ == nullptr ? 0 : bytes_; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data(), detail::as_size(size())}; }
    /// As integers, as many as fit.
    [[nodiscard]] std::span<Index> words() const noexcept {
        return {reinterpret_cast<Index*>(data()), detail::as_size(size()) / sizeof(Index)};
    }

private:
    std::unique_ptr<std::byte, void (*)(void*) noexcept> data_{nullptr, nullptr};
    Index bytes_ = 0;
};

}  // namespace reshard::inline v0_1
