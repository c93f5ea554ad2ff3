// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/parts.hpp
/// \brief  What the kernels share: teams, sorted runs, even pieces of a range, a walk through memory of the caller's.
/// \depends core.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <cstdint>  // uintptr_t
#include <span>     // span

namespace reshard::inline v0 {

/// A team of one: runs the parts of a kernel one after the other on the calling thread. Any callable with this shape
/// is a team, if it returns once body(part) has returned for every part; parts may run at the same time.
struct InOrder {
    template <class Body>
    void operator()(int parts, Body&& body) const {
        for (int part = 0; part < parts; ++part) body(part);
    }
};

/// Keys in ascending order, equal ones allowed. Aligned to 8 bytes, as the columns of a packed block are if its buffer
/// is.
struct SortedRun {
    Index const* keys = nullptr;
    Index count = 0;
};

namespace detail {

/// The first index of piece `part` of `parts` of [0, count); sizes differ by one at most.
[[nodiscard]] constexpr Index part_begin(Index count, int parts, int part) noexcept {
    return count / parts * part + smaller<Index>(count % parts, part);
}

/// No two parts write to one line, nor to its neighbour, which processors fetch along.
inline constexpr Index part_alignment = 128;

[[nodiscard]] constexpr Index rounded_to_part(Index bytes) noexcept {
    return (bytes + part_alignment - 1) / part_alignment * part_alignment;
}

/// Asks for the line of an address, which may lie behind what there is.
template <bool ToWrite>
inline void prefetch([[maybe_unused]] void const* address) noexcept {
#if defined(__GNUC__)
    __builtin_prefetch(address, ToWrite ? 1 : 0);
#endif
}

/// Hands out arrays from a workspace one after the other. \pre the workspace is large enough.
class Carver {
public:
    explicit Carver(std::byte* memory) noexcept {
        auto const address = reinterpret_cast<std::uintptr_t>(memory);
        at_ = memory + static_cast<Index>((~address + 1U) & static_cast<std::uintptr_t>(part_alignment - 1));
    }
    template <class T>
    [[nodiscard]] T* take(Index count) noexcept {
        auto* const array = reinterpret_cast<T*>(at_);
        at_ += rounded_to_part(count * static_cast<Index>(sizeof(T)));
        return array;
    }

private:
    std::byte* at_;
};

/// Adds up the sizes of the arrays that a Carver hands out; remembers whether they fit 64 bits.
class CarvedBytes {
public:
    constexpr CarvedBytes& add(Index count, Index size) noexcept {
        Index bytes = 0;
        fits_ = fits_ && multiply_fits(count, size, bytes) && bytes <= INT64_MAX - 2 * part_alignment - total_;
        if (fits_) total_ += rounded_to_part(bytes);
        return *this;
    }
    constexpr CarvedBytes& repeat(int times) noexcept {
        fits_ = fits_ && multiply_fits(total_, times, total_);
        return *this;
    }
    constexpr CarvedBytes& add(CarvedBytes const& other) noexcept {
        fits_ = fits_ && other.fits_;
        return add(other.total_, 1);
    }
    /// Bytes to ask for, room to align the first array included; -1 when they do not fit 64 bits.
    [[nodiscard]] constexpr Index value() const noexcept {
        return fits_ && total_ <= INT64_MAX - part_alignment ? total_ + part_alignment : -1;
    }

private:
    Index total_ = 0;
    bool fits_ = true;
};

inline void check_workspace(char const* who, std::span<std::byte> workspace, Index needed) {
    if (static_cast<Index>(workspace.size()) >= needed && (needed == 0 || workspace.data() != nullptr)) return;
    raise(ErrorCode::buffer, concat(who, ": the workspace has ", workspace.size(), " bytes, ", needed,
                                    " are needed. Fix: allocate workspace_bytes() bytes."));
}

inline void check_parts(char const* who, int parts) {
    if (parts >= 1 && parts <= 65536) return;
    raise(ErrorCode::shape, concat(who, ": ", parts, " parts. Fix: give 1 to 65536, such as one per thread."));
}

}  // namespace detail
}  // namespace reshard::inline v0
