// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/divider.hpp
/// \brief  Exact division by one number without a division: what routing rules and kernels that walk boxes share.
/// \depends core only. constexpr, for host and device.
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// The upper 64 bits of a * b.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr std::uint64_t high_product(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<Wide>(a) * b >> 64);
}

/// Division by one number, exact for every 64-bit dividend and divisor: two multiplications instead of a division. With
/// m = floor((2^64 - 1) / d) the upper half of v * m is v / d or one less, because 2^64 - m * d <= d.
class Divider {
public:
    constexpr Divider() = default;  ///< by 1
    /// \pre divisor > 0.
    RESHARD_HOST_DEVICE constexpr explicit Divider(std::uint64_t divisor) noexcept
        : divisor_(divisor), inverse_(UINT64_MAX / divisor) {}

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr std::uint64_t operator()(std::uint64_t value) const noexcept {
        std::uint64_t const quotient = detail::high_product(value, inverse_);
        return quotient + (value - quotient * divisor_ >= divisor_ ? 1 : 0);
    }
    /// The same in 32 bits, which devices multiply in one instruction: the upper half of `inverse_` is the inverse
    /// there. \pre divisor() < 2^32.
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr std::uint32_t operator()(std::uint32_t value) const noexcept {
        auto const divisor = static_cast<std::uint32_t>(divisor_);
        auto const quotient = static_cast<std::uint32_t>(std::uint64_t{value} * (inverse_ >> 32U) >> 32U);
        return quotient + (value - quotient * divisor >= divisor ? 1 : 0);
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr std::uint64_t divisor() const noexcept { return divisor_; }

private:
    std::uint64_t divisor_ = 1;
    std::uint64_t inverse_ = UINT64_MAX;
};

}  // namespace detail

}  // namespace reshard::inline v0_1
