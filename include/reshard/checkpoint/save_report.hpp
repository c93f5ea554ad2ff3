// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/save_report.hpp
/// \brief  What a save did, on one rank and on all.
/// \depends checkpoint/load_strategy (Collectives).
#pragma once

#include <reshard/checkpoint/load_strategy.hpp>

#include <string>  // string

namespace reshard::inline v0 {

struct SaveReport {
    std::string save;              ///< the id, in the names of the files
    Index tensors = 0;             ///< that were listed
    Index extents = 0;             ///< that this rank wrote
    Index bytes_written = 0;       ///< by this rank, header included
    Index files_opened = 0;        ///< by this rank: one for its data, and rank 0 one for the manifest
    Index bytes_saved = 0;         ///< of tensors, by all ranks together
    Index bytes_deduplicated = 0;  ///< that ranks hold and nobody had to write, because others hold them too
    Collectives collectives;
    Traffic traffic;
    Index extra_bytes = 0;       ///< memory of this rank beyond the tensors: buffers, or the snapshot
    double seconds = 0;          ///< from the call to the end of the save
    double seconds_blocked = 0;  ///< of these, in save(), start_save() and wait()
};

}  // namespace reshard::inline v0
