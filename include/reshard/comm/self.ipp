// SPDX-License-Identifier: Apache-2.0
// How comm/self.hpp is done.
#pragma once

#include <reshard/comm/self.hpp>
#include <reshard/memory/deliver.hpp>

namespace reshard::inline v0 {

namespace detail {

template <class Byte>
[[nodiscard]] Transfer<Byte> const& checked_peer(Transfer<Byte> const& transfer) {
    if (transfer.peer != 0) {
        raise(ErrorCode::transport, concat("reshard::SelfCommunicator: a transfer names rank ", transfer.peer,
                                           " of a group of one. Fix: plan for the ranks that exist."));
    }
    return transfer;
}

}  // namespace detail

RESHARD_INLINE SelfRequest SelfCommunicator::exchange(std::span<Send const> sends, std::span<Receive const> receives) {
    check_alive();
    Index bytes = 0;
    for (std::size_t i = 0; i < larger(sends.size(), receives.size()); ++i) {
        Send const* const send = i < sends.size() ? &detail::checked_peer(sends[i]) : nullptr;
        Receive const* const receive = i < receives.size() ? &detail::checked_peer(receives[i]) : nullptr;
        if (send == nullptr || receive == nullptr || !transport::same_extents(*send, *receive)) {
            failed_ = ErrorCode::mismatch;
            reason_ = transport::mismatch_text(0, send, 0, receive, static_cast<int>(i));
            raise(failed_, reason_);
        }
        bytes += send->payload_bytes();
    }
    CopyHint const hint = bytes >= streaming_payload_bytes ? CopyHint::streaming : CopyHint::cached;
    for (std::size_t i = 0; i < sends.size(); ++i) deliver(sends[i], receives[i], hint);
    traffic_.bytes_local += bytes;
    return {};
}

RESHARD_INLINE void SelfCommunicator::check_alive() const {
    if (failed_ == ErrorCode::none) return;
    raise(ErrorCode::peer_failed,
          concat("reshard::SelfCommunicator: rank 0 failed earlier: ", reason_, " Fix: make a new communicator."));
}

}  // namespace reshard::inline v0
