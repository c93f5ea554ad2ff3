// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_deal.hpp
/// \brief  Deals the parts of tensors to the ranks that hold them: lowest rank, least loaded, or a share each.
/// \depends checkpoint/{manifest,placed_tensor,save_options}. Integers only: the same on every rank.
#pragma once

#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/checkpoint/save_options.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>      // find_if, lower_bound, max_element
#include <span>           // span
#include <tuple>          // tuple
#include <unordered_map>  // unordered_multimap
#include <vector>         // vector

namespace reshard::inline v0_1::detail {

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
        members.reserve(as_size(mesh.size()));
        for (Index g = 0; g < groups_of.size(); ++g) {
            first.push_back(groups_of.ordinal(g));
            for (Index m = 0; m < members_of.size(); ++m)
                members.push_back(static_cast<int>(mesh.rank_at(first.back() + members_of.ordinal(m))));
            std::sort(members.end() - members_of.size(), members.end());
        }
    }
    [[nodiscard]] Index groups() const noexcept { return as_index(first.size()); }
    [[nodiscard]] std::size_t group_size() const noexcept { return members.size() / first.size(); }
    [[nodiscard]] std::span<int const> group(Index g) const noexcept {
        return std::span(members).subspan(as_size(g) * group_size(), group_size());
    }
};

/// What one group of ranks holds of one tensor.
struct SaveItem {
    std::size_t tensor = 0;
    Index group = 0;
    Index bytes = 0;
};

/// An extent of a save, and which of the tensors and boxes that were added it is a part of: 0 for the first.
struct DealtExtent : Extent {
    std::size_t source = 0;
};

/// Every item goes to ranks of its group, whole or cut. All that is kept of it is its owner, 4 bytes, and the pieces of
/// what several ranks write: extents are made of that where somebody wants them.
class SaveDealer {
public:
    SaveDealer() = default;
    SaveDealer(int ranks, SaveOptions const& options)
        : dedup_(options.dedup),
          small_bytes_(options.small_bytes),
          min_slice_bytes_(options.min_slice_bytes),
          load_(as_size(ranks), 0),
          file_(as_size(ranks), -1) {}

    /// What follows is of the next tensor of the manifest.
    void next_tensor() { first_source_.push_back(tensors_.size()); }
    /// The tensor itself, or the next box of it: ranks that differ along `free` axes hold the same, along `apart` axes
    /// copies that are all written.
    SaveFamily const& add_tensor(PlacedTensor const& source, unsigned free, unsigned apart) {
        std::size_t const number = family_of(source.distribution.mesh(), free);
        tensors_.push_back({source.distribution, source.within, source.dtype, number, apart, owner_.size()});
        owner_.resize(owner_.size() + families_[number].first.size(), nobody);
        return families_[number];
    }
    /// What a group holds of the tensor that was added last.
    void add(Index group, Index bytes) {
        SaveItem const item{tensors_.size() - 1, group, bytes};
        bool const settled =
            dedup_ == SaveDedup::lowest_rank || members(item).size() == 1 || bytes < small_bytes_ || bytes == 0;
        if (settled) {
            give(item, members(item).front());
        } else {
            open_.push_back(item);
        }
    }
    /// After the last of them: those that several ranks could write are dealt out, and who writes gets a file.
    void deal() {
        dedup_ == SaveDedup::shared ? share() : balance();
        open_ = {};
        int files = 0;
        for (int& number : file_)
            if (number >= 0) number = files++;
    }

    /// Bytes of the rank that writes most.
    [[nodiscard]] Index most() const noexcept { return *std::max_element(load_.begin(), load_.end()); }
    /// The number of the file that a rank writes; -1: none.
    [[nodiscard]] int file(int rank) const noexcept { return file_[as_size(rank)]; }

    /// After deal(): calls f(extent) for what `only` writes of a tensor of the manifest, or all do (-1). Names and
    /// places in files are left out.
    template <class F>
    void for_each_extent(std::size_t tensor, int only, F&& f) const {
        std::size_t const end = tensor + 1 == first_source_.size() ? tensors_.size() : first_source_[tensor + 1];
        for (std::size_t s = first_source_[tensor]; s < end; ++s) for_each_extent(tensor, s, only, f);
    }

private:
    static constexpr int nobody = -1;   ///< it has no bytes
    static constexpr int several = -2;  ///< see pieces_
    struct SaveTensor {
        DynamicDistribution distribution;
        Within within;
        DType dtype;
        std::size_t family;
        unsigned apart;
        std::size_t first;  ///< of its items: one for each group of the family
    };
    struct Piece {
        std::size_t item;
        int rank;
        Box box;
    };

    template <class F>
    void for_each_extent(std::size_t tensor, std::size_t source, int only, F& f) const {
        SaveTensor const& of = tensors_[source];
        SaveFamily const& family = families_[of.family];
        AxisSubset const replicas(of.distribution.mesh(), of.apart);
        DealtExtent extent;
        extent.tensor = tensor;
        extent.source = source;
        auto const tell = [&, this](int rank, Box const& box) {
            if (only >= 0 && only != rank) return;
            extent.file = file(rank);
            extent.box = box;
            f(std::as_const(extent));
        };
        for (Index g = 0; g < family.groups(); ++g) {
            std::size_t const item = of.first + as_size(g);
            int const owner = owner_[item];
            if (owner == nobody || (owner >= 0 && only >= 0 && owner != only)) continue;
            extent.replica = static_cast<int>(replicas.index(family.first[as_size(g)]));
            if (owner >= 0) {
                for_each_box(of, g, [&](Box const& box) { tell(owner, box); });
                continue;
            }
            auto piece = std::lower_bound(pieces_.begin(), pieces_.end(), item,
                                          [](Piece const& one, std::size_t wanted) { return one.item < wanted; });
            for (; piece != pieces_.end() && piece->item == item; ++piece) tell(piece->rank, piece->box);
        }
    }

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
    [[nodiscard]] SaveFamily const& family(SaveItem const& item) const noexcept {
        return families_[tensors_[item.tensor].family];
    }
    [[nodiscard]] std::span<int const> members(SaveItem const& item) const noexcept {
        return family(item).group(item.group);
    }
    [[nodiscard]] std::size_t number_of(SaveItem const& item) const noexcept {
        return tensors_[item.tensor].first + as_size(item.group);
    }
    [[nodiscard]] Index& load(int rank) noexcept { return load_[as_size(rank)]; }

    /// Calls f(box) for what a group holds, as a box of the whole tensor; of one without elements for the whole of it.
    template <class F>
    void for_each_box(SaveTensor const& tensor, Index group, F&& f) const {
        DynamicDistribution const& from = tensor.distribution;
        if (from.shape().size() == 0) return f(Box(whole_shape(tensor)));
        Index const place = families_[tensor.family].first[as_size(group)];
        for (Box const& box : from.boxes(from.mesh().rank_at(place))) f(whole_box(tensor, box));
    }
    void write(int rank, Index bytes) noexcept {
        load(rank) += bytes;
        file_[as_size(rank)] = 0;
    }
    void give(SaveItem const& item, int rank) {
        owner_[number_of(item)] = rank;
        write(rank, item.bytes);
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
        auto const key = [&, this](SaveItem const& item) {
            return std::tuple(family(item).group_size(), tensors_[item.tensor].family, item.group);
        };
        sort_list(open_, [&](SaveItem const& a, SaveItem const& b) { return key(a) < key(b); });
        for (auto begin = open_.begin(); begin != open_.end();) {
            auto const end =
                std::find_if(begin, open_.end(), [&](SaveItem const& item) { return key(item) != key(*begin); });
            share_in_group({begin, end});
            begin = end;
        }
        sort_list(pieces_, [](Piece const& a, Piece const& b) { return a.item < b.item; });
    }
    /// Where the share of each rank ends when so many bytes are poured over the group until all stand equally high.
    [[nodiscard]] std::vector<Index> ends_of_shares(std::span<int const> ranks, Index total) {
        std::vector<Index> loads;
        for (int rank : ranks) loads.push_back(load(rank));
        sort_list(loads);
        Index level = loads.front();
        Index left = total;
        for (std::size_t below = 1; left > 0; ++below) {
            auto const width = as_index(below);
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
        Index const share = total / as_index(ranks.size());
        std::size_t at = 0;  // whose share the bytes belong to
        Index position = 0;  // bytes dealt
        for (SaveItem const& item : items) {
            SaveTensor const& tensor = tensors_[item.tensor];
            bool const cuttable = is_byte_sized(tensor.dtype);
            std::size_t const first = pieces_.size();
            for_each_box(tensor, item.group, [&, this](Box rest) {
                int const dim = cuttable ? cut_dimension(rest, stored_bytes_of(tensor.dtype, rest), share) : -1;
                for (;;) {
                    while (at + 1 < ranks.size() && ends[at] <= position) ++at;
                    Index const bytes = stored_bytes_of(tensor.dtype, rest);
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
                    pieces_.push_back({number_of(item), ranks[at], box});
                    write(ranks[at], slice);
                    position += slice;
                    if (slice == bytes) break;
                }
            });
            bool const whole = pieces_[first].rank == pieces_.back().rank;  // they went to ranks in their order
            owner_[number_of(item)] = whole ? pieces_[first].rank : several;
            if (whole) pieces_.resize(first);
        }
    }
    /// What a rank with that much room takes of a box: about as much, in whole steps, but no slice that is too small,
    /// nor one that leaves too small a rest.
    [[nodiscard]] Index first_slice(Index bytes, Index step, Index room) const noexcept {
        Index const slice = smaller((room + step / 2) / step * step, bytes);
        if (bytes - slice < min_slice_bytes_) return room * 2 >= bytes ? bytes : 0;
        return slice < min_slice_bytes_ ? 0 : slice;
    }

    SaveDedup dedup_ = SaveDedup::lowest_rank;
    Index small_bytes_ = 0;
    Index min_slice_bytes_ = 1;
    std::vector<SaveFamily> families_;
    std::unordered_multimap<std::uint64_t, std::size_t> by_digest_;  ///< experts and stages have meshes of their own
    std::vector<SaveTensor> tensors_;                                ///< and boxes of tensors
    std::vector<std::size_t> first_source_;                          ///< per tensor of the manifest, its first
    std::vector<int> owner_;                                         ///< per item
    std::vector<SaveItem> open_;                                     ///< which several ranks could write
    std::vector<Piece> pieces_;                                      ///< of items of several ranks, sorted by item
    std::vector<Index> load_;                                        ///< bytes per rank so far
    std::vector<int> file_;                                          ///< per rank; -1: it writes nothing
};

}  // namespace reshard::inline v0_1::detail
