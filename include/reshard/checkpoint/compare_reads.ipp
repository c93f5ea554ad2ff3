// SPDX-License-Identifier: Apache-2.0
// How checkpoint/compare_reads.hpp is done.
#pragma once

#include <reshard/checkpoint/compare_reads.hpp>
#include <reshard/checkpoint/detail/load_forecaster.hpp>
#include <reshard/checkpoint/detail/read_schedule.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/plan/explain_text.hpp>

#include <algorithm>   // make_heap
#include <cstdio>      // snprintf
#include <functional>  // greater

namespace reshard::inline v0 {

namespace detail {

/// Adds up who reads what.
class ShareCounter {
public:
    explicit ShareCounter(int ranks) : load_(static_cast<std::size_t>(ranks)) {}
    void give(int rank, int file, Index bytes) {
        if (bytes == 0) return;
        load_[static_cast<std::size_t>(rank)] += bytes;
        opens_.emplace_back(rank, file);
    }
    [[nodiscard]] std::vector<Index> const& load() const noexcept { return load_; }
    [[nodiscard]] ReadShares result(std::string_view name) {
        sort_list(opens_);
        ReadShares shares{
            name, std::unique(opens_.begin(), opens_.end()) - opens_.begin(), 0, 0, 0, static_cast<int>(load_.size())};
        for (Index bytes : load_) {
            shares.bytes += bytes;
            shares.most_bytes = larger(shares.most_bytes, bytes);
            if (bytes != 0) ++shares.readers;
        }
        return shares;
    }

private:
    std::vector<Index> load_;
    std::vector<std::pair<int, int>> opens_;
};

/// Gives extents to the least loaded rank, largest first; ties go to the first tensor and the lowest rank.
inline void give_by_size(ShareCounter& counter, Catalogue const& catalogue, std::vector<WantedExtent> extents) {
    auto const tensor = [&](WantedExtent const& extent) { return catalogue.extents()[extent.extent].tensor; };
    sort_list(extents, [&](WantedExtent const& a, WantedExtent const& b) {
        return a.bytes() != b.bytes() ? a.bytes() > b.bytes() : tensor(a) < tensor(b);
    });
    std::vector<std::pair<Index, int>> heap;  // (load, rank), least first
    for (std::size_t r = 0; r < counter.load().size(); ++r) heap.emplace_back(counter.load()[r], static_cast<int>(r));
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    for (WantedExtent const& extent : extents) {
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        auto& [load, rank] = heap.back();
        counter.give(rank, extent.file, extent.bytes());
        load += extent.bytes();
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
}

[[nodiscard]] inline ReadShares shares_of_spans(std::span<WantedExtent const> wanted, int ranks) {
    ShareCounter counter(ranks);
    for (Piece const& piece : spans_read(wanted, ranks, 0).pieces) {
        counter.give(piece.reader, wanted[piece.wanted].file, piece.bytes);
    }
    return counter.result("equal spans of the files");
}
[[nodiscard]] inline ReadShares shares_by_size(Catalogue const& catalogue, std::span<WantedExtent const> wanted,
                                               int ranks) {
    ShareCounter counter(ranks);
    give_by_size(counter, catalogue, {wanted.begin(), wanted.end()});
    return counter.result("whole extents by size");
}
[[nodiscard]] inline ReadShares shares_by_writer(Catalogue const& catalogue, std::span<WantedExtent const> wanted,
                                                 int ranks) {
    ShareCounter counter(ranks);
    std::vector<WantedExtent> others;
    for (WantedExtent const& extent : wanted) {
        int const writer = catalogue.files()[static_cast<std::size_t>(extent.file)].writer;
        if (writer >= 0 && writer < ranks) {
            counter.give(writer, extent.file, extent.bytes());
        } else {
            others.push_back(extent);
        }
    }
    give_by_size(counter, catalogue, std::move(others));
    return counter.result("whole files by writer");
}

}  // namespace detail

RESHARD_INLINE std::vector<ReadShares> compare_reads(Catalogue const& catalogue, int ranks) {
    detail::check_source(0, ranks);
    auto const wanted = detail::all_extents(catalogue);
    return {detail::shares_of_spans(wanted, ranks), detail::shares_by_size(catalogue, wanted, ranks),
            detail::shares_by_writer(catalogue, wanted, ranks)};
}

RESHARD_INLINE std::vector<ReadShares> compare_reads(Catalogue const& catalogue, std::span<PlacedTensor const> targets,
                                                     int ranks, ReadOptions const& reads, LoadOptions const& options) {
    detail::LoadForecaster forecaster(catalogue, targets, ranks, reads, options, "");
    ReadShares direct{"each rank for itself", 0, 0, 0, 0, ranks};
    for (detail::ReadTotals const& rank : forecaster.direct_reads()) {
        direct.opens += rank.files;
        direct.bytes += rank.bytes_read;
        direct.most_bytes = larger(direct.most_bytes, rank.bytes_read);
        if (rank.bytes_read != 0) ++direct.readers;
    }
    auto const wanted = forecaster.wanted();
    return {detail::shares_of_spans(wanted, ranks), direct, detail::shares_by_size(catalogue, wanted, ranks),
            detail::shares_by_writer(catalogue, wanted, ranks)};
}

RESHARD_INLINE std::string explain(std::span<ReadShares const> ways) {
    std::string text;
    for (ReadShares const& way : ways) {
        char ratio[32];
        std::snprintf(ratio, sizeof(ratio), "%.2f", way.imbalance());
        text += concat(way.name, ": ", detail::count_text(way.opens, "open file"), ", ", detail::bytes_text(way.bytes),
                       " by ", way.readers, " of ", detail::count_text(way.ranks, "rank"), ", the busiest ", ratio,
                       " of the mean\n");
    }
    return text;
}

}  // namespace reshard::inline v0
