// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/checkpoint_reader.hpp
/// \brief  Parts of extents of a checkpoint whose files are opened when something is read from them.
/// \depends checkpoint/catalogue, checkpoint/detail/{checked_read,file_list}.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/checked_read.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>

#include <optional>  // optional
#include <string>    // string
#include <vector>    // vector

namespace reshard::inline v0::detail {

/// For rooms that find out what they need while they read: users load(). Used by one thread at a time.
class CheckpointReader {
public:
    using Files = std::vector<std::optional<SafetensorsFile>>;

    /// `path` as in Checkpoint::open(). With a manifest no other file is opened; without, all are. Throws as
    /// Checkpoint::open().
    [[nodiscard]] static CheckpointReader open(std::string const& path) {
        FileList list = list_files(path);
        if (list.kind == CheckpointKind::manifest) {
            CheckpointReader reader(std::move(list.folder), std::move(list.source), std::move(list.manifest));
            reader.has_manifest_ = true;
            return reader;
        }
        Files files;
        Manifest manifest = read_headers(list, files);
        return CheckpointReader(std::move(list.folder), std::move(list.source), std::move(manifest), std::move(files));
    }
    /// What somebody else has found; `source` is where, for messages. `files` that are open stay so.
    CheckpointReader(std::string folder, std::string source, Manifest manifest, Files files = {})
        : folder_(std::move(folder)),
          source_(std::move(source)),
          catalogue_(std::move(manifest)),
          files_(std::move(files)) {
        files_.resize(catalogue_.files().size());
    }

    [[nodiscard]] std::string const& source() const noexcept { return source_; }
    [[nodiscard]] bool has_manifest() const noexcept { return has_manifest_; }
    [[nodiscard]] Catalogue const& catalogue() const noexcept { return catalogue_; }
    [[nodiscard]] Manifest const& manifest() const noexcept { return catalogue_.manifest(); }
    [[nodiscard]] std::string path_of(Extent const& extent) const {
        return join_path(folder_, catalogue_.files()[static_cast<std::size_t>(extent.file)].leaf);
    }
    /// Sees that the file of an extent is there and what it should be. Throws IoError, FormatError, MismatchError for a
    /// file of another save.
    SafetensorsFile const& file_of(Extent const& extent) {
        auto const i = static_cast<std::size_t>(extent.file);
        if (!files_[i]) files_[i] = open_listed(folder_, manifest(), i, CheckpointKind::manifest);
        return *files_[i];
    }
    /// Bytes [begin, end) of an extent; see CheckedExtent::read().
    Index read(Extent const& extent, Index begin, Index end, std::byte* to) {
        CheckedExtent const checked(file_of(extent), manifest(), extent);
        return checked.read(begin, end, to, [&](Index block, Index bytes) -> CheckedBlock& {
            for (CheckedBlock& one : blocks_)
                if (one.extent == &extent && one.begin == block) return one;
            if (blocks_.size() < most_blocks) blocks_.emplace_back();
            CheckedBlock& one = blocks_[next_block_++ % blocks_.size()];
            one.extent = nullptr;
            one.bytes.resize(static_cast<std::size_t>(bytes));
            return one;
        });
    }

private:
    static constexpr std::size_t most_blocks = 16;

    std::string folder_;
    std::string source_;
    Catalogue catalogue_;
    Files files_;
    bool has_manifest_ = false;
    std::vector<CheckedBlock> blocks_;  ///< the last that were read: columns are read in turn, and in pieces
    std::size_t next_block_ = 0;
};

}  // namespace reshard::inline v0::detail
