// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/checkpoint_reader.hpp
/// \brief  Parts of extents of a checkpoint, their checksums compared, whose files are opened when something is read
///         from them.
/// \depends checkpoint/{catalogue,checksum}, checkpoint/detail/{file_list,manifest_json}.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/safetensors.hpp>

#include <cstring>   // memcpy
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
    /// Bytes [begin, end) of an extent. Every block that has one of them is read whole and compared with its sum; an
    /// extent with one sum for all of it is one block, where it is no longer than a block or all of it is read. Returns
    /// how many bytes were read. Throws IoError; FormatError for bytes that are not those that were saved: `to` is
    /// unspecified then.
    Index read(Extent const& extent, Index begin, Index end, std::byte* to) {
        SafetensorsFile const& file = file_of(extent);
        Index const bytes = extent_bytes(manifest(), extent);
        bool const checked = extent.has_checksum && ((begin == 0 && end == bytes) || bytes <= manifest().block_bytes);
        if (extent.block_sums.empty() && !checked) {
            file.read_data(extent.begin + begin, {to, static_cast<std::size_t>(end - begin)});
            return end - begin;
        }
        Index count = 0;
        for (Index at = begin; at < end;) {
            SummedBytes const block = summed_bytes(manifest(), extent, at);
            Index const last = smaller(block.end, end);
            if (at == block.begin && last == block.end) {
                read_block(file, extent, block, to);
                count += last - at;
            } else {
                std::byte const* const kept = kept_block(file, extent, block, count);
                std::memcpy(to, kept + (at - block.begin), static_cast<std::size_t>(last - at));
            }
            to += last - at;
            at = last;
        }
        return count;
    }

private:
    static constexpr std::size_t most_blocks = 16;
    struct Block {
        Extent const* extent = nullptr;  ///< null: nothing
        Index begin = 0;
        std::vector<std::byte> bytes{};
    };

    void read_block(SafetensorsFile const& file, Extent const& extent, SummedBytes const& block, std::byte* to) const {
        std::span const bytes(to, static_cast<std::size_t>(block.end - block.begin));
        file.read_data(extent.begin + block.begin, bytes);
        std::uint32_t const is = crc32c(bytes);
        if (is == block.crc32c) return;
        raise(ErrorCode::format,
              concat("reshard::load: ", file.path(), ": bytes ", block.begin, " to ", block.end, " of ",
                     describe(manifest(), extent), " have CRC-32C ", hex_text(is, 8), ", but had ",
                     hex_text(block.crc32c, 8),
                     " when they were saved. Fix: restore the file of this save, or load another save."));
    }
    /// A block of which only part is wanted: one of the last that were, or read now, and then counted.
    [[nodiscard]] std::byte const* kept_block(SafetensorsFile const& file, Extent const& extent,
                                              SummedBytes const& block, Index& count) {
        for (Block const& one : blocks_)
            if (one.extent == &extent && one.begin == block.begin) return one.bytes.data();
        if (blocks_.size() < most_blocks) blocks_.emplace_back();
        Block& one = blocks_[next_block_++ % blocks_.size()];
        one.extent = nullptr;
        one.bytes.resize(static_cast<std::size_t>(block.end - block.begin));
        read_block(file, extent, block, one.bytes.data());
        one.extent = &extent;
        one.begin = block.begin;
        count += block.end - block.begin;
        return one.bytes.data();
    }

    std::string folder_;
    std::string source_;
    Catalogue catalogue_;
    Files files_;
    bool has_manifest_ = false;
    std::vector<Block> blocks_;  ///< the last that were read: columns are read in turn, and in pieces
    std::size_t next_block_ = 0;
};

}  // namespace reshard::inline v0::detail
