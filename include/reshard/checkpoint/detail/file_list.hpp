// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/file_list.hpp
/// \brief  What a path names: a manifest, or the files whose headers have to be read.
/// \depends checkpoint/detail/{file_entries,manifest_json}, POSIX.
///
/// One rank looks at the path; the others work on what it tells them, so that no two ranks see different folders.
#pragma once

#include <reshard/checkpoint/coverage.hpp>
#include <reshard/checkpoint/detail/file_entries.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/file.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // all_of, find, lower_bound, unique

namespace reshard::inline v0_1::detail {

/// Which tensor lies in which file.
struct WeightMap {
    std::vector<std::string> leaves;                           ///< the files, sorted
    std::vector<std::pair<std::string, std::size_t>> tensors;  ///< with the places of their files; sorted
};

/// How JsonTree refuses an index.
template <SafetensorsRule rule>
[[noreturn]] inline void refuse_index(std::string_view file, std::string_view why) {
    raise_rule(rule, file, ": ", why, ". Fix: fetch or write the index anew.");
}

/// What stands under "weight_map"; "metadata" and whatever else is there is skipped: its total_size is wrong often
/// enough in the wild. Throws FormatError: InvalidIndex, also where no tensor is named, or DuplicateKey for what is
/// given twice.
[[nodiscard]] inline WeightMap parse_weight_map(std::string_view json, std::string_view file) {
    JsonTree const tree(json, file, refuse_index<SafetensorsRule::invalid_index>, {},
                        refuse_index<SafetensorsRule::duplicate_key>);
    WeightMap map;
    std::vector<std::string_view> leaf_of;
    JsonReader const weight_map = JsonReader(tree).at("weight_map");
    weight_map.for_each_member([&](std::string tensor, JsonReader const& leaf) {
        if (!stays_in_folder(leaf.text_view()))
            leaf.fail("is ", quote_name(leaf.text_view()), ", which is no file inside the folder");
        map.tensors.emplace_back(std::move(tensor), 0);
        leaf_of.push_back(leaf.text_view());
    });
    if (map.tensors.empty()) weight_map.fail("names no tensor");
    std::vector<std::string_view> leaves = leaf_of;
    sort_list(leaves);
    map.leaves.assign(leaves.begin(), std::unique(leaves.begin(), leaves.end()));
    for (std::size_t i = 0; i < leaf_of.size(); ++i)
        map.tensors[i].second = as_size(std::ranges::lower_bound(map.leaves, leaf_of[i]) - map.leaves.begin());
    sort_list(map.tensors);
    return map;
}

/// What a path names.
struct FileList {
    CheckpointKind kind = CheckpointKind::file;
    std::string source;                      ///< the path as messages name it: of the file, the index, or the folder
    std::string folder;                      ///< what leaves are relative to; empty for the working folder
    std::vector<std::string> leaves;         ///< the files; with an index sorted by name
    decltype(WeightMap::tensors) indexed{};  ///< kind index
    Manifest manifest{};                     ///< kind manifest: the files are there, their headers were not looked at
    std::vector<std::size_t> named{};        ///< kind index: tensors of each leaf
};

/// The text of an index or a manifest of at most so many bytes.
[[nodiscard]] inline std::string read_json_text(std::string const& path, Index most_bytes) {
    Index bytes = 0;
    FileDescriptor const file = open_for_reading(path, bytes);
    if (bytes > most_bytes) {
        raise_rule(SafetensorsRule::invalid_index, path, ": the index has ", bytes, " bytes, more than the ",
                   most_bytes, " allowed. Fix: check that this is an index.");
    }
    std::string text(as_size(bytes), '\0');
    read_fully(file, path, 0, std::as_writable_bytes(std::span(text)));
    return text;
}

/// A manifest as write_manifest() makes it, without its tensors: these are only summed up, and take no memory. Empty
/// where the text is another, or has another sum.
[[nodiscard]] inline std::string manifest_without_tensors(std::string const& path) {
    constexpr Index read_bytes = Index{1} << 20;
    Index bytes = 0;
    FileDescriptor const file = open_for_reading(path, bytes);
    std::string seal = manifest_seal("");
    Index const sealed = bytes - std::ssize(seal);
    std::string text;
    std::string piece;
    std::uint32_t sum = 0;
    std::size_t tensors = std::string::npos;
    for (Index at = 0; at < sealed && bytes <= max_manifest_bytes; at += std::ssize(piece)) {
        piece.resize(as_size(smaller(read_bytes, sealed - at)));
        read_fully(file, path, at, std::as_writable_bytes(std::span(piece)));
        sum = crc32c(std::as_bytes(std::span(piece)), sum);
        if (tensors != std::string::npos) continue;
        std::size_t const seen = text.size() - smaller(text.size(), manifest_tensors.size());
        text += piece;
        tensors = text.find(manifest_tensors, seen);
    }
    if (tensors == std::string::npos) return {};
    read_fully(file, path, sealed, std::as_writable_bytes(std::span(seal)));
    if (seal != manifest_seal(sum)) return {};
    text.resize(tensors + manifest_tensors.size());
    text += ']';
    return text + manifest_seal(text);
}

/// The files that a manifest names, without a look at its tensors if it can be. Throws where it cannot be read.
[[nodiscard]] inline std::vector<std::string> files_of_manifest(std::string const& path) {
    auto const files = [&](std::string_view text) {
        std::vector<std::string> leaves;
        for (CheckpointFile& one : manifest_from(text, path).files) leaves.push_back(std::move(one.leaf));
        return leaves;
    };
    if (std::string const text = manifest_without_tensors(path); !text.empty()) {
        try {
            return files(text);
        } catch (Error const&) {  // somebody has written it in another order: all of it is read
        }
    }
    return files(read_json_text(path, max_manifest_bytes));
}

/// `...-00001-of-00005.safetensors`.
[[nodiscard]] inline bool is_one_of_several(std::string_view leaf) noexcept {
    auto const of = leaf.rfind("-of-");
    auto const dash = leaf.substr(0, of).rfind('-');
    if (of == std::string_view::npos || dash == std::string_view::npos) return false;
    NameReader in(leaf.substr(dash));
    bool const numbered = in.word("-") && in.digits(1, leaf.size()) && in.word("-of-") && in.digits(1, leaf.size()) &&
                          in.word(".safetensors") && in.at_end();
    return numbered && leaf.substr(leaf.find_first_not_of('0', of + 4)) != "1.safetensors";
}
inline void refuse_missing(std::string const& source, std::string const& folder,
                           std::vector<std::string> const& leaves) {
    std::string list;
    int missing = 0;
    for (std::string const& leaf : leaves) {
        if (path_kind(join_path(folder, leaf)) != PathKind::missing) continue;
        if (++missing <= 8) list += concat(missing == 1 ? "" : ", ", quote_name(leaf));
    }
    if (missing == 0) return;
    if (missing > 8) list += ", ...";
    bool const unfinished = path_kind(join_path(folder, lock_name(index_name))) != PathKind::missing;
    raise(ErrorCode::io, name(SafetensorsRule::missing_files), ": ", source, ": ", missing, " of the ", leaves.size(),
          " files it names are missing: ", list, ". Fix: ",
          unfinished ? "a consolidation into this folder is under way, or was killed: wait for "
                       "it, or run it again."
                     : "fetch them.");
}

[[nodiscard]] inline FileList list_manifest(std::string const& path) {
    FileList list{CheckpointKind::manifest, path, folder_or_none(path), {}, {}, {}};
    list.manifest = manifest_from(read_json_text(path, max_manifest_bytes), path);
    check_coverage(list.manifest, path);
    for (CheckpointFile const& file : list.manifest.files) list.leaves.push_back(file.leaf);
    refuse_missing(path, list.folder, list.leaves);
    return list;
}

[[nodiscard]] inline FileList list_index(std::string const& path) {
    FileList list{CheckpointKind::index, path, folder_or_none(path), {}, {}, {}};
    WeightMap map = parse_weight_map(read_json_text(path, max_safetensors_header_bytes), path);
    list.leaves = std::move(map.leaves);
    list.indexed = std::move(map.tensors);
    refuse_missing(path, list.folder, list.leaves);
    list.named.resize(list.leaves.size());
    for (auto const& entry : list.indexed) ++list.named[entry.second];
    return list;
}

[[nodiscard]] inline FileList list_file(std::string const& path) {
    std::string const folder = folder_or_none(path);
    std::size_t skip = folder.size();  // and the slash behind it
    while (skip < path.size() && skip > 0 && path[skip] == '/') ++skip;
    return {CheckpointKind::file, path, folder, {path.substr(skip)}, {}, {}};
}

/// A folder without a manifest, an index or a model.safetensors.
[[nodiscard]] inline FileList list_loose_files(std::string const& folder) {
    std::vector<std::string> found;
    std::vector<std::string> indexes;  // of other names than folders are looked through for
    std::size_t unpublished = 0;
    bool pickled = false;
    bool old_tables = false;
    for (std::string const& leaf : leaves_of(folder)) {
        if (leaf.ends_with(".safetensors.index.json") && leaf.front() != '.') indexes.push_back(leaf);
        pickled = pickled || leaf == ".metadata" || leaf.ends_with(".distcp");
        old_tables = old_tables || leaf == mch_old_index;
        if (!leaf.ends_with(".safetensors") || leaf.front() == '.') continue;
        if (is_shard_file(leaf)) {  // a part of a save that counts only if a manifest names it
            ++unpublished;
        } else {
            found.push_back(leaf);
        }
    }
    sort_list(found);
    if (!found.empty() &&
        std::all_of(found.begin(), found.end(), [](auto const& leaf) { return dcp_name(leaf).shard != 0; })) {
        return {CheckpointKind::shards, folder, folder, std::move(found), {}, {}};
    }
    if (old_tables) {
        raise(ErrorCode::io, "IoError: ", folder, ": no checkpoint of today: its ", mch_old_index,
              " is of managed-collision tables as older releases saved them. Fix: the command `reshard mch ", folder,
              " OUT` writes them as a checkpoint; MchCheckpoint reads both.");
    }
    // One file of several whose index is missing must not pass for a whole checkpoint.
    if (found.size() == 1 && !is_one_of_several(found.front())) {
        return list_file(join_path(folder, found.front()));
    }
    if (found.empty() && unpublished != 0) {
        raise(ErrorCode::io, "IoError: ", folder, ": no checkpoint: ", unpublished,
              " *.safetensors are parts of a save that never ended, for there is no ", manifest_name,
              ". Fix: save again, or load an older checkpoint.");
    }
    if (found.empty() && pickled) {
        raise(ErrorCode::io, "IoError: ", folder,
              ": no checkpoint: its files are of torch.distributed.checkpoint's own format, which "
              "is pickled. Fix: save with its HuggingFaceStorageWriter, which makes safetensors "
              "files. (MCH tables: the command reshard mch.)");
    }
    std::string list;
    for (std::size_t i = 0; i < found.size() && i < 4; ++i) list += concat(i == 0 ? " (" : ", ", found[i]);
    if (!list.empty()) list += found.size() > 4 ? ", ...)" : ")";
    raise(ErrorCode::io, "IoError: ", folder, ": no checkpoint: looked for ", manifest_name, ", ", index_name, ", ",
          single_name, " or exactly one whole *.safetensors, found ", found.size(), " *.safetensors", list, ". Fix: ",
          indexes.size() == 1 ? concat("name the index, ", join_path(folder, indexes[0]), ", in place of the folder.")
                              : "add the index, or name one file.",
          " Pickles (*.bin, *.pt) are not read.");
}

[[nodiscard]] inline FileList list_folder(std::string const& folder) {
    std::string const manifest = join_path(folder, manifest_name);
    if (path_kind(manifest) != PathKind::missing) return list_manifest(manifest);
    std::string const index = join_path(folder, index_name);
    std::string const single = join_path(folder, single_name);
    bool const has_single = path_kind(single) != PathKind::missing;
    if (path_kind(index) == PathKind::missing) return has_single ? list_file(single) : list_loose_files(folder);
    FileList list = list_index(index);
    if (has_single && std::find(list.leaves.begin(), list.leaves.end(), single_name) == list.leaves.end()) {
        raise_rule(SafetensorsRule::invalid_index, folder, ": both ", index_name, " and ", single_name,
                   " are there, and may be two checkpoints. Fix: name one of the two files, or remove the stale "
                   "one.");
    }
    return list;
}

/// Opens at most one file: the manifest or the index. Throws IoError (naming what is missing), FormatError.
[[nodiscard]] inline FileList list_files(std::string const& path) {
    switch (path_kind(path)) {
        case PathKind::missing: raise_io(path, "cannot open the checkpoint", ENOENT, "check the path.");
        case PathKind::folder: return list_folder(path);
        case PathKind::file: break;
    }
    if (!path.ends_with(".json")) return list_file(path);
    return path.substr(path.rfind('/') + 1) == manifest_name ? list_manifest(path) : list_index(path);
}

}  // namespace reshard::inline v0_1::detail
