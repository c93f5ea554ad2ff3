// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/receive_report.hpp
/// \brief  What a receiver found in the blocks that came: counts of faults, and the bits of ids that vary.
/// \depends core, cuda/detail/receive_kernels.hpp. Compiles without CUDA.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/cuda/detail/receive_kernels.hpp>

#include <span>  // span

namespace reshard::inline v0 {

/// The words that DeviceReceive::copy_report() writes.
class ReceiveReport {
public:
    static constexpr std::size_t words = sizeof(detail::ReceiveFaults) / sizeof(Index);

    /// Throws BufferError when there are too few words.
    explicit ReceiveReport(std::span<Index const> copied) {
        if (copied.size() < words) {
            raise(ErrorCode::buffer, concat("reshard::ReceiveReport: ", copied.size(), " words. Fix: give ", words,
                                            " of them, ReceiveReport::words."));
        }
        std::memcpy(static_cast<void*>(&faults_), copied.data(), sizeof(faults_));
    }

    [[nodiscard]] Index slots_out_of_range() const noexcept { return static_cast<Index>(faults_.slots_out_of_range); }
    [[nodiscard]] Index duplicate_slots() const noexcept { return static_cast<Index>(faults_.duplicate_slots); }
    [[nodiscard]] Index empty_ids() const noexcept { return static_cast<Index>(faults_.empty_ids); }
    /// 0 before order().
    [[nodiscard]] Index duplicate_ids() const noexcept { return static_cast<Index>(faults_.duplicate_ids); }
    /// The bits that a sort of the ids looks at.
    [[nodiscard]] detail::SortBits bits() const noexcept { return detail::sort_bits(faults_.ids_or, faults_.ids_and); }
    [[nodiscard]] bool none() const noexcept {
        return slots_out_of_range() == 0 && duplicate_slots() == 0 && empty_ids() == 0 && duplicate_ids() == 0;
    }

    /// Throws MismatchError that gives all counts.
    void check() const {
        if (none()) return;
        raise(ErrorCode::mismatch,
              concat("reshard::ReceiveReport: of the received entries ", slots_out_of_range(),
                     " have a slot of another rank, ", duplicate_slots(), " a slot that is taken, ", duplicate_ids(),
                     " an id that came before, ", empty_ids(),
                     " the id of an empty place. Fix: a sender's state is corrupt; nothing was changed here."));
    }

private:
    detail::ReceiveFaults faults_;
};

}  // namespace reshard::inline v0
