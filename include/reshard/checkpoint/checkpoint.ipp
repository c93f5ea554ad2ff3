// SPDX-License-Identifier: Apache-2.0
// How checkpoint/checkpoint.hpp is done.
#pragma once

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/detail/listed_files.hpp>
#include <reshard/checkpoint/detail/whole_files.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE Checkpoint Checkpoint::open(std::string const& path, Access access) {
    return detail::read_list(path, [&](detail::FileList list) { return Checkpoint(std::move(list), access); });
}

RESHARD_INLINE SafetensorsFile const& Checkpoint::file_of(CheckpointTensor const& tensor) const& {
    if (tensor.file < 0 || tensor.file >= static_cast<int>(files_.size())) {
        errors::raise(ErrorCode::buffer, "reshard::Checkpoint: it has no file ", tensor.file, " for tensor ",
                      detail::quote_name(tensor.name), ". Fix: pass a tensor of this checkpoint.");
    }
    return files_[detail::as_size(tensor.file)];
}

RESHARD_INLINE Index Checkpoint::total_bytes() const noexcept {
    Index sum = 0;
    for (Extent const& extent : manifest_.extents) sum += detail::extent_bytes(manifest_, extent);
    return sum;
}

RESHARD_INLINE CheckpointTensor const& Checkpoint::at(std::string_view tensor) const& {
    CheckpointTensor const* const found = find(tensor);
    if (found != nullptr) return *found;
    for (StoredTensor const& stored : manifest_.tensors) {
        if (stored.name != tensor) continue;
        detail::raise_rule(SafetensorsRule::tensor_not_found, "tensor ", detail::quote_name(tensor),
                           " of the checkpoint is stored in ", stored.replicas > 1 ? "replicas" : "boxes",
                           ", not whole under that name. Fix: load it, with reshard::load().");
    }
    detail::raise_rule(SafetensorsRule::tensor_not_found, "none of the ", manifest_.tensors.size(),
                       " tensors of the checkpoint is called ", detail::quote_name(tensor),
                       ". Fix: check the name against tensors().");
}

RESHARD_INLINE Checkpoint::Checkpoint(detail::FileList list, Access access) : kind_(list.kind), folder_(list.folder) {
    detail::OpenFiles open;
    manifest_ = detail::read_headers(std::move(list), open, true, access);
    open.resize(manifest_.files.size());
    for (std::size_t i = 0; i < open.size(); ++i) {
        if (!open[i]) {  // of a manifest
            open[i] = detail::open_listed(folder_, manifest_, i, kind_, true, access);
            detail::check_entries(open[i]->header(), manifest_, i, detail::refuse_entry);
        }
        files_.push_back(std::move(*open[i]));
    }
    tensors_ = detail::whole_tensors(manifest_);
    by_name_ = detail::places_by_name(tensors_);
}

}  // namespace reshard::inline v0_1
