// SPDX-License-Identifier: Apache-2.0
// How comm/self.hpp is done.
#pragma once

#include <reshard/comm/self.hpp>
#include <reshard/memory/deliver.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE void detail::SelfEngine::start(transport::BoundTransfers const& transfers) {
    check_alive();
    std::span<Send const> const sends = transfers.sends;
    std::span<Receive const> const receives = transfers.receives;
    for (std::size_t i = 0; i < larger(sends.size(), receives.size()); ++i) {
        Send const* const send = i < sends.size() ? &sends[i] : nullptr;
        Receive const* const receive = i < receives.size() ? &receives[i] : nullptr;
        if (send == nullptr || receive == nullptr || !transport::same_extents(*send, *receive)) {
            failed_ = ErrorCode::mismatch;
            reason_ = transport::mismatch_text(0, send, 0, receive, static_cast<int>(i));
            raise(failed_, reason_);
        }
    }
    CopyHint const hint = transfers.send_bytes >= streaming_payload_bytes ? CopyHint::streaming : CopyHint::cached;
    for (std::size_t i = 0; i < sends.size(); ++i) deliver(sends[i], receives[i], hint);
    traffic_.bytes_local += transfers.send_bytes;
}

RESHARD_INLINE void detail::SelfEngine::check_alive() const {
    if (failed_ == ErrorCode::none) return;
    raise(ErrorCode::peer_failed,
          concat("reshard::SelfCommunicator: rank 0 failed earlier: ", reason_, " Fix: make a new communicator."));
}

}  // namespace reshard::inline v0
