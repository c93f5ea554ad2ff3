// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/detail/chunks.hpp
/// \brief  Small pieces of memory, cut from chunks: where an allocation takes longer than what is done in it.
/// \depends core, <mutex>, <vector>. Compiles without CUDA.
#pragma once

#include <reshard/core/index.hpp>

#include <mutex>   // mutex
#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// Pieces are used in the order of one stream, so a chunk none of whose pieces is left begins anew at once; chunks are
/// released with the object. Pieces may be given back by any thread. `Source` has allocate(bytes), which is aligned to
/// 256 and null when there is none left, and release(memory, bytes).
template <class Source>
class Chunks {
public:
    static constexpr std::size_t chunk_bytes = std::size_t{4} << 20U;
    static constexpr std::size_t most_bytes = chunk_bytes / 8;  ///< of a piece

    explicit Chunks(Source const& source) noexcept : source_(source) {}
    Chunks& operator=(Chunks&&) = delete;
    ~Chunks() {
        for (Chunk const& chunk : chunks_) source_.release(chunk.memory, chunk_bytes);
    }

    /// Aligned to 256; null when the source has none left. \pre bytes <= most_bytes
    [[nodiscard]] std::byte* take(std::size_t bytes) {
        std::size_t const size = (bytes + 256) / 256 * 256;  // none has the address of another, not even one of 0 bytes
        std::lock_guard const lock(mutex_);
        Chunk* chunk = nullptr;
        for (Chunk& each : chunks_)
            if (each.used + size <= chunk_bytes) chunk = &each;
        if (chunk == nullptr) {
            chunks_.reserve(chunks_.size() + 1);
            void* const memory = source_.allocate(chunk_bytes);
            if (memory == nullptr) return nullptr;
            chunk = &chunks_.emplace_back(Chunk{static_cast<std::byte*>(memory)});
        }
        ++chunk->pieces;
        return chunk->memory + std::exchange(chunk->used, chunk->used + size);
    }
    void give_back(std::byte const* piece) noexcept {
        std::lock_guard const lock(mutex_);
        for (Chunk& chunk : chunks_) {
            if (piece < chunk.memory || piece >= chunk.memory + chunk_bytes) continue;
            if (--chunk.pieces == 0) chunk.used = 0;
        }
    }

private:
    struct Chunk {
        std::byte* memory;
        std::size_t used = 0;
        int pieces = 0;
    };
    Source source_;
    std::mutex mutex_;
    std::vector<Chunk> chunks_;
};

}  // namespace reshard::inline v0_1::detail
