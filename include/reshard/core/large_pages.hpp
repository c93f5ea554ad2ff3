// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/large_pages.hpp
/// \brief  Asks for large pages where the system has them.
/// \depends core/index; <sys/mman.h> on Linux.
///
/// A fresh gigabyte costs 262,144 page faults of 4 KiB, which take longer than filling it; of 2 MiB pages it is 512.
/// Linux gives those to who asks (madvise, MADV_HUGEPAGE) unless it was told never to.
#pragma once

#include <reshard/core/index.hpp>

#if defined(__linux__)
#include <sys/mman.h>  // madvise
#endif

namespace reshard::inline v0 {

namespace detail {
inline constexpr std::size_t large_page = std::size_t{1} << 21;

/// Asks for large pages where memory that was not written to yet has room for some.
inline void prefer_large_pages(void* memory, std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    auto const begin = reinterpret_cast<std::uintptr_t>(memory);
    std::uintptr_t const skipped = (large_page - begin % large_page) % large_page;
    if (bytes < skipped + large_page) return;
    static_cast<void>(::madvise(static_cast<std::byte*>(memory) + skipped, (bytes - skipped) / large_page * large_page,
                                MADV_HUGEPAGE));
#else
    static_cast<void>(memory);
    static_cast<void>(bytes);
#endif
}
}  // namespace detail

}  // namespace reshard::inline v0
