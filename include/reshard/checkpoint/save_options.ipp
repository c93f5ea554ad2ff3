// SPDX-License-Identifier: Apache-2.0
// How checkpoint/save_options.hpp is done.
#pragma once

#include <reshard/checkpoint/save_options.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/plan/topology.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE std::string explain(SaveReport const& report) {
    using detail::append, detail::bytes_text, detail::count_text;
    std::string text =
        errors::concat("save ", report.save_id, ": ", count_text(report.tensors, "tensor"), ", ",
                       bytes_text(report.bytes_saved), " by all ranks, ", bytes_text(report.bytes_deduplicated),
                       " more are copies\n", detail::traffic_text(report.collectives, report.traffic));
    append(text, {"  wrote ", bytes_text(report.bytes_written), " in ", count_text(report.extents, "extent"), " and ",
                  count_text(report.files_opened, "open file"), "\n"});
    append(text, {"  memory beyond the tensors: ", bytes_text(report.extra_bytes), "\n  ",
                  detail::seconds_text(report.seconds), ", ", detail::seconds_text(report.seconds_blocked),
                  " of them in calls\n"});
    return text;
}

}  // namespace reshard::inline v0_1
