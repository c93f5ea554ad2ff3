// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_team.hpp
/// \brief  One NCCL communicator: how its rank waits and fails with the others, and what is shared with its relatives.
/// \depends comm/detail/{agree_in_words,nccl_family}.hpp.
#pragma once

#include <reshard/comm/detail/agree_in_words.hpp>
#include <reshard/comm/detail/nccl_family.hpp>
#include <reshard/core/detail/watched.hpp>

#include <sched.h>  // sched_yield

#include <algorithm>  // min
#include <optional>
#include <vector>

namespace reshard::inline v0::detail {

class NcclTeam {
    using Clock = std::chrono::steady_clock;

public:
    /// `comm` may be null: a group of one. An owned communicator is destroyed with this, whatever happens.
    NcclTeam(ncclComm_t comm, bool owned, cudaStream_t stream, std::shared_ptr<NcclFamily> family)
        : comm_(comm),
          owned_(owned),
          stream_(stream),
          family_(std::move(family)),
          host_(options().host_staging),
          near_(options().staging) {}
    NcclTeam(NcclTeam const&) = delete;
    NcclTeam& operator=(NcclTeam const&) = delete;
    ~NcclTeam() {
        leave();
        quietly([&] {
            CurrentDevice const device(device_);
            close();
        });
    }

    [[nodiscard]] ncclComm_t comm() const noexcept { return comm_; }
    [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] int device() const noexcept { return device_; }
    /// Whether the device may still use memory of this communicator, after a failure.
    [[nodiscard]] bool stuck() const noexcept { return stuck_; }
    [[nodiscard]] std::shared_ptr<NcclFamily> const& family() const noexcept { return family_; }
    [[nodiscard]] NcclOptions const& options() const noexcept { return family_->options; }

    /// Collective: the ranks get to know each other. Once, before anything else.
    void set_up();

    // ---- Calls and waits -------------------------------------------------------------------------------------

    /// Every collective call starts here.
    void enter(TeamCall call) {
        if (family_->hear()) raise_failure(false);
        call_ = call;
        ++calls_;
        absence_ = {};
        if (board_)
            board_->seat(rank_).entered.store(calls_ << 8U | static_cast<std::uint64_t>(call),
                                              std::memory_order_release);
    }
    /// Which exchange this call is. Ranks of the node that carry out another one are found while somebody waits, or
    /// when it is over.
    void carry_out(std::uint64_t number) {
        number_ = number;
        if (board_)
            board_->seat(rank_).exchanges[calls_ % 4].store(nccl_exchange_word(calls_, number),
                                                            std::memory_order_release);
    }
    /// Throws MismatchError where a rank of this node is known to carry out another exchange in this call.
    void check_same_exchange() {
        for (int r = 0; board_ && call_ == TeamCall::exchange && r < size_; ++r) {
            std::uint64_t const there = board_->seat(r).exchanges[calls_ % 4].load(std::memory_order_acquire);
            std::uint64_t const here = nccl_exchange_word(calls_, number_);
            if (there == here || there >> 32U != here >> 32U) continue;
            raise_mismatch(-1, -1, transport::order_text(rank_, r));
        }
    }
    /// This rank makes no further call: whoever waits for one need not.
    void leave() noexcept {
        if (board_) board_->seat(rank_).left.store(departure(), std::memory_order_release);
    }

    /// Until ready() is true. Throws DeadlineExceeded, PeerFailed, TransportError; after a failure elsewhere only after
    /// `patience`, for what may still complete although somebody has gone on and failed.
    template <class Ready>
    void await(Ready&& ready, std::chrono::milliseconds patience = {}) {
        auto const since = Clock::now();
        auto looked = since;
        auto limit = Clock::time_point::max();  // of the patience
        for (unsigned turn = 1;; ++turn) {
            if (ready()) return;
            auto const now = Clock::now();
            if (family_->hear()) {
                if (limit == Clock::time_point::max()) limit = now + patience;
                if (now >= limit) raise_failure();
            } else if (turn % 16 == 0 && now - looked >= std::chrono::milliseconds(2)) {
                looked = now;
                look_for_the_lost();
                check_async();
                // + would overflow for the largest deadlines
                if (now - since >= options().deadline) raise_deadline();
            }
            give_way(now - since);
        }
    }
    /// For those who come again and again instead of waiting: throws as await() does, but knows no deadline.
    void glance() {
        if (family_->hear()) raise_failure();
        if (++glances_ % 64 != 0) return;
        look_for_the_lost();
        check_async();
    }

    /// Everything enqueued so far: done() says whether the stream has come this far.
    void mark() { event_->record(stream_); }
    [[nodiscard]] bool done() const { return event_->reached(); }
    /// What NCCL said to a call outside of groups; a communicator that does not block says more later.
    void settle(ncclResult_t code, std::string_view call) {
        nccl_check(code, call, comm_);
        if (code == ncclInProgress) await_settled(comm_, call);
    }
    void await_settled(ncclComm_t comm, std::string_view call) {
        // What a peer has taken part in may end, although that peer has gone on and failed.
        await(
            [&] {
                ncclResult_t state = ncclSuccess;
                nccl_check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
                if (state != ncclSuccess && state != ncclInProgress) fail_async(state, call, comm);
                return state == ncclSuccess;
            },
            patience(std::chrono::milliseconds(100)));
    }

    /// Small values of all ranks meet in memory of the device: copies `bytes` of host_in() there, lets `start` (from,
    /// to, a place in device memory each) enqueue what NCCL shall do, and copies `got` bytes to host_out().
    template <class Start>
    void begin_meeting(Index bytes, Index got, std::string_view call, Start&& start) {
        std::byte* const in = near_.data();
        std::byte* const out = in + meeting_bytes_;
        cuda_check(cudaMemcpyAsync(in, host_in(), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream_),
                   "cudaMemcpyAsync");
        settle(start(in, out), call);
        cuda_check(cudaMemcpyAsync(host_out(), out, static_cast<std::size_t>(got), cudaMemcpyDeviceToHost, stream_),
                   "cudaMemcpyAsync");
        mark();
    }
    template <class Start>
    void meet(Index bytes, Index got, std::string_view call, Start&& start, std::chrono::milliseconds patience = {}) {
        begin_meeting(bytes, got, call, start);
        await([&] { return done(); }, patience);
    }
    [[nodiscard]] std::byte* host_in() const noexcept { return host_.data(); }
    [[nodiscard]] std::byte* host_out() const noexcept { return host_.data() + meeting_bytes_; }
    /// Of what peers tell each other before an exchange, for one peer.
    static constexpr Index words_per_peer = 24;

    // ---- Failure ---------------------------------------------------------------------------------------------

    /// Throws the family's failure as this rank must see it: one who did not wait has exceeded no deadline.
    /// \pre the family is poisoned.
    [[noreturn]] void raise_failure(bool waiting = true) {
        detail::raise_failure(family_->failure, "reshard::NcclCommunicator", rank_, scope_, waiting, family_->reported);
    }
    /// Tells everybody that the payloads of two ranks differ, and throws.
    [[noreturn]] void raise_mismatch(int first, int second, std::string const& reason) {
        family_->poison(failure_record(ErrorCode::mismatch, family_->rank, scope_, first, second, reason));
        raise_failure();
    }
    void poison(ErrorCode code, std::string_view reason) noexcept {
        family_->poison(failure_record(code, family_->rank, scope_, rank_, rank_, reason));
    }
    /// Runs a part of a collective on the communicator's device. If it throws, the others hear of it, and NCCL stops.
    template <class Body>
    void guarded(Body&& body) {
        watched(
            [&] {
                CurrentDevice const device(device_);
                body();
            },
            [&](ErrorCode code, std::string_view reason) noexcept {
                poison(code, reason);
                quietly([&] {
                    CurrentDevice const device(device_);
                    break_off();
                });
            });
    }
    /// Ends what NCCL does on this rank: nothing of an exchange runs on the device any more.
    void break_off() noexcept;

    // ---- Agreement and splitting -----------------------------------------------------------------------------

    [[nodiscard]] Verdict agree(Verdict const& mine);
    [[nodiscard]] std::shared_ptr<NcclTeam> split(int colour, int key);
    /// The deadline as a time that can be added to.
    [[nodiscard]] std::chrono::milliseconds patience(std::chrono::milliseconds most) const noexcept {
        return std::min(options().deadline, most);
    }

private:
    void close();
    /// Of a call that NCCL goes on with by itself, if it ends within `most` or the deadline.
    [[nodiscard]] ncclResult_t outcome(ncclResult_t state, std::chrono::milliseconds most) const noexcept;
    void check_async() {
        if (comm_ == nullptr) return;
        ncclResult_t state = ncclSuccess;
        nccl_check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
        if (state != ncclSuccess && state != ncclInProgress) fail_async(state, name(call_), comm_);
    }
    [[noreturn]] void fail_async(ncclResult_t state, std::string_view call, ncclComm_t comm) {
        if (family_->hear()) raise_failure();  // somebody knows more than NCCL
        raise_nccl(state, call, comm);
    }
    void look_for_the_lost();
    [[noreturn]] void raise_deadline();
    void meet_the_others();
    /// Three words of each rank, in their order.
    [[nodiscard]] std::vector<std::uint64_t> gather(std::uint64_t const (&words)[3],
                                                    std::chrono::milliseconds patience);
    [[nodiscard]] std::string spread(std::string const& mine, int root, std::uint64_t length);

    ncclComm_t comm_;
    bool owned_;
    bool broken_ = false;
    bool stuck_ = false;  ///< the device may still use what this rank would free
    cudaStream_t stream_;
    std::optional<CudaEvent> event_;
    std::shared_ptr<NcclFamily> family_;
    std::shared_ptr<NcclBoard> board_;
    StagingMemory host_;
    StagingMemory near_;
    Index meeting_bytes_ = 0;
    int rank_ = 0;
    int size_ = 1;
    int device_ = 0;
    std::uint64_t scope_ = 0;
    std::vector<int> members_;  ///< their ranks in the outermost communicator
    std::uint64_t calls_ = 0;
    std::uint64_t number_ = 0;  ///< of the exchange
    unsigned glances_ = 0;
    Absence absence_;
    TeamCall call_ = TeamCall::none;
};

}  // namespace reshard::inline v0::detail

#include <reshard/comm/detail/nccl_team.ipp>
