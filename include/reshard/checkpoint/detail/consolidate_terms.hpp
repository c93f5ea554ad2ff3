// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_terms.hpp
/// \brief  What is wrong with the options of rewriting files, and what all ranks must give alike.
/// \depends checkpoint/consolidate_options. No I/O.
#pragma once

#include <reshard/checkpoint/consolidate_options.hpp>

namespace reshard::inline v0::detail {

/// Throws BufferError for options that mean nothing.
inline void check(RewriteOptions const& options) {
    auto const refuse = [](std::string_view what, Index value, std::string_view fix) {
        raise(ErrorCode::buffer, concat("reshard::RewriteOptions: ", what, " is ", value, ". Fix: ", fix));
    };
    if (options.in_flight < 1) refuse("in_flight", options.in_flight, "allow at least one piece.");
    if (options.vote_bytes < 1) refuse("vote_bytes", options.vote_bytes, "millions of bytes between two votes.");
    if (options.replica < -1) refuse("replica", options.replica, "-1 is any copy, 0 the first.");
    Index const least = Index{64} << 10;
    if (options.window_bytes / options.in_flight < least) {
        refuse("window_bytes", options.window_bytes, concat("allow ", least, " bytes for each piece in flight."));
    }
}

[[nodiscard]] inline std::uint64_t digest_of(RewriteOptions const& options) {
    Digest digest;
    for (auto const& [name, other] : options.rename) digest.add_text(name).add_text(other);
    for (auto const& [key, value] : options.metadata) digest.add_text(key).add_text(value);
    digest.add_signed(options.replica).add_signed(options.vote_bytes);
    digest.add((options.verify_checksums ? 1U : 0U) | (options.checksums ? 2U : 0U) | (options.durable ? 4U : 0U));
    return digest.value();
}

}  // namespace reshard::inline v0::detail
