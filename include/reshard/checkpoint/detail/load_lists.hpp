// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_lists.hpp
/// \brief  How the ranks of a load come to one catalogue, and what that costs.
/// \depends checkpoint/detail/{load_files,load_match,wanted_bytes}, checkpoint/load_strategy, comm/collectives,
/// exec/agree_tensors.
///
/// One rank looks at the path and tells the others: where it has all files to itself, which extents are wanted; the
/// catalogue, where it has it from a manifest or from one file; else which files there are. Then their headers are
/// dealt out, file f to rank f mod ranks, and shared in one all-gather: so each header is read once, and no rank reads
/// them all.
#pragma once

#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/checkpoint/detail/load_match.hpp>
#include <reshard/checkpoint/detail/wanted_bytes.hpp>
#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/exec/agree_tensors.hpp>

namespace reshard::inline v0::detail {

/// What one rank knows of a checkpoint.
struct LoadList {
    FileList files;       ///< what there is, where the headers are dealt out
    Catalogue catalogue;  ///< else; of extents that were matched, where this rank has the files
    bool is_dealt = false;
    bool is_matched = false;           ///< others are not told the catalogue, but what is wanted of it
    std::vector<WantedExtent> wanted;  ///< then
    std::uint64_t digest = 0;          ///< of the catalogue, then
    OpenFiles open;                    ///< by this rank, by their place in the catalogue
    Index opened = 0;
};

[[nodiscard]] inline bool is_dealt(CheckpointKind kind, std::size_t files, bool one_has_files) noexcept {
    return kind != CheckpointKind::manifest && files > 1 && !one_has_files;
}

[[nodiscard]] inline LoadList look_at(FileList found, bool one_has_files) {
    LoadList result;
    result.files = std::move(found);
    FileList& list = result.files;
    bool const by_json = list.kind == CheckpointKind::manifest || list.kind == CheckpointKind::index;
    result.opened = by_json ? 1 : 0;
    result.is_dealt = is_dealt(list.kind, list.leaves.size(), one_has_files);
    if (result.is_dealt) return result;
    if (list.kind == CheckpointKind::manifest) {
        result.catalogue = Catalogue(std::move(list.manifest));
        return result;
    }
    EntryReader const reader(list);
    std::vector<FileEntries> entries;
    for (std::size_t i = 0; i < list.leaves.size(); ++i) {
        result.open.emplace_back(SafetensorsFile::open(join_path(list.folder, list.leaves[i])));
        entries.push_back(reader.read(*result.open.back(), i));
    }
    result.opened += static_cast<Index>(entries.size());
    result.catalogue = Catalogue(manifest_of(list, std::move(entries)), list.kind);
    return result;
}
/// Looks at a path. `one_has_files`: the others do not. Throws as Checkpoint::open().
[[nodiscard]] inline LoadList look_at(std::string const& path, bool one_has_files) {
    return read_list(path, [&](FileList found) { return look_at(std::move(found), one_has_files); });
}

/// Finds the targets, for all ranks: on the rank that has the files to itself. A target that cannot be found is for all
/// ranks to see, in the catalogue: so they find the same words for it.
inline void match_for_all(LoadList& list, std::span<LocalTensor const> targets, LoadOptions const& options) {
    try {
        list.wanted = match(list.catalogue, targets, options);
        list.digest = list.catalogue.digest();
        list.is_matched = true;
    } catch (Error const&) {
        list.is_matched = false;
    }
}

/// What a list is told as.
enum class ListForm : int { catalogue, files, wanted };

[[nodiscard]] inline std::vector<std::byte> list_text(LoadList const& list, std::span<LocalTensor const> targets = {}) {
    ByteWriter out;
    if (list.is_dealt) {
        out.number(static_cast<int>(ListForm::files));
        write(out, list.files);
    } else if (list.is_matched) {
        out.number(static_cast<int>(ListForm::wanted));
        out.digest(list.digest);
        write(out, list.wanted, targets);
    } else {
        out.number(static_cast<int>(ListForm::catalogue));
        write(out, list.catalogue);
    }
    return out.take();
}

/// Bytes of each rank, in rank order, on every rank. Collective: an all-gather of their sizes and one of the bytes.
[[nodiscard]] inline std::vector<std::vector<std::byte>> all_gather_texts(CommunicatorRef comm,
                                                                          std::span<std::byte const> mine) {
    auto const ranks = static_cast<std::size_t>(comm.size());
    Index const size = static_cast<Index>(mine.size());
    std::vector<Index> sizes(ranks);
    all_gather(comm, std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)));
    std::vector<std::vector<std::byte>> texts(ranks);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (std::size_t r = 0; r < ranks; ++r) {
        texts[r].resize(static_cast<std::size_t>(sizes[r]));
        if (static_cast<int>(r) == comm.rank()) {
            std::copy(mine.begin(), mine.end(), texts[r].begin());
            continue;
        }
        if (size != 0) sends.push_back({static_cast<int>(r), mine.data(), byte_box(size)});
        if (sizes[r] != 0) receives.push_back({static_cast<int>(r), texts[r].data(), byte_box(sizes[r])});
    }
    comm.exchange(sends, receives).wait();
    return texts;
}

/// Collective. Completes what rank `source` has found; on other ranks `list` is empty. `path` is this rank's own;
/// `targets` are those of match_for_all(). Throws the same error on every rank.
inline void share_list(CommunicatorRef comm, int source, std::string const& path, LoadList& list,
                       Collectives& collectives, std::span<LocalTensor const> targets = {}) {
    std::vector<std::byte> text;
    if (comm.rank() == source) text = list_text(list, targets);
    Index size = static_cast<Index>(text.size());
    broadcast(comm, std::as_writable_bytes(std::span(&size, 1)), source);
    text.resize(static_cast<std::size_t>(size));
    broadcast(comm, text, source);
    collectives.broadcasts += 2;
    ByteReader in(text);
    auto const form = static_cast<ListForm>(in.number());
    list.is_dealt = form == ListForm::files;
    list.is_matched = form == ListForm::wanted;
    if (!list.is_dealt) {
        if (comm.rank() == source) return;
        if (list.is_matched) {
            list.digest = in.digest();
            list.wanted = read_wanted(in, targets);
        } else {
            list.catalogue = read_catalogue(in);
        }
        return;
    }
    if (comm.rank() != source) list.files = read_file_list(in);

    auto const files = list.files.leaves.size();
    auto const ranks = static_cast<std::size_t>(comm.size());
    list.open.resize(files);
    ByteWriter out;
    ++collectives.agreements;
    agree_or_raise(comm, verdict_of([&] {
                       std::string const folder = folder_with_files(path);
                       bool const in_folder = list.files.kind == CheckpointKind::index && folder == path;
                       list.files.source = in_folder ? join_path(folder, index_name) : path;
                       EntryReader const reader(list.files);
                       for (auto i = static_cast<std::size_t>(comm.rank()); i < files; i += ranks) {
                           list.open[i] = SafetensorsFile::open(join_path(folder, list.files.leaves[i]));
                           ++list.opened;
                           write(out, reader.read(*list.open[i], i));
                       }
                   }));
    auto const texts = all_gather_texts(comm, out.take());
    collectives.exchanges += 2;
    std::vector<ByteReader> readers(texts.begin(), texts.end());
    std::vector<FileEntries> entries;
    entries.reserve(files);
    for (std::size_t i = 0; i < files; ++i) entries.push_back(read_file_entries(readers[i % ranks]));
    list.catalogue = Catalogue(manifest_of(list.files, std::move(entries)), list.files.kind);
}

/// What share_list() comes to, and what is opened before it, for the checkpoint of a catalogue. (Boxes that several
/// shards of PyTorch's hold are in the catalogue once, though all of their headers are shared.)
struct ListCosts {
    Collectives collectives;
    Index bytes = 0;  ///< that cross ranks
    Index opened = 0;
};
[[nodiscard]] inline ListCosts list_costs(Catalogue const& catalogue, int ranks, bool one_has_files,
                                          std::span<WantedExtent const> wanted, std::span<LocalTensor const> targets) {
    LoadList list;
    auto const files = catalogue.files().size();
    list.is_dealt = is_dealt(catalogue.kind(), files, one_has_files);
    ListCosts costs;
    costs.collectives.broadcasts = 2;
    bool const is_manifest = catalogue.kind() == CheckpointKind::manifest;
    costs.opened = is_manifest ? 1 : static_cast<Index>(files) + (catalogue.kind() == CheckpointKind::index ? 1 : 0);
    if (!list.is_dealt) {
        list.is_matched = one_has_files;
        if (list.is_matched) {
            list.wanted.assign(wanted.begin(), wanted.end());
        } else {
            list.catalogue = catalogue;
        }
        costs.bytes = (ranks - 1) * static_cast<Index>(sizeof(Index) + list_text(list, targets).size());
        return costs;
    }
    std::vector<FileEntries> entries(files);
    for (Extent const& extent : catalogue.extents()) {
        StoredTensor const& tensor = catalogue.tensors()[extent.tensor];
        auto const copy = replica_name(extent.key);
        bool const grouped = copy && copy->tensor == tensor.name;  // the file knows the name of the copy only
        FileEntry const entry{grouped ? extent.key : tensor.name, grouped ? std::string() : extent.key, tensor.dtype,
                              extent.begin, extent.box};
        entries[static_cast<std::size_t>(extent.file)].entries.push_back(entry);
        if (catalogue.kind() == CheckpointKind::index) list.files.indexed.push_back({entry.name, extent.file});
    }
    ByteWriter out;
    for (std::size_t i = 0; i < files; ++i) {
        entries[i].file = catalogue.files()[i];
        list.files.leaves.push_back(entries[i].file.leaf);
        write(out, entries[i]);
    }
    ++costs.collectives.agreements;
    costs.collectives.exchanges = 2;
    costs.bytes = (ranks - 1) * static_cast<Index>(sizeof(Index) + list_text(list).size()) +
                  Index{ranks} * (ranks - 1) * static_cast<Index>(sizeof(Index)) +
                  (ranks - 1) * static_cast<Index>(out.take().size());
    return costs;
}

}  // namespace reshard::inline v0::detail
