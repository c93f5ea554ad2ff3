// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/self.hpp
/// \brief  SelfCommunicator: a group of one. Programs that usually run on many ranks run on one unchanged.
/// \depends comm/communicator.hpp, <utility>.
#pragma once

#include <reshard/comm/communicator.hpp>

#include <utility>  // move

namespace reshard::inline v0 {

/// An exchange with oneself is complete when it starts.
class [[nodiscard]] SelfRequest {
public:
    SelfRequest() = default;
    SelfRequest(SelfRequest&&) noexcept = default;
    SelfRequest& operator=(SelfRequest&&) noexcept = default;
    SelfRequest(SelfRequest const&) = delete;
    SelfRequest& operator=(SelfRequest const&) = delete;
    ~SelfRequest() = default;

    void wait() noexcept {}
    [[nodiscard]] bool test() noexcept { return true; }
    [[nodiscard]] bool done() const noexcept { return true; }
};

/// Rank 0 of 1. Sends meet receives in order; copies happen inside exchange().
class SelfCommunicator : public MeshSplit<SelfCommunicator> {
public:
    static constexpr std::string_view name = "self";
    using request_type = SelfRequest;
    using MeshSplit<SelfCommunicator>::split;

    SelfCommunicator() = default;
    SelfCommunicator(SelfCommunicator&&) = default;
    SelfCommunicator& operator=(SelfCommunicator&&) = default;
    SelfCommunicator(SelfCommunicator const&) = delete;
    SelfCommunicator& operator=(SelfCommunicator const&) = delete;
    ~SelfCommunicator() = default;

    [[nodiscard]] int rank() const noexcept { return 0; }
    [[nodiscard]] int size() const noexcept { return 1; }
    [[nodiscard]] Traffic traffic() const noexcept { return traffic_; }

    /// Throws MismatchError when a send and its receive differ in number, size or type, before anything is copied.
    SelfRequest exchange(std::span<Send const> sends, std::span<Receive const> receives);

    [[nodiscard]] Verdict agree(Verdict mine) {
        check_alive();
        mine.rank = 0;  // what transport::joint_verdict says of one
        return mine;
    }

    [[nodiscard]] SelfCommunicator split(int, int) {
        check_alive();
        return {};
    }

    void abort(ErrorCode code, std::string_view reason) noexcept {
        if (failed_ != ErrorCode::none) return;
        failed_ = code == ErrorCode::none ? ErrorCode::user : code;
        reason_ = reason;
    }

private:
    void check_alive() const;

    Traffic traffic_;
    std::string reason_;
    ErrorCode failed_ = ErrorCode::none;
};

// That it is a Communicator is checked in tests/comm/self.test.cpp: the check costs every user of the umbrella 6 % of
// an include. Transports outside the umbrella put the static_assert here.

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/comm/self.ipp>
#endif
