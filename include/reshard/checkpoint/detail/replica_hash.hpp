// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_hash.hpp
/// \brief  128-bit hashes of tensors: XXH3 of the xxHash library over the dense row-major bytes, in one pass.
/// \depends element_range, replica_value, <memory>; links libxxhash.
///
/// The library is linked, not compiled in, so that every translation unit means the same functions. A program that is
/// compiled for a newer processor than its xxHash may define XXH_INLINE_ALL for all of its files: a dense shard is then
/// hashed at the speed of memcpy with AVX2, at three quarters of it otherwise.
#pragma once

#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/checkpoint/detail/replica_value.hpp>

#include <iterator>  // ssize
#include <memory>    // unique_ptr
#include <span>      // span
#include <vector>    // vector

#include <xxhash.h>

namespace reshard::inline v0_1::detail {

/// Compared, never interpreted. Equal for equal bytes; for others with probability 2^-128.
struct Hash128 {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    [[nodiscard]] friend constexpr bool operator==(Hash128 const&, Hash128 const&) = default;
};

[[nodiscard]] inline Hash128 hash_of(std::span<std::byte const> bytes) noexcept {
    XXH128_hash_t const hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.low64, hash.high64};
}

/// Hashes views; owns the memory that takes: what is not dense, or must be canonicalised, is looked at through a
/// buffer. Throws OutOfMemory when it is made.
class ReplicaHasher {
public:
    static constexpr std::size_t buffer_bytes = std::size_t{256} << 10;

    /// Of tensors of a device `memory` brings the bytes to the host.
    explicit ReplicaHasher(bool canonical, MemoryPolicy const* memory = nullptr)
        : state_(XXH3_createState()), memory_(memory), canonical_(canonical) {
        if (state_ == nullptr) {
            raise(ErrorCode::out_of_memory,
                  "reshard::verify_replicas: no memory for a hash state. Fix: free some memory.");
        }
        buffer_.resize(buffer_bytes);
    }

    /// Of the elements [begin, end) of the row-major order. \pre elements of whole bytes.
    [[nodiscard]] Hash128 hash(ConstDynamicView const& view, Index begin, Index end) {
        bool const changes = canonical_ && has_equal_bits_apart(view.dtype());
        MemoryPolicy const* const from = policy_for(memory_, view.data());
        Index const element = bytes(view.dtype());
        if (!changes && from == nullptr && is_dense(view)) {
            return hash_of({view.data() + begin * element, as_size((end - begin) * element)});
        }
        static_cast<void>(XXH3_128bits_reset(state_.get()));
        Index const most = std::ssize(buffer_) / element;
        for (; begin < end; begin += most) {
            Index const last = smaller(begin + most, end);
            auto const piece = std::span(buffer_).first(as_size((last - begin) * element));
            gather(view, begin, last, piece.data(), from);
            if (changes) canonicalise(view.dtype(), piece);
            static_cast<void>(XXH3_128bits_update(state_.get(), piece.data(), piece.size()));
        }
        XXH128_hash_t const hash = XXH3_128bits_digest(state_.get());
        return {hash.low64, hash.high64};
    }
    [[nodiscard]] Hash128 hash(ConstDynamicView const& view) { return hash(view, 0, view.size()); }

    /// Of blocks of so many elements; the last one may be shorter.
    [[nodiscard]] std::vector<Hash128> block_hashes(ConstDynamicView const& view, Index block) {
        std::vector<Hash128> result;
        result.reserve(as_size(ceil_div(view.size(), block)));
        for (Index begin = 0; begin < view.size();) {
            Index const end = begin + smaller(block, view.size() - begin);
            result.push_back(hash(view, begin, end));
            begin = end;
        }
        return result;
    }

    [[nodiscard]] bool is_canonical() const noexcept { return canonical_; }

private:
    struct Free {
        void operator()(XXH3_state_t* state) const noexcept { static_cast<void>(XXH3_freeState(state)); }
    };
    std::unique_ptr<XXH3_state_t, Free> state_;
    std::vector<std::byte> buffer_;
    MemoryPolicy const* memory_;
    bool canonical_;
};

}  // namespace reshard::inline v0_1::detail
