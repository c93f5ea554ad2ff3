// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_family.hpp
/// \brief  What communicators split from one share on a rank, and groups of NCCL calls that always end.
/// \depends comm/detail/nccl_board.hpp, comm/detail/nccl_call.hpp.
#pragma once

#include <reshard/comm/detail/kept.hpp>
#include <reshard/comm/detail/nccl_board.hpp>
#include <reshard/comm/detail/nccl_call.hpp>

namespace reshard::inline v0::detail {

enum class NcclCall : std::uint8_t { none, exchange, agree, split, native };

[[nodiscard]] constexpr std::string_view name(NcclCall call) noexcept {
    constexpr std::string_view names[] = {"making the communicator", "exchange", "agree", "split",
                                          "a native collective"};
    return names[static_cast<int>(call)];
}

/// Operations of one ncclGroupStart .. ncclGroupEnd at most: NCCL has room for about twice as many.
inline constexpr int nccl_group_limit = 1024;

/// ncclGroupEnd comes also after an error in between: NCCL then starts nothing.
class NcclGroup {
public:
    NcclGroup() { nccl_check(ncclGroupStart(), "ncclGroupStart"); }
    NcclGroup(NcclGroup const&) = delete;
    NcclGroup& operator=(NcclGroup const&) = delete;
    ~NcclGroup() {
        if (open_) static_cast<void>(ncclGroupEnd());
    }
    [[nodiscard]] ncclResult_t end() noexcept {
        open_ = false;
        return ncclGroupEnd();
    }

private:
    bool open_ = true;
};

/// Where NCCL writes the handle of a communicator it is making, perhaps later, from a thread of its own.
struct NcclPlace {
    ncclComm_t comm = nullptr;
};

/// What one rank's communicators share that were split from one: the first failure.
struct NcclFamily {
    NcclOptions options;
    std::shared_ptr<NcclBoard> board;  ///< of the outermost communicator; null for a group of one
    int rank = -1;                     ///< in it
    FailureRecord failure;
    bool poisoned = false;
    bool reported = false;

    [[nodiscard]] bool hear() noexcept {
        if (!poisoned && board) poisoned = board->failure().heard(failure);
        return poisoned;
    }
    void poison(FailureRecord const& mine) noexcept {
        if (hear()) return;
        failure = mine;
        poisoned = true;
        if (board) board->failure().tell(failure);
    }
};

}  // namespace reshard::inline v0::detail
