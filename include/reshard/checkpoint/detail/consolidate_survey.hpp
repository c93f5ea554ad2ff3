// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_survey.hpp
/// \brief  What a rank's pieces come to, and the files that they need, before a byte is read.
/// \depends checkpoint/consolidate_share, checkpoint/detail/consolidate_run. No I/O.
#pragma once

#include <reshard/checkpoint/consolidate_share.hpp>
#include <reshard/checkpoint/detail/consolidate_run.hpp>

#include <algorithm>  // count

namespace reshard::inline v0::detail {

/// What a rank's pieces need: the numbers, and the files.
struct PieceSurvey {
    RewriteShare share;
    std::vector<char> reads_file;
    std::vector<char> writes_file;
};
[[nodiscard]] inline PieceSurvey survey(PieceMaker const& maker, Catalogue const& from, Catalogue const& to,
                                        PieceList const& pieces, RewriteOptions const& options) {
    PieceSurvey result;
    result.reads_file.resize(from.files().size(), 0);
    result.writes_file.resize(to.files().size(), 0);
    RewriteShare& share = result.share;
    ReadOptions reads;
    reads.chunk_bytes = piece_bytes_of(options);
    Scratch const nowhere(pieces.size() == 0 ? 0 : piece_bytes_of(options));  // places to count with: never touched
    PieceWork work;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        maker.make(pieces[i], nowhere.data(), work);
        ++share.pieces;
        for (PieceCopy const& copy : work.copies) {
            share.reads += ceil_div(copy.bytes, PieceRunner::step_bytes);
            share.bytes_read += copy.bytes;
            result.reads_file[static_cast<std::size_t>(from.extents()[copy.from].file)] = 1;
            result.writes_file[static_cast<std::size_t>(to.extents()[copy.to].file)] = 1;
        }
        ReadTotals const totals = count_reads(work.reads, reads);
        share.reads += totals.reads;
        share.bytes_read += totals.bytes_read;
        share.runs += static_cast<Index>(work.copies.size() + work.writes.size());
        for (ReadBox const& box : work.reads) result.reads_file[static_cast<std::size_t>(box.file)] = 1;
        for (PieceWrite const& write : work.writes)
            result.writes_file[static_cast<std::size_t>(to.extents()[write.extent].file)] = 1;
    }
    share.files_read = std::count(result.reads_file.begin(), result.reads_file.end(), 1);
    share.files_written = std::count(result.writes_file.begin(), result.writes_file.end(), 1);
    return result;
}

}  // namespace reshard::inline v0::detail
