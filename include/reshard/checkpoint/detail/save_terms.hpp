// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_terms.hpp
/// \brief  What is wrong with the options of a save, and what all ranks must give alike.
/// \depends checkpoint/save_options. No I/O.
#pragma once

#include <reshard/checkpoint/save_options.hpp>

namespace reshard::inline v0::detail {

/// Throws BufferError for options that mean nothing.
inline void check(SaveOptions const& options) {
    auto const refuse = [](std::string_view what, Index value, std::string_view fix) {
        raise(ErrorCode::buffer, concat("reshard::SaveOptions: ", what, " is ", value, ". Fix: ", fix));
    };
    if (options.in_flight < 1) refuse("in_flight", options.in_flight, "allow at least one write.");
    if (options.buffer_bytes < 1) refuse("buffer_bytes", options.buffer_bytes, "allow 4 KiB or more.");
    if (options.min_slice_bytes < 1) refuse("min_slice_bytes", options.min_slice_bytes, "a slice has bytes.");
    if (options.small_bytes < 0) refuse("small_bytes", options.small_bytes, "0 means that nothing is small.");
    if (options.snapshot_bytes < 0) refuse("snapshot_bytes", options.snapshot_bytes, "0 means room for all bytes.");
}

[[nodiscard]] inline std::uint64_t digest_of(SaveOptions const& options) {
    Digest digest;
    digest.add(static_cast<std::uint64_t>(options.dedup)).add_signed(options.small_bytes);
    digest.add_signed(options.min_slice_bytes).add(options.replica_axes.size());
    for (int axis : options.replica_axes) digest.add_signed(axis);
    for (auto const& [key, value] : options.metadata) digest.add_text(key).add_text(value);
    digest.add(options.verify_replicas ? 1U : 0U).add(options.durable ? 1U : 0U);
    return digest.value();
}

[[nodiscard]] inline std::string text_of(SaveOptions const& options) {
    std::string axes;
    for (int axis : options.replica_axes) axes += concat(axes.empty() ? "" : ",", axis);
    return concat("with dedup ", name(options.dedup), ", small_bytes ", options.small_bytes, ", min_slice_bytes ",
                  options.min_slice_bytes, ", replica_axes [", axes, "], ", options.metadata.size(),
                  " texts of metadata, verify_replicas ", options.verify_replicas ? "true" : "false", ", durable ",
                  options.durable ? "true" : "false");
}

}  // namespace reshard::inline v0::detail
