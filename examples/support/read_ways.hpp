// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/read_ways.hpp
/// \brief  How the bytes of a checkpoint could be dealt to readers, and what each way costs: opens and balance.
/// \depends reshard/checkpoint/detail/read_schedule.hpp.
#pragma once

#include <reshard/checkpoint/detail/read_schedule.hpp>

#include <algorithm>    // make_heap, max, unique
#include <functional>   // greater
#include <span>         // span
#include <string_view>  // string_view
#include <utility>      // pair
#include <vector>       // vector

namespace demo {
using namespace reshard;

/// What the ranks would read, one way.
struct ReadShares {
    std::string_view name;
    Index opens = 0;       ///< of files for their data, once for each rank that opens one
    Index bytes = 0;       ///< by all ranks
    Index most_bytes = 0;  ///< by one rank
    int readers = 0;       ///< ranks that read something
    int ranks = 0;

    /// The busiest rank's bytes by the mean of all ranks: the time that reading takes by the time that it need take.
    double imbalance() const noexcept {
        return bytes == 0 ? 1.0 : static_cast<double>(most_bytes) * ranks / static_cast<double>(bytes);
    }
};

/// Adds up who reads what.
class ShareCounter {
public:
    explicit ShareCounter(int ranks) : load_(static_cast<std::size_t>(ranks)) {}
    void give(int rank, int file, Index bytes) {
        if (bytes == 0) return;
        load_[static_cast<std::size_t>(rank)] += bytes;
        opens_.emplace_back(rank, file);
    }
    std::vector<Index> const& load() const noexcept { return load_; }
    ReadShares result(std::string_view name) {
        reshard::detail::sort_list(opens_);
        ReadShares shares{
            name, std::unique(opens_.begin(), opens_.end()) - opens_.begin(), 0, 0, 0, static_cast<int>(load_.size())};
        for (Index bytes : load_) {
            shares.bytes += bytes;
            shares.most_bytes = std::max(shares.most_bytes, bytes);
            if (bytes != 0) ++shares.readers;
        }
        return shares;
    }

private:
    std::vector<Index> load_;
    std::vector<std::pair<int, int>> opens_;
};

/// Gives extents to the least loaded rank, largest first; ties go to the first tensor and the lowest rank.
inline void give_by_size(ShareCounter& counter, Catalogue const& catalogue,
                         std::vector<reshard::detail::WantedExtent> extents) {
    auto const tensor = [&](reshard::detail::WantedExtent const& extent) {
        return catalogue.extents()[extent.extent].tensor;
    };
    reshard::detail::sort_list(extents,
                               [&](reshard::detail::WantedExtent const& a, reshard::detail::WantedExtent const& b) {
                                   return a.bytes() != b.bytes() ? a.bytes() > b.bytes() : tensor(a) < tensor(b);
                               });
    std::vector<std::pair<Index, int>> heap;  // (load, rank), least first
    for (std::size_t r = 0; r < counter.load().size(); ++r) heap.emplace_back(counter.load()[r], static_cast<int>(r));
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    for (reshard::detail::WantedExtent const& extent : extents) {
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        auto& [given, rank] = heap.back();
        counter.give(rank, extent.file, extent.bytes());
        given += extent.bytes();
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
}

inline ReadShares shares_of_spans(std::span<reshard::detail::WantedExtent const> wanted, int ranks) {
    ShareCounter counter(ranks);
    for (reshard::detail::Piece const& piece : reshard::detail::spans_read(wanted, ranks, 0).pieces) {
        counter.give(piece.reader, wanted[piece.wanted].file, piece.bytes);
    }
    return counter.result("equal spans of the files");
}
inline ReadShares shares_by_size(Catalogue const& catalogue, std::span<reshard::detail::WantedExtent const> wanted,
                                 int ranks) {
    ShareCounter counter(ranks);
    give_by_size(counter, catalogue, {wanted.begin(), wanted.end()});
    return counter.result("whole extents by size");
}
inline ReadShares shares_by_writer(Catalogue const& catalogue, std::span<reshard::detail::WantedExtent const> wanted,
                                   int ranks) {
    ShareCounter counter(ranks);
    std::vector<reshard::detail::WantedExtent> others;
    for (reshard::detail::WantedExtent const& extent : wanted) {
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

/// Ways to read every byte once: the equal spans of CooperativeRead; whole extents, largest first, each to the least
/// loaded rank (as Megatron-Core's fully parallel load does); files to the rank of the same number as their writer's,
/// and the extents of other files by size (as Megatron-LM's pull request 3392 does).
inline std::vector<ReadShares> compare_reads(Catalogue const& catalogue, int ranks) {
    auto const wanted = reshard::detail::all_extents(catalogue);
    return {shares_of_spans(wanted, ranks), shares_by_size(catalogue, wanted, ranks),
            shares_by_writer(catalogue, wanted, ranks)};
}

}  // namespace demo
