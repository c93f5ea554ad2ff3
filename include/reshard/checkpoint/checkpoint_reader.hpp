// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/checkpoint_reader.hpp
/// \brief  Parts of extents of a checkpoint, their checksums compared, whose files are opened when something is read
///         from them.
/// \depends checkpoint/detail/load_files.
#pragma once

#include <reshard/checkpoint/detail/load_files.hpp>

#include <cstring>  // memcpy
#include <vector>   // vector

namespace reshard::inline v0_1::detail {

/// For rooms that find out what they need while they read: users load(). Used by one thread at a time.
class CheckpointReader : public LoadFiles {
public:
    using LoadFiles::LoadFiles;

    /// Bytes [begin, end) of an extent. Every block that has one of them is read whole and compared with its sum; an
    /// extent with one sum for all of it is one block, where it is no longer than a block or all of it is read. Returns
    /// how many bytes were read. Throws IoError; FormatError for bytes that are not those that were saved: `to` is
    /// unspecified then.
    Index read_part(Extent const& extent, Index begin, Index end, std::byte* to) {
        SafetensorsFile const& file = open(extent.file);
        if (touched_blocks(manifest(), extent, begin, end).empty()) {
            file.read_data(extent.begin + begin, {to, as_size(end - begin)});
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
                std::memcpy(to, kept + (at - block.begin), as_size(last - at));
            }
            to += last - at;
            at = last;
        }
        return count;
    }

private:
    [[nodiscard]] Manifest const& manifest() const noexcept { return catalogue().manifest(); }

    static constexpr std::size_t most_blocks = 16;
    struct Block {
        Extent const* extent = nullptr;  ///< null: nothing
        Index begin = 0;
        std::vector<std::byte> bytes{};
    };

    void read_block(SafetensorsFile const& file, Extent const& extent, SummedBytes const& block, std::byte* to) const {
        std::span const bytes(to, as_size(block.end - block.begin));
        file.read_data(extent.begin + block.begin, bytes);
        std::uint32_t const is = crc32c(bytes);
        if (is == block.crc32c) return;
        raise(ErrorCode::format, "reshard::load: ", file.path(), ": bytes ", block.begin, " to ", block.end, " of ",
              describe(manifest(), extent), " have CRC-32C ", hex_text(is, 8), ", but had ", hex_text(block.crc32c, 8),
              " when they were saved. Fix: restore the file of this save, or load another save.");
    }
    /// A block of which only part is wanted: one of the last that were, or read now, and then counted.
    [[nodiscard]] std::byte const* kept_block(SafetensorsFile const& file, Extent const& extent,
                                              SummedBytes const& block, Index& count) {
        for (Block const& one : blocks_)
            if (one.extent == &extent && one.begin == block.begin) return one.bytes.data();
        if (blocks_.size() < most_blocks) blocks_.emplace_back();
        Block& one = blocks_[next_block_++ % blocks_.size()];
        one.extent = nullptr;
        one.bytes.resize(as_size(block.end - block.begin));
        read_block(file, extent, block, one.bytes.data());
        one.extent = &extent;
        one.begin = block.begin;
        count += block.end - block.begin;
        return one.bytes.data();
    }

    std::vector<Block> blocks_;  ///< the last that were read: columns are read in turn, and in pieces
    std::size_t next_block_ = 0;
};

}  // namespace reshard::inline v0_1::detail
