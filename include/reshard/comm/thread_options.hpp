// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/thread_options.hpp
/// \brief  How ranks that are threads behave.
/// \depends memory/copy.hpp, <chrono>.
#pragma once

#include <reshard/memory/copy.hpp>

#include <chrono>  // milliseconds

namespace reshard::inline v0_1 {

/// How ranks that are threads behave.
struct ThreadOptions {
    std::chrono::milliseconds deadline = std::chrono::minutes(5);  ///< of every wait for other ranks; 1 ms or more
    /// Bytes all ranks receive in one exchange, see CopyHint.
    Index streaming_threshold_bytes = transport::streaming_payload_bytes;
    bool (*interrupted)() = nullptr;  ///< asked by threads of ranks: true ends a wait, see MpiOptions
};

}  // namespace reshard::inline v0_1
