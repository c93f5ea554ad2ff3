// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/report.hpp
/// \brief  What a device partition found: counts, where blocks begin, what was wrong. Read on the host after one copy.
/// \depends core. Compiles without CUDA.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// A view of the words that DevicePartition::copy_report() writes: counts[W], begins[W + 1], blocks[W + 1], 2 of
/// faults.
class PartitionReport {
public:
    [[nodiscard]] static constexpr Index words(Index destinations) noexcept { return 3 * destinations + 4; }

    /// Throws BufferError when there are too few words.
    PartitionReport(std::span<Index const> words, Index destinations) : words_(words), destinations_(destinations) {
        if (detail::as_index(words.size()) >= PartitionReport::words(destinations)) return;
        errors::raise(ErrorCode::buffer, "reshard::PartitionReport: ", words.size(), " words for ", destinations,
                      " destinations. Fix: give PartitionReport::words(destinations) of them.");
    }

    /// Entries for each destination.
    [[nodiscard]] std::span<Index const> counts() const noexcept { return list(0, destinations_); }
    /// Their exclusive prefix and, behind it, the entries that are sent.
    [[nodiscard]] std::span<Index const> begins() const noexcept { return list(destinations_, destinations_ + 1); }
    /// The first byte of each destination's block and, behind them, the end.
    [[nodiscard]] std::span<Index const> blocks() const noexcept {
        return list(2 * destinations_ + 1, destinations_ + 1);
    }
    [[nodiscard]] Index kept() const noexcept { return begins().back(); }
    [[nodiscard]] Index packed_bytes() const noexcept { return blocks().back(); }
    /// Entries whose rule answered neither a rank nor `not_sent`. They were not sent.
    [[nodiscard]] Index out_of_range() const noexcept { return list(3 * destinations_ + 2, 1)[0]; }
    /// The first of them, or -1.
    [[nodiscard]] Index first_out_of_range() const noexcept { return list(3 * destinations_ + 3, 1)[0]; }

    /// Throws MismatchError for entries out of range.
    void check() const {
        if (out_of_range() == 0) return;
        errors::raise(ErrorCode::mismatch, "reshard::PartitionReport: ", out_of_range(), " entries, the first of them ",
                      first_out_of_range(), ", have no destination among the ", destinations_,
                      ". Fix: the slots are corrupt, or not of this table; empty entries answer not_sent.");
    }

private:
    [[nodiscard]] std::span<Index const> list(Index first, Index count) const noexcept {
        return words_.subspan(detail::as_size(first), detail::as_size(count));
    }

    std::span<Index const> words_;
    Index destinations_;
};

}  // namespace reshard::inline v0_1
