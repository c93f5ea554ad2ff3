// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/scratch.hpp
/// \brief  Scratch: memory that is written before it is read, on large pages where the system has them.
/// \depends core/large_pages, <memory>, <new>. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/core/large_pages.hpp>

#include <memory>  // unique_ptr
#include <new>     // align_val_t
#include <span>    // span

namespace reshard::inline v0 {

/// Bytes of the host, not initialised, aligned to 64 at least; the caller's until this dies. Move-only.
class Scratch {
public:
    Scratch() = default;
    /// Throws std::bad_alloc. \pre bytes >= 0.
    explicit Scratch(Index bytes) {
        Release const release{detail::as_size(bytes)};
        if (bytes == 0) return;
        data_ = {static_cast<std::byte*>(::operator new(release.bytes, release.alignment())), release};
        if (release.is_large()) detail::prefer_large_pages(data(), release.bytes);
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
    [[nodiscard]] Index size() const noexcept { return detail::as_index(bytes().size()); }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {data(), data_ == nullptr ? 0 : data_.get_deleter().bytes};
    }
    /// As integers, as many as fit.
    [[nodiscard]] std::span<Index> words() const noexcept {
        return {reinterpret_cast<Index*>(data()), bytes().size() / sizeof(Index)};
    }

private:
    struct Release {
        std::size_t bytes;

        /// Two pages: less is not worth the ends that are wasted.
        [[nodiscard]] bool is_large() const noexcept { return bytes >= 2 * detail::large_page; }
        [[nodiscard]] std::align_val_t alignment() const noexcept {
            return std::align_val_t{is_large() ? detail::large_page : std::size_t{64}};
        }
        void operator()(std::byte* data) const noexcept { ::operator delete(data, alignment()); }
    };
    std::unique_ptr<std::byte, Release> data_;
};

}  // namespace reshard::inline v0
