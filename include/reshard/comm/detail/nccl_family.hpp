// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_family.hpp
/// \brief  NCCL: its codes as typed errors, the options of the transport, memory it may use, groups of its calls that
///         always end, how much a pair of ranks moves in one round and how many pairs share a group, and what
///         communicators split from one share on a rank.
/// \depends comm/detail/{box_pieces,device_copies,nccl_board}.hpp, NCCL 2.18.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/device_copies.hpp>
#include <reshard/comm/detail/nccl_board.hpp>

#include <nccl.h>

#include <chrono>  // milliseconds
#include <memory>  // shared_ptr, unique_ptr

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE < 21800
#error "reshard: comm/nccl.hpp needs NCCL 2.18 or newer (ncclCommSplit)."
#endif

namespace reshard::inline v0_1 {

/// How ranks that are GPUs behave. `deadline`, `window_bytes` and `compare` are the same on every rank.
struct NcclOptions {
    std::chrono::milliseconds deadline = std::chrono::minutes(5);  ///< of a wait
    /// At most about so much staging memory per communicator (elements longer than a peer's share aside): a larger
    /// exchange goes in rounds. Boxes that lie in a row need none. The peers of a rank share it, and a pair of ranks
    /// has the share of the one with more peers in this exchange; where compare is false, that of one with all others.
    Index window_bytes = Index{256} << 20;
    /// Where staging memory comes from. It grows to what the largest exchange needed; with a reserve of window_bytes
    /// this communicator, though not what is split from it, allocates nothing later.
    StagingOptions staging = device_staging();
    StagingOptions host_staging = pinned_staging();  ///< for values that are converted on the way, and for agree()
    /// Peers tell each other what they are about to move, so that payloads that differ are a MismatchError and not a
    /// hang; one small message to every peer and one look at the host when an exchange is first started. When it is
    /// started again, as by prepared plans, all of it is enqueued at once; so it is where this is false.
    bool compare = true;
    bool (*interrupted)() = nullptr;  ///< asked while this rank waits for others: true ends the wait, see MpiOptions
};

namespace detail {

/// With what NCCL says of the code and of the last thing that went wrong. `comm` may be null.
[[noreturn]] inline void raise_nccl(ncclResult_t code, std::string_view call, ncclComm_t comm) {
    char const* const last = ncclGetLastError(comm);
    std::string const more = last == nullptr || *last == '\0' ? std::string() : concat(" (", last, ")");
    std::string const text = concat("reshard::NcclCommunicator: ", call, " failed: ", ncclGetErrorString(code), more);
    if (code == ncclRemoteError) {
        raise(ErrorCode::peer_failed, text, ". Fix: look for the rank that ended, or for the network.");
    }
    raise(ErrorCode::transport, text, ". Fix: this communicator is lost; NCCL_DEBUG=WARN says more; start again.");
}
/// Throws TransportError, or PeerFailed where NCCL says it was a remote one. ncclInProgress is no error.
inline void nccl_check(ncclResult_t code, std::string_view call, ncclComm_t comm = nullptr) {
    if (code != ncclSuccess && code != ncclInProgress) raise_nccl(code, call, comm);
}

/// Operations of one ncclGroupStart .. ncclGroupEnd at most: NCCL has room for about twice as many.
inline constexpr int nccl_group_limit = 1024;

/// ncclGroupEnd comes also after an error in between: NCCL then starts nothing.
class NcclGroup {
public:
    NcclGroup() { nccl_check(ncclGroupStart(), "ncclGroupStart"); }
    NcclGroup& operator=(NcclGroup&&) = delete;
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

/// How much a pair may move in one round, the same on both ranks, and how pairs share a group.
struct NcclRounds {
    static constexpr int most = nccl_group_limit / 2;  ///< as many sends as receives
    int rank = 0;
    int distances = 1;  ///< that share a group, the same on all ranks
    Index window = 0;
    int* peers = nullptr;  ///< by rank: how many this one and its peers have; null: nobody asks

    NcclRounds(int its_rank, int ranks, Index window_bytes) noexcept
        : rank(its_rank), distances(larger(1, smaller(ranks - 1, most))), window(window_bytes) {}

    /// What each pair of a rank with so many peers may move, so that all of it fits into the window and a group.
    [[nodiscard]] PairShare shared_by(int count) const noexcept {
        constexpr Index slot = StagingOptions::alignment;
        int const queues = larger(1, smaller(count, most));
        return {most / queues, larger<Index>(window / 2 / queues, 4 * slot), slot};
    }
    /// The least: of ranks that may have all others as peers.
    [[nodiscard]] PairShare shared_by_all() const noexcept { return shared_by(distances); }
    /// That of the pair with a peer.
    [[nodiscard]] PairShare with(int peer) const noexcept {
        return peers == nullptr ? shared_by_all() : shared_by(larger(peers[rank], peers[peer]));
    }
};

/// Whether NCCL can be given the memory itself.
template <class Byte>
[[nodiscard]] constexpr bool nccl_goes_straight(Transfer<Byte> const& transfer) noexcept {
    return run_of(transfer.box).dims_left == 0 && transfer.conversion.is_plain();
}

/// Where NCCL writes the handle of a communicator it is making, perhaps later, from a thread of its own.
using NcclPlace = std::unique_ptr<ncclComm_t>;

/// What one rank's communicators share that were split from one.
struct NcclFamily : TeamFamily {
    NcclOptions options;
    std::shared_ptr<NcclBoard> board;  ///< of the outermost communicator; null for a group of one
    StreamPatience patience;
};

}  // namespace detail
}  // namespace reshard::inline v0_1
