// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/batch_check.hpp
/// \brief  What can be wrong with a batch as a whole: memory that two tensors share, ranks that list different tensors.
/// \depends exec/detail/prepare_check, <algorithm>, <vector>.
#pragma once

#include <reshard/core/sorting.hpp>
#include <reshard/exec/detail/prepare_check.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// Memory that one tensor of a batch reads or writes on this rank.
struct ViewUse {
    ConstDynamicView view;
    std::size_t tensor = 0;
    bool written = false;
};

/// Two tensors of which one writes what the other reads or writes; equal when there are none. A tensor's own source
/// and destination are not compared.
struct Clash {
    std::size_t writer = 0;
    std::size_t other = 0;
    bool reads = false;  ///< the other only reads
};
[[nodiscard]] inline Clash find_clash(std::vector<ViewUse> const& uses) {
    struct Reach {
        ByteRange range;
        ViewUse const* use;
    };
    std::vector<Reach> places;
    for (ViewUse const& use : uses) {
        ByteRange const range = byte_range(use.view);
        if (range.begin != range.end) places.push_back({range, &use});
    }
    sort_list(places, [](Reach const& a, Reach const& b) { return a.range.begin < b.range.begin; });
    // Windows of one large tensor lie between each other; what starts later is compared with all that has not ended.
    std::vector<Reach> open[2];  // read, written
    for (Reach const& place : places) {
        for (bool const written : {false, true}) {
            std::vector<Reach>& others = open[written ? 1 : 0];
            std::erase_if(others, [&](Reach const& other) { return other.range.end <= place.range.begin; });
            if (!written && !place.use->written) continue;  // reading together is fine
            for (Reach const& other : others) {
                if (other.use->tensor == place.use->tensor) continue;
                if (!overlap(other.use->view, place.use->view)) continue;
                ViewUse const& writer = place.use->written ? *place.use : *other.use;
                ViewUse const& second = place.use->written ? *other.use : *place.use;
                return {writer.tensor, second.tensor, !second.written};
            }
        }
        open[place.use->written ? 1 : 0].push_back(place);
    }
    return {};
}

/// What a rank has in hand, in numbers: one for the whole, one per tensor.
struct BatchDigest {
    std::uint64_t options = 0;
    std::vector<std::uint64_t> tensors;

    /// Never 0, which stands for a rank that found an error of its own.
    [[nodiscard]] std::uint64_t whole() const noexcept { return of_first(as_index(tensors.size()) + 1); }
    /// Of the options and so many tensors; a list that has no more is unlike all that have.
    [[nodiscard]] std::uint64_t of_first(Index count) const noexcept {
        Digest digest;
        digest.add(options);
        auto const wanted = as_size(count);
        for (std::size_t i = 0; i < smaller(wanted, tensors.size()); ++i) digest.add(tensors[i]);
        if (wanted > tensors.size()) digest.add(tensors.size()).add(1);
        return digest.value() | 1U;
    }
};

/// Collective; called by all when the digests are known to differ. The first place at which a rank differs from rank 0:
/// a tensor's number, the length of the shorter list, or -1 when the options differ. By votes alone, so that it works
/// wherever the memory lies that a transport moves.
[[nodiscard]] inline Index first_difference(CommunicatorRef comm, BatchDigest const& mine) {
    auto const differs = [&](Index count) {
        Verdict verdict;
        verdict.digest = mine.of_first(count);
        return !comm.agree(std::move(verdict)).ok();
    };
    if (differs(0)) return -1;
    Index alike = 0;
    Index unlike = 1;
    for (; !differs(unlike); unlike *= 2) alike = unlike;
    return first_where(alike + 1, unlike, differs) - 1;
}

/// The one agreement of a batch: the lowest rank with an error of its own is named by all; when ranks list different
/// tensors, the first that differs. `describe(i)` says what this rank has at place i (see first_difference).
inline void agree_on_batch(CommunicatorRef comm, Verdict mine, BatchDigest const& digest,
                           FunctionRef<std::string(Index place)> describe) {
    mine.digest = mine.ok() ? digest.whole() : 0;
    Verdict all = agreed(comm, std::move(mine));
    if (all.ok()) return;
    if (all.code == ErrorCode::mismatch && all.reason == transport::differs) {  // the lists differ: find out where
        Index const place = first_difference(comm, digest);
        std::string words;
        Verdict second = verdict_of([&] { words = describe(place); });
        if (second.ok()) second.reason = std::move(words);
        second.digest = digest.of_first(place + 1);  // of those who differ there
        agree_or_raise(comm, std::move(second));
    }
    raise_agreed(std::move(all), comm.size());
}

}  // namespace reshard::inline v0_1::detail
