// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_team.hpp
/// \brief  One NCCL communicator: how its rank waits and fails with the others, and what is shared with its relatives.
/// \depends comm/detail/{nccl_family,team,version_word}.hpp.
#pragma once

#include <reshard/comm/detail/nccl_family.hpp>
#include <reshard/comm/detail/team.hpp>
#include <reshard/comm/detail/version_word.hpp>
#include <reshard/core/detail/keep_for_good.hpp>
#include <reshard/core/detail/watched.hpp>

#include <sched.h>  // sched_yield

#include <optional>
#include <vector>

namespace reshard::inline v0_1::detail {

class NcclTeam : public Team<NcclTeam, NcclFamily> {
public:
    static constexpr std::string_view name = "NcclCommunicator";
    static constexpr std::string_view settings = "NcclOptions";
    static constexpr std::chrono::seconds farewell{12};  // close() waits for 10
    static constexpr bool knows_senders = false;

    /// `comm` may be null: a group of one. An owned communicator is destroyed with this, whatever happens.
    NcclTeam(ncclComm_t comm, bool owned, cudaStream_t stream, std::shared_ptr<NcclFamily> family)
        : Team(std::move(family)),
          comm_(comm),
          owned_(owned),
          stream_(stream),
          host_(family_->options.host_staging),
          near_(family_->options.staging) {}
    ~NcclTeam() {
        leave();
        CurrentDevice const device(device_, std::nothrow);
        close();
    }

    [[nodiscard]] ncclComm_t comm() const noexcept { return comm_; }
    [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
    [[nodiscard]] int device() const noexcept { return device_; }
    /// Whether the device may still use memory of this communicator, after a failure.
    [[nodiscard]] bool stuck() const noexcept { return family_->patience.is_stuck(stream_); }
    /// Null: of another node, or it has not come yet.
    [[nodiscard]] Attendance const* attendance(int rank) const noexcept {
        NcclSeat const* const seat = board_ ? &board_->seat(rank) : nullptr;
        return seat == nullptr || seat->pid.load(std::memory_order_acquire) == 0 ? nullptr : seat;
    }
    [[nodiscard]] int process(int rank) const noexcept { return board_ ? nccl_process(board_->seat(rank)) : 0; }
    [[nodiscard]] Attendance* outermost_seat(int rank) const noexcept {
        if (!family_->board) return nullptr;
        return &family_->board->seat(rank == rank_ ? family_->rank : member(rank));
    }
    [[nodiscard]] static std::string_view silence() noexcept { return " for the device, or for ranks of other nodes"; }
    void look_around() {
        check_same_exchange();
        if (comm_ != nullptr) static_cast<void>(async_state(detail::name(call_)));
    }

    /// Runs a part of a collective on the communicator's device. If it throws, the others hear of it, and NCCL stops.
    template <class Body>
    decltype(auto) guarded(Body&& body) {
        return watched(
            [&]() -> decltype(auto) {
                CurrentDevice const device(device_);
                return body();
            },
            [&](ErrorCode code, std::string_view reason) noexcept {
                poison(code, reason);
                CurrentDevice const device(device_, std::nothrow);
                break_off();
            });
    }

    /// What needs no other rank, on the current device: whoever cannot do this can say so before it is waited for.
    void prepare(int ranks) {
        device_ = current_device();
        event_.emplace();
        meeting_bytes_ = staging_slot(larger<Index>(8192, Index{8} * words_per_peer * ranks));
        if (host_.grow(2 * meeting_bytes_) && near_.grow(2 * meeting_bytes_)) return;
        raise_no_memory(stream_, concat("reshard::NcclCommunicator: no memory for ", 2 * meeting_bytes_,
                                        " bytes on the device and as much on the host. Fix: free some, or "
                                        "give NcclOptions a larger source."));
    }
    /// Before set_up().
    void own(ncclComm_t comm) noexcept { comm_ = comm; }

    /// Collective: the ranks get to know each other. Once, before anything else.
    void set_up() {
        device_ = current_device();
        if (comm_ != nullptr) {
            await_settled("making the communicator");
            nccl_check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank", comm_);
            nccl_check(ncclCommCount(comm_, &size_), "ncclCommCount", comm_);
            nccl_check(ncclCommCuDevice(comm_, &device_), "ncclCommCuDevice", comm_);
        }
        guarded([&] {
            if (!event_) prepare(size_);
            meet_the_others();
        });
    }

    // ---- Calls and waits -------------------------------------------------------------------------------------

    /// Every collective call starts here.
    void enter(TeamCall call) {
        if (family_->hear()) raise_failure(false);
        begin_call(call);
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

    /// Everything enqueued so far: done() says whether the stream has come this far.
    void mark() { event_->record(stream_); }
    [[nodiscard]] bool done() const { return event_->reached(); }
    /// What NCCL said to a call outside of groups; a communicator that does not block says more later.
    void settle(ncclResult_t code, std::string_view call) {
        nccl_check(code, call, comm_);
        if (code == ncclInProgress) await_settled(call);
    }
    void await_settled(std::string_view call) {
        // What a peer has taken part in may end, although that peer has gone on and failed.
        await([&, this] { return async_state(call) == ncclSuccess; }, everybody(),
              patience(std::chrono::milliseconds(100)));
    }

    /// Small values of all ranks meet in memory of the device: copies `bytes` of host_in() there, lets `start` (from,
    /// to, a place in device memory each) enqueue what NCCL shall do, and copies `got` bytes to host_out().
    template <class Start>
    void begin_meeting(Index bytes, Index got, std::string_view call, Start&& start) {
        std::byte* const in = near_.data();
        std::byte* const out = in + meeting_bytes_;
        cuda_check(cudaMemcpyAsync(in, host_in(), as_size(bytes), cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
        settle(start(in, out), call);
        cuda_check(cudaMemcpyAsync(host_out(), out, as_size(got), cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
        mark();
    }
    template <class Start>
    void meet(Index bytes, Index got, std::string_view call, Start&& start, std::chrono::milliseconds patience = {}) {
        begin_meeting(bytes, got, call, start);
        await([&] { return done(); }, everybody(), patience);
    }
    [[nodiscard]] std::byte* host_in() const noexcept { return host_.data(); }
    [[nodiscard]] std::byte* host_out() const noexcept { return host_.data() + meeting_bytes_; }
    /// Of what peers tell each other before an exchange, for one peer.
    static constexpr Index words_per_peer = 27;

    // ---- Failure ---------------------------------------------------------------------------------------------

    /// Ends what NCCL does on this rank: nothing of an exchange runs on the device any more.
    void break_off() noexcept {
        if (std::exchange(broken_, true)) return;
        if (comm_ != nullptr) {
#if defined(NCCL_REVOKE_DEFAULT)
            if (!owned_) {
                // The handle is the program's: it is stopped, not destroyed.
                static_cast<void>(outcome(ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT), std::chrono::seconds(2)));
            } else
#endif
            {
                static_cast<void>(ncclCommAbort(comm_));
            }
            comm_ = nullptr;
        }
        if (!event_) return;
        bool& stuck = *family_->patience.stuck;
        stuck = true;
        quietly([&] {
            event_->record(stream_);
            stuck = event_->outlasts(Clock::now(), patience(std::chrono::seconds(2)));
        });
    }

    /// Before memory is freed: a relative may have failed, whose device, which is this one, is never done. In a child
    /// that was forked all is the parent's.
    void heed() noexcept {
        if (family_->is_ours() && family_->hear()) break_off();
    }

    // ---- Agreement and splitting -----------------------------------------------------------------------------

    void maximum(std::span<std::uint64_t> words, std::chrono::milliseconds patience) {
        if (size_ == 1) return;
        auto const bytes = as_index(words.size_bytes());
        std::memcpy(host_in(), words.data(), words.size_bytes());
        meet(
            bytes, bytes, "ncclAllReduce",
            [&](std::byte* from, std::byte* to) {
                return ncclAllReduce(from, to, words.size(), ncclUint64, ncclMax, comm_, stream_);
            },
            patience);
        std::memcpy(words.data(), host_out(), words.size_bytes());
    }
    [[nodiscard]] std::shared_ptr<NcclTeam> split(int colour, int key) {
        // NCCL's call blocks: nobody enters it before all have come to this same one.
        if (size_ > 1) agree_or_raise(*this, verdict_of([] {}, "split()"));
        return guarded([&] {
            ncclComm_t made = nullptr;
            if (size_ > 1) {
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = 0;  // and no splitShare: to abort one would be to abort those that it shares with
                NcclPlace place = std::make_unique<ncclComm_t>();
                watched(
                    [&] {
                        settle(
                            ncclCommSplit(comm_, colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key, place.get(), &config),
                            "ncclCommSplit");
                    },
                    [&](ErrorCode, std::string_view) noexcept { keep_for_good(std::move(place)); });
                made = *place;
            }
            auto child = std::make_shared<NcclTeam>(made, true, stream_, family_);
            child->set_up();
            return child;
        });
    }

private:
    void close() noexcept {
        heed();
        if (comm_ != nullptr && owned_ && family_->is_ours()) {
            // Flushes what others still need of this rank; then nothing is left to wait for.
            ncclResult_t const state = outcome(ncclCommFinalize(comm_), std::chrono::seconds(10));
            static_cast<void>(state == ncclSuccess ? ncclCommDestroy(comm_) : ncclCommAbort(comm_));
        }
        comm_ = nullptr;
        host_.close(stuck());
        near_.close(stuck());
    }
    /// Of a call that NCCL goes on with by itself, if it ends within `most` or the deadline.
    [[nodiscard]] ncclResult_t outcome(ncclResult_t state, std::chrono::milliseconds most) const noexcept {
        auto const limit = Clock::now() + patience(most);
        while (state == ncclInProgress && Clock::now() < limit) {
            sched_yield();
            if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
        }
        return state;
    }
    /// ncclSuccess or ncclInProgress; throws what else NCCL says of what it goes on with by itself.
    [[nodiscard]] ncclResult_t async_state(std::string_view call) {
        ncclResult_t state = ncclSuccess;
        nccl_check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
        if (state == ncclSuccess || state == ncclInProgress) return state;
        if (family_->hear()) raise_failure();  // somebody knows more than NCCL
        raise_nccl(state, call, comm_);
    }
    void meet_the_others() {
        bool const outermost = members_.empty() && !family_->board && family_->rank < 0;
        if (outermost) family_->rank = rank_;
        members_.assign(1, family_->rank);
        if (size_ == 1) {  // no two of them share errors
            scope_ = Digest{}.add_signed(family_->rank).value();
            return;
        }
        NcclOptions const& mine = family_->options;
        auto const options =
            Digest{}.add_signed(mine.window_bytes).add_signed(mine.deadline.count()).add(mine.compare ? 1 : 0).value();
        // Three words, the first of which is of the version: so it must stay.
        std::uint64_t const words[3] = {version_word, unique_number(),
                                        options << 32U | static_cast<std::uint32_t>(family_->rank)};
        std::vector<std::uint64_t> all(3 * as_size(size_));
        std::memcpy(host_in(), words, sizeof(words));
        meet(sizeof(words), Index{sizeof(words)} * size_, "ncclAllGather", [&](std::byte* from, std::byte* to) {
            return ncclAllGather(from, to, sizeof(words), ncclInt8, comm_, stream_);
        });
        std::memcpy(all.data(), host_out(), all.size() * sizeof(all[0]));
        members_.clear();
        for (std::size_t r = 0; r < as_size(size_); ++r) {
            std::uint64_t const* const theirs = &all[3 * r];
            if (theirs[0] != version_word) {
                raise(ErrorCode::mismatch, versions_differ_text(name, rank_, concat("rank ", r), theirs[0]));
            }
            members_.push_back(static_cast<int>(theirs[2] & 0xffffffffU));
            if (theirs[2] >> 32U == all[2] >> 32U) continue;
            raise(ErrorCode::mismatch, "reshard::NcclCommunicator: the NcclOptions of rank ", static_cast<int>(r),
                  " are not those of rank 0. Fix: the same deadline, window_bytes and compare "
                  "on every rank.");
        }
        scope_ = all[1];
        board_ = std::make_shared<NcclBoard>(scope_, size_);
        own_ = &board_->seat(rank_);
        nccl_sit_down(board_->seat(rank_));
        if (outermost) {
            family_->board = board_;
            family_->shared = &board_->failure();
        }
        static_cast<void>(agree({}));  // all have it open
        board_->forget_name();
    }

    ncclComm_t comm_;
    bool owned_;
    bool broken_ = false;
    cudaStream_t stream_;
    std::optional<CudaEvent> event_;
    std::shared_ptr<NcclBoard> board_;
    StagingMemory host_;
    StagingMemory near_;
    Index meeting_bytes_ = 0;
    int device_ = 0;
    std::uint64_t number_ = 0;  ///< of the exchange
};

}  // namespace reshard::inline v0_1::detail
