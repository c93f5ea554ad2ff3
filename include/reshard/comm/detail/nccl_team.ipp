// SPDX-License-Identifier: Apache-2.0
// How comm/detail/nccl_team.hpp is done.
#pragma once

#include <reshard/comm/detail/nccl_team.hpp>

namespace reshard::inline v0::detail {

inline void NcclTeam::set_up() {
    device_ = current_device();
    if (comm_ != nullptr) {
        await_settled(comm_, "making the communicator");
        nccl_check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank", comm_);
        nccl_check(ncclCommCount(comm_, &size_), "ncclCommCount", comm_);
        nccl_check(ncclCommCuDevice(comm_, &device_), "ncclCommCuDevice", comm_);
    }
    guarded([&] {
        event_.emplace();
        meeting_bytes_ = staging_slot(larger<Index>(8192, Index{8} * words_per_peer * size_));
        if (!host_.grow(2 * meeting_bytes_) || !near_.grow(2 * meeting_bytes_)) {
            raise(ErrorCode::out_of_memory, concat("reshard::NcclCommunicator: no memory for ", 2 * meeting_bytes_,
                                                   " bytes on the device and as much on the host. Fix: free some, or "
                                                   "give NcclOptions a larger source."));
        }
        meet_the_others();
    });
}

/// Who is who, in one message; then the board of those who share a node.
inline void NcclTeam::meet_the_others() {
    bool const outermost = members_.empty() && !family_->board && family_->rank < 0;
    if (outermost) family_->rank = rank_;
    members_.assign(1, family_->rank);
    if (size_ == 1) return;
    NcclOptions const& mine = options();
    std::uint64_t const words[3] = {
        static_cast<std::uint64_t>(family_->rank), nccl_nonce(),
        Digest{}.add_signed(mine.window_bytes).add_signed(mine.deadline.count()).add(mine.compare ? 1 : 0).value()};
    std::vector<std::uint64_t> const all = gather(words, {});
    members_.clear();
    for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r) {
        members_.push_back(static_cast<int>(all[3 * r]));
        if (all[3 * r + 2] == all[2]) continue;
        raise(ErrorCode::mismatch, concat("reshard::NcclCommunicator: the NcclOptions of rank ", static_cast<int>(r),
                                          " are not those of rank 0. Fix: the same deadline, window_bytes and compare "
                                          "on every rank."));
    }
    scope_ = all[1];
    board_ = std::make_shared<NcclBoard>(scope_, size_);
    nccl_sit_down(board_->seat(rank_));
    if (outermost) family_->board = board_;
    static_cast<void>(agree({}));  // all have it open
    board_->forget_name();
}

inline Verdict NcclTeam::agree(Verdict const& mine) {
    if (size_ == 1) return transport::joint_verdict(1, [&](int) -> Verdict const& { return mine; });
    auto const reduce = [&](std::byte* from, std::byte* to) {
        return ncclAllReduce(from, to, 5, ncclUint64, ncclMax, comm_, stream_);
    };
    std::uint64_t most[5];
    std::vector<std::uint64_t> all;
    return agree_in_words(
        mine, size_,
        [&](std::uint64_t const(&words)[5]) {
            std::memcpy(host_in(), words, sizeof(words));
            // Whoever failed may have left this very agreement before: then its end is on its way.
            meet(sizeof(words), sizeof(words), "ncclAllReduce", reduce, patience(std::chrono::milliseconds(100)));
            std::memcpy(most, host_out(), sizeof(most));
            return most;
        },
        [&, this](std::uint64_t const(&words)[3]) {
            all = gather(words, patience(std::chrono::seconds(1)));
            return all.data();
        },
        [&](std::string const& text, int root, std::uint64_t length) { return spread(text, root, length); });
}

inline std::vector<std::uint64_t> NcclTeam::gather(std::uint64_t const (&words)[3],
                                                   std::chrono::milliseconds patience) {
    std::memcpy(host_in(), words, sizeof(words));
    meet(
        sizeof(words), Index{sizeof(words)} * size_, "ncclAllGather",
        [&](std::byte* from, std::byte* to) {
            return ncclAllGather(from, to, sizeof(words), ncclInt8, comm_, stream_);
        },
        patience);
    std::vector<std::uint64_t> all(3 * static_cast<std::size_t>(size_));
    std::memcpy(all.data(), host_out(), all.size() * sizeof(all[0]));
    return all;
}

inline std::string NcclTeam::spread(std::string const& mine, int root, std::uint64_t length) {
    std::string text = mine;
    text.resize(static_cast<std::size_t>(length));
    for (std::size_t done = 0; done < text.size();) {
        std::size_t const bytes = smaller(text.size() - done, static_cast<std::size_t>(meeting_bytes_));
        std::memcpy(host_in(), text.data() + done, bytes);
        meet(
            static_cast<Index>(bytes), static_cast<Index>(bytes), "ncclBroadcast",
            [&](std::byte* from, std::byte* to) {
                return ncclBroadcast(from, to, bytes, ncclInt8, root, comm_, stream_);
            },
            patience(std::chrono::seconds(1)));
        std::memcpy(text.data() + done, host_out(), bytes);
        done += bytes;
    }
    return text;
}

inline std::shared_ptr<NcclTeam> NcclTeam::split(int colour, int key) {
    std::shared_ptr<NcclTeam> child;
    guarded([&] {
        ncclComm_t made = nullptr;
        if (size_ > 1) {
            static_cast<void>(agree({}));  // all are there, or it is known who is not
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 0;
            NcclPlace place = std::make_unique<ncclComm_t>();
            watched(
                [&] {
                    settle(ncclCommSplit(comm_, colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key, place.get(), &config),
                           "ncclCommSplit");
                },
                [&](ErrorCode, std::string_view) noexcept { keep_for_good(std::move(place)); });
            made = *place;
        }
        child = std::make_shared<NcclTeam>(made, true, stream_, family_);
        child->set_up();
    });
    return child;
}

/// Throws if one of those who have not come has died, left, or is busy with another call.
inline void NcclTeam::look_for_the_lost() {
    if (!board_) return;
    check_same_exchange();
    std::uint64_t const here = calls_ << 8U | static_cast<std::uint64_t>(call_);
    for (int r = 0; r < size_; ++r) {
        NcclSeat const& seat = board_->seat(r);
        std::int64_t const pid = seat.pid.load(std::memory_order_acquire);
        if (r == rank_ || pid == 0) continue;
        std::uint32_t const left = seat.left.load(std::memory_order_acquire);
        std::uint64_t const there = seat.entered.load(std::memory_order_acquire);
        if (there >> 8U == calls_ && there != here) {
            raise_mismatch(-1, -1,
                           concat("reshard::NcclCommunicator: rank ", rank_, " called ", name(call_), " while rank ", r,
                                  " called ", name(static_cast<TeamCall>(there & 0xffU)), transport::other_call));
        }
        std::string reason;
        if (nccl_has_died(seat)) {
            reason = died_text(r, static_cast<Index>(pid));
        } else if (there >> 8U < calls_ && absence_.is_final(left, std::chrono::seconds(12))) {  // close() waits for 10
            reason = left_text(r);
        } else {
            continue;
        }
        family_->poison(
            failure_record(ErrorCode::peer_failed, members_[static_cast<std::size_t>(r)], scope_, -1, -1, reason));
        raise_failure();
    }
}

inline void NcclTeam::raise_deadline() {
    // Of those who have not come, the ones furthest behind: others may be waiting for them in turn.
    std::uint64_t furthest = calls_;
    for (int r = 0; board_ && r < size_; ++r) {
        if (board_->seat(r).pid.load(std::memory_order_acquire) != 0)
            furthest = smaller(furthest, board_->seat(r).entered.load(std::memory_order_acquire) >> 8U);
    }
    std::string ranks;
    int culprit = rank_;
    for (int r = 0; board_ && furthest < calls_ && r < size_; ++r) {
        NcclSeat const& seat = board_->seat(r);
        if (seat.pid.load(std::memory_order_acquire) == 0 || seat.entered.load() >> 8U != furthest) continue;
        if (ranks.empty()) culprit = r;
        ranks = ranks.empty() ? std::to_string(r) : concat(ranks, ", ", r);
    }
    std::string const text = concat(
        "reshard::NcclCommunicator: waited ", static_cast<Index>(options().deadline.count()), " ms in ", name(call_),
        ranks.empty() ? std::string(" for the device, or for ranks of other nodes") : concat(" for rank ", ranks),
        ". Fix: find out why it does not come, or raise NcclOptions::deadline.");
    int const member = static_cast<std::size_t>(culprit) < members_.size() ? members_[static_cast<std::size_t>(culprit)]
                                                                           : family_->rank;
    family_->poison(failure_record(ErrorCode::deadline, member, scope_, -1, -1, text));
    raise_failure();
}

inline ncclResult_t NcclTeam::outcome(ncclResult_t state, std::chrono::milliseconds most) const noexcept {
    auto const limit = Clock::now() + patience(most);
    while (state == ncclInProgress && Clock::now() < limit) {
        sched_yield();
        if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
    }
    return state;
}

inline void NcclTeam::break_off() noexcept {
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
    stuck_ = true;
    quietly([&] {
        event_->record(stream_);
        stuck_ = outlasts(*event_, Clock::now(), patience(std::chrono::seconds(2)));
    });
}

inline void NcclTeam::close() {
    if (family_->hear()) break_off();
    if (comm_ != nullptr && owned_) {
        // Flushes what others still need of this rank; then nothing is left to wait for.
        ncclResult_t const state = outcome(ncclCommFinalize(comm_), std::chrono::seconds(10));
        static_cast<void>(state == ncclSuccess ? ncclCommDestroy(comm_) : ncclCommAbort(comm_));
    }
    comm_ = nullptr;
    host_.close(stuck_);
    near_.close(stuck_);
}

}  // namespace reshard::inline v0::detail
