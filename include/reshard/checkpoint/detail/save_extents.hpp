// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_extents.hpp
/// \brief  Where in their files the extents of a save lie, and under which names: of a list of them, or of all that all
///         ranks write, tensor by tensor.
/// \depends checkpoint/detail/{save_deal,save_names,save_stream}. No I/O.
#pragma once

#include <reshard/checkpoint/detail/save_deal.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/detail/save_stream.hpp>

#include <algorithm>  // lower_bound, max
#include <span>       // span
#include <tuple>      // tie
#include <vector>     // vector

namespace reshard::inline v0_1::detail {

/// Names the extents and puts them into the order of their files, inside a file that of safetensors_layout(): widest
/// type first, then by name. Then calls place(extent) for each, which says where it begins.
template <class Place>
void lay_out(Manifest const& manifest, std::vector<DealtExtent>& extents, Place&& place) {
    auto const part = [](Extent const& extent) { return std::tie(extent.file, extent.tensor, extent.replica); };
    sort_list(extents, [&](Extent const& a, Extent const& b) {
        if (part(a) != part(b)) return part(a) < part(b);
        for (int dim = 0; dim < a.box.rank(); ++dim)
            if (a.box.begin(dim) != b.box.begin(dim)) return a.box.begin(dim) < b.box.begin(dim);
        return false;
    });
    Index number = 0;
    for (std::size_t i = 0; i < extents.size(); ++i) {
        Extent& extent = extents[i];
        StoredTensor const& tensor = manifest.tensors[extent.tensor];
        number = i > 0 && part(extents[i - 1]) == part(extent) ? number + 1 : 0;
        if (tensor.replicas > 1 || number > 0)
            extent.key = stored_key(tensor.name, tensor.replicas, extent.replica, number);
    }
    sort_list(extents, [&](Extent const& a, Extent const& b) {
        if (a.file != b.file) return a.file < b.file;
        DType const x = manifest.tensors[a.tensor].dtype;
        DType const y = manifest.tensors[b.tensor].dtype;
        if (x != y) return y < x;
        if (a.key.empty() && b.key.empty()) return a.tensor < b.tensor;  // these are sorted by name
        return key_of(manifest, a) < key_of(manifest, b);
    });
    for (DealtExtent& extent : extents) place(extent);
}

/// Every extent of a save, made tensor by tensor from what was dealt out: 8 bytes for each sum that ranks tell, and 4
/// for each part of a tensor, where a list of extents takes 200 each. Ranks tell a record: the size of their file, the
/// digest of its header, then the sums of its extents in their order, see SaveStream::sums().
class SaveExtents {
public:
    /// \pre all is dealt; the manifest, of tensors and files, outlives this
    SaveExtents(SaveDealer dealer, Manifest const& manifest)
        : dealer_(std::move(dealer)), manifest_(manifest), class_(dtype_count, -1) {
        for (StoredTensor const& tensor : manifest.tensors) class_[static_cast<std::size_t>(tensor.dtype)] = 0;
        for (std::size_t i = class_.size(); i-- > 0;)  // in the order of a file
            if (class_[i] >= 0) class_[i] = classes_++;
        start_.resize(manifest.files.size() * as_size(classes_));
        has_suffix_.resize(manifest.tensors.size());
        for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
            has_suffix_[t] = manifest.tensors[t].replicas > 1;
            int before = -1;
            dealer_.for_each_extent(t, -1, [&, this](Extent const& extent) {
                if (extent.file <= before) has_suffix_[t] = true;  // boxes of a larger tensor come in any order
                before = extent.file;
                move_on(start_, extent);
                ++count_;
            });
        }
        record_.push_back(0);
        for (std::size_t f = 0; f < manifest.files.size(); ++f) {
            Place at{0, record_.back() + 2};
            for (Place& of_class : std::span(start_).subspan(f * as_size(classes_), as_size(classes_))) {
                Place const size = std::exchange(of_class, at);
                at = {at.byte + size.byte, at.sum + size.sum};
            }
            record_.push_back(at.sum);
        }
        has_blocks_ = record_.back() - 2 * manifest.files.size() > count_;
        words_.resize(record_.back());
    }

    /// How many there are.
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    /// Whether any has sums of blocks.
    [[nodiscard]] bool has_blocks() const noexcept { return has_blocks_; }
    /// Of all ranks that write, together.
    [[nodiscard]] std::size_t words() const noexcept { return words_.size(); }
    /// What the rank that writes a file tells, or will tell: zeros until then.
    [[nodiscard]] std::span<std::uint64_t> record(std::size_t file) noexcept {
        return std::span(words_).subspan(record_[file], record_[file + 1] - record_[file]);
    }

    /// The extents of a tensor with their sums, as ExtentsOf.
    [[nodiscard]] std::span<Extent const* const> operator()(std::size_t tensor) {
        if (tensor == 0) {
            at_ = start_;
            end_ = 0;
        }
        if (tensor == end_) make_next();
        auto const before = [](Extent const* extent, std::size_t wanted) { return extent->tensor < wanted; };
        auto const begin = std::lower_bound(order_.begin(), order_.end(), tensor, before);
        return {begin, std::lower_bound(begin, order_.end(), tensor + 1, before)};
    }

private:
    /// In a file.
    struct Place {
        Index byte = 0;
        std::size_t sum = 0;  ///< in words_
    };
    /// Where the extent lies; what comes next lies behind it.
    Place move_on(std::vector<Place>& places, Extent const& extent) const noexcept {
        auto const dtype = static_cast<std::size_t>(manifest_.tensors[extent.tensor].dtype);
        Place& place = places[as_size(extent.file * classes_ + class_[dtype])];
        Index const bytes = extent_bytes(manifest_, extent);
        return std::exchange(place,
                             {place.byte + bytes, place.sum + SaveStream::sums_of(bytes, manifest_.block_bytes)});
    }
    /// Those of the next tensor, and of all whose names may lie between the names that its boxes and copies have in a
    /// file.
    void make_next() {
        extents_.clear();
        std::string behind;  // all these names
        do {
            dealer_.for_each_extent(end_, -1, [&, this](DealtExtent const& extent) { extents_.push_back(extent); });
            if (has_suffix_[end_]) behind = std::max(behind, concat(manifest_.tensors[end_].name, ".__\x7f"));
            ++end_;
        } while (end_ < manifest_.tensors.size() && manifest_.tensors[end_].name < behind);
        lay_out(manifest_, extents_, [&, this](Extent& extent) {
            Place const place = move_on(at_, extent);
            extent.begin = place.byte;
            extent.has_checksum = true;
            extent.crc32c = static_cast<std::uint32_t>(words_[place.sum]);
            Index const blocks = block_count(extent_bytes(manifest_, extent), manifest_.block_bytes);
            for (Index b = 1; b <= blocks; ++b)
                extent.block_sums.push_back(static_cast<std::uint32_t>(words_[place.sum + as_size(b)]));
        });
        order_.clear();
        for (Extent const& extent : extents_) order_.push_back(&extent);
        sort_list(order_, [](Extent const* a, Extent const* b) { return a->tensor < b->tensor; });
    }

    SaveDealer dealer_;
    Manifest const& manifest_;
    std::vector<int> class_;  ///< per type, its place among those that there are; -1: it is not there
    int classes_ = 0;
    std::vector<Place> start_;         ///< per file and type, where its extents begin
    std::vector<bool> has_suffix_;     ///< per tensor: it has other names than its own in some file
    std::vector<std::size_t> record_;  ///< per file, where its record begins; then the number of words
    std::vector<std::uint64_t> words_;
    std::size_t count_ = 0;
    bool has_blocks_ = false;

    // Of the tensors that were made last.
    std::vector<Place> at_;  ///< per file and type, where the next begins
    std::size_t end_ = 0;    ///< the tensor behind them
    std::vector<DealtExtent> extents_;
    std::vector<Extent const*> order_;  ///< by tensor
};

}  // namespace reshard::inline v0_1::detail
