// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/catalogue.hpp
/// \brief  Catalogue: which tensors a checkpoint has and which box of which lies where, without an open file.
/// \depends checkpoint/{checkpoint,safetensors_layout}. What one rank learns and tells the others, and what a dry run
/// works on.
#pragma once

#include <reshard/algebra/box_order.hpp>
#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>

namespace reshard::inline v0_1 {

/// A Manifest with its indexes: tensors by name, the extents of a tensor.
class Catalogue {
public:
    Catalogue() = default;
    /// Throws BufferError for a manifest that breaks what its fields promise: tensors sorted by name, extents sorted by
    /// (file, begin), of files and tensors that are listed. Whether they cover the tensors is for check_coverage().
    explicit Catalogue(Manifest manifest, CheckpointKind kind = CheckpointKind::manifest);
    explicit Catalogue(Checkpoint const& checkpoint) : Catalogue(checkpoint.manifest(), checkpoint.kind()) {}
    /// A checkpoint that might be written: the tensors in files of at most `max_file_bytes` of data, as
    /// write_checkpoint would lay them out. Throws as safetensors_layout does.
    [[nodiscard]] static Catalogue of(std::vector<TensorSpec> tensors, Index max_file_bytes = default_max_file_bytes);

    [[nodiscard]] CheckpointKind kind() const noexcept { return kind_; }
    // What refers into this object is returned by value where the object is about to go, or not at all.
    [[nodiscard]] Manifest const& manifest() const& noexcept { return manifest_; }
    [[nodiscard]] Manifest manifest() && noexcept { return std::move(manifest_); }
    [[nodiscard]] std::span<CheckpointFile const> files() const& noexcept { return manifest_.files; }
    [[nodiscard]] std::vector<CheckpointFile> files() && noexcept { return std::move(manifest_.files); }
    /// Sorted by name.
    [[nodiscard]] std::span<StoredTensor const> tensors() const& noexcept { return manifest_.tensors; }
    [[nodiscard]] std::vector<StoredTensor> tensors() && noexcept { return std::move(manifest_.tensors); }
    /// Sorted by file, then by position in it.
    [[nodiscard]] std::span<Extent const> extents() const& noexcept { return manifest_.extents; }
    [[nodiscard]] std::vector<Extent> extents() && noexcept { return std::move(manifest_.extents); }
    /// Places in extents(), in their order. \pre tensor < tensors().size()
    [[nodiscard]] std::span<std::size_t const> extents_of(std::size_t tensor) const& noexcept;
    std::span<std::size_t const> extents_of(std::size_t tensor) const&& = delete;
    /// Calls visit(place in extents()) for those that may meet this box of the tensor, in any order. Logarithmic in the
    /// number of extents, where one dimension tells them apart, but for what is visited.
    template <class Visit>
    void for_each_near(std::size_t tensor, Box const& box, Visit&& visit) const {
        auto const all = std::span(sorted_).subspan(first_[tensor], first_[tensor + 1] - first_[tensor]);
        auto const key_at = [&](std::size_t i) { return near_[tensor].key(manifest_.extents[all[i]].box); };
        detail::for_each_near(all, near_[tensor], box, key_at, [&](std::span<std::size_t const> places) {
            for (std::size_t const place : places) visit(place);
        });
    }
    /// The tensor of that name, or null. Logarithmic in the number of tensors. Exactly that name: load() knows more.
    [[nodiscard]] StoredTensor const* find(std::string_view tensor) const& noexcept;
    StoredTensor const* find(std::string_view tensor) const&& = delete;
    [[nodiscard]] Index extent_bytes(Extent const& one) const noexcept { return detail::extent_bytes(manifest_, one); }
    /// Equal catalogues have equal digests: what ranks compare to know that they see the same checkpoint.
    [[nodiscard]] std::uint64_t digest() const;
    friend bool operator==(Catalogue const& a, Catalogue const& b) { return a.manifest_ == b.manifest_; }

private:
    void check() const;

    Manifest manifest_;
    CheckpointKind kind_ = CheckpointKind::file;
    std::vector<std::size_t> first_;      ///< per tensor: where its extents begin in of_tensor_
    std::vector<std::size_t> of_tensor_;  ///< places of extents, tensor by tensor
    std::vector<std::size_t> sorted_;     ///< the same, those of a tensor in the order near_[tensor]
    std::vector<detail::BoxOrder> near_;  ///< per tensor
};

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/catalogue.ipp>
#endif
