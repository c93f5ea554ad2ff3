// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/whole_files.hpp
/// \brief  Files of whole tensors as a manifest, read or to be written: what is where in them, their headers, the index
///         that names them. Copies that are stored apart, under names of their own (`w.__tp_replica_3`,
///         `w._tp_replica3`), become one tensor.
/// \depends checkpoint/{manifest,safetensors_layout}, checkpoint/detail/save_names. No I/O.
/// Source: github.com/NVIDIA/Megatron-LM, pull request 3392 (the first spelling of copies).
#pragma once

#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // is_sorted, lower_bound
#include <optional>   // optional
#include <span>       // span

namespace reshard::inline v0_1::detail {

/// A name that says which copy it is.
struct ReplicaName {
    std::string_view tensor;  ///< without the suffix
    int replica = 0;
};
/// Nothing for a name without such a suffix; the number is plain: no sign, no leading zero, at most 9 digits.
[[nodiscard]] inline std::optional<ReplicaName> replica_name(std::string_view name) noexcept {
    std::string_view const tensor = before_suffix(name, std::span(name_suffixes).first(2));
    std::string_view const digits = name.substr(name.find_last_not_of("0123456789") + 1);
    if (tensor.empty() || digits.size() > 9 || (digits.size() > 1 && digits.front() == '0')) return std::nullopt;
    int number = 0;
    for (char digit : digits) number = 10 * number + (digit - '0');
    return ReplicaName{tensor, number};
}

/// A tensor whose name says which copy it is.
struct NamedReplica {
    ReplicaName name;
    std::size_t tensor = 0;  ///< place in the list
};
/// All of them, sorted by the tensor they are copies of, then by number. The names stay those of `tensors`.
[[nodiscard]] inline std::vector<NamedReplica> named_replicas(std::span<StoredTensor const> tensors) {
    std::vector<NamedReplica> list;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (auto const name = replica_name(tensors[i].name)) list.push_back({*name, i});
    }
    sort_list(list, [](NamedReplica const& a, NamedReplica const& b) {
        return a.name.tensor != b.name.tensor ? a.name.tensor < b.name.tensor : a.name.replica < b.name.replica;
    });
    return list;
}
/// What is wrong with copies of one tensor, as the rest of a sentence; empty when they are 0, 1, 2, ... of one kind.
/// \pre sorted, not empty
[[nodiscard]] inline std::string fault_of(std::span<NamedReplica const> copies, std::span<StoredTensor const> tensors) {
    StoredTensor const& first = tensors[copies.front().tensor];
    for (std::size_t r = 0; r < copies.size(); ++r) {
        StoredTensor const& copy = tensors[copies[r].tensor];
        auto const number = as_size(copies[r].name.replica);
        if (number > r) return concat("its replica ", r, " is missing, but ", quote_name(copy.name), " is there");
        if (number < r) return concat("its replica ", number, " is there twice");
        if (copy.dtype != first.dtype || copy.shape != first.shape) {
            return concat("its replicas ", quote_name(first.name), " and ", quote_name(copy.name),
                          " differ in shape or element type");
        }
    }
    return {};
}

/// A tensor that lies whole in the last file of a manifest.
inline void add_whole(Manifest& manifest, TensorInfo tensor) {
    int const file = static_cast<int>(manifest.files.size()) - 1;
    manifest.extents.push_back({manifest.tensors.size(), 0, file, tensor.begin, Box(tensor.shape)});
    manifest.tensors.push_back({std::move(tensor.name), tensor.dtype, tensor.shape, 1, {}});
}

/// Sorts the tensors by name and drops those that do not stay, whose extents belong to others by now.
template <class Stays>
void sort_tensors(Manifest& manifest, Stays&& stays) {
    auto const by_name = [](StoredTensor const& a, StoredTensor const& b) { return a.name < b.name; };
    std::vector<std::size_t> order;
    order.reserve(manifest.tensors.size());
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
        if (stays(i)) order.push_back(i);
    }
    bool const is_sorted = std::is_sorted(manifest.tensors.begin(), manifest.tensors.end(), by_name);
    if (is_sorted && order.size() == manifest.tensors.size()) return;
    if (!is_sorted) {
        sort_list(order,
                  [&](std::size_t a, std::size_t b) { return by_name(manifest.tensors[a], manifest.tensors[b]); });
    }
    std::vector<StoredTensor> tensors;
    tensors.reserve(order.size());
    std::vector<std::size_t> place(manifest.tensors.size(), 0);
    for (std::size_t i : order) {
        place[i] = tensors.size();
        tensors.push_back(std::move(manifest.tensors[i]));
    }
    for (Extent& extent : manifest.extents) extent.tensor = place[extent.tensor];
    manifest.tensors = std::move(tensors);
}
inline void sort_tensors(Manifest& manifest) {
    sort_tensors(manifest, [](std::size_t) { return true; });
}

/// Makes one tensor with replicas of copies 0, 1, ... that are tensors of their own, unless a tensor of the plain name
/// is there as well: names that files have win. Copies with a fault stay as they are, and so does a lone one: nothing
/// but its name says that it is one.
/// \pre every tensor has one replica
inline void group_replicas(Manifest& manifest) {
    auto const list = named_replicas(manifest.tensors);
    if (list.empty()) return;
    std::vector<NamedReplica const*> copy_of(manifest.tensors.size());  // null for a tensor that stays one
    std::vector<std::span<NamedReplica const>> groups;
    for (std::size_t begin = 0; begin < list.size();) {
        std::size_t end = begin + 1;
        while (end < list.size() && list[end].name.tensor == list[begin].name.tensor) ++end;
        auto const copies = std::span(list).subspan(begin, end - begin);
        begin = end;
        std::string_view const tensor = copies.front().name.tensor;
        auto const exact = std::ranges::lower_bound(manifest.tensors, tensor, {}, &StoredTensor::name);
        if (exact != manifest.tensors.end() && exact->name == tensor) continue;
        if (copies.size() < 2 || !fault_of(copies, manifest.tensors).empty()) continue;
        for (NamedReplica const& copy : copies) copy_of[copy.tensor] = &copy;
        groups.push_back(copies);
    }
    for (Extent& extent : manifest.extents) {
        NamedReplica const* const copy = copy_of[extent.tensor];
        if (copy == nullptr) continue;
        if (extent.key.empty()) extent.key = manifest.tensors[extent.tensor].name;
        extent.replica = copy->name.replica;
        extent.tensor = (copy - extent.replica)->tensor;  // that of copy 0
    }
    for (auto const copies : groups) {
        StoredTensor& tensor = manifest.tensors[copies.front().tensor];
        tensor.name.resize(copies.front().name.tensor.size());  // without the suffix
        tensor.replicas = static_cast<int>(copies.size());
    }
    sort_tensors(manifest, [&](std::size_t i) { return copy_of[i] == nullptr || copy_of[i]->name.replica == 0; });
}

/// A file to be written; its bytes are the layout's.
[[nodiscard]] inline CheckpointFile described_file(std::string leaf, SafetensorsLayout const& layout) {
    return {std::move(leaf), as_index(layout.start.size()) + layout.data_bytes,
            Digest{}.add_text(std::string_view(layout.start).substr(8)).value()};
}

struct WholeFiles {
    Manifest manifest;
    std::vector<std::string> starts;  ///< per file: length, header and padding
};
/// Throws as safetensors_layout(). \pre no two files have a tensor of one name
[[nodiscard]] inline WholeFiles whole_files(std::vector<FileSpec> files, Metadata const& metadata) {
    WholeFiles result;
    Manifest& manifest = result.manifest;
    for (FileSpec& file : files) {
        SafetensorsLayout layout = safetensors_layout(std::move(file.tensors), metadata);
        manifest.files.push_back(described_file(std::move(file.leaf), layout));
        for (TensorInfo& tensor : layout.tensors) add_whole(manifest, std::move(tensor));
        result.starts.push_back(std::move(layout.start));
    }
    sort_tensors(manifest);
    return result;
}

/// The index of such files. Throws FormatError for more text than readers take.
[[nodiscard]] inline std::string index_text(Manifest const& manifest) {
    std::vector<std::pair<std::string, std::string>> map;
    Index total = 0;
    for (Extent const& extent : manifest.extents) {
        map.emplace_back(manifest.tensors[extent.tensor].name, manifest.files[as_size(extent.file)].leaf);
        total += extent_bytes(manifest, extent);
    }
    sort_list(map);
    return weight_map_text(map, total);
}

/// The tensors that lie whole in one file, under the names they have there. In the order of the extents.
[[nodiscard]] inline std::vector<CheckpointTensor> whole_tensors(Manifest const& manifest) {
    std::vector<CheckpointTensor> list;
    for (Extent const& extent : manifest.extents) {
        StoredTensor const& tensor = manifest.tensors[extent.tensor];
        if (extent.box != Box(tensor.shape)) continue;
        Index const end = extent.begin + extent_bytes(manifest, extent);
        list.push_back({{key_of(manifest, extent), tensor.dtype, tensor.shape, extent.begin, end}, extent.file});
    }
    return list;
}

}  // namespace reshard::inline v0_1::detail
