// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/file_entries.hpp
/// \brief  Which box of which tensor each entry of a file is, of whole tensors, of shards that PyTorch's DCP wrote,
///         and of our own; and what the headers of all files say together.
/// \depends checkpoint/{coverage,json_tree,safetensors_header,safetensors_layout}, checkpoint/detail/{manifest_json,
///          save_names,whole_files}. No I/O.
/// Source: github.com/pytorch/pytorch, torch/distributed/checkpoint: _hf_utils.py (names of files and keys) and
/// hf_storage.py, `HuggingFaceStorageReader.read_metadata` (their meaning).
///
/// `__metadata__` has DCP_SHARDING_INFO, a JSON text {key: {"saved_offsets": [...], "logical_fqn": tensor?}}. Nothing
/// says how large a tensor is: it reaches as far as its boxes, so a lost file can shorten it unseen. Hence the file
/// names count: shards are numbered from 1 without gaps.
#pragma once

#include <reshard/checkpoint/coverage.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/detail/whole_files.hpp>
#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/checkpoint/safetensors_header.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // lower_bound
#include <iterator>   // back_inserter
#include <span>       // span
#include <tuple>      // tie, tuple

namespace reshard::inline v0_1::detail {

inline constexpr std::string_view dcp_sharding_info = "DCP_SHARDING_INFO";

/// Whether a text of `__metadata__` is about its file alone: it is untrue of any other, and no text of a checkpoint.
[[nodiscard]] inline bool is_of_file(std::string_view key) noexcept {
    return key == dcp_sharding_info || key == "reshard_save" || key == "format";
}
inline void drop_texts_of_file(Metadata& metadata) {
    std::erase_if(metadata, [](auto const& item) { return is_of_file(item.first); });
}

/// `{"w": {"saved_offsets": [4, 0]}}`: what PyTorch's reader of sharded safetensors files wants to know.
[[nodiscard]] inline std::string sharding_info(Manifest const& manifest, std::span<Extent const> extents) {
    std::string json = "{";
    for (Extent const& extent : extents) {
        if (json.size() > 1) json += ", ";
        append_json_string(json, key_of(manifest, extent));
        json += ": {\"saved_offsets\": [";
        for (int dim = 0; dim < extent.box.rank(); ++dim) json += concat(dim == 0 ? "" : ", ", extent.box.begin(dim));
        json += "]}";
    }
    return json + '}';
}

inline void add_shard_texts(Metadata& metadata, Manifest const& manifest, std::span<Extent const> extents) {
    metadata.emplace_back(dcp_sharding_info, sharding_info(manifest, extents));
    metadata.emplace_back("reshard_save", manifest.save);
}

/// The header of a file of a save, with these extents. Throws as safetensors_layout().
[[nodiscard]] inline SafetensorsLayout shard_layout(Manifest const& manifest, std::span<Extent const> extents,
                                                    Metadata metadata) {
    std::vector<TensorSpec> entries;
    for (Extent const& extent : extents)
        entries.push_back({key_of(manifest, extent), manifest.tensors[extent.tensor].dtype, extent.box.shape()});
    add_shard_texts(metadata, manifest, extents);
    return safetensors_layout(std::move(entries), std::move(metadata));
}

/// Whether the header of a file, of that many bytes and with the digest that the manifest has, is the one that a save
/// writes for these extents, byte for byte: then it says what the manifest says, and need not be parsed.
[[nodiscard]] inline bool is_saved_header(Manifest const& manifest, std::size_t number, Index header_bytes) {
    CheckpointFile const& file = manifest.files[number];
    auto const extents = extents_in(manifest, static_cast<int>(number));
    bool const is_shard = is_shard_file(file.leaf);
    Metadata metadata = is_shard ? Metadata{} : manifest.metadata;
    drop_texts_of_file(metadata);
    metadata.emplace_back("format", manifest.format.empty() ? "pt" : manifest.format);
    if (is_shard) add_shard_texts(metadata, manifest, extents);
    sort_list(metadata);
    Digest digest = Digest{}.add(static_cast<std::uint64_t>(header_bytes));
    Index size = 0;
    bool is_dense = true;
    TensorInfo tensor;
    auto const entry = [&](std::size_t i) -> TensorInfo const& {
        Extent const& extent = extents[i];
        is_dense = is_dense && extent.begin == tensor.end;
        Index const end = extent.begin + extent_bytes(manifest, extent);
        tensor = {key_of(manifest, extent), manifest.tensors[extent.tensor].dtype, extent.box.shape(), extent.begin,
                  end};
        return tensor;
    };
    write_header(metadata, extents.size(), entry, [&](std::string_view piece) {
        digest.add_bytes(piece);
        size += std::ssize(piece);
    });
    return is_dense && size == header_bytes && digest.value() == file.header_digest &&
           8 + size + tensor.end == file.file_bytes;
}

[[noreturn]] inline void refuse_dcp(std::string_view where, std::string_view what, std::string_view fix) {
    raise(ErrorCode::format, "reshard::Checkpoint: ", where, ": ", what, ". Fix: ", fix);
}

/// The text of a key of `__metadata__`, or null.
[[nodiscard]] inline std::string const* find_metadata(Metadata const& metadata, std::string_view key) noexcept {
    auto const at = std::ranges::lower_bound(metadata, key, {}, &Metadata::value_type::first);
    return at == metadata.end() || at->first != key ? nullptr : &at->second;
}

/// The format in a file's metadata, where that is not pt.
[[nodiscard]] inline std::string format_of(Metadata const& metadata) {
    for (auto const& [key, value] : metadata)
        if (key == "format" && value != "pt") return value;
    return {};
}

/// Adds the metadata of file `number`, of files 0, 1, ... one after the other. Where two contradict each other the
/// first counts, and a key is noted with the file of the second. A format is one that all files have.
inline void add_texts(Manifest& manifest, std::size_t number, Metadata const& texts) {
    std::string const own = format_of(texts);
    if (number == 0) manifest.format = own;
    if (manifest.format != own) manifest.format.clear();
    Metadata added;
    for (auto const& item : texts) {
        if (is_of_file(item.first)) continue;
        std::string const* const told = find_metadata(manifest.metadata, item.first);
        if (told == nullptr) {
            added.push_back(item);
        } else if (*told != item.second) {
            manifest.files[number].contradicts = item.first;
        }
    }
    if (added.empty()) return;
    std::move(added.begin(), added.end(), std::back_inserter(manifest.metadata));
    sort_list(manifest.metadata);
}

/// What the entries of all files are, one after the other.
[[nodiscard]] inline Manifest joined(std::vector<Manifest> headers) {
    if (headers.size() == 1) return std::move(headers.front());
    Manifest result;
    std::size_t count = 0;
    for (Manifest const& header : headers) count += header.tensors.size();
    result.tensors.reserve(count);
    result.extents.reserve(count);
    for (Manifest& header : headers) {
        for (Extent& extent : header.extents) {
            extent.tensor += result.tensors.size();
            extent.file += static_cast<int>(result.files.size());
            result.extents.push_back(std::move(extent));
        }
        std::move(header.tensors.begin(), header.tensors.end(), std::back_inserter(result.tensors));
        std::move(header.files.begin(), header.files.end(), std::back_inserter(result.files));
        header = {};  // thousands of them take as much memory as what they become
    }
    return result;
}

/// What the entries of a header are, in file order; whole tensors where it has no DCP_SHARDING_INFO, as PyTorch reads
/// it. Throws FormatError naming `path`, the tensor and what is wrong.
[[nodiscard]] inline Manifest dcp_header(CheckpointFile file, SafetensorsHeader const& header, std::string_view path) {
    static constexpr std::string_view fix = "restore the file, or save anew.";
    Manifest result;
    result.files.push_back(std::move(file));
    for (TensorInfo const& tensor : header.tensors()) add_whole(result, tensor);
    std::string const* const text = find_metadata(header.metadata(), dcp_sharding_info);
    if (text == nullptr) return result;

    constexpr RefuseFile refuse = [](std::string_view name, std::string_view what) { refuse_dcp(name, what, fix); };
    JsonTree const tree(*text, path, refuse, dcp_sharding_info);
    std::vector<char> said(result.tensors.size(), 0);
    JsonReader(tree).for_each_member([&](std::string const& key, JsonReader const& info) {
        TensorInfo const* const tensor = header.find(key);
        if (tensor == nullptr) return;  // as PyTorch does
        auto const place = as_size(tensor - header.tensors().data());
        std::string& name = result.tensors[place].name;
        Extent& extent = result.extents[place];
        said[place] = 1;
        std::vector<Index> const offsets = info.at("saved_offsets").integers();
        if (offsets.size() != as_size(extent.box.rank())) {
            info.fail("has ", offsets.size(), " saved_offsets for the shape ", to_string(tensor->shape));
        }
        for (int d = 0; d < extent.box.rank(); ++d) {
            Index const offset = offsets[as_size(d)];
            Index const length = extent.box.extent(d);
            if (offset > INT64_MAX - length) info.fail("reaches beyond 2^63 - 1");
            extent.box.set(d, {offset, offset + length});
        }
        if (!info.has("logical_fqn")) return;
        extent.key = std::exchange(name, info.at("logical_fqn").text());
        if (extent.key == name) extent.key.clear();
    });
    for (std::size_t i = 0; i < said.size(); ++i) {
        if (said[i] != 0) continue;
        refuse_dcp(
            path, concat(dcp_sharding_info, " does not say where tensor ", quote_name(result.tensors[i].name), " lies"),
            fix);
    }
    return result;
}

/// The numbers in `shard-00002-model-00001-of-00003.safetensors`.
struct DcpName {
    int shard = 0;  ///< rank + 1; 0: the name has another form
    int files = 0;  ///< per rank, at most
};
[[nodiscard]] inline DcpName dcp_name(std::string_view leaf) noexcept {
    NameReader in(leaf);
    DcpName name;
    int file = 0;
    bool const fits = in.word("shard-") && in.number(name.shard) && in.word("-model-") && in.number(file) &&
                      in.word("-of-") && in.number(name.files) && in.word(".safetensors") && in.at_end();
    return fits && name.files > 0 ? name : DcpName{};
}

/// Refuses files numbered as shards that are not those of ranks 0, 1, ... of one save. Other names say nothing.
inline void check_dcp_names(std::span<CheckpointFile const> files, std::string_view folder) {
    std::vector<std::pair<int, std::string_view>> shards;
    int count = 0;
    for (CheckpointFile const& file : files) {
        DcpName const name = dcp_name(file.leaf);
        if (name.shard == 0) continue;
        if (count != 0 && count != name.files) {
            refuse_dcp(folder,
                       concat("some files are of ", count, " per rank, ", quote_name(file.leaf), " of ", name.files,
                              ": they are of different saves"),
                       "keep the files of one save in a folder.");
        }
        count = name.files;
        shards.emplace_back(name.shard, file.leaf);
    }
    sort_list(shards);
    int expected = 1;
    for (auto const& [shard, leaf] : shards) {
        if (shard > expected) {
            refuse_dcp(
                folder,
                concat("shard ", expected, " of at least ", shards.back().first, " is missing: there is ",
                       quote_name(leaf), ", but no file of rank ", expected - 1),
                "fetch the files of all ranks; if that rank saved nothing, consolidate the shards with PyTorch.");
        }
        expected = shard + 1;
    }
}

/// What the files hold together. A tensor reaches as far as its boxes. A box that several files hold, as replicas that
/// were not saved once only, is taken from the file of the lowest rank; the others are not read. Extents are sorted by
/// (file, begin). Throws FormatError naming the tensor, the file and the remedy: for boxes of one tensor that differ in
/// dtype or number of dimensions, that leave something out or overlap, and for gaps in the numbers of the files.
[[nodiscard]] inline Manifest dcp_manifest(std::vector<Manifest> headers, std::string_view folder) {
    Manifest manifest = joined(std::move(headers));
    check_dcp_names(manifest.files, folder);
    for (CheckpointFile& file : manifest.files) {
        if (file.writer < 0) file.writer = dcp_name(file.leaf).shard - 1;
        manifest.world_size = larger(manifest.world_size, file.writer + 1);
    }
    std::vector<StoredTensor> const entries = std::exchange(manifest.tensors, {});
    std::vector<Extent> boxes = std::exchange(manifest.extents, {});
    auto const file_of = [&](Extent const& box) -> CheckpointFile const& { return manifest.files[as_size(box.file)]; };
    sort_list(boxes, [&](Extent const& a, Extent const& b) {
        if (int const way = entries[a.tensor].name.compare(entries[b.tensor].name); way != 0) return way < 0;
        if (int const way = a.box.rank() - b.box.rank(); way != 0) return way < 0;
        for (int d = 0; d < a.box.rank(); ++d) {
            Interval const ours = a.box[d];
            Interval const theirs = b.box[d];
            if (ours != theirs) return std::tie(ours.begin, ours.end) < std::tie(theirs.begin, theirs.end);
        }
        return std::tie(file_of(a).writer, file_of(a).leaf, a.begin) <
               std::tie(file_of(b).writer, file_of(b).leaf, b.begin);
    });

    std::vector<Indices> reach;
    Extent const* first = nullptr;  // of the tensor
    Box const* last = nullptr;      // that was taken
    manifest.extents.reserve(boxes.size());
    for (Extent const& extent : boxes) {
        std::string const& tensor = entries[extent.tensor].name;
        DType const dtype = entries[extent.tensor].dtype;
        Box const& box = extent.box;
        if (manifest.tensors.empty() || manifest.tensors.back().name != tensor) {
            first = &extent;
            manifest.tensors.push_back({tensor, dtype, {}, 1, {}});
            reach.emplace_back();
            for (int d = 0; d < box.rank(); ++d) reach.back().push_back(0);
        } else if (dtype != manifest.tensors.back().dtype || box.rank() != first->box.rank()) {
            refuse_dcp(folder,
                       concat("tensor ", quote_name(tensor), " is ", name(manifest.tensors.back().dtype), " of ",
                              first->box.rank(), " dimensions in ", quote_name(file_of(*first).leaf), ", and ",
                              name(dtype), " of ", box.rank(), " in ", quote_name(file_of(extent).leaf)),
                       "keep the files of one save in a folder.");
        } else if (box == *last && !box.empty()) {
            continue;
        }
        last = &box;
        for (int d = 0; d < box.rank(); ++d) reach.back()[d] = larger(reach.back()[d], box.end(d));
        manifest.extents.push_back(extent);
        manifest.extents.back().tensor = manifest.tensors.size() - 1;
    }
    for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
        StoredTensor& tensor = manifest.tensors[t];
        Index byte_count = 0;
        auto const rule = count_stored_bytes(tensor.dtype, reach[t], byte_count);
        if (rule != SafetensorsRule::none) {
            raise_stored_bytes(rule, concat(folder, ": tensor ", quote_name(tensor.name)), tensor.dtype, reach[t]);
        }
        tensor.shape = DynamicShape(reach[t]);
    }
    for (Extent const& extent : manifest.extents) {
        StoredTensor const& tensor = manifest.tensors[extent.tensor];
        if (is_byte_sized(tensor.dtype) || extent.box == Box(tensor.shape)) continue;
        refuse_dcp(folder,
                   concat("tensor ", quote_name(tensor.name), " is cut, but ", name(tensor.dtype),
                          " has no elements of whole bytes to cut between"),
                   "save it whole.");
    }
    std::string const fault = coverage_fault(manifest);
    if (!fault.empty()) refuse_dcp(folder, fault, "fetch the files of all ranks, and of one save only.");
    sort_list(manifest.extents, [](Extent const& a, Extent const& b) {
        // As in a header: what has no bytes is in front of what begins there, in the order in which boxes are numbered.
        auto const place = [](Extent const& one) {
            return std::tuple(one.file, one.begin, !one.box.empty(), one.tensor, one.key.size(),
                              std::string_view(one.key));
        };
        return place(a) < place(b);
    });
    return manifest;
}

}  // namespace reshard::inline v0_1::detail
