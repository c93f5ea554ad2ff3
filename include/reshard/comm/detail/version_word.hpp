// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/version_word.hpp
/// \brief  What ranks tell each other first: which version of this library their programs were built with.
/// \depends core/error.hpp.
///
/// Later versions must be able to read it, and find it where it is: in 64 bits that are the first of what a rank says
/// when a communicator is made (MPI, NCCL), or in the first message to a peer (streams).
#pragma once

#include <reshard/core/error.hpp>

namespace reshard::inline v0_1::detail {

/// Raised when what ranks tell each other changes between two versions with one number: records, their order, or what
/// words mean.
inline constexpr std::uint64_t protocol_number = 1;

/// The highest bits of the word; what older versions say there has others.
inline constexpr std::uint64_t version_sign = 0x7273;
inline constexpr std::uint64_t version_word =
    ((version_sign << 8U | RESHARD_VERSION_MAJOR) << 8U | RESHARD_VERSION_MINOR) << 32U |
    std::uint64_t{RESHARD_VERSION_PATCH} << 16U | protocol_number;

[[nodiscard]] constexpr bool is_version_word(std::uint64_t word) noexcept { return word >> 48U == version_sign; }

[[nodiscard, gnu::cold]] inline std::string version_text(std::uint64_t word) {
    if (!is_version_word(word)) return "an older version";
    auto const part = [&](unsigned shift, std::uint64_t mask) { return word >> shift & mask; };
    return concat("version ", part(40, 0xff), ".", part(32, 0xff), ".", part(16, 0xffff), " (protocol ",
                  part(0, 0xffff), ")");
}
/// What `rank` says where `other`, in words, has another word.
[[nodiscard, gnu::cold]] inline std::string versions_differ_text(std::string_view who, int rank, std::string_view other,
                                                                 std::uint64_t theirs) {
    return concat("reshard::", who, ": the program of rank ", rank, " was built with ", version_text(version_word),
                  " of this library, that of ", other, " with ", version_text(theirs),
                  ". Fix: build all ranks with one version.");
}

}  // namespace reshard::inline v0_1::detail
