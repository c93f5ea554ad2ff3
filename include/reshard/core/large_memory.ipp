// SPDX-License-Identifier: Apache-2.0
// How core/large_memory.hpp is done.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/large_memory.hpp>

#if defined(__linux__)
#include <sys/resource.h>  // getrlimit

// There where a sanitizer is, whoever compiled this code. NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __msan_init();
[[gnu::weak]] void __tsan_init();
}
// NOLINTEND(bugprone-reserved-identifier)
#endif

#include <new>  // operator new, align_val_t

namespace reshard::inline v0_1 {

namespace detail {

inline constexpr std::align_val_t block_alignment{64};

/// Before the data of each large block.
struct alignas(64) LargeBlock {
    std::size_t bytes;  // of data
    LargeBlock* next;   // kept longer

    void free() noexcept { ::operator delete(this, block_alignment); }
};

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_block(std::size_t bytes) {
    raise(ErrorCode::out_of_memory, no_memory_text, " (There were no ", bytes, " bytes in one block.)");
}
/// Whether memory that is kept is missing nobody.
[[nodiscard]] RESHARD_INLINE bool may_keep_blocks() noexcept {
#if defined(__linux__) && defined(MADV_FREE)
    rlimit space{};
    bool const is_watched = &__asan_init != nullptr || &__msan_init != nullptr || &__tsan_init != nullptr;
    return !is_watched && ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur == RLIM_INFINITY;
#else
    return false;
#endif
}
/// The system has the pages of a freed block whenever it wants them. (The header lies in front of the first of them.)
[[nodiscard]] inline bool offer_pages([[maybe_unused]] LargeBlock& block) noexcept {
#if defined(__linux__) && defined(MADV_FREE)
    constexpr std::size_t page = std::size_t{1} << 16;  // the largest ordinary one of a processor
    return advise_pages(&block + 1, block.bytes, page, MADV_FREE);
#else
    return false;
#endif
}

struct KeptBlocks {
    LargeBlock* newest = nullptr;
    bool is_closed = false;  // the thread ends, or may not keep any

    /// Frees what is there from this link on.
    static void free_from(LargeBlock*& link) noexcept {
        while (link != nullptr) std::exchange(link, link->next)->free();
    }
};
/// It needs no destructor, so that tensors which outlive the thread's variables find it still there.
RESHARD_INLINE KeptBlocks& kept_blocks() noexcept {
    static constinit thread_local KeptBlocks kept;
    struct Thread {
        Thread() noexcept { kept.is_closed = !may_keep_blocks(); }
        ~Thread() {
            KeptBlocks::free_from(kept.newest);
            kept.is_closed = true;
        }
    };
    static thread_local Thread const thread;
    static_cast<void>(thread);
    return kept;
}

inline void free_large(void* data) noexcept { (static_cast<LargeBlock*>(data) - 1)->free(); }
inline void release_large(void* data) noexcept {
    LargeBlock* const block = static_cast<LargeBlock*>(data) - 1;
    KeptBlocks& kept = kept_blocks();
    if (kept.is_closed || block->bytes > most_kept_bytes || !offer_pages(*block)) return block->free();
    block->next = std::exchange(kept.newest, block);
    int blocks = 0;
    std::size_t bytes = 0;
    for (LargeBlock** link = &kept.newest; *link != nullptr; link = &(*link)->next) {
        bytes += (*link)->bytes;
        if (++blocks > most_kept_blocks || bytes > most_kept_bytes) return KeptBlocks::free_from(*link);
    }
}

}  // namespace detail

RESHARD_INLINE detail::HostBlock detail::allocate_host(std::size_t bytes, bool keeps) {
    if (bytes < large_block) {
        void* const memory = ::operator new(bytes, block_alignment, std::nothrow);
        if (memory == nullptr) refuse_block(bytes);
        return {memory, [](void* data) noexcept { ::operator delete(data, block_alignment); }};
    }
    auto const release = keeps ? release_large : free_large;
    KeptBlocks& kept = kept_blocks();
    for (LargeBlock** link = &kept.newest; *link != nullptr; link = &(*link)->next) {
        LargeBlock* const block = *link;
        if (block->bytes < bytes || block->bytes - bytes > bytes / 8) continue;
        *link = block->next;
        return {block + 1, release};
    }
    std::size_t const whole = sizeof(LargeBlock) + bytes;
    void* memory = kept.newest == nullptr ? nullptr : ::operator new(whole, block_alignment, std::nothrow);
    if (memory == nullptr) {
        KeptBlocks::free_from(kept.newest);
        memory = ::operator new(whole, block_alignment, std::nothrow);
    }
    if (memory == nullptr) refuse_block(bytes);
    auto* const block = ::new (memory) LargeBlock{bytes, nullptr};
    prefer_large_pages(block + 1, bytes);
    return {block + 1, release};
}

}  // namespace reshard::inline v0_1
