// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/manifest.hpp
/// \brief  What a checkpoint consists of: files, tensors, and which box of which tensor lies where in which file.
/// \depends algebra/box, checkpoint/tensor_info, core/{function_ref,detail/explain_text}. Values only: no I/O, no JSON.
///
/// The same description serves a save (every rank computes it), the manifest file (it is written down) and a load (the
/// boxes that are held, in the sense of a table of boxes, against the boxes that ranks need).
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/function_ref.hpp>

#include <algorithm>  // lower_bound, upper_bound
#include <span>       // span
#include <vector>     // vector

namespace reshard::inline v0_1 {

/// What a checkpoint is made of.
enum class CheckpointKind : int {
    file,      ///< one file of whole tensors
    index,     ///< an index and the files it names, of whole tensors
    shards,    ///< PyTorch DCP's: each file says which boxes it has
    manifest,  ///< ours
};

/// One file of a checkpoint, as its header describes it.
struct CheckpointFile {
    std::string leaf;  ///< its path inside the checkpoint's folder
    Index file_bytes = 0;
    std::uint64_t header_digest = 0;  ///< 0: never written; where no manifest was read, version_digest()
    int writer = -1;                  ///< the rank that wrote it; -1: not known
    Index unlisted = 0;               ///< tensors in it that the index does not name: no part of the checkpoint
    std::string contradicts{};        ///< a key of its metadata of which a file before it says something else
    friend bool operator==(CheckpointFile const&, CheckpointFile const&) = default;
};

/// A tensor as a whole, whatever it is cut into.
struct StoredTensor {
    std::string name;
    DType dtype = DType::u8;
    DynamicShape shape;
    int replicas = 1;          ///< copies that are stored apart, each of them whole
    std::string distribution;  ///< the notation of how it was held when it was saved; empty: not known
    friend bool operator==(StoredTensor const&, StoredTensor const&) = default;
};

/// A box of a tensor that lies packed and row-major in one run of one file.
struct Extent {
    std::size_t tensor = 0;  ///< place in the list of tensors
    int replica = 0;         ///< of which copy, below StoredTensor::replicas
    int file = 0;            ///< place in the list of files
    Index begin = 0;         ///< first byte, relative to the file's data section
    Box box;                 ///< 4- and 6-bit tensors are never cut: one extent with the whole of it
    std::string key{};       ///< the name in the file, where it is not the tensor's
    bool has_checksum = false;
    std::uint32_t crc32c = 0;  ///< of its bytes
    /// Of every Manifest::block_bytes of them, the last of what is left, so that parts of it are checked without all of
    /// it. Empty where there is one block at most, or nobody knows.
    std::vector<std::uint32_t> block_sums{};
    friend bool operator==(Extent const&, Extent const&) = default;
};

/// Bytes of a box of elements, packed. \pre elements smaller than a byte fill the last byte.
[[nodiscard]] constexpr Index stored_bytes_of(DType dtype, Box const& box) noexcept {
    return is_byte_sized(dtype) ? box.size() * bytes(dtype) : box.size() * bits(dtype) / 8;
}

/// What a save sums up at a time, where that is not more than so many sums: they take 8 bytes each in the manifest.
inline constexpr Index default_block_bytes = Index{1} << 20;
inline constexpr Index most_block_sums = Index{1} << 22;

/// A whole checkpoint that was saved in one go. Every replica of every tensor is covered exactly once by its extents.
struct Manifest {
    std::string save;  ///< the id of the save, in the names of its files: 16 hexadecimal digits
    int world_size = 0;
    Metadata metadata;                        ///< the caller's, text by text
    Index block_bytes = default_block_bytes;  ///< see Extent::block_sums
    std::vector<CheckpointFile> files;
    std::vector<StoredTensor> tensors;  ///< sorted by name
    std::vector<Extent> extents;        ///< sorted by (file, begin)
    std::string format{};               ///< in the metadata of all its files, where that is not pt
    friend bool operator==(Manifest const&, Manifest const&) = default;
};

namespace detail {
[[noreturn]] inline void refuse_manifest(std::string_view file, std::string_view what) {
    raise(ErrorCode::format, "reshard::Manifest: ", file, ": ", what, ". Fix: restore the file, or save anew.");
}

/// The metadata has the text of a managed-collision table under this and its name; its ids are the tensor `NAME.ids`.
inline constexpr std::string_view mch_table_key = "mch.table.";
/// Folders of tables alone that older releases made have this.
inline constexpr std::string_view mch_old_index = "mch.index.json";
/// In the metadata of a manifest: which save of such tables it has taken the place of. Who finds its index beside the
/// manifest knows that the process died before it was removed.
inline constexpr std::string_view mch_replaced_key = "mch.replaced";

/// A tensor as its bytes are moved: elements smaller than a byte are bytes here, in one dimension.
struct LineTensor {
    DynamicShape shape;
    DType from = DType::u8;
    DType to = DType::u8;

    [[nodiscard]] Index from_bytes() const noexcept { return bytes(from); }
    [[nodiscard]] Index to_bytes() const noexcept { return bytes(to); }
    [[nodiscard]] bool casts() const noexcept { return from != to; }
    /// A box of the tensor; those of elements smaller than a byte are whole.
    [[nodiscard]] Box box(Box const& of_tensor) const { return is_raw ? Box(shape) : of_tensor; }
    bool is_raw = false;
};
[[nodiscard]] inline LineTensor line_tensor(StoredTensor const& from, DType to) {
    if (is_byte_sized(from.dtype)) return {from.shape, from.dtype, to};
    return {DynamicShape(Indices{stored_bytes_of(from.dtype, Box(from.shape))}), DType::u8, DType::u8, true};
}

/// How many block sums an extent of so many bytes has: one block is summed up by the extent's own sum.
[[nodiscard]] constexpr Index block_count(Index bytes, Index block_bytes) noexcept {
    return bytes <= block_bytes ? 0 : ceil_div(bytes, block_bytes);
}
/// How long blocks are where so many bytes are saved.
[[nodiscard]] constexpr Index block_bytes_for(Index saved_bytes) noexcept {
    Index block = default_block_bytes;
    while (saved_bytes / block > most_block_sums) block *= 2;
    return block;
}

/// The name of an extent in its file.
[[nodiscard]] inline std::string const& key_of(Manifest const& manifest, Extent const& extent) noexcept {
    return extent.key.empty() ? manifest.tensors[extent.tensor].name : extent.key;
}
/// Bytes in its file. \pre its box lies inside the tensor, whose bytes fit 64 bits.
[[nodiscard]] inline Index extent_bytes(Manifest const& manifest, Extent const& extent) noexcept {
    return stored_bytes_of(manifest.tensors[extent.tensor].dtype, extent.box);
}

/// The extents that lie in a file, by its number; none for one that there is not.
[[nodiscard]] inline std::span<Extent const> extents_in(Manifest const& manifest, int file) noexcept {
    return {std::ranges::lower_bound(manifest.extents, file, {}, &Extent::file),  // (clang 14 lacks equal_range)
            std::ranges::upper_bound(manifest.extents, file, {}, &Extent::file)};
}

/// Bytes [begin, end) of an extent that have a sum of their own: a block, or all of them.
struct SummedBytes {
    Index begin = 0;
    Index end = 0;
    std::uint32_t crc32c = 0;
};
/// Those that byte `position` is one of. \pre it has one; the extent has a checksum
[[nodiscard]] inline SummedBytes summed_bytes(Manifest const& manifest, Extent const& extent, Index position) noexcept {
    Index const bytes = extent_bytes(manifest, extent);
    if (extent.block_sums.empty()) return {0, bytes, extent.crc32c};
    Index const block = position / manifest.block_bytes;
    Index const begin = block * manifest.block_bytes;
    return {begin, smaller(begin + manifest.block_bytes, bytes), extent.block_sums[as_size(block)]};
}

/// The blocks that have some of bytes [begin, end) of an extent: what is read so that all of these are compared. Empty
/// where they cannot be: without a checksum, or with one of more than a block, of which that is not all.
[[nodiscard]] inline Interval touched_blocks(Manifest const& manifest, Extent const& extent, Index begin,
                                             Index end) noexcept {
    Index const bytes = extent_bytes(manifest, extent);
    bool const in_blocks = !extent.block_sums.empty() || bytes <= manifest.block_bytes;
    if (!extent.has_checksum || begin >= end || !(in_blocks || (begin == 0 && end == bytes))) return {};
    return {summed_bytes(manifest, extent, begin).begin, summed_bytes(manifest, extent, end - 1).end};
}

/// The extents of a tensor, sorted by (file, begin). Asked for one tensor after the other, from 0 on; what it gives is
/// good until the next.
using ExtentsOf = FunctionRef<std::span<Extent const* const>(std::size_t tensor)>;

/// Those of a manifest. \pre it outlives this
class ExtentsByTensor {
public:
    explicit ExtentsByTensor(Manifest const& manifest)
        : first_(manifest.tensors.size() + 1), extents_(manifest.extents.size()) {
        for (Extent const& extent : manifest.extents) ++first_[extent.tensor + 1];
        for (std::size_t t = 1; t < first_.size(); ++t) first_[t] += first_[t - 1];
        auto next = first_;
        for (Extent const& extent : manifest.extents) extents_[next[extent.tensor]++] = &extent;
    }
    [[nodiscard]] std::span<Extent const* const> operator()(std::size_t tensor) const noexcept {
        return std::span(extents_).subspan(first_[tensor], first_[tensor + 1] - first_[tensor]);
    }

private:
    std::vector<std::size_t> first_;  ///< per tensor, its first place in the list
    std::vector<Extent const*> extents_;
};

/// Those with tensors that the index does not name, or with texts that contradict others.
[[nodiscard]] inline std::vector<CheckpointFile> with_unlisted(std::vector<CheckpointFile> files) {
    std::erase_if(files, [](CheckpointFile const& file) { return file.unlisted == 0 && file.contradicts.empty(); });
    return files;
}
/// Up to two lines about them; nothing where there are none.
[[nodiscard]] inline std::string unlisted_text(std::vector<CheckpointFile> const& files) {
    std::string lists[2];
    int counts[2] = {0, 0};
    auto const add = [&](int list, std::string const& what, std::string const& leaf) {
        int const count = counts[list]++;
        if (count <= 8)
            append(lists[list], {count == 0 ? "" : ", ", count < 8 ? concat(what, quote_name(leaf)) : "..."});
    };
    for (CheckpointFile const& file : files) {
        if (file.unlisted > 0) add(0, concat(count_text(file.unlisted, "tensor"), " of "), file.leaf);
        if (!file.contradicts.empty()) add(1, concat(quote_name(file.contradicts), " in "), file.leaf);
    }
    std::string text;
    if (counts[0] > 0) append(text, {"note: the index does not name ", lists[0], ": no part of the checkpoint\n"});
    if (counts[1] > 0) append(text, {"note: of metadata the first file counts, which contradicts ", lists[1], "\n"});
    return text;
}
/// A line about what nobody can see in files of that kind; nothing of others.
[[nodiscard]] constexpr std::string_view kind_note(CheckpointKind kind) noexcept {
    if (kind != CheckpointKind::shards) return "";
    return "note: PyTorch's shards do not say how many ranks saved: see that the last rank's file is there\n";
}
}  // namespace detail

/// The file that makes a folder a checkpoint of this library: it appears last, and names all others.
inline constexpr std::string_view manifest_name = "reshard.manifest.json";
/// Manifests longer than this (bytes) are refused: about five million extents. Ask before reading the file.
inline constexpr Index max_manifest_bytes = 500'000'000;

}  // namespace reshard::inline v0_1
