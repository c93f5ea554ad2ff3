// SPDX-License-Identifier: Apache-2.0
// How reshard/comm/detail/device_thread_exchange.hpp is done.
#pragma once

#include <reshard/comm/detail/device_thread_exchange.hpp>

namespace reshard::inline v0::detail {

template <class Copies>
bool DeviceThreadExchange<Copies>::can_reach(int device) {
    if (device == window_->device) return true;
    for (auto const& [known, can] : peers_)
        if (known == device) return can;
    int can = 0;
    if (window_->options.peer_access) {
        cuda_check(cudaDeviceCanAccessPeer(&can, window_->device, device), "cudaDeviceCanAccessPeer");
        if (can != 0) {
            cudaError_t const code = cudaDeviceEnablePeerAccess(device, 0);
            if (code != cudaSuccess) static_cast<void>(cudaGetLastError());  // or the next launch would report it
            if (code != cudaErrorPeerAccessAlreadyEnabled) cuda_check(code, "cudaDeviceEnablePeerAccess");
            open_pool(device);
        }
    }
    peers_.emplace_back(device, can != 0);
    return can != 0;
}

template <class Copies>
void DeviceThreadExchange<Copies>::open_pool(int device) const {
    cudaMemPool_t pool = nullptr;
    if (cudaDeviceGetMemPool(&pool, device) != cudaSuccess) {  // a device without pools gives no such memory
        static_cast<void>(cudaGetLastError());
        return;
    }
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = window_->device;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    cuda_check(cudaMemPoolSetAccess(pool, &access, 1), "cudaMemPoolSetAccess");
}

template <class Copies>
PieceRule DeviceThreadExchange<Copies>::pieces_of(Move const& move) const {
    Index const bytes =
        (move.from_device ? move.send.box.element_bytes : 0) + (move.to_device ? move.receive.box.element_bytes : 0);
    Index const most = window_->memory.size() - 2 * StagingOptions::alignment;
    if (bytes > most) {
        raise(ErrorCode::out_of_memory,
              concat("reshard::DeviceThreadCommunicator: an element takes ", bytes,
                     " bytes on its way through pinned memory, and the window has ", window_->memory.size(),
                     ". Fix: a larger DeviceThreadOptions::window_bytes, or memory that lies in a row and is "
                     "pinned."));
    }
    return piece_rule_of(move.receive.box, bytes, most);
}

template <class Copies>
void DeviceThreadExchange<Copies>::make_room() {
    Index copies = 0;
    Index batches = 1;
    Index jobs = 0;
    for_each_transfer(
        [&](Move const& move) {
            if (move.route == Route::copied) ++copies;
            if (move.route == Route::by_host) ++jobs;
            if (move.route != Route::windowed) return;
            Index const pieces = pieces_of(move).pieces;
            jobs += pieces;
            copies += 2 * pieces;
            batches += 2 * pieces;
        },
        [](int) {});
    jobs_.reserve(jobs);
    if (copies_.reserve(copies, batches)) return;
    raise(ErrorCode::out_of_memory, concat("reshard::DeviceThreadCommunicator: no memory to list ", copies,
                                           " boxes. Fix: give DeviceThreadOptions a larger source."));
}

template <class Copies>
void DeviceThreadExchange<Copies>::windowed(Move const& move) {
    PieceRule const rule = pieces_of(move);
    for (Index n = 0; n < rule.pieces; ++n) {
        Send from = piece_of(move.send, rule, n);
        Receive const to = piece_of(move.receive, rule, n);
        std::byte* at = window_->memory.data();
        if (move.from_device) {
            through(from, dense_at(at, from), move.reaches);
            from = dense_at<std::byte const>(at, from);
            at += staging_slot(from.box.payload_bytes());
        }
        jobs_.add(from, move.to_device ? dense_at(at, to) : to, window_->stream);
        if (move.to_device) through(dense_at<std::byte const>(at, to), to, true);
    }
}

template <class Copies>
void DeviceThreadExchange<Copies>::leave() noexcept {
    stage_ = Stage::idle;
    auto const since = std::chrono::steady_clock::now();
    for (int r = 0; r < team_->size(); ++r) {
        if (r != rank_ && transfers_with(team_->seat(rank_).sends, r).empty()) continue;
        auto const* const place = static_cast<DevicePlace const*>(team_->seat(r).shown.load(std::memory_order_acquire));
        if (place == nullptr || !place->fetching.load(std::memory_order_acquire)) continue;
        stuck_ = outlasts(place->fetched, since, deadline());
        if (stuck_) return;
    }
}

}  // namespace reshard::inline v0::detail
