// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/checked_read.hpp
/// \brief  Part of an extent into memory, its checksums compared.
/// \depends checkpoint/{checksum,safetensors}, checkpoint/detail/manifest_json.
#pragma once

#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/safetensors.hpp>

#include <cstring>  // memcpy
#include <vector>   // vector

namespace reshard::inline v0::detail {

/// A block of an extent whose sum was compared.
struct CheckedBlock {
    Extent const* extent = nullptr;  ///< null: nothing yet
    Index begin = 0;
    std::vector<std::byte> bytes{};
};

/// An extent in its open file. \pre file and manifest outlive it
class CheckedExtent {
public:
    CheckedExtent(SafetensorsFile const& file, Manifest const& manifest, Extent const& extent)
        : file_(file), manifest_(manifest), extent_(extent), bytes_(extent_bytes(manifest, extent)) {}

    /// Bytes [begin, end) of the extent. Every block that has one of them is read whole and compared with its sum; an
    /// extent with one sum for all of it is one block, where it is no longer than a block or all of it is read.
    /// `keep(begin, bytes)` gives a CheckedBlock for a block of which only part is wanted: that very block, or room for
    /// it. Returns how many bytes were read. Throws IoError; FormatError for bytes that are not those that were saved:
    /// `to` is unspecified then.
    template <class Keep>
    Index read(Index begin, Index end, std::byte* to, Keep&& keep) const {
        bool const whole = begin == 0 && end == bytes_;
        bool const one_sum = extent_.has_checksum && extent_.block_sums.empty();
        if (extent_.block_sums.empty() && !(one_sum && (whole || bytes_ <= manifest_.block_bytes))) {
            file_.read_data(extent_.begin + begin, {to, static_cast<std::size_t>(end - begin)});
            return end - begin;
        }
        Index count = 0;
        for (Index at = begin; at < end;) {
            Index const first = one_sum ? 0 : at / block() * block();
            Index last = one_sum ? bytes_ : smaller(first + block(), bytes_);
            if (at == first && last <= end) {
                read_block(first, {to, static_cast<std::size_t>(last - first)});
                count += last - first;
            } else {
                CheckedBlock& kept = keep(first, last - first);
                if (kept.extent == nullptr) {
                    read_block(first, kept.bytes);
                    kept.extent = &extent_;
                    kept.begin = first;
                    count += last - first;
                }
                last = smaller(last, end);
                std::memcpy(to, kept.bytes.data() + (at - first), static_cast<std::size_t>(last - at));
            }
            to += last - at;
            at = last;
        }
        return count;
    }

private:
    [[nodiscard]] Index block() const noexcept { return manifest_.block_bytes; }
    void read_block(Index begin, std::span<std::byte> to) const {
        file_.read_data(extent_.begin + begin, to);
        std::uint32_t const was =
            extent_.block_sums.empty() ? extent_.crc32c : extent_.block_sums[static_cast<std::size_t>(begin / block())];
        std::uint32_t const is = crc32c(to);
        if (is == was) return;
        raise(ErrorCode::format,
              concat("reshard::load: ", file_.path(), ": bytes ", begin, " to ", begin + static_cast<Index>(to.size()),
                     " of ", describe(manifest_, extent_), " have CRC-32C ", hex_text(is, 8), ", but had ",
                     hex_text(was, 8),
                     " when they were saved. Fix: restore the file of this save, or load another save."));
    }

    SafetensorsFile const& file_;
    Manifest const& manifest_;
    Extent const& extent_;
    Index bytes_;
};

}  // namespace reshard::inline v0::detail
