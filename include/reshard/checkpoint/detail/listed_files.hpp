// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/listed_files.hpp
/// \brief  The files that a path names, opened: their headers make the list of tensors, or have to agree with it.
/// \depends checkpoint/safetensors.hpp, checkpoint/detail/file_list.hpp, POSIX.
///
/// Who keeps a catalogue keeps no header: it would say the same again.
#pragma once

#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/safetensors.hpp>
#include <reshard/core/detail/workers.hpp>

#include <algorithm>  // find, lower_bound

namespace reshard::inline v0_1::detail {

/// What ranks compare of a file that they open: the header, as a manifest has it; without one also samples of the data.
[[nodiscard]] inline std::uint64_t version_of(SafetensorsFile const& file, CheckpointKind kind) {
    return kind == CheckpointKind::manifest ? file.header_digest() : file.version_digest();
}

/// For a file that is no checkpoint by itself, of which nobody can say whether it is whole.
[[noreturn]] inline void refuse_part(std::string_view path, std::string_view what, std::string_view fix) {
    raise(ErrorCode::io, "IoError: ", path, ": no checkpoint: it is ", what, ". Fix: ", fix);
}

/// A file, by its number in the list, and its entries that are part of the checkpoint. Throws FormatError for an index
/// that does not fit.
[[nodiscard]] inline Manifest read_entries(FileList const& list, SafetensorsFile const& file, std::size_t number) {
    static constexpr std::string_view put =
        ", where the index puts it. Fix: fetch the index and the files of one version.";
    std::string const& leaf = list.leaves[number];
    CheckpointFile described{leaf, file.file_bytes(), version_of(file, list.kind)};
    if (list.kind == CheckpointKind::shards) {
        if (find_metadata(file.metadata(), "reshard_save") != nullptr) {
            refuse_part(file.path(), concat("a part of a save whose ", manifest_name, " is missing"),
                        "save again, or load an older checkpoint.");
        }
        return dcp_header(std::move(described), file.header(), file.path());
    }
    if (list.kind == CheckpointKind::file && find_metadata(file.metadata(), dcp_sharding_info) != nullptr) {
        refuse_part(file.path(), "one of the files of a checkpoint, and may have parts of its tensors",
                    "name the folder that has all of its files, under their own names.");
    }
    Manifest result;
    result.files.push_back(std::move(described));
    result.tensors.reserve(file.tensors().size());
    result.extents.reserve(file.tensors().size());
    for (TensorInfo const& tensor : file.tensors()) {
        if (list.kind == CheckpointKind::index) {
            auto const name_of = [](auto const& item) -> std::string const& { return item.first; };
            auto const entry = std::ranges::lower_bound(list.indexed, tensor.name, {}, name_of);
            if (entry == list.indexed.end() || entry->first != tensor.name) {  // not part of the checkpoint
                ++result.files[0].unlisted;
                continue;
            }
            if (entry->second != number) {  // two versions in one folder, most likely
                raise_rule(SafetensorsRule::invalid_index, list.source, ": tensor ", quote_name(tensor.name), " is in ",
                           quote_name(leaf), " as well as in ", quote_name(list.leaves[entry->second]), put);
            }
        }
        add_whole(result, tensor);
    }
    if (list.kind == CheckpointKind::index && result.tensors.size() != list.named[number]) {
        for (auto const& [tensor, place] : list.indexed) {
            if (place != number || file.find(tensor) != nullptr) continue;
            raise_rule(SafetensorsRule::tensor_not_found, list.source, ": tensor ", quote_name(tensor), " is not in ",
                       quote_name(leaf), put);
        }
    }
    return result;
}

/// Throws MismatchError unless the file is the one that the list describes.
inline void check_file(SafetensorsFile const& file, Manifest const& manifest, std::size_t number, CheckpointKind kind) {
    CheckpointFile const& listed = manifest.files[number];
    bool const same_size = file.file_bytes() == listed.file_bytes;
    if (same_size && version_of(file, kind) == listed.header_digest) return;
    std::string const what = !same_size                         ? concat(file.file_bytes(), " bytes")
                             : kind == CheckpointKind::manifest ? "another header, of the same size"
                                                                : "another header or other data, of the same size";
    raise(ErrorCode::mismatch, "reshard: ", file.path(), " has ", what, ", but ",
          kind == CheckpointKind::manifest ? manifest_name : "the rank that read the list of tensors",
          " saw another version of it", same_size ? std::string() : concat(", with ", listed.file_bytes),
          ". Fix: give every rank the files of one save.");
}
/// Calls `tell(text)` for each extent that a manifest says is in the file of that number, and the header does not. What
/// has no elements need not be there.
template <class Tell>
void check_entries(SafetensorsHeader const& header, Manifest const& manifest, std::size_t number, Tell&& tell) {
    for (Extent const& extent : extents_in(manifest, static_cast<int>(number))) {
        TensorInfo const* const entry = header.find(key_of(manifest, extent));
        bool const is_there = entry != nullptr && entry->dtype == manifest.tensors[extent.tensor].dtype &&
                              entry->shape == extent.box.shape() && entry->begin == extent.begin;
        if (is_there || extent.box.empty()) continue;
        tell(concat(describe(manifest, extent), " is not in ", quote_name(manifest.files[number].leaf), " as "));
    }
}

/// For a file that a manifest named and that is not there. Throws IoError, unless another save has replaced that
/// manifest: this rank looks into another folder than who read the manifest, or the file is missing.
inline void refuse_not_here(std::string const& folder, std::string const& leaf) {
    std::string const source = join_path(folder, manifest_name);
    if (path_kind(source) == PathKind::missing) {
        raise_io(folder.empty() ? "." : folder, concat("this rank does not see the ", manifest_name, " that was read"),
                 ENOENT, "give all ranks a folder that they share, or see whether somebody removes it.");
    }
    std::vector<std::string> const now = files_of_manifest(source);
    if (std::find(now.begin(), now.end(), leaf) == now.end()) return;
    raise_io(join_path(folder, leaf), concat("this rank does not see it, and ", manifest_name, " names it"), ENOENT,
             "fetch it, or give all ranks a folder that they share, or see whether somebody removes it.");
}

/// Throws FormatError for what check_entries() tells.
[[noreturn]] inline void refuse_entry(std::string const& what) {
    refuse_manifest(manifest_name, concat(what, "it says"));
}

/// Opens a file that a list names, with or without its own list of tensors, and sees that it is the one. Throws IoError
/// or FormatError as SafetensorsFile::open(), and as check_file().
[[nodiscard]] inline SafetensorsFile open_listed(std::string const& folder, Manifest const& manifest,
                                                 std::size_t number, CheckpointKind kind, bool with_tensors,
                                                 Access access = Access::pread) {
    std::string const path = join_path(folder, manifest.files[number].leaf);
    auto const open = [&] { return with_tensors ? SafetensorsFile::open(path, access) : BareFile::open(path); };
    SafetensorsFile file = kind == CheckpointKind::manifest
                               ? open_saved(path, open, [&] { refuse_not_here(folder, manifest.files[number].leaf); })
                               : open();
    try {
        check_file(file, manifest, number, kind);
    } catch (Error const&) {
        if (!with_tensors) static_cast<void>(SafetensorsFile::open(path));  // says what is wrong with a broken one
        throw;
    }
    return file;
}

/// Opens a file that a manifest names, without its list of tensors, and calls tell(text) as check_entries(): its header
/// is parsed where it is another than a save of today writes. Throws as above.
template <class Tell>
[[nodiscard]] SafetensorsFile open_compared(std::string const& folder, Manifest const& manifest, std::size_t number,
                                            Tell&& tell) {
    SafetensorsFile file = open_listed(folder, manifest, number, CheckpointKind::manifest, false);
    if (is_saved_header(manifest, number, file.data_offset() - 8)) return file;
    file = open_listed(folder, manifest, number, CheckpointKind::manifest, true);
    check_entries(file.header(), manifest, number, tell);
    static_cast<void>(BareFile::bare(file));
    return file;
}

/// Calls `read(FileList)` for what a path names, as read_saved().
template <class Read>
auto read_list(std::string const& path, Read&& read) {
    std::string const manifest = path_kind(path) == PathKind::folder ? join_path(path, manifest_name) : path;
    return read_saved(manifest, [&] { return read(list_files(path)); });
}

/// Files that are open, by their place in the manifest.
using OpenFiles = std::vector<std::optional<SafetensorsFile>>;

/// What a list says: that of a manifest is there. Else all files are opened, and their headers are put together, which
/// the files keep where `with_tensors` is set. Throws as Checkpoint::open(): also FormatError for shards that do not
/// cover their tensors.
[[nodiscard]] inline Manifest read_headers(FileList list, OpenFiles& files, bool with_tensors,
                                           Access access = Access::pread) {
    if (list.kind == CheckpointKind::manifest) return std::move(list.manifest);
    std::size_t const count = list.leaves.size();
    std::vector<Manifest> headers(count);
    std::vector<Metadata> texts(count);
    files.resize(count);
    // Of thousands of files on a file system far away, several at once.
    run_on_workers(count, static_cast<int>(smaller<std::size_t>(1 + count / 16, 16)), [&](std::size_t i, int) {
        files[i] = SafetensorsFile::open(join_path(list.folder, list.leaves[i]), access);
        headers[i] = read_entries(list, *files[i], i);
        texts[i] = with_tensors ? files[i]->metadata() : BareFile::bare(*files[i]);
    });
    list.indexed = {};
    bool const cut = list.kind == CheckpointKind::shards;
    Manifest manifest = cut ? dcp_manifest(std::move(headers), list.source) : joined(std::move(headers));
    for (std::size_t i = 0; i < count && !cut; ++i) add_texts(manifest, i, texts[i]);
    sort_tensors(manifest);
    group_replicas(manifest);
    return manifest;
}

}  // namespace reshard::inline v0_1::detail
