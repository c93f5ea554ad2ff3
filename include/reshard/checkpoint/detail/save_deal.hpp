// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_deal.hpp
/// \brief  Deals the parts of tensors to the ranks that hold them: lowest rank, least loaded, or a share each.
/// \depends checkpoint/{manifest,placed_tensor,save_options}. Integers only: the same on every rank.
#pragma once

#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/checkpoint/save_options.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>      // find_if, max_element
#include <span>           // span
#include <tuple>          // tuple
#include <unordered_map>  // unordered_multimap
#include <vector>         // vector

namespace reshard::inline v0::detail {

/// A mesh whose ranks are dealt into groups, which hold copies of each other's part of a tensor: ranks of one group
/// differ along the free axes only.
struct SaveFamily {
    DynamicMesh mesh;
    unsigned free_axes = 0;    ///< one bit per axis
    std::vector<int> members;  ///< group by group, ascending inside a group
    std::vector<Index> first;  ///< per group, the ordinal of its first place in the mesh: free coordinates are 0

    SaveFamily(DynamicMesh const& of, unsigned free) : mesh(of), free_axes(free) {
        AxisSubset const groups_of(mesh, ~free);
        AxisSubset const members_of(mesh, free);
        members.reserve(static_cast<std::size_t>(mesh.size()));
        for (Index g = 0; g < groups_of.size(); ++g) {
            first.push_back(groups_of.ordinal(g));
            for (Index m = 0; m < members_of.size(); ++m)
                members.push_back(static_cast<int>(mesh.rank_at(first.back() + members_of.ordinal(m))));
            std::sort(members.end() - static_cast<std::ptrdiff_t>(members_of.size()), members.end());
        }
    }
    [[nodiscard]] Index groups() const noexcept { return static_cast<Index>(first.size()); }
    [[nodiscard]] std::size_t group_size() const noexcept { return members.size() / first.size(); }
    [[nodiscard]] std::span<int const> group(Index g) const noexcept {
        return std::span(members).subspan(static_cast<std::size_t>(g) * group_size(), group_size());
    }
};

/// What one group of ranks holds of one tensor.
struct SaveItem {
    std::size_t tensor = 0;
    std::size_t family = 0;
    Index group = 0;
    int replica = 0;
    Index bytes = 0;
};

/// Every item goes to ranks of its group, whole or cut. What the rank `only` writes is listed, or what all do (-1):
/// then the loads of the others are all that is known of them.
class SaveDealer {
public:
    /// `order`: of each tensor, its place among the sources. \pre all that is given outlives this
    SaveDealer(std::span<PlacedTensor const> sources, std::vector<std::size_t> const& order, int ranks, int only,
               SaveOptions const& options)
        : sources_(sources),
          order_(order),
          only_(only),
          options_(options),
          load_(static_cast<std::size_t>(ranks), 0),
          writes_(static_cast<std::size_t>(ranks), false) {}

    /// The number of the family: tensors share few meshes, each is taken apart once.
    [[nodiscard]] std::size_t family_of(DynamicMesh const& mesh, unsigned free_axes) {
        Digest digest;
        digest.add(free_axes).add_signed(mesh.lowest_rank());
        for (Index extent : mesh.extents()) digest.add_signed(extent);
        auto const [first, last] = by_digest_.equal_range(digest.value());
        for (auto known = first; known != last; ++known) {
            SaveFamily const& one = families_[known->second];
            if (one.free_axes == free_axes && one.mesh == mesh) return known->second;
        }
        by_digest_.emplace(digest.value(), families_.size());
        families_.emplace_back(mesh, free_axes);
        return families_.size() - 1;
    }
    [[nodiscard]] SaveFamily const& family(std::size_t number) const noexcept { return families_[number]; }

    void add(SaveItem const& item) {
        bool const settled = options_.dedup == SaveDedup::lowest_rank || members(item).size() == 1 ||
                             item.bytes < options_.small_bytes || item.bytes == 0;
        if (settled) {
            give(item, members(item).front());
        } else {
            open_.push_back(item);
        }
    }
    /// After the last of them: those that several ranks could write are dealt out.
    void deal() { options_.dedup == SaveDedup::shared ? share() : balance(); }

    /// What is listed, in no order; `file` is the rank that writes it. No more is dealt.
    [[nodiscard]] std::vector<Extent> extents() noexcept { return std::move(extents_); }
    /// Bytes of the rank that writes most.
    [[nodiscard]] Index most() const noexcept { return *std::max_element(load_.begin(), load_.end()); }
    [[nodiscard]] bool writes(int rank) const noexcept { return writes_[static_cast<std::size_t>(rank)]; }

private:
    [[nodiscard]] std::span<int const> members(SaveItem const& item) const noexcept {
        return families_[item.family].group(item.group);
    }
    [[nodiscard]] Index& load(int rank) noexcept { return load_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] Index bytes_of(SaveItem const& item, Box const& box) const noexcept {
        return stored_bytes_of(sources_[order_[item.tensor]].dtype, box);
    }

    void list(int rank, SaveItem const& item, Box const& box) {
        writes_[static_cast<std::size_t>(rank)] = true;
        if (only_ < 0 || only_ == rank) extents_.push_back({item.tensor, item.replica, rank, 0, box});
    }
    /// Calls f(box) for what the group holds; of a tensor without elements for the whole of it.
    template <class F>
    void for_each_box(SaveItem const& item, F&& f) const {
        DynamicDistribution const& from = sources_[order_[item.tensor]].distribution;
        if (from.shape().size() == 0) return f(Box(from.shape()));
        Index const place = families_[item.family].first[static_cast<std::size_t>(item.group)];
        for (Box const& box : from.boxes(from.mesh().rank_at(place))) f(box);
    }
    void give(SaveItem const& item, int rank) {
        load(rank) += item.bytes;
        writes_[static_cast<std::size_t>(rank)] = true;
        if (only_ >= 0 && only_ != rank) return;
        for_each_box(item, [&, this](Box const& box) { list(rank, item, box); });
    }
    /// Largest first to the least loaded (Graham's LPT rule): at most one item above the mean of a group.
    void balance() {
        sort_list(open_, [](SaveItem const& a, SaveItem const& b) { return a.bytes > b.bytes; });
        for (SaveItem const& item : open_) {
            int best = members(item).front();
            for (int rank : members(item))
                if (load(rank) < load(best)) best = rank;
            give(item, best);
        }
    }

    /// Small groups first: what only a few ranks hold leaves a slope that the larger groups level.
    void share() {
        auto const key = [&](SaveItem const& item) {
            return std::tuple(families_[item.family].group_size(), item.family, item.group);
        };
        sort_list(open_, [&](SaveItem const& a, SaveItem const& b) { return key(a) < key(b); });
        for (auto begin = open_.begin(); begin != open_.end();) {
            auto const end = std::find_if(begin, open_.end(), [&](SaveItem const& item) {
                return item.family != begin->family || item.group != begin->group;
            });
            share_in_group({begin, end});
            begin = end;
        }
    }
    /// Where the share of each rank ends when so many bytes are poured over the group until all stand equally high.
    [[nodiscard]] std::vector<Index> ends_of_shares(std::span<int const> ranks, Index total) {
        std::vector<Index> loads;
        for (int rank : ranks) loads.push_back(load(rank));
        sort_list(loads);
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

    void share_in_group(std::span<SaveItem const> items) {
        std::span<int const> const ranks = members(items.front());
        Index total = 0;
        for (SaveItem const& item : items) total += item.bytes;
        std::vector<Index> const ends = ends_of_shares(ranks, total);
        Index const share = total / static_cast<Index>(ranks.size());
        std::size_t at = 0;  // whose share the bytes belong to
        Index position = 0;  // bytes dealt
        for (SaveItem const& item : items) {
            bool const cuttable = is_byte_sized(sources_[order_[item.tensor]].dtype);
            for_each_box(item, [&, this](Box rest) {
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
                    list(ranks[at], item, box);
                    load(ranks[at]) += slice;
                    position += slice;
                    if (slice == bytes) break;
                }
            });
        }
    }
    /// What a rank with that much room takes of a box: about as much, in whole steps, but no slice that is too small,
    /// nor one that leaves too small a rest.
    [[nodiscard]] Index first_slice(Index bytes, Index step, Index room) const noexcept {
        Index const slice = smaller((room + step / 2) / step * step, bytes);
        if (bytes - slice < options_.min_slice_bytes) return room * 2 >= bytes ? bytes : 0;
        return slice < options_.min_slice_bytes ? 0 : slice;
    }

    std::span<PlacedTensor const> sources_;
    std::vector<std::size_t> const& order_;
    int only_;
    SaveOptions const& options_;
    std::vector<SaveFamily> families_;
    std::unordered_multimap<std::uint64_t, std::size_t> by_digest_;  ///< experts and stages have meshes of their own
    std::vector<SaveItem> open_;                                     ///< which several ranks could write
    std::vector<Index> load_;                                        ///< bytes per rank so far
    std::vector<bool> writes_;                                       ///< per rank
    std::vector<Extent> extents_;
};

}  // namespace reshard::inline v0::detail
