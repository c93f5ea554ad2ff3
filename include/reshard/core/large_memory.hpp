// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/large_memory.hpp
/// \brief  Memory of the host that is not initialised: large blocks on large pages, kept for who asks next.
/// \depends core/{error,index}; <sys/mman.h> on Linux.
///
/// A fresh gigabyte costs 262,144 page faults of 4 KiB, which take longer than filling it; of 2 MiB pages it is 512,
/// and all of them are filled with zeros first, which takes as long as moving as much data does. So a thread keeps the
/// blocks that it freed last. Linux is told that it may take their pages whenever it is short of them (madvise,
/// MADV_FREE); what stays taken is address space. So nothing is kept where that is limited, where the advice is not
/// taken, or with sanitizers, which tell who uses freed memory.
#pragma once

#include <reshard/core/index.hpp>

#if defined(__linux__)
#include <sys/mman.h>  // madvise

#include <cerrno>  // errno
#endif

namespace reshard::inline v0_1 {

namespace detail {
inline constexpr std::size_t large_page = std::size_t{1} << 21;

/// Gives advice on the whole pages of [memory, memory + bytes). Whether it was taken; true where there are none.
inline bool advise_pages(void* memory, std::size_t bytes, std::size_t page, [[maybe_unused]] int advice) noexcept {
    auto const begin = reinterpret_cast<std::uintptr_t>(memory);
    std::uintptr_t const skipped = (page - begin % page) % page;
    if (bytes < skipped + page) return true;
#if defined(__linux__)
    int const before = errno;  // destructors come here
    bool const taken =
        ::madvise(static_cast<std::byte*>(memory) + skipped, (bytes - skipped) / page * page, advice) == 0;
    errno = before;
    return taken;
#else
    return false;
#endif
}
/// Asks for large pages where memory that was not written to yet has room for some.
inline void prefer_large_pages(void* memory, std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    advise_pages(memory, bytes, large_page, MADV_HUGEPAGE);
#else
    static_cast<void>(memory);
    static_cast<void>(bytes);
#endif
}

/// What a thread keeps, at most.
inline constexpr int most_kept_blocks = 8;
inline constexpr std::size_t most_kept_bytes = std::size_t{1} << 30;
/// From here on blocks are large.
inline constexpr std::size_t large_block = 2 * large_page;

struct HostBlock {
    void* data;
    void (*release)(void* data) noexcept;
};
/// Not initialised, aligned to 64 (and not to large pages: blocks whose addresses differ by multiples of 2 MiB share
/// the sets of caches). A kept block of up to an eighth more is taken before a new one is made. It is kept in turn when
/// it is released; with `keeps` = false it is freed. Throws OutOfMemory, which says how many bytes there were not;
/// std::bad_alloc where there is no memory for these words.
[[nodiscard]] HostBlock allocate_host(std::size_t bytes, bool keeps = true);
}  // namespace detail

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/core/large_memory.ipp>
#endif
