// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/scratch.hpp
/// \brief  Scratch: memory that is written before it is read, on large pages where the system has them.
/// \depends core/index, <new>. Opt-in: not part of the umbrella.
///
/// A fresh gigabyte costs 262,144 page faults of 4 KiB, which take longer than filling it; of 2 MiB pages it is 512.
/// Linux gives those to who asks (madvise, MADV_HUGEPAGE) unless it was told never to.
#pragma once

#include <reshard/core/index.hpp>

#include <cstddef>  // byte
#include <cstdint>  // uintptr_t
#include <new>      // align_val_t
#include <span>     // span
#include <utility>  // exchange

#if defined(__linux__)
#include <sys/mman.h>  // madvise
#endif

namespace reshard::inline v0 {

/// Asks for large pages where memory that was not written to yet has room for some.
inline void prefer_large_pages(void* memory, std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t page = std::uintptr_t{1} << 21;
    auto const begin = reinterpret_cast<std::uintptr_t>(memory);
    std::uintptr_t const skipped = (page - begin % page) % page;
    if (bytes < skipped + page) return;
    static_cast<void>(
        ::madvise(static_cast<std::byte*>(memory) + skipped, (bytes - skipped) / page * page, MADV_HUGEPAGE));
#else
    static_cast<void>(memory);
    static_cast<void>(bytes);
#endif
}

/// Bytes of the host, not initialised, aligned to 64 at least; the caller's until this dies. Move-only.
class Scratch {
public:
    static constexpr std::size_t large_page = std::size_t{1} << 21;

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
