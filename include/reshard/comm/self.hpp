// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/self.hpp
/// \brief  SelfCommunicator: a group of one. Programs that usually run on many ranks run on one unchanged.
/// \depends comm/communicator.hpp.
#pragma once

#include <reshard/comm/communicator.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// Copies when an exchange starts. Its virtual functions are in it, so that files which do not use it have no table of
/// them.
class SelfEngine final : public transport::Engine {
public:
    void start(transport::BoundTransfers const& transfers) override { copy(transfers); }
    [[nodiscard]] bool advance(bool /*may_block*/) override { return true; }
    void check_alive() const;
    void fail(ErrorCode code, std::string_view reason) {
        if (failed_ != ErrorCode::none) return;
        failed_ = code;
        reason_ = reason;
    }
    [[nodiscard]] Traffic const& traffic() const noexcept { return traffic_; }

private:
    void copy(transport::BoundTransfers const& transfers);

    Traffic traffic_;
    std::string reason_;
    ErrorCode failed_ = ErrorCode::none;
};

}  // namespace detail

/// Rank 0 of 1. Sends meet receives in order.
class SelfCommunicator : public CommunicatorBase<SelfCommunicator> {
public:
    static constexpr std::string_view name = "self";
    using exchange_type = transport::InOrder;
    using CommunicatorBase<SelfCommunicator>::split;

    [[nodiscard]] int rank() const noexcept { return 0; }
    [[nodiscard]] int size() const noexcept { return 1; }
    [[nodiscard]] Traffic traffic() const noexcept { return engine_.traffic(); }

    /// What is bound throws MismatchError when a send and its receive differ in number, size or type, before anything
    /// is copied.
    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return {engine_, transport::bound_transfers("SelfCommunicator", sends, receives, 1)};
    }

    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) {
        engine_.check_alive();
        return transport::joint_verdict(1, [&](int) -> transport::Verdict const& { return mine; });
    }

    [[nodiscard]] SelfCommunicator split(int, int) {
        engine_.check_alive();
        return {};
    }

    void abort(ErrorCode code, std::string_view reason) noexcept {
        engine_.fail(code == ErrorCode::none ? ErrorCode::user : code, reason);
    }

private:
    detail::SelfEngine engine_;
};

// That it is a Communicator is checked in tests/comm/self.test.cpp: the check costs every user of the umbrella 6 % of
// an include. Transports outside the umbrella put the static_assert here.

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/comm/self.ipp>
#endif
