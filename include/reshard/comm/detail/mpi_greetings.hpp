// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_greetings.hpp
/// \brief  What ranks that share no memory tell each other about an exchange: how much each sends and expects, and
///         whether what is long may go in long pieces.
/// \depends comm/{transfer_listing,detail/{box_pieces,mpi_call,peers}}.hpp, <optional>, <span>, <vector>.
///
/// Between two ranks with transfers, one small message goes each way, whatever the number of transfers; an exchange
/// ends when it has come from every such peer. So a rank that sends what nobody expects is found by that rank, which is
/// greeted out of turn, and does not go on before: no stray message can meet a later receive. Greetings are no payload:
/// Traffic does not count them.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/mpi_call.hpp>
#include <reshard/comm/detail/peers.hpp>
#include <reshard/comm/transfer_listing.hpp>
#include <reshard/core/detail/keep_for_good.hpp>

#include <algorithm>  // lower_bound
#include <optional>
#include <span>
#include <vector>

namespace reshard::inline v0_1::detail {

/// Rows from which MPI, and the system, are told of rows instead of being given one packed run.
inline constexpr Index mpi_row_bytes = 512;

/// Whether MPI cannot be given the memory itself.
template <class Byte>
[[nodiscard]] bool mpi_must_pack(Transfer<Byte> const& transfer) noexcept {
    auto const [run, left] = run_of(transfer.box);
    return !transfer.conversion.is_plain() || (left > 0 && run < mpi_row_bytes);
}

/// What is longer need not begin before its receiver has said how it is cut: this much of a peer is under way at once.
inline constexpr Index mpi_long_bytes = 4 * piece_bytes;
/// Messages of what is long and nobody packs. They cost nothing beside their bytes, and yet their ends come often
/// enough to tell a slow wire from one on which nothing moves, and soon enough for whoever must give them up.
inline constexpr Index mpi_long_piece_bytes = Index{8} << 20;

/// Whether this side of a pair has transfers that are long, and packs none of these.
template <class Byte>
[[nodiscard]] bool mpi_may_go_long(std::span<Transfer<Byte> const> transfers) noexcept {
    bool some = false;
    DimOrder const order = common_order(transfers);
    for (auto const& transfer : transfers) {
        if (transfer.payload_bytes() <= mpi_long_bytes) continue;
        if (mpi_must_pack(in_order(transfer, order))) return false;
        some = true;
    }
    return some;
}

struct MpiGreeting {
    std::uint64_t epoch = 0;
    PairListing listing;
    std::uint32_t long_sends = 0;     ///< whether they may go long, as far as this side is concerned
    std::uint32_t long_receives = 0;  ///< the same
};

class MpiGreetings {
public:
    struct Peer {
        int rank;
        bool heard;
        MpiGreeting greeting;
        bool sends_long = false;  ///< what is long goes there in long pieces: both sides have said so
        bool receives_long = false;
        DimOrder order{};  ///< of what comes
    };

    MpiGreetings() = default;
    MpiGreetings& operator=(MpiGreetings&&) = delete;
    ~MpiGreetings() {
        if (!sent_) keep_for_good(std::move(peers_));  // after a failure
    }

    /// \pre called once, before anything else. `far` of the ranks of `comm` share no memory with this one.
    void open(MPI_Comm comm, int me, int far) {
        comm_ = comm;
        me_ = me;
        far_ = far;
        early_.reserve(as_size(smaller(far, 64)));
    }
    [[nodiscard]] bool any_far() const noexcept { return far_ != 0; }
    /// Greets those for which is_far(rank), all of them other ranks. What is wrong with those who were earlier, if
    /// anything.
    template <class IsFar>
    [[nodiscard]] std::optional<PairMismatch> begin(transport::BoundTransfers const& transfers, IsFar const& is_far) {
        ++epoch_;
        heard_ = 0;
        peers_.clear();
        auto const listing = [&](auto mine) { return TransferListing::of(mine, transfers.number); };
        for_each_pair(transfers.sends, transfers.receives, [&](int rank, auto mine, auto theirs) {
            if (!is_far(rank)) return;
            PairListing const pair{listing(mine), listing(theirs)};
            peers_.push_back({rank, false, {epoch_, pair, mpi_may_go_long(mine), mpi_may_go_long(theirs)}});
        });
        requests_.assign(peers_.size(), MPI_REQUEST_NULL);
        for (std::size_t i = 0; i < peers_.size(); ++i) {
            mpi_check(MPI_Isend(&peers_[i].greeting, static_cast<int>(sizeof(MpiGreeting)), MPI_BYTE, peers_[i].rank,
                                tag, comm_, &requests_[i]),
                      "MPI_Isend", peers_[i].rank);
        }
        sent_ = peers_.empty();
        std::size_t kept = 0;
        std::optional<PairMismatch> surprise;
        for (Peer const& each : early_) {
            if (each.greeting.epoch > epoch_) {
                early_[kept++] = each;
            } else if (!surprise) {
                surprise = compare(each.rank, each.greeting);
            }
        }
        early_.resize(kept);
        return surprise;
    }
    /// Looks at what has come, in an exchange or outside of one, and says what nobody expected.
    [[nodiscard]] std::optional<PairMismatch> listen() {
        for (;;) {
            if (far_ == 0) return {};
            int waiting = 0;
            MPI_Status status;
            mpi_check(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &waiting, &status), "MPI_Iprobe");
            if (waiting == 0) return {};
            MpiGreeting greeting;
            mpi_check(MPI_Recv(&greeting, static_cast<int>(sizeof(greeting)), MPI_BYTE, status.MPI_SOURCE, tag, comm_,
                               MPI_STATUS_IGNORE),
                      "MPI_Recv", status.MPI_SOURCE);
            if (greeting.epoch > epoch_) {  // it has left this exchange, which was none between us, for the next one
                early_.push_back({status.MPI_SOURCE, false, greeting});
            } else if (auto surprise = compare(status.MPI_SOURCE, greeting)) {
                return surprise;
            }
        }
    }
    /// What is known of a peer; of a rank that is none, where it would be.
    [[nodiscard]] std::vector<Peer>::const_iterator find(int rank) const noexcept {
        return std::ranges::lower_bound(peers_, rank, {}, &Peer::rank);
    }
    /// Peers that have greeted this rank, and whether all have.
    [[nodiscard]] std::size_t heard() const noexcept { return heard_; }
    [[nodiscard]] bool all_heard() const noexcept { return heard_ == peers_.size(); }
    /// Whether that is so and nobody needs this rank's greetings any more.
    [[nodiscard]] bool complete() {
        if (!sent_) {
            int done = 0;
            mpi_check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
                      "MPI_Testall");
            sent_ = done != 0;
        }
        return sent_ && all_heard();
    }
    void missing(FunctionRef<void(int)> visit) const {
        for (Peer const& peer : peers_)
            if (!peer.heard) visit(peer.rank);
    }

private:
    static constexpr int tag = 20000;  // those of messages are lower

    [[nodiscard]] std::optional<PairMismatch> compare(int rank, MpiGreeting const& theirs) {
        PairListing mine;
        auto const at = as_size(find(rank) - peers_.begin());
        if (theirs.epoch == epoch_ && at < peers_.size() && peers_[at].rank == rank && !peers_[at].heard) {
            Peer& peer = peers_[at];
            peer.heard = true;
            ++heard_;
            mine = peer.greeting.listing;
            peer.order = theirs.listing.sends.order;
            // Where memory lies otherwise on the other side, that one packs.
            peer.sends_long = peer.greeting.long_sends != 0 && theirs.long_receives != 0 &&
                              mine.sends.order == theirs.listing.receives.order;
            peer.receives_long =
                peer.greeting.long_receives != 0 && theirs.long_sends != 0 && mine.receives.order == peer.order;
        }
        return mismatch_of(me_, mine, rank, theirs.listing);
    }

    MPI_Comm comm_ = MPI_COMM_NULL;
    int me_ = 0;
    int far_ = 0;
    std::uint64_t epoch_ = 0;
    std::size_t heard_ = 0;
    bool sent_ = true;
    std::vector<Peer> peers_;  ///< ascending
    std::vector<MPI_Request> requests_;
    std::vector<Peer> early_;  ///< who is in a later exchange
};

}  // namespace reshard::inline v0_1::detail
