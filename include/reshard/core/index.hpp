// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/index.hpp
/// \brief  The integer of the library, a list of a few of them kept inline, and exact integer helpers.
/// \depends error, <cstddef>. No allocation: everything here is constexpr and callable from kernels.
#pragma once

#include <reshard/core/error.hpp>

#include <concepts>  // integral
#include <cstddef>   // size_t

namespace reshard::inline v0_1 {

/// Extents, offsets, strides and counts, in elements unless a name says bytes. Always 64-bit.
using Index = std::int64_t;

/// Marks an extent that is known at run time only: `Shape<dynamic, 1024>`.
inline constexpr Index dynamic = -1;

/// A tensor has at most this many dimensions, a mesh at most this many axes.
inline constexpr int max_dims = 8;
inline constexpr int max_axes = 8;

namespace detail {
/// ceil(a / b) for a >= 0, b > 0.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Index ceil_div(Index a, Index b) noexcept {
    return a / b + (a % b != 0 ? 1 : 0);
}

template <class T>
[[nodiscard]] RESHARD_HOST_DEVICE constexpr T smaller(T a, T b) noexcept {
    return b < a ? b : a;
}

template <class T>
[[nodiscard]] RESHARD_HOST_DEVICE constexpr T larger(T a, T b) noexcept {
    return a < b ? b : a;
}

/// a * b into result; false when the product does not fit. \pre a, b >= 0.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr bool multiply_fits(Index a, Index b, Index& result) noexcept {
    constexpr Index limit = INT64_MAX;
    bool const certain = ((a | b) >> 31) == 0;  // spares the division, which costs more than everything around it
    if (!certain && a != 0 && b > limit / a) return false;
    result = a * b;
    return true;
}
/// total += count * value; false, and nothing added, when that does not fit. \pre none is negative.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr bool add_fits(Index& total, Index value, Index count = 1) noexcept {
    Index product = 0;
    if (!multiply_fits(value, count, product) || product > INT64_MAX - total) return false;
    total += product;
    return true;
}

/// What is never negative as the standard library counts it, and its counts as the library's own.
[[nodiscard, gnu::always_inline]] RESHARD_HOST_DEVICE constexpr std::size_t as_size(std::integral auto i) noexcept {
    return static_cast<std::size_t>(i);
}
[[nodiscard, gnu::always_inline]] RESHARD_HOST_DEVICE constexpr Index as_index(std::integral auto i) noexcept {
    return static_cast<Index>(i);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void raise_full(int capacity) {
    raise(ErrorCode::shape, "reshard::InlineList: more than ", capacity, " values. Fix: a tensor has at most ",
          max_dims, " dimensions and a mesh at most ", max_axes, " axes; merge some.");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void raise_value() {
    raise(ErrorCode::shape,
          "reshard::InlineList: a number is beyond what an entry holds. Fix: check it for a wrong sign or unit.");
}

/// The value as an entry of type T: a wrapped number would name another axis or extent.
template <class T, class U>
[[nodiscard]] RESHARD_HOST_DEVICE constexpr T entry(U const& value) {
    auto const result = static_cast<T>(value);
#if !defined(__CUDA_ARCH__)  // kernels cannot throw
    if constexpr (std::is_integral_v<T> && std::is_integral_v<U> && !std::is_same_v<U, bool>) {
        if (static_cast<U>(result) != value || (result < 0) != (value < 0)) raise_value();
    }
#endif
    return result;
}

}  // namespace detail

/// Up to Capacity values kept inside the object: what shapes, strides, coordinates and boxes are made of.
template <class T, int Capacity>
struct InlineList {
    T values[detail::as_size(Capacity)]{};
    int count = 0;

    InlineList() = default;
    /// Up to Capacity values; more do not compile, and fractions are no integers.
    template <class... U>
        requires(sizeof...(U) >= 1 && sizeof...(U) <= detail::as_size(Capacity) &&
                 (std::is_convertible_v<U const&, T> && ...) &&
                 !(std::is_integral_v<T> && (std::is_floating_point_v<U> || ...)))
    RESHARD_HOST_DEVICE constexpr InlineList(U const&... list)
        : values{detail::entry<T>(list)...}, count(static_cast<int>(sizeof...(U))) {}

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int size() const noexcept { return count; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr bool empty() const noexcept { return count == 0; }
    [[nodiscard]] static constexpr int capacity() noexcept { return Capacity; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T& operator[](int i) noexcept { return values[i]; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T const& operator[](int i) const noexcept { return values[i]; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T& back() noexcept { return values[count - 1]; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T const& back() const noexcept { return values[count - 1]; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T* begin() noexcept { return values; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T* end() noexcept { return values + count; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T const* begin() const noexcept { return values; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr T const* end() const noexcept { return values + count; }

    /// Throws ShapeError when the list is full. \pre in kernels, which cannot throw: size() < capacity().
    RESHARD_HOST_DEVICE constexpr void push_back(T value) {
#if !defined(__CUDA_ARCH__)
        if (count >= Capacity) detail::raise_full(Capacity);
#endif
        values[count++] = value;
    }
    template <class U>
        requires(std::is_integral_v<T>&& std::is_floating_point_v<U>)
    void push_back(U value) = delete;
    RESHARD_HOST_DEVICE constexpr void pop_back() noexcept { --count; }

    [[nodiscard]] RESHARD_HOST_DEVICE friend constexpr bool operator==(InlineList const& a,
                                                                       InlineList const& b) noexcept {
        if (a.count != b.count) return false;
        for (int i = 0; i < a.count; ++i)
            if (!(a.values[i] == b.values[i])) return false;
        return true;
    }
};

/// One integer per tensor dimension (or per mesh axis).
using Indices = InlineList<Index, max_dims>;

/// Integers that know how many they are: a std::vector, a std::span. No text.
template <class T>
concept IntegerList = requires(T const& list) {
    list.size();
    list.end();
    requires std::is_integral_v<std::remove_cvref_t<decltype(*list.begin())>>;
    requires !std::is_same_v<std::remove_cvref_t<decltype(*list.begin())>, char>;
};

namespace detail {
/// The first number from `begin` on that `holds`; `end` when none does. \pre what holds for one holds for all behind
/// it. On the side that `holds` is for.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Count, class Holds>
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Count first_where(Count begin, Count end, Holds const& holds) {
    while (begin < end) {
        Count const middle = begin + (end - begin) / 2;
        holds(middle) ? end = middle : begin = middle + 1;
    }
    return begin;
}
/// The part that a place lies in, where part k begins at begins[k]: the last of `parts` that begins there or before.
template <class Count>
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Count part_at(Index const* begins, Count parts, Index place) noexcept {
    return first_where<Count>(1, parts, [&](Count part) { return begins[part] > place; }) - 1;
}

template <class List>
[[nodiscard]] constexpr Indices indices_of(List const& list) {
    Indices result;
    for (auto const value : list) result.push_back(entry<Index>(value));
    return result;
}

/// An order-sensitive 64-bit digest (FNV-1a over the bytes of each value): hashes plans, never secrets.
class Digest {
public:
    constexpr Digest& add(std::uint64_t value) noexcept {
        for (int byte = 0; byte < 8; ++byte) add_byte((value >> (8 * byte)) & 0xffU);
        return *this;
    }
    constexpr Digest& add_signed(Index value) noexcept { return add(static_cast<std::uint64_t>(value)); }
    /// Its length and its bytes: where one text ends and the next begins counts.
    constexpr Digest& add_text(std::string_view text) noexcept { return add(text.size()).add_bytes(text); }
    constexpr Digest& add_bytes(std::string_view bytes) noexcept {
        for (char c : bytes) add_byte(static_cast<unsigned char>(c));
        return *this;
    }
    /// The same eight bytes at a time, for long texts and thousands of them. Another value than add_text() gives.
    constexpr Digest& add_words(std::string_view text) noexcept {
        add_word(text.size());
        std::size_t at = 0;
        for (; text.size() - at >= 8; at += 8) {
            std::uint64_t word = 0;
            for (unsigned byte = 0; byte < 8; ++byte) {
                word |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[at + byte])) << (8 * byte);
            }
            add_word(word);
        }
        std::uint64_t rest = 0;
        for (; at < text.size(); ++at) rest = rest << 8U | static_cast<unsigned char>(text[at]);
        return add_word(rest);
    }
    /// A number in one step, for lists of thousands of records. Another value than add() gives.
    constexpr Digest& add_word(std::uint64_t word) noexcept {
        state_ = (state_ ^ word) * 0x9e3779b97f4a7c15U;
        state_ ^= state_ >> 32U;  // multiplying carries upwards only
        return *this;
    }
    constexpr Digest& add_word_signed(Index word) noexcept { return add_word(static_cast<std::uint64_t>(word)); }
    [[nodiscard]] constexpr std::uint64_t value() const noexcept { return state_; }

private:
    constexpr void add_byte(std::uint64_t byte) noexcept { state_ = (state_ ^ byte) * 0x100000001b3U; }

    std::uint64_t state_ = 0xcbf29ce484222325U;
};
}  // namespace detail

}  // namespace reshard::inline v0_1
