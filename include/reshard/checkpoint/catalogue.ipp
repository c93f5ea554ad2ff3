// SPDX-License-Identifier: Apache-2.0
// How checkpoint/catalogue.hpp is done.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/catalogue_bytes.hpp>
#include <reshard/checkpoint/detail/whole_files.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // lower_bound
#include <tuple>      // tie

namespace reshard::inline v0_1 {

RESHARD_INLINE Catalogue::Catalogue(Manifest manifest, CheckpointKind kind)
    : manifest_(std::move(manifest)), kind_(kind) {
    check();
    first_.resize(tensors().size() + 1);
    for (Extent const& extent : extents()) ++first_[extent.tensor + 1];
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    of_tensor_.resize(extents().size());
    auto next = first_;
    for (std::size_t i = 0; i < of_tensor_.size(); ++i) of_tensor_[next[extents()[i].tensor]++] = i;
    sorted_ = of_tensor_;
    near_.resize(tensors().size());
    std::vector<std::size_t> room;
    for (std::size_t t = 0; t < tensors().size(); ++t) {
        near_[t] = detail::box_order(tensors()[t].shape, extents_of(t),
                                     [this](std::size_t i) -> Box const& { return extents()[i].box; });
        auto const key = [&, this](std::size_t i) { return near_[t].key(extents()[i].box); };
        detail::sort_list(
            std::span(sorted_).subspan(first_[t], first_[t + 1] - first_[t]),
            [&](std::size_t a, std::size_t b) { return key(a) < key(b); }, room);
    }
}

RESHARD_INLINE Catalogue Catalogue::of(std::vector<TensorSpec> tensors, Index max_file_bytes) {
    auto made = detail::whole_files(split_into_files(std::move(tensors), max_file_bytes), default_metadata());
    detail::group_replicas(made.manifest);
    CheckpointKind const kind = made.starts.size() > 1 ? CheckpointKind::index : CheckpointKind::file;
    return Catalogue(std::move(made.manifest), kind);
}

RESHARD_INLINE std::span<std::size_t const> Catalogue::extents_of(std::size_t tensor) const& noexcept {
    return std::span(of_tensor_).subspan(first_[tensor], first_[tensor + 1] - first_[tensor]);
}

RESHARD_INLINE StoredTensor const* Catalogue::find(std::string_view tensor) const& noexcept {
    auto const all = tensors();
    auto const at = std::ranges::lower_bound(all, tensor, {}, &StoredTensor::name);
    return at == all.end() || at->name != tensor ? nullptr : &*at;
}

RESHARD_INLINE std::uint64_t Catalogue::digest() const {
    detail::ByteWriter out;
    detail::pass(out, manifest_);
    auto const bytes = out.take();
    return detail::Digest{}.add_words({reinterpret_cast<char const*>(bytes.data()), bytes.size()}).value();
}

RESHARD_INLINE void Catalogue::check() const {
    auto const refuse = [](auto const&... parts) {
        errors::raise(ErrorCode::buffer, "reshard::Catalogue: ", parts...,
                      ". Fix: sort and complete the manifest's lists.");
    };
    for (std::size_t i = 1; i < tensors().size(); ++i) {
        if (!(tensors()[i - 1].name < tensors()[i].name)) {
            refuse("tensor ", detail::quote_name(tensors()[i].name), " is not behind ",
                   detail::quote_name(tensors()[i - 1].name), " by name");
        }
    }
    if (manifest_.block_bytes < 1) refuse("block_bytes is ", manifest_.block_bytes);
    for (std::size_t i = 0; i < extents().size(); ++i) {
        Extent const& extent = extents()[i];
        bool const listed =
            extent.tensor < tensors().size() && extent.file >= 0 && detail::as_size(extent.file) < files().size();
        if (!listed) refuse("extent ", i, " is of a tensor or a file that is not listed");
        if (extent.box.rank() != tensors()[extent.tensor].shape.rank()) {
            refuse("extent ", i, " of tensor ", detail::quote_name(tensors()[extent.tensor].name), " has ",
                   extent.box.rank(), " dimensions, not ", tensors()[extent.tensor].shape.rank());
        }
        Index const blocks = detail::block_count(extent_bytes(extent), manifest_.block_bytes);
        if (auto const sums = detail::as_index(extent.block_sums.size()); sums != 0 && sums != blocks)
            refuse("extent ", i, " has ", sums, " block sums, not ", blocks);
        bool const behind =
            i == 0 || std::tie(extents()[i - 1].file, extents()[i - 1].begin) <= std::tie(extent.file, extent.begin);
        if (!behind) refuse("extent ", i, " lies before extent ", i - 1);
    }
}

}  // namespace reshard::inline v0_1
