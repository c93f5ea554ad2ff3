// SPDX-License-Identifier: Apache-2.0
// How core/large_memory.hpp is done.
#pragma once

#include <reshard/core/large_memory.hpp>

#include <new>  // operator new, align_val_t

namespace reshard::inline v0 {

namespace detail {

inline constexpr std::align_val_t block_alignment{64};

/// Before the data of each large block.
struct alignas(64) LargeBlock {
    std::size_t bytes;  // of data
    LargeBlock* next;   // kept longer

    void free() noexcept { ::operator delete(this, block_alignment); }
};

struct KeptBlocks {
    LargeBlock* newest = nullptr;
    bool is_over = false;  // the thread ends

    /// Frees what is there from this link on.
    static void free_from(LargeBlock*& link) noexcept {
        while (link != nullptr) std::exchange(link, link->next)->free();
    }
};
/// It needs no destructor, so that tensors which outlive the thread's variables find it still there.
RESHARD_INLINE KeptBlocks& kept_blocks() noexcept {
    static constinit thread_local KeptBlocks kept;
    struct EndOfThread {
        ~EndOfThread() {
            KeptBlocks::free_from(kept.newest);
            kept.is_over = true;
        }
    };
    static thread_local EndOfThread const end;
    static_cast<void>(end);
    return kept;
}

/// The system has the pages of a freed block whenever it wants them. (The header lies in front of the first of them.)
[[nodiscard]] inline bool offer_pages(LargeBlock& block) noexcept {
#if defined(__SANITIZE_ADDRESS__) || !defined(__linux__) || !defined(MADV_FREE)
    static_cast<void>(block);
    return false;  // ASan sees who uses freed memory
#else
    return advise_large_pages(&block + 1, block.bytes, MADV_FREE);
#endif
}

inline void release_large(void* data) noexcept {
    LargeBlock* const block = static_cast<LargeBlock*>(data) - 1;
    KeptBlocks& kept = kept_blocks();
    if (kept.is_over || !offer_pages(*block)) return block->free();
    block->next = std::exchange(kept.newest, block);
    int blocks = 0;
    std::size_t bytes = 0;
    for (LargeBlock** link = &kept.newest; *link != nullptr; link = &(*link)->next) {
        bytes += (*link)->bytes;
        if (++blocks > most_kept_blocks || bytes > most_kept_bytes) return KeptBlocks::free_from(*link);
    }
}

}  // namespace detail

RESHARD_INLINE detail::HostBlock detail::allocate_host(std::size_t bytes) {
    if (bytes < large_block) {
        return {::operator new(bytes, block_alignment),
                [](void* data) noexcept { ::operator delete(data, block_alignment); }};
    }
    KeptBlocks& kept = kept_blocks();
    for (LargeBlock** link = &kept.newest; *link != nullptr; link = &(*link)->next) {
        LargeBlock* const block = *link;
        if (block->bytes < bytes || block->bytes - bytes > bytes / 8) continue;
        *link = block->next;
        return {block + 1, release_large};
    }
    std::size_t const whole = sizeof(LargeBlock) + bytes;
    void* memory = kept.newest == nullptr ? nullptr : ::operator new(whole, block_alignment, std::nothrow);
    if (memory == nullptr) {
        KeptBlocks::free_from(kept.newest);
        memory = ::operator new(whole, block_alignment);
    }
    auto* const block = ::new (memory) LargeBlock{bytes, nullptr};
    prefer_large_pages(block + 1, bytes);
    return {block + 1, release_large};
}

}  // namespace reshard::inline v0
