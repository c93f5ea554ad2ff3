// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_family.hpp
/// \brief  What all communicators split from one share: options, the first failure and how it is told, shared buffers.
/// \depends comm/detail/{mpi_node,waiting}.hpp, <span>.
///
/// A failure is told twice: to the ranks of the node through the shared block, at once, also by a process that is about
/// to die; to every rank by a message on a communicator of its own.
#pragma once

#include <reshard/comm/detail/mpi_node.hpp>
#include <reshard/comm/detail/waiting.hpp>

#include <sched.h>  // sched_yield

#include <span>  // span

namespace reshard::inline v0::detail {

/// Memory of MpiCommunicator::allocate(): made by this process, or mapped from another one.
struct MpiSegment {
    int pid = 0;
    std::uint64_t number = 0;      ///< counts the segments of a process: never used twice
    std::uint64_t allocation = 0;  ///< the number of this process's own segment of the same allocation
    SharedMemory memory;
};

class MpiFamily {
public:
    /// `control` becomes this object's. The node's block is where its ranks look for failures; it may be null.
    MpiFamily(MPI_Comm control, std::shared_ptr<MpiNode> node, MpiOptions const& options)
        : control_(control),
          node_(std::move(node)),
          options_(options),
          rank_(mpi_rank(control)),
          size_(mpi_size(control)) {
        options_.deadline = comparable(options_.deadline);
    }
    MpiFamily(MpiFamily const&) = delete;
    MpiFamily& operator=(MpiFamily const&) = delete;
    ~MpiFamily() {
        // After a failure messages may still be on their way: what MPI writes to or reads from must stay.
        if (!poisoned_ && mpi_is_usable()) MPI_Comm_free(&control_);
    }

    [[nodiscard]] MpiOptions const& options() const noexcept { return options_; }
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] MPI_Comm control() const noexcept { return control_; }
    [[nodiscard]] bool poisoned() const noexcept { return poisoned_; }
    /// \pre poisoned(). Never changes again.
    [[nodiscard]] FailureRecord const& failure() const noexcept { return failure_; }
    /// Whether the failure was thrown with its own type to this rank.
    [[nodiscard]] bool& reported() noexcept { return reported_; }

    /// Whether the family has failed. Cheap: looks at shared memory, and rarely at messages.
    [[nodiscard]] bool hear(bool thoroughly = false) noexcept {
        if (poisoned_) return true;
        if (node_ && node_->header().failure.heard(failure_)) return poisoned_ = true;
        // Looking for messages is also what drives MPI: messages it holds back for a full queue move on.
        if (!thoroughly && ++hearings_ % 32 != 0) return false;
        FailureRecord heard;
        if (!receive(heard)) return false;
        record(heard);
        return true;
    }

    /// Whether this rank is the one who tells the user what failed. Ranks of several nodes may each have thought they
    /// were the first: then their letters are on the way, and the lowest of them speaks. \pre poisoned().
    [[nodiscard]] bool is_teller() noexcept {
        if (failure_.teller != rank_) return false;
        if (node_ && node_->ranks() == size_) return true;
        auto const limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (mpi_is_usable() && std::chrono::steady_clock::now() < limit) {
            FailureRecord other;
            if (receive(other) && other.teller < rank_) return false;
            sched_yield();
        }
        return true;
    }

    /// Makes `failure` the family's unless there is one. Whether it was the first that this rank knows of.
    bool poison(FailureRecord failure) noexcept {
        if (poisoned_ || hear(true)) return false;
        failure.teller = rank_;
        if (!record(failure)) return false;
        // Kept for ever: nobody can say when they are no longer needed.
        auto* const letter = new (std::nothrow) FailureRecord(failure);
        if (letter == nullptr || !mpi_is_usable()) return true;
        for (int r = 0; r < size_; ++r) {
            if (r == rank_) continue;
            MPI_Request request = MPI_REQUEST_NULL;
            if (MPI_Isend(letter, static_cast<int>(sizeof(*letter)), MPI_BYTE, r, tag, control_, &request) !=
                MPI_SUCCESS)
                break;
            int sent = 0;
            MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
        }
        return true;
    }

    // ---- Shared buffers --------------------------------------------------------------------------------------

    std::vector<MpiSegment>& own_segments() noexcept { return own_; }
    std::vector<MpiSegment>& peer_segments() noexcept { return peers_; }

    /// The shared segment of this process that holds all of it, or null.
    [[nodiscard]] MpiSegment const* segment_with(std::span<std::byte const> memory) const noexcept {
        for (auto const& segment : own_) {
            std::byte const* const begin = segment.memory.data();
            if (memory.data() >= begin && memory.data() + memory.size() <= begin + segment.memory.bytes())
                return &segment;
        }
        return nullptr;
    }
    /// Where a segment of another process lies in this one's memory. A segment this rank has already let go of is
    /// opened again; of those the last few stay. Null when that fails.
    [[nodiscard]] std::byte const* peer_memory(int pid, std::uint64_t number, int file, Index bytes) {
        for (auto const* list : {&peers_, &reopened_}) {
            for (auto const& segment : *list)
                if (segment.pid == pid && segment.number == number) return segment.memory.data();
        }
        MpiSegment again{pid, number, 0, SharedMemory::open(pid, file, bytes)};
        if (!again.memory) return nullptr;
        if (reopened_.size() == 16) reopened_.erase(reopened_.begin());
        reopened_.push_back(std::move(again));
        return reopened_.back().memory.data();
    }
    [[nodiscard]] std::uint64_t next_segment() noexcept { return ++segments_made(); }

private:
    static constexpr int tag = 1;

    /// Segments are numbered per process, because a node's processes know each other by process.
    static std::atomic<std::uint64_t>& segments_made() noexcept {
        static std::atomic<std::uint64_t> count{0};
        return count;
    }
    /// Whether a letter has come.
    [[nodiscard]] bool receive(FailureRecord& letter) noexcept {
        int waiting = 0;
        return MPI_Iprobe(MPI_ANY_SOURCE, tag, control_, &waiting, MPI_STATUS_IGNORE) == MPI_SUCCESS && waiting != 0 &&
               MPI_Recv(&letter, static_cast<int>(sizeof(letter)), MPI_BYTE, MPI_ANY_SOURCE, tag, control_,
                        MPI_STATUS_IGNORE) == MPI_SUCCESS;
    }

    /// In this process and on this node. False when the node knew of another failure before; then that one counts.
    bool record(FailureRecord const& failure) noexcept {
        failure_ = failure;
        poisoned_ = true;
        return !node_ || node_->header().failure.tell(failure_);
    }

    MPI_Comm control_;
    std::shared_ptr<MpiNode> node_;
    MpiOptions options_;
    int rank_;
    int size_;
    FailureRecord failure_;
    bool poisoned_ = false;
    bool reported_ = false;
    unsigned hearings_ = 0;
    std::vector<MpiSegment> own_;
    std::vector<MpiSegment> peers_;
    std::vector<MpiSegment> reopened_;
};

}  // namespace reshard::inline v0::detail
