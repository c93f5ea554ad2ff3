// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/consolidate_share.hpp
/// \brief  RewriteShare: one rank's part in rewriting a checkpoint, in numbers.
/// \depends core/index.
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0 {

/// What one rank will do. Reads and runs are exact: read_boxes() and the writer do just these.
struct RewriteShare {
    Index begin = 0;  ///< of all bytes that are written, in the order of the files
    Index end = 0;
    Index pieces = 0;
    Index reads = 0;
    Index bytes_read = 0;
    Index runs = 0;  ///< runs of files that are written
    Index files_read = 0;
    Index files_written = 0;
    [[nodiscard]] Index bytes() const noexcept { return end - begin; }
    friend bool operator==(RewriteShare const&, RewriteShare const&) = default;
};

}  // namespace reshard::inline v0
