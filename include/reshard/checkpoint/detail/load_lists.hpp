// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_lists.hpp
/// \brief  How the ranks of a load come to one catalogue, and what that costs.
/// \depends checkpoint/detail/{catalogue_bytes,load_files,load_match}, checkpoint/load_strategy, comm/collectives,
/// exec/agree_tensors.
///
/// One rank looks at the path and tells the others: the catalogue, where it has all files to itself or has it from a
/// manifest or from one file; else which files there are. Then their headers are dealt out, file f to rank f mod ranks,
/// and shared in one all-gather: so each header is read once, and no rank reads them all.
#pragma once

#include <reshard/checkpoint/detail/catalogue_bytes.hpp>
#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/checkpoint/detail/load_match.hpp>
#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/exec/agree_tensors.hpp>

namespace reshard::inline v0::detail {

/// What one rank knows of a checkpoint.
struct LoadList {
    FileList files;       ///< what there is, where the headers are dealt out
    Catalogue catalogue;  ///< else
    bool is_dealt = false;
    OpenFiles open;  ///< by this rank, by their place in the catalogue
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
    result.catalogue = Catalogue(read_headers(list, result.open), list.kind);
    result.opened += static_cast<Index>(result.open.size());
    return result;
}
/// Looks at a path. `one_has_files`: the others do not. Throws as Checkpoint::open().
[[nodiscard]] inline LoadList look_at(std::string const& path, bool one_has_files) {
    return read_list(path, [&](FileList found) { return look_at(std::move(found), one_has_files); });
}

/// Collective. Calls `load()`, and again where a save has overtaken it: all ranks have the same error then.
template <class Load>
auto load_saved(Load&& load) {
    for (int overtaken = 1; overtaken < most_overtakings; ++overtaken) {
        try {
            return load();
        } catch (Error const& error) {
            bool const lost = error.code() == ErrorCode::peer_failed;
            if (lost || std::string_view(error.message()).find(overtaken_words) == std::string_view::npos) throw;
        }
    }
    return load();
}

inline void write(ByteWriter& out, Catalogue const& catalogue) {
    out.number(catalogue.kind());
    pass(out, catalogue.manifest());
}
[[nodiscard]] inline Catalogue read_catalogue(ByteReader& in) {
    CheckpointKind kind{};
    Manifest manifest;
    in.number(kind);
    pass(in, manifest);
    return Catalogue(std::move(manifest), kind);
}

[[nodiscard]] inline std::vector<std::byte> list_text(LoadList const& list) {
    ByteWriter out;
    out.number(list.is_dealt);
    if (list.is_dealt) {
        pass(out, list.files);
    } else {
        write(out, list.catalogue);
    }
    return out.take();
}

/// The text of one rank becomes that of all. Collective: two broadcasts, and between them an agreement about what is
/// pending and about memory for the text.
inline void broadcast_text(CommunicatorRef comm, int source, std::vector<std::byte>& text, TransferLists& lists,
                           PendingVerdict& pending) {
    Index size = pending.ok() ? static_cast<Index>(text.size()) : 0;
    broadcast(comm, std::as_writable_bytes(std::span(&size, 1)), source, lists);
    pending.attempt([&] { text.resize(static_cast<std::size_t>(size)); });
    pending.agree(comm);
    broadcast(comm, text, source, lists);
}

/// How the list goes round. Between two exchanges nobody leaves: what fails is pending until all agree.
class ListShare {
public:
    /// Local, where all ranks agree next.
    void prepare(CommunicatorRef comm, int source, LoadList const& list) {
        room_.make_room(comm.size());
        if (comm.rank() == source) text_ = list_text(list);
    }

    /// Collective. Completes what rank `source` has found; on other ranks `list` is empty. `path` is this rank's own.
    /// Throws the same error on every rank; what fails at the end is pending.
    void run(CommunicatorRef comm, int source, std::string const& path, LoadList& list, Collectives& collectives,
             PendingVerdict& pending) {
        ++collectives.agreements;
        broadcast_text(comm, source, text_, room_.lists, pending);
        collectives.broadcasts += 2;
        ByteReader in(text_);
        in.number(list.is_dealt);
        if (!list.is_dealt) {
            if (comm.rank() != source) pending.attempt([&] { list.catalogue = read_catalogue(in); });
            return;
        }
        std::vector<std::byte> mine;
        pending.attempt([&] {
            if (comm.rank() != source) pass(in, list.files);
            mine = read_headers(comm.rank(), comm.size(), path, list);
        });
        ++collectives.agreements;
        room_.gather(comm, mine, pending);
        collectives.exchanges += 2;
        pending.attempt([&, this] { put_together(list); });
    }

    /// For other texts, once the list has gone round.
    [[nodiscard]] GatheredLists<std::byte>& room() noexcept { return room_; }

private:
    /// Local: those that are dealt to this rank.
    [[nodiscard]] static std::vector<std::byte> read_headers(int rank, int ranks, std::string const& path,
                                                             LoadList& list) {
        std::string const folder = folder_with_files(path);
        bool const in_folder = list.files.kind == CheckpointKind::index && folder == path;
        list.files.source = in_folder ? join_path(folder, index_name) : path;
        EntryReader const reader(list.files);
        auto const files = list.files.leaves.size();
        list.open.resize(files);
        ByteWriter out;
        for (auto i = static_cast<std::size_t>(rank); i < files; i += static_cast<std::size_t>(ranks)) {
            list.open[i] = SafetensorsFile::open(join_path(folder, list.files.leaves[i]));
            ++list.opened;
            pass(out, reader.read(*list.open[i], i));
        }
        return out.take();
    }
    void put_together(LoadList& list) {
        auto const files = list.files.leaves.size();
        std::vector<ByteReader> readers;
        for (std::size_t r = 0; r < room_.sizes.size(); ++r) readers.emplace_back(room_.of(static_cast<int>(r)));
        std::vector<FileEntries> entries(files);
        for (std::size_t i = 0; i < files; ++i) pass(readers[i % readers.size()], entries[i]);
        list.catalogue = Catalogue(manifest_of(list.files, std::move(entries)), list.files.kind);
    }

    std::vector<std::byte> text_;
    GatheredLists<std::byte> room_;
};

/// Collective. What rank 0 finds at a path, on all ranks, about what is pending too; what fails at the end is pending.
[[nodiscard]] inline LoadList list_together(std::string const& path, CommunicatorRef comm, ListShare& share,
                                            PendingVerdict& pending) {
    LoadList list;
    Collectives collectives;
    pending.attempt([&] {
        if (comm.rank() == 0) list = look_at(path, false);
        share.prepare(comm, 0, list);
    });
    pending.agree(comm);
    share.run(comm, 0, path, list, collectives, pending);
    return list;
}

/// What ListShare::run() comes to, and what is opened before it, for the checkpoint of a catalogue. (Boxes that several
/// shards of PyTorch's hold are in the catalogue once, though all of their headers are shared.)
struct ListCosts {
    Collectives collectives;
    Index bytes = 0;  ///< that cross ranks
    Index opened = 0;
};
[[nodiscard]] inline ListCosts list_costs(Catalogue const& catalogue, int ranks, bool one_has_files) {
    LoadList list;
    auto const files = catalogue.files().size();
    list.is_dealt = is_dealt(catalogue.kind(), files, one_has_files);
    ListCosts costs;
    costs.collectives.broadcasts = 2;
    costs.collectives.agreements = 1;
    bool const is_manifest = catalogue.kind() == CheckpointKind::manifest;
    costs.opened = is_manifest ? 1 : static_cast<Index>(files) + (catalogue.kind() == CheckpointKind::index ? 1 : 0);
    if (!list.is_dealt) {
        list.catalogue = catalogue;
        costs.bytes = (ranks - 1) * static_cast<Index>(sizeof(Index) + list_text(list).size());
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
    std::vector<ByteWriter> texts(static_cast<std::size_t>(ranks));  // in each of them names share what they begin with
    for (std::size_t i = 0; i < files; ++i) {
        entries[i].file = catalogue.files()[i];
        list.files.leaves.push_back(entries[i].file.leaf);
        pass(texts[i % texts.size()], entries[i]);
    }
    ++costs.collectives.agreements;
    costs.collectives.exchanges = 2;
    costs.bytes = (ranks - 1) * static_cast<Index>(sizeof(Index) + list_text(list).size()) +
                  Index{ranks} * (ranks - 1) * static_cast<Index>(sizeof(Index));
    for (ByteWriter& text : texts) costs.bytes += (ranks - 1) * static_cast<Index>(text.take().size());
    return costs;
}

}  // namespace reshard::inline v0::detail
