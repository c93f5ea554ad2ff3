// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/forecast_figures.hpp
/// \brief  LoadForecast: the figures that forecast_load() gives.
/// \depends checkpoint/load_strategy (Collectives).
#pragma once

#include <reshard/checkpoint/load_strategy.hpp>

namespace reshard::inline v0 {

/// What all ranks together would do. Bytes, unless it says otherwise.
struct LoadForecast {
    std::string_view strategy;
    int ranks = 0;
    Index tensors = 0;
    Index bytes_loaded = 0;   ///< of all local tensors, without identities
    Collectives collectives;  ///< the same on every rank
    Index bytes_passed = 0;   ///< of tensors that collectives deliver to ranks, the rank that sends them included
    Index bytes_on_wire = 0;  ///< of these, what crosses ranks
    Index messages = 0;       ///< that carry them: one from a rank to another for each window that has something for it
    Index bytes_of_lists = 0;   ///< cross ranks besides: lists of tensors, figures for a choice, sums of parts
    Index bytes_in_files = 0;   ///< of the extents that somebody reads, each counted once
    Index bytes_read = 0;       ///< from files, gaps that are read along included
    Index most_bytes_read = 0;  ///< by one rank
    Index reads = 0;
    Index most_reads = 0;        ///< of one rank
    Index files_opened = 0;      ///< for their data: once for each rank that does
    Index lists_opened = 0;      ///< manifest, index, and files whose headers are read for the list of tensors
    Index bytes_verified = 0;    ///< of extents whose checksums are compared, by each rank that does
    Index extra_bytes = 0;       ///< largest memory of one rank beyond its local tensors: staging, scratch
    bool read_directly = false;  ///< no tensor crosses ranks
    double seconds = 0;          ///< by the LoadModel
};

}  // namespace reshard::inline v0
