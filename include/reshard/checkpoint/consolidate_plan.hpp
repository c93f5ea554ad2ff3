// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/consolidate_plan.hpp
/// \brief  What rewriting a checkpoint will do, rank by rank, before a byte is read: the dry run.
/// \depends checkpoint/detail/{consolidate_output,consolidate_run}, plan/explain. No I/O.
///
///     Catalogue const from(Checkpoint::open("sharded"));
///     std::puts(explain(plan_consolidate(from, 64)).c_str());
#pragma once

#include <reshard/checkpoint/detail/consolidate_output.hpp>
#include <reshard/checkpoint/detail/consolidate_run.hpp>
#include <reshard/plan/explain.hpp>

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

struct RewritePlan {
    int ranks = 0;
    Index tensors = 0;
    Index files_in = 0;
    Index files_out = 0;
    Index bytes_in = 0;   ///< of tensors, without copies that are not read
    Index bytes_out = 0;  ///< of tensors
    Index votes = 0;      ///< of all ranks, until all bytes are written
    Index memory = 0;     ///< per rank, for bytes in flight, at most
    std::vector<RewriteShare> shares;

    /// How much more than the mean the busiest rank writes: 0.01 is 1 %.
    [[nodiscard]] double imbalance() const noexcept {
        Index most = 0;
        for (RewriteShare const& share : shares) most = larger(most, share.bytes());
        return bytes_out == 0 ? 0.0 : static_cast<double>(most) * ranks / static_cast<double>(bytes_out) - 1.0;
    }
    friend bool operator==(RewritePlan const&, RewritePlan const&) = default;
};

namespace detail {

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

[[nodiscard]] inline RewritePlan plan_rewrite(Catalogue const& from, OutputFiles const& output, int ranks,
                                              RewriteOptions const& options) {
    if (ranks < 1) raise(ErrorCode::mesh, concat("reshard::plan_consolidate: ", ranks, " ranks. Fix: at least one."));
    Catalogue const& to = output.catalogue;
    OutputLine const line(from, to, output.start_bytes());
    PieceMaker const maker(from, to, line, options.replica);
    RewritePlan plan;
    plan.ranks = ranks;
    plan.tensors = static_cast<Index>(to.tensors().size());
    plan.files_in = static_cast<Index>(from.files().size());
    plan.files_out = static_cast<Index>(to.files().size());
    plan.bytes_out = line.bytes();
    plan.votes = votes_of(line.bytes(), ranks, options.vote_bytes);
    plan.memory = 2 * piece_bytes_of(options) * options.in_flight;
    for (StoredTensor const& tensor : from.tensors()) plan.bytes_in += stored_bytes_of(tensor.dtype, Box(tensor.shape));
    for (int rank = 0; rank < ranks; ++rank) {
        plan.shares.push_back(survey(maker, from, to, list_pieces(line, rank, ranks, options), options).share);
        plan.shares.back().begin = line.position(line.cut(rank, ranks));
        plan.shares.back().end = line.position(line.cut(rank + 1, ranks));
    }
    return plan;
}

}  // namespace detail

/// What consolidate() will do. Throws as it does, for what can be known without files: FormatError (coverage, names),
/// DTypeError, MismatchError (copies that differ), BufferError (options).
[[nodiscard]] inline RewritePlan plan_consolidate(Catalogue const& from, int ranks,
                                                  ConsolidateOptions const& options = {}) {
    detail::check(options);
    check_coverage(from.manifest(), "the checkpoint");
    detail::check_replicas(from, options);
    return detail::plan_rewrite(from, detail::full_output(from, options), ranks, options);
}
/// What shard_checkpoint() will do; `ranks` are those that do it. Throws also what plan_save() throws.
[[nodiscard]] inline RewritePlan plan_shards(Catalogue const& from, PlaceTensor const& place, int ranks,
                                             ShardOptions const& options = {}) {
    detail::check(options);
    check_coverage(from.manifest(), "the checkpoint");
    detail::check_replicas(from, options);
    detail::OutputFiles const output = detail::shard_output(from, place, options, detail::save_id_digits(0));
    return detail::plan_rewrite(from, output, ranks, options);
}

/// Two lines for the whole, then a line for each of the first `most` ranks.
[[nodiscard]] inline std::string explain(RewritePlan const& plan, std::size_t most = 16) {
    using detail::bytes_text;
    using detail::count_text;
    auto const hundredths = static_cast<Index>(10000.0 * plan.imbalance());
    auto const cents = [](Index value) { return concat(value / 100, ".", value / 10 % 10, value % 10); };
    std::string text =
        concat("rewrite ", count_text(plan.tensors, "tensor"), ", ", bytes_text(plan.bytes_in), " in ",
               count_text(plan.files_in, "file"), " -> ", bytes_text(plan.bytes_out), " in ",
               count_text(plan.files_out, "file"), ", by ", count_text(plan.ranks, "rank"), "\n  busiest rank ",
               cents(hundredths), " % above the mean, ", count_text(plan.votes, "vote"), ", at most ",
               bytes_text(plan.memory), " in flight a rank\n");
    for (std::size_t r = 0; r < plan.shares.size() && r < most; ++r) {
        RewriteShare const& share = plan.shares[r];
        text += concat("  rank ", r, ": bytes [", share.begin, ", ", share.end, "), ", bytes_text(share.bytes()), ": ",
                       count_text(share.reads, "read"), " of ", bytes_text(share.bytes_read), " from ",
                       count_text(share.files_read, "file"), ", ", count_text(share.runs, "run"), " to ",
                       count_text(share.files_written, "file"), "\n");
    }
    if (plan.shares.size() > most) text += concat("  and ", plan.shares.size() - most, " more ranks\n");
    return text;
}

}  // namespace reshard::inline v0
