// SPDX-License-Identifier: Apache-2.0
// How checkpoint/consolidate_plan.hpp is done.
#pragma once

#include <reshard/checkpoint/consolidate_plan.hpp>
#include <reshard/checkpoint/coverage.hpp>
#include <reshard/checkpoint/detail/consolidate_output.hpp>
#include <reshard/checkpoint/detail/consolidate_run.hpp>
#include <reshard/core/detail/explain_text.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// `make(from)`: what is written.
template <class Make>
[[nodiscard]] RewritePlan plan_rewrite(std::string_view function, Catalogue const& given, int ranks,
                                       RewriteOptions const& options, Make&& make) {
    check(options);
    Catalogue const from = renamed(given, options.rename);
    check_coverage(from.manifest(), "the checkpoint");
    OutputFiles const output = make(from);
    check_replicas(from, output.catalogue, options);
    if (ranks < 1) raise(ErrorCode::mesh, "reshard::", function, ": ", ranks, " ranks. Fix: at least one.");
    Catalogue const& to = output.catalogue;
    PieceMaker const maker{from, to, options.replica};
    ByteLine const& line = maker.line;
    RewritePlan plan;
    plan.kind = from.kind();
    plan.unlisted = with_unlisted(from.manifest().files);
    plan.ranks = ranks;
    plan.tensors = as_index(to.tensors().size());
    plan.files_in = as_index(from.files().size());
    plan.files_out = as_index(to.files().size());
    plan.bytes_out = line.bytes();
    plan.votes = votes_of(line.bytes(), ranks, options.vote_bytes);
    plan.memory = 2 * piece_bytes_of(options) * options.in_flight;
    for (StoredTensor const& tensor : from.tensors()) plan.bytes_in += stored_bytes_of(tensor.dtype, Box(tensor.shape));
    for (int rank = 0; rank < ranks; ++rank)
        plan.shares.push_back(survey(maker, list_pieces(line, rank, ranks, options), options).share);
    return plan;
}

}  // namespace detail

RESHARD_INLINE double RewritePlan::imbalance() const noexcept {
    Index most = 0;
    for (RewriteShare const& share : shares) most = detail::larger(most, share.bytes());
    return bytes_out == 0 ? 0.0 : static_cast<double>(most) * ranks / static_cast<double>(bytes_out) - 1.0;
}

RESHARD_INLINE RewritePlan plan_consolidate(Catalogue const& given, int ranks, ConsolidateOptions const& options) {
    return detail::plan_rewrite("plan_consolidate", given, ranks, options, [&](Catalogue const& from) {
        return detail::full_output(from, options, detail::hex_text(0, 16));
    });
}

RESHARD_INLINE RewritePlan plan_shards(Catalogue const& given, PlaceTensor const& place, int ranks,
                                       ShardOptions const& options) {
    return detail::plan_rewrite("plan_shards", given, ranks, options, [&](Catalogue const& from) {
        return detail::shard_output(from, place, options, detail::hex_text(0, 16));
    });
}

RESHARD_INLINE std::string explain(RewritePlan const& plan, std::size_t most) {
    using detail::append, detail::bytes_text, detail::count_text;
    auto const hundredths = static_cast<Index>(10000.0 * plan.imbalance());
    auto const cents = [](Index value) { return errors::concat(value / 100, ".", value / 10 % 10, value % 10); };
    std::string text =
        errors::concat("rewrite ", count_text(plan.tensors, "tensor"), ", ", bytes_text(plan.bytes_in), " in ",
                       count_text(plan.files_in, "file"), " -> ", bytes_text(plan.bytes_out), " in ",
                       count_text(plan.files_out, "file"), ", by ", count_text(plan.ranks, "rank"), "\n  busiest rank ",
                       cents(hundredths), " % above the mean, ", count_text(plan.votes, "vote"), ", at most ",
                       bytes_text(plan.memory), " in flight a rank\n");
    for (std::size_t r = 0; r < plan.shares.size() && r < most; ++r) {
        RewriteShare const& share = plan.shares[r];
        append(text, {"  rank ", r, ": bytes [", share.begin, ", ", share.end, "), ", bytes_text(share.bytes()), ": ",
                      count_text(share.reads, "read"), " of ", bytes_text(share.bytes_read), " from ",
                      count_text(share.files_read, "file"), ", ", count_text(share.runs, "run"), " to ",
                      count_text(share.files_written, "file"), "\n"});
    }
    if (plan.shares.size() > most) append(text, {"  and ", plan.shares.size() - most, " more ranks\n"});
    append(text, {detail::kind_note(plan.kind), detail::unlisted_text(plan.unlisted)});
    return text;
}

}  // namespace reshard::inline v0_1
