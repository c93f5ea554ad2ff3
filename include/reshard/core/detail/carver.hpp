// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/carver.hpp
/// \brief  A walk through memory of the caller's: arrays one after the other.
/// \depends core/index.
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0_1::detail {

/// Hands out arrays from a workspace, each aligned to so many bytes. \pre it is large enough, `Alignment` more than
/// bytes(); or there is none, and all that is asked is how large it would be. What follows from numbers that were
/// checked fits 64 bits.
template <Index Alignment>
class Carver {
public:
    explicit Carver(std::byte* memory = nullptr) noexcept : memory_(memory) {
        auto const address = reinterpret_cast<std::uintptr_t>(memory);
        if (memory != nullptr) memory_ += (~address + 1U) & static_cast<std::uintptr_t>(Alignment - 1);
    }
    template <class T>
    [[nodiscard]] T* take(Index count) noexcept {
        auto* const array = reinterpret_cast<T*>(memory_ != nullptr ? memory_ + bytes_ : nullptr);
        bytes_ += (count * as_index(sizeof(T)) + Alignment - 1) / Alignment * Alignment;
        return array;
    }
    /// Of all arrays so far.
    [[nodiscard]] Index bytes() const noexcept { return bytes_; }

private:
    std::byte* memory_;
    Index bytes_ = 0;
};

}  // namespace reshard::inline v0_1::detail
