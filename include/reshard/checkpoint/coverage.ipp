// SPDX-License-Identifier: Apache-2.0
// How checkpoint/coverage.hpp is done.
#pragma once

#include <reshard/checkpoint/coverage.hpp>
#include <reshard/checkpoint/detail/cover_fault.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE void check_coverage(Manifest const& manifest, std::string_view file) {
    std::string const fault = detail::coverage_fault(manifest);
    if (fault.empty()) return;
    raise(ErrorCode::format,
          concat("reshard::Manifest: ", file, ": ", fault, ". Fix: restore the file, or save anew."));
}

}  // namespace reshard::inline v0
