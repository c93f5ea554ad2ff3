// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_lists.hpp
/// \brief  How the ranks of a load come to one catalogue.
/// \depends checkpoint/detail/{catalogue_bytes,load_files}, checkpoint/load_strategy, comm/collectives.
///
/// One rank looks at the path, and tells the others.
#pragma once

#include <reshard/checkpoint/detail/catalogue_bytes.hpp>
#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>

namespace reshard::inline v0::detail {

/// What one rank knows of a checkpoint.
struct LoadList {
    Catalogue catalogue;
    OpenFiles open;  ///< by this rank, by their place in the catalogue
    Index opened = 0;
};

/// Looks at a path. Throws as Checkpoint::open().
[[nodiscard]] inline LoadList look_at(std::string const& path) {
    return read_list(path, [](FileList list) {
        LoadList result;
        bool const is_manifest = list.kind == CheckpointKind::manifest;
        result.opened = is_manifest || list.kind == CheckpointKind::index ? 1 : 0;
        Manifest manifest = is_manifest ? std::move(list.manifest) : read_headers(list, result.open);
        result.catalogue = Catalogue(std::move(manifest), list.kind);
        result.opened += static_cast<Index>(result.open.size());
        return result;
    });
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

[[nodiscard]] inline std::vector<std::byte> list_text(Catalogue const& catalogue) {
    ByteWriter out;
    out.number(catalogue.kind());
    pass(out, catalogue.manifest());
    return out.take();
}
[[nodiscard]] inline Catalogue catalogue_from(std::span<std::byte const> text) {
    ByteReader in(text);
    CheckpointKind kind{};
    Manifest manifest;
    in.number(kind);
    pass(in, manifest);
    return Catalogue(std::move(manifest), kind);
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
        lists_.make_room(comm.size());
        if (comm.rank() == source) text_ = list_text(list.catalogue);
    }
    /// Collective. What rank `source` has found, on all ranks. Throws the same error on every rank; what fails at the
    /// end is pending.
    void run(CommunicatorRef comm, int source, LoadList& list, Collectives& collectives, PendingVerdict& pending) {
        ++collectives.agreements;
        broadcast_text(comm, source, text_, lists_, pending);
        collectives.broadcasts += 2;
        if (comm.rank() != source) pending.attempt([&, this] { list.catalogue = catalogue_from(text_); });
    }

private:
    std::vector<std::byte> text_;
    TransferLists lists_;
};

/// Collective. What rank 0 finds at a path, on all ranks, about what is pending too; what fails at the end is pending.
[[nodiscard]] inline LoadList list_together(std::string const& path, CommunicatorRef comm, PendingVerdict& pending) {
    LoadList list;
    ListShare share;
    Collectives collectives;
    pending.attempt([&] {
        if (comm.rank() == 0) list = look_at(path);
        share.prepare(comm, 0, list);
    });
    pending.agree(comm);
    share.run(comm, 0, list, collectives, pending);
    return list;
}

}  // namespace reshard::inline v0::detail
