// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/read_options.hpp
/// \brief  How boxes of tensors in files become reads.
/// \depends core. Done by ranged_read.hpp.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

namespace reshard::inline v0_1 {

/// How boxes of files become reads. Gaps of at most 4 KiB are always read: that is a page.
struct ReadOptions {
    Index gap_bytes = Index{64} << 10;    ///< two runs are read together when at most this lies between them ...
    double over_read = 2.0;               ///< ... and the read has at most so many times the bytes that go to memory
    Index chunk_bytes = Index{8} << 20;   ///< no read is longer; also the scratch memory of each read in flight
    int in_flight = 4;                    ///< reads at once: threads of this call, its own among them (1: no others)
    Index direct_bytes = Index{1} << 20;  ///< from here a run that is one run in memory is read there, and alone
};

namespace detail {
/// Throws BufferError for an option below what means something.
inline void check_option(std::string_view options, std::string_view what, Index value, Index least,
                         std::string_view fix) {
    if (value >= least) return;
    raise(ErrorCode::buffer, "reshard::", options, ": ", what, " is ", value, ". Fix: ", fix);
}
}  // namespace detail

}  // namespace reshard::inline v0_1
