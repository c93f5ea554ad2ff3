// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_rename.hpp
/// \brief  The tensors of a catalogue under other names; in files that are read they keep the names they have.
/// \depends checkpoint/{catalogue,consolidate_options}, checkpoint/detail/{file_list,rename,stored_replicas}. No I/O.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/consolidate_options.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/rename.hpp>
#include <reshard/checkpoint/detail/stored_replicas.hpp>

namespace reshard::inline v0::detail {

/// Throws FormatError for a rename that no tensor has, that is no rename, or after which two tensors have one name.
[[nodiscard]] inline Catalogue renamed(Catalogue from, RewriteOptions const& options) {
    if (options.rename.empty()) return from;
    auto const refuse = [](SafetensorsRule rule, auto const&... parts) {
        raise_rule(rule, concat("reshard::RewriteOptions: rename ", parts...));
    };
    CheckpointKind const kind = from.kind();
    Manifest manifest = std::move(from).manifest();
    for (Extent& extent : manifest.extents) extent.key = std::string(key_of(manifest, extent));
    std::vector<bool> used(options.rename.size());
    for (auto const& [name, to] : options.rename) {
        if (is_rename({name, to})) continue;
        refuse(SafetensorsRule::invalid_index, "of ", quote_name(name), " to ", quote_name(to), rename_fix);
    }
    for (StoredTensor& tensor : manifest.tensors) {
        for (std::size_t i = 0; i < options.rename.size(); ++i) {  // the first that fits
            std::string to;
            if (!rename_to(options.rename[i].first, options.rename[i].second, tensor.name, to)) continue;
            tensor.name = std::move(to);
            used[i] = true;
            break;
        }
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
        if (used[i]) continue;
        refuse(SafetensorsRule::tensor_not_found, "names ", quote_name(options.rename[i].first),
               ", which is no tensor of the checkpoint, or one that an earlier line renames. Fix: leave it out.");
    }
    sort_tensors(manifest);
    for (std::size_t t = 1; t < manifest.tensors.size(); ++t) {
        if (manifest.tensors[t].name != manifest.tensors[t - 1].name) continue;
        refuse(SafetensorsRule::duplicate_key, "makes two tensors ", quote_name(manifest.tensors[t].name),
               ". Fix: give each a name of its own.");
    }
    return Catalogue(std::move(manifest), kind);
}

}  // namespace reshard::inline v0::detail
