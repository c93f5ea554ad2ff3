// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_deal.hpp
/// \brief  Deals the parts of tensors to the ranks that hold them: lowest rank, least loaded, or a share each.
/// \depends checkpoint/{save_options,manifest}, checkpoint/detail/save_groups. Integers only: the same on every rank.
#pragma once

#include <reshard/checkpoint/detail/save_groups.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/save_options.hpp>

#include <numeric>  // iota
#include <tuple>    // tie

namespace reshard::inline v0::detail {

/// What one group of ranks holds of one tensor: its boxes are [first_box, first_box + boxes) of a list.
struct SaveItem {
    std::size_t tensor = 0;
    std::size_t family = 0;
    Index group = 0;
    int replica = 0;
    Index bytes = 0;
    std::size_t first_box = 0;
    std::size_t boxes = 0;
};

/// A box and the rank that writes it.
struct SavePiece {
    int writer = 0;
    std::size_t tensor = 0;
    int replica = 0;
    Box box;
};

/// Every item goes to ranks of its group, whole or cut. Bits of elements are looked up per tensor.
class SaveDealer {
public:
    SaveDealer(SaveFamilies const& families, std::vector<StoredTensor> const& tensors,
               std::vector<SaveItem> const& items, std::vector<Box> const& boxes, int ranks, SaveOptions const& options)
        : families_(families),
          tensors_(tensors),
          items_(items),
          boxes_(boxes),
          options_(options),
          load_(static_cast<std::size_t>(ranks), 0) {}

    [[nodiscard]] std::vector<SavePiece> deal() {
        pieces_.reserve(boxes_.size());
        std::vector<std::size_t> open;  // items that several ranks could write
        for (std::size_t i = 0; i < items_.size(); ++i) {
            SaveItem const& item = items_[i];
            bool const settled = options_.dedup == SaveDedup::lowest_rank || members(item).size() == 1 ||
                                 item.bytes < options_.small_bytes || item.bytes == 0;
            if (settled) {
                give(item, members(item).front());
            } else {
                open.push_back(i);
            }
        }
        options_.dedup == SaveDedup::shared ? share(open) : balance(open);
        return std::move(pieces_);
    }

private:
    [[nodiscard]] std::span<int const> members(SaveItem const& item) const noexcept {
        return families_[item.family].group(item.group);
    }
    [[nodiscard]] Index& load(int rank) noexcept { return load_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] Index bytes_of(SaveItem const& item, Box const& box) const noexcept {
        return box.size() * bits(tensors_[item.tensor].dtype) / 8;
    }
    void give(SaveItem const& item, int rank) {
        for (std::size_t b = 0; b < item.boxes; ++b) {
            pieces_.push_back({rank, item.tensor, item.replica, boxes_[item.first_box + b]});
        }
        load(rank) += item.bytes;
    }

    /// Largest first to the least loaded (Graham's LPT rule): at most one item above the mean of a group.
    void balance(std::vector<std::size_t>& open) {
        std::stable_sort(open.begin(), open.end(),
                         [&](std::size_t a, std::size_t b) { return items_[a].bytes > items_[b].bytes; });
        for (std::size_t i : open) {
            int best = members(items_[i]).front();
            for (int rank : members(items_[i]))
                if (load(rank) < load(best)) best = rank;
            give(items_[i], best);
        }
    }

    /// Small groups first: what only a few ranks hold leaves a slope that the larger groups level.
    void share(std::vector<std::size_t>& open) {
        auto const key = [&](std::size_t i) {
            SaveItem const& item = items_[i];
            return std::make_tuple(families_[item.family].group_size(), item.family, item.group, i);
        };
        std::sort(open.begin(), open.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
        for (std::size_t begin = 0; begin < open.size();) {
            std::size_t end = begin;
            SaveItem const& first = items_[open[begin]];
            while (end < open.size() && items_[open[end]].family == first.family &&
                   items_[open[end]].group == first.group) {
                ++end;
            }
            share_in_group(std::span<std::size_t const>(open).subspan(begin, end - begin));
            begin = end;
        }
    }

    /// Where the share of each rank ends when so many bytes are poured over the group until all stand equally high.
    [[nodiscard]] std::vector<Index> ends_of_shares(std::span<int const> ranks, Index total) {
        std::vector<Index> loads;
        for (int rank : ranks) loads.push_back(load(rank));
        std::sort(loads.begin(), loads.end());
        Index level = loads.front();
        Index left = total;
        for (std::size_t below = 1; left > 0; ++below) {
            auto const width = static_cast<Index>(below);
            Index const step = below < loads.size() ? loads[below] - level : left;
            Index const rise = smaller(step, ceil_div(left, width));
            level += rise;
            left -= rise * width;
        }
        std::vector<Index> ends;
        Index end = 0;
        for (int rank : ranks) {
            end = smaller(total, end + larger<Index>(level - load(rank), 0));
            ends.push_back(end);
        }
        return ends;
    }

    /// The dimension to cut: the outermost whose steps are fine enough for a share, else the one with the finest.
    [[nodiscard]] static int cut_dimension(Box const& box, Index bytes, Index share) noexcept {
        int finest = -1;
        for (int dim = 0; dim < box.rank(); ++dim) {
            if (box.extent(dim) < 2) continue;
            if (bytes / box.extent(dim) <= share / 40) return dim;
            if (finest < 0 || box.extent(dim) > box.extent(finest)) finest = dim;
        }
        return finest;
    }

    void share_in_group(std::span<std::size_t const> open) {
        std::span<int const> const ranks = members(items_[open.front()]);
        Index total = 0;
        for (std::size_t i : open) total += items_[i].bytes;
        std::vector<Index> const ends = ends_of_shares(ranks, total);
        Index const share = total / static_cast<Index>(ranks.size());
        std::size_t at = 0;  // whose share the bytes belong to
        Index position = 0;  // bytes dealt
        for (std::size_t i : open) {
            SaveItem const& item = items_[i];
            bool const cuttable = is_byte_sized(tensors_[item.tensor].dtype);
            for (std::size_t b = 0; b < item.boxes; ++b) {
                Box rest = boxes_[item.first_box + b];
                int const dim = cuttable ? cut_dimension(rest, bytes_of(item, rest), share) : -1;
                for (;;) {
                    while (at + 1 < ranks.size() && ends[at] <= position) ++at;
                    Index const bytes = bytes_of(item, rest);
                    Index const step = dim < 0 ? bytes : bytes / rest.extent(dim);
                    Index const slice = at + 1 < ranks.size() ? first_slice(bytes, step, ends[at] - position) : bytes;
                    if (slice == 0) {  // too little for this rank: the next one begins with it
                        ++at;
                        continue;
                    }
                    Box box = rest;
                    if (slice < bytes) {
                        Index const middle = rest.begin(dim) + slice / step;
                        box.set(dim, {rest.begin(dim), middle});
                        rest.set(dim, {middle, rest.end(dim)});
                    }
                    pieces_.push_back({ranks[at], item.tensor, item.replica, box});
                    load(ranks[at]) += slice;
                    position += slice;
                    if (slice == bytes) break;
                }
            }
        }
    }

    /// What a rank with that much room takes of a box: about as much, in whole steps, but no slice that is too small,
    /// nor one that leaves too small a rest.
    [[nodiscard]] Index first_slice(Index bytes, Index step, Index room) const noexcept {
        Index const slice = smaller((room + step / 2) / step * step, bytes);
        if (bytes - slice < options_.min_slice_bytes) return room * 2 >= bytes ? bytes : 0;
        return slice < options_.min_slice_bytes ? 0 : slice;
    }

    SaveFamilies const& families_;
    std::vector<StoredTensor> const& tensors_;
    std::vector<SaveItem> const& items_;
    std::vector<Box> const& boxes_;
    SaveOptions const& options_;
    std::vector<Index> load_;  ///< bytes per rank so far
    std::vector<SavePiece> pieces_;
};

}  // namespace reshard::inline v0::detail
