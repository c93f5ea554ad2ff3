// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/device_or_host_memory.cuh
/// \brief  The memory policy where each tensor of a plan lies on the host or on the rank's device. Needs nvcc.
/// \depends comm/detail/{box_pieces,device_copies}.hpp, memory/on_device.cuh.
///
/// What lies on the device is worked on by the kernels of DeviceMemory; what lies on the host, by the functions of
/// HostMemory, as soon as the stream has come to its end. Between the two, the kernels do all the work: in pinned
/// memory that they reach, else in the halves of a window of pinned memory, from where the host copies, or to where,
/// while the kernels work on the other half. Scratch memory is of the device. The bits are the host's, wherever
/// anything lies.
///
/// An operation that takes memory of the host returns when it is done, so that the caller finds it done after run();
/// others return at once, as those of DeviceMemory.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/device_copies.hpp>
#include <reshard/memory/host_memory.hpp>
#include <reshard/memory/on_device.cuh>

namespace reshard::inline v0_1::detail {

class DeviceOrHostMemory final : public MemoryPolicy {
public:
    /// `source` is where scratch memory comes from.
    DeviceOrHostMemory(HostStaging& host_staging, DeviceSource const& source) noexcept
        : device_(host_staging.stream, host_staging.device, source, host_staging.patience.deadline),
          host_staging_(&host_staging) {}

    /// Throws BufferError for memory of another device, and for addresses of this one that are no multiple of
    /// `alignment`; OutOfMemory where there is no window for memory of the host.
    void check(std::string_view what, void const* memory, Index alignment) const override {
        MemoryKind const kind = reachable_kind(host_staging_->transport, host_staging_->device, memory);
        if (kind == MemoryKind::device) return device_.check(what, memory, alignment);
        host_staging_->open();
    }
    /// Throws BufferError for memory that is not the device's.
    void check_scratch(void const* memory) const override {
        if (reachable_kind(host_staging_->transport, host_staging_->device, memory) == MemoryKind::device) return;
        raise(ErrorCode::buffer,
              "reshard::prepare: the workspace is memory of the host, and addends are folded on the device. Fix: give "
              "memory of the rank's device, or leave the workspace to prepare().");
    }
    [[nodiscard]] Workspace allocate(Index bytes) const override { return device_.allocate(bytes); }
    [[nodiscard]] Workspace allocate_on_host(Index bytes) const override { return host_staging_->allocate(bytes); }

    // All of them throw TransportError when CUDA refuses something, DeadlineExceeded.

    /// \pre the sends lie in one tensor, and so do the receives.
    void deliver(std::span<Send const> sends, std::span<Receive const> receives) const override {
        while (!sends.empty() && sends.front().box.elements() == 0) {  // which may lie anywhere
            sends = sends.subspan(1);
            receives = receives.subspan(1);
        }
        if (sends.empty()) return;
        Side const from = side_of(sends.front());
        Side const to = side_of(receives.front());
        if (from != Side::device && to != Side::device) {
            host_staging_->wait();
            return host_memory().policy.deliver(sends, receives);
        }
        if (from == Side::host) return bring(sends, receives);
        if (to == Side::host) {
            return fetch(receives, [&](Piece const& piece) { by_kernel(piece.of(sends), piece.window); });
        }
        device_.deliver(sends, receives);
        if (from == Side::pinned || to == Side::pinned) host_staging_->wait();
    }
    /// \pre the slots are scratch memory.
    void fold(FoldWork const& work) const override {
        if (work.to.box.elements() == 0) return;
        Side const side = side_of(work.to);
        if (side == Side::host) {
            return fetch(std::span(&work.to, 1), [&](Piece const& piece) {
                FoldWork some = work;
                some.slots = piece.of(std::span(&work.slots, 1));
                some.to = piece.window;
                device_.fold(some);
            });
        }
        device_.fold(work);
        if (side == Side::pinned) host_staging_->wait();
    }
    void fill_identity(Reduce op, DType dtype, std::byte* to, StridedBox const& box) const override {
        if (box.elements() == 0) return;
        if (side_of(to, box) == Side::device) return device_.fill_identity(op, dtype, to, box);
        host_staging_->wait();
        host_memory().policy.fill_identity(op, dtype, to, box);
    }
    void scale(DType dtype, std::byte* to, StridedBox const& box, Index multiply, Index divide) const override {
        if (box.elements() == 0) return;
        if (side_of(to, box) == Side::device) return device_.scale(dtype, to, box, multiply, divide);
        host_staging_->wait();
        host_memory().policy.scale(dtype, to, box, multiply, divide);
    }

private:
    enum class Side : std::uint8_t {
        device,
        pinned,  ///< memory of the host in which kernels can work
        host
    };
    [[nodiscard]] Side side_of(void const* memory, StridedBox const& box) const {
        MemoryKind const kind = reachable_kind(host_staging_->transport, host_staging_->device, memory);
        if (kind == MemoryKind::device) return Side::device;
        bool const aligned =
            reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(box.element_bytes) == 0;
        return kind == MemoryKind::pinned && aligned && kernels_reach(memory) ? Side::pinned : Side::host;
    }
    template <class T>
    [[nodiscard]] Side side_of(Transfer<T> const& transfer) const {
        return side_of(transfer.base, transfer.box);
    }

    // ---- Through the window --------------------------------------------------------------------------------------

    /// Where a list of transfers is gone on with.
    struct Place {
        std::size_t transfer = 0;
        Index number = 0;  ///< of its next piece
    };
    /// A part of a transfer of the host, and its place in the window: dense, of the same type.
    struct Piece : Place {
        PieceRule rule;
        Receive window;

        /// The part of the transfers' other side, or of the same.
        template <class T>
        [[nodiscard]] Transfer<T> of(std::span<Transfer<T> const> side) const noexcept {
            return piece_of(side[transfer], rule, number);
        }
    };

    /// Bytes of half a window. Throws OutOfMemory where an element does not fit.
    [[nodiscard]] Index half_bytes(Index element_bytes) const {
        Index const half = host_staging_->memory.size() / 2 / StagingOptions::alignment * StagingOptions::alignment;
        if (element_bytes <= half) return half;
        raise(ErrorCode::out_of_memory, "reshard: the transport '", host_staging_->transport, "' has a window of ",
              host_staging_->memory.size(), " bytes for memory of the host, too little for two elements of ",
              element_bytes, ". Fix: a larger window_bytes in its options.");
    }
    /// Calls body(piece) for what fits into one half of the window, from `at` on; returns the place behind. Empty
    /// transfers have no pieces.
    template <class T, class Body>
    [[nodiscard]] Place fill_half(std::span<Transfer<T> const> host, Place at, int half, Body&& body) const {
        Index used = 0;
        for (; at.transfer < host.size(); at = {at.transfer + 1, 0}) {
            Transfer<T> const& transfer = host[at.transfer];
            StridedBox const& box = transfer.box;
            if (box.elements() == 0) continue;
            Index const room = half_bytes(box.element_bytes);
            PieceRule const rule = piece_rule_of(box, box.element_bytes, room);
            for (; at.number < rule.pieces; ++at.number) {
                Transfer<T> const part = piece_of(transfer, rule, at.number);
                Index const bytes = staging_slot(part.box.payload_bytes());
                if (used + bytes > room) return at;
                body(Piece{at, rule, dense_at(host_staging_->memory.data() + half * room + used, part)});
                used += bytes;
            }
        }
        return at;
    }
    void by_kernel(Send const& from, Receive const& to) const { device_.deliver({&from, 1}, {&to, 1}); }
    /// From the device into memory of the host: launch(piece) has kernels write into the window, the host takes it on.
    template <class Launch>
    void fetch(std::span<Receive const> receives, Launch const& launch) const {
        Place done;
        Place ahead = fill_half(receives, done, 0, launch);
        for (int half = 0; done.transfer < receives.size(); half ^= 1) {
            host_staging_->wait();
            Place const next = fill_half(receives, ahead, half ^ 1, launch);
            static_cast<void>(fill_half(receives, done, half, [&](Piece const& piece) {
                Receive const to = piece.of(receives);
                transport::copy(piece.window.base, piece.window.box, to.base, to.box);
            }));
            done = ahead;
            ahead = next;
        }
    }
    /// From memory of the host to the device: the host copies into the window, from where kernels take it on.
    void bring(std::span<Send const> sends, std::span<Receive const> receives) const {
        host_staging_->wait();  // whoever used the window, or wrote what is sent
        Place at;
        for (int half = 0; at.transfer < sends.size(); half ^= 1) {
            static_cast<void>(fill_half(sends, at, half, [&](Piece const& piece) {
                Send const from = piece.of(sends);
                transport::copy(from.base, from.box, piece.window.base, piece.window.box);
            }));
            host_staging_->wait();  // the other half is the next one
            at = fill_half(sends, at, half, [&](Piece const& piece) {
                by_kernel(dense_at<std::byte const>(piece.window.base, piece.window), piece.of(receives));
            });
        }
        host_staging_->wait();  // the window may go with the communicator, while the plan's work is left to the stream
    }

    DeviceMemory device_;
    HostStaging* host_staging_;
};
}  // namespace reshard::inline v0_1::detail
