// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/consolidate_support.hpp
/// \brief  Folders of files that were rewritten: every byte of every tensor looked at, and every sum.
#pragma once

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/coverage.hpp>
#include <reshard/checkpoint/detail/folder_note.hpp>
#include <reshard/comm/threads.hpp>

#include "sharded_support.hpp"

#include <optional>
#include <string>
#include <vector>

namespace checkpoint_test {

/// What is wrong with a folder, or nothing. It must hold these tensors, whatever they are cut into; `replica` is the
/// copy that was read of tensors that had several. Those with several copies in the folder have them all.
inline std::string damage(std::string const& folder, std::vector<Saved> const& list, int replica = 0) {
    try {
        Checkpoint const checkpoint = Checkpoint::open(folder);
        Manifest const& manifest = checkpoint.manifest();
        check_coverage(manifest, folder);
        if (manifest.tensors.size() != list.size())
            return errors::concat("there are ", manifest.tensors.size(), " tensors");
        for (Extent const& extent : manifest.extents) {
            StoredTensor const& tensor = manifest.tensors[extent.tensor];
            Saved const& saved = list[extent.tensor];
            if (tensor.name != saved.spec.name || tensor.dtype != saved.spec.dtype) return tensor.name + " is another";
            if (!(tensor.shape == saved.spec.shape)) return tensor.name + " has another shape";
            std::vector<std::byte> bytes(static_cast<std::size_t>(stored_bytes_of(tensor.dtype, extent.box)));
            checkpoint.files()[static_cast<std::size_t>(extent.file)].read_data(extent.begin, bytes);
            int const copy = tensor.replicas > 1 ? extent.replica % saved.replicas : replica % saved.replicas;
            auto const wanted =
                bytes_of_box(content_of(tensor.name, copy, saved.replicas), tensor.dtype, tensor.shape, extent.box);
            if (bytes != wanted) return errors::concat(tensor.name, " has other bytes in ", to_string(extent.box));
            if (extent.has_checksum && extent.crc32c != crc32c(bytes)) return tensor.name + " has another sum";
        }
    } catch (Error const& error) {
        return error.message();
    }
    return {};
}

/// What a run that gives files their names notes beforehand: each name, and the path at which its file is now.
inline std::string note_of_files(std::vector<std::pair<std::string, std::string>> const& named) {
    std::vector<reshard::detail::NotedFile> files;
    for (auto const& [leaf, path] : named) files.push_back({leaf, reshard::detail::noted_stamp_at(path).value()});
    return reshard::detail::note_of(files);
}

/// Runs on so many ranks; the report of each.
template <class Call>
std::vector<RewriteReport> on_ranks(int ranks, Call&& call) {
    std::vector<RewriteReport> reports(static_cast<std::size_t>(ranks));
    run_on_threads(ranks,
                   [&](ThreadCommunicator& comm) { reports[static_cast<std::size_t>(comm.rank())] = call(comm); });
    return reports;
}

/// What every rank threw.
template <class Call>
std::vector<Caught> caught_on_ranks(int ranks, Call&& call) {
    std::vector<Caught> all(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        all[static_cast<std::size_t>(comm.rank())] = caught([&] { call(comm); });
    });
    return all;
}

}  // namespace checkpoint_test
