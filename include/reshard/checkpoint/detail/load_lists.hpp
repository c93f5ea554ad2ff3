// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_lists.hpp
/// \brief  How the ranks of a load come to one catalogue.
/// \depends checkpoint/detail/{catalogue_bytes,load_files}, comm/collectives.
///
/// One rank looks at the path, and tells the others.
#pragma once

#include <reshard/checkpoint/detail/catalogue_bytes.hpp>
#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>

namespace reshard::inline v0::detail {

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
inline void broadcast_text(CommunicatorRef comm, int root, std::vector<std::byte>& text, TransferLists& lists,
                           PendingVerdict& pending) {
    Index size = pending.ok() ? as_index(text.size()) : 0;
    broadcast(comm, std::as_writable_bytes(std::span(&size, 1)), root, lists);
    pending.attempt([&] { text.resize(as_size(size)); });
    pending.agree(comm);
    broadcast(comm, text, root, lists);
}

/// Collective. What rank `root` has found is what all know. Throws the same error on every rank; what fails at the
/// end is pending.
inline void share_list(LoadFiles& files, std::string const& path, CommunicatorRef comm, int root, TransferLists& lists,
                       PendingVerdict& pending) {
    bool const knows = comm.rank() == root;
    std::vector<std::byte> text;
    pending.attempt([&] {
        if (knows) text = list_text(files.catalogue());
    });
    broadcast_text(comm, root, text, lists, pending);
    pending.attempt([&] {
        if (!knows) files = LoadFiles(path, catalogue_from(text));
    });
}

/// Collective. What rank 0 finds at a path, on all ranks, about what is pending too; what fails at the end is pending.
[[nodiscard]] inline LoadFiles look_together(std::string const& path, CommunicatorRef comm, TransferLists& lists,
                                             PendingVerdict& pending) {
    LoadFiles files;
    pending.attempt([&] {
        if (comm.rank() == 0) files = look_at(path);
    });
    pending.agree(comm);
    share_list(files, path, comm, 0, lists, pending);
    return files;
}

}  // namespace reshard::inline v0::detail
