// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_board.hpp
/// \brief  What the ranks of a node know of each other besides NCCL: who has come how far, who is gone, what failed.
/// \depends core, comm/detail/{process,team}.hpp, core/detail/waiting.hpp. No NCCL, no CUDA.
///
/// NCCL tells nobody why a rank stopped. Ranks of a node, threads or processes, tell each other here; ranks of other
/// nodes learn from NCCL, or from the deadline.
#pragma once

#include <reshard/comm/detail/process.hpp>
#include <reshard/comm/detail/team.hpp>
#include <reshard/core/detail/waiting.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <fcntl.h>   // open
#include <unistd.h>  // unlink

#include <atomic>

namespace reshard::inline v0_1::detail {

/// One rank's place. Written by its owner, read by all.
struct alignas(no_false_sharing) NcclSeat : Attendance {
    std::atomic<std::int64_t> pid{0};              ///< 0: a rank of another node, or one that has not come yet
    std::atomic<std::uint64_t> space{0};           ///< see process_space()
    std::atomic<std::uint64_t> exchanges[4] = {};  ///< of its last calls, see nccl_exchange_word()
};

/// That a call is the exchange of that number: what ranks of a node compare.
[[nodiscard]] constexpr std::uint64_t nccl_exchange_word(std::uint64_t call, std::uint64_t number) noexcept {
    return call << 32U | (number & 0xffffffffU);
}

/// Takes a seat, as this process. Whoever sees the number of the process sees where it means something.
inline void nccl_sit_down(NcclSeat& seat) noexcept {
    seat.space.store(process_space(), std::memory_order_relaxed);
    seat.pid.store(own_pid(), std::memory_order_release);
}
/// The process of a seat, if this one can know how it is: 0 where processes are numbered otherwise, as in another
/// container.
[[nodiscard]] inline int nccl_process(NcclSeat const& seat) noexcept {
    static std::uint64_t const space = process_space();
    auto const pid = static_cast<int>(seat.pid.load(std::memory_order_acquire));
    return space != 0 && seat.space.load(std::memory_order_relaxed) == space ? pid : 0;
}

/// The ranks of one communicator that share memory. Where the system shares none, each rank has a board of its own.
class NcclBoard {
public:
    NcclBoard(std::uint64_t number, int ranks) {
        Index const bytes = Index{sizeof(Header)} + ranks * Index{sizeof(NcclSeat)};
        std::snprintf(path_, sizeof(path_), "/dev/shm/reshard-nccl-%016llx", static_cast<unsigned long long>(number));
        memory_ = SharedMemory::of_file(::open(path_, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), bytes);
        // Where the file system is full this says so; the first touch of a page would end the process.
        if (memory_ && ::posix_fallocate(memory_.file(), 0, bytes) != 0) memory_ = {};
        if (!memory_) {
            forget_name();
            memory_ = SharedMemory::create(bytes);
        }
        memory_.close_file();
        // All bytes are zero: what all members begin as, but for ranks that nobody reads before `state` says so.
        if (memory_) return;
        raise(ErrorCode::out_of_memory, "reshard::NcclCommunicator: no memory of ", bytes,
              " bytes for the seats of its ", ranks, " ranks. Fix: free some, of this process and in /dev/shm.");
    }
    NcclBoard& operator=(NcclBoard&&) = delete;
    ~NcclBoard() { forget_name(); }

    /// Once all ranks have it open: then nothing is left behind, whatever happens.
    void forget_name() noexcept {
        if (path_[0] != '\0') ::unlink(path_);
        path_[0] = '\0';
    }
    [[nodiscard]] NcclSeat& seat(int rank) const noexcept {
        return reinterpret_cast<NcclSeat*>(memory_.data() + sizeof(Header))[rank];
    }

    [[nodiscard]] SharedFailure& failure() const noexcept { return reinterpret_cast<Header*>(memory_.data())->failure; }

private:
    struct alignas(no_false_sharing) Header {
        SharedFailure failure;
    };

    char path_[64] = {};
    SharedMemory memory_;
};

}  // namespace reshard::inline v0_1::detail
