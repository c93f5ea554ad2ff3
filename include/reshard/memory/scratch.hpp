// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/scratch.hpp
/// \brief  Scratch: memory that is written before it is read, on large pages where the system has them.
/// \depends core/large_pages, <new>. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/core/large_pages.hpp>

#include <new>      // align_val_t
#include <span>     // span
#include <utility>  // exchange

namespace reshard::inline v0 {

/// Bytes of the host, not initialised, aligned to 64 at least; the caller's until this dies. Move-only.
class Scratch {
public:
    Scratch() = default;
    /// Throws std::bad_alloc. \pre bytes >= 0.
    explicit Scratch(Index bytes) : bytes_(static_cast<std::size_t>(bytes)) {
        if (bytes_ == 0) return;
        data_ = static_cast<std::byte*>(::operator new(bytes_, alignment()));
        if (is_large()) prefer_large_pages(data_, bytes_);
    }
    Scratch(Scratch&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Scratch& operator=(Scratch&& other) noexcept {
        Scratch taken(std::move(other));
        std::swap(data_, taken.data_);
        std::swap(bytes_, taken.bytes_);
        return *this;
    }
    ~Scratch() {
        if (data_ != nullptr) ::operator delete(data_, alignment());
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] Index size() const noexcept { return static_cast<Index>(bytes_); }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, bytes_}; }
    /// As integers, as many as fit.
    [[nodiscard]] std::span<Index> words() const noexcept {
        return {reinterpret_cast<Index*>(data_), bytes_ / sizeof(Index)};
    }

private:
    /// Two pages: less is not worth the ends that are wasted.
    [[nodiscard]] bool is_large() const noexcept { return bytes_ >= 2 * large_page; }
    [[nodiscard]] std::align_val_t alignment() const noexcept {
        return std::align_val_t{is_large() ? large_page : std::size_t{64}};
    }

    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace reshard::inline v0
