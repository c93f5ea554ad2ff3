// SPDX-License-Identifier: Apache-2.0
// How comm/self.hpp is done.
#pragma once

#include <reshard/comm/self.hpp>
#include <reshard/memory/copy.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE void detail::SelfEngine::copy(transport::BoundTransfers const& transfers) {
    check_alive();
    std::span<transport::Send const> const sends = transfers.sends;
    std::span<transport::Receive const> const receives = transfers.receives;
    if (std::string text = transport::mismatch_text(0, sends, 0, receives); !text.empty()) {
        fail(ErrorCode::mismatch, text);
        raise(ErrorCode::mismatch, std::move(text));
    }
    CopyHint const hint = hint_for(transfers.send_bytes);
    for (std::size_t i = 0; i < sends.size(); ++i) deliver(sends[i], receives[i], hint);
    traffic_.bytes_local += transfers.send_bytes;
}

RESHARD_INLINE void detail::SelfEngine::check_alive() const {
    if (failed_ == ErrorCode::none) return;
    raise(ErrorCode::peer_failed, "reshard::SelfCommunicator: rank 0 failed earlier: ", reason_,
          " Fix: make a new communicator.");
}

}  // namespace reshard::inline v0_1
