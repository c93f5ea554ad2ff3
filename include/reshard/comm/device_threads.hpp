// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/device_threads.hpp
/// \brief  Ranks that are threads of this process, with tensors on devices: DeviceThreadCommunicator.
/// \depends comm/threads.hpp, the CUDA runtime. g++ will do: no kernels. Link reshard::device.
///
///     run_on_threads(4, [](ThreadCommunicator& host) {
///         cudaSetDevice(host.rank() % gpus);                             // ranks may share a device
///         DeviceThreadCommunicator comm{std::move(host), stream};        // everything in the order of the stream
///         prepare(plan(rows, columns), comm, a, b).run();
///     });
///
/// Destinations fetch from the peer's memory, on the same device or on another one: each byte moves once. Memory of the
/// host is legal on either side; where it is pageable or strided, and where values change on the way, transfers pass
/// through a window of pinned memory, which is right, and slow. comm/device_threads.cuh copies by kernels.
#pragma once

#include <reshard/comm/detail/device_thread_exchange.hpp>
#include <reshard/comm/threads.hpp>

namespace reshard::inline v0 {

/// A rank among threads, on a device. Used by its own thread only; must be gone before the stream is.
/// DeviceThreadCommunicator copies by strided copies of CUDA.
template <class Copies>
class BasicDeviceThreadCommunicator : public CommunicatorBase<BasicDeviceThreadCommunicator<Copies>> {
    using Exchange = detail::DeviceThreadExchange<Copies>;

public:
    static constexpr std::string_view name = "device_threads";
    using exchange_type = transport::InOrder;
    using CommunicatorBase<BasicDeviceThreadCommunicator>::split;

    /// On the current device, whose stream `stream` is. What exchanges read must be produced in that stream, or awaited
    /// there. Every rank of `host` does this. Not collective: throws OutOfMemory and TransportError, and tells the
    /// others.
    BasicDeviceThreadCommunicator(ThreadCommunicator host, cudaStream_t stream, DeviceThreadOptions const& options = {})
        : BasicDeviceThreadCommunicator(std::move(host), telling(host, [&] {
                                            return std::make_shared<detail::DeviceWindow>(
                                                stream, detail::current_device(), options);
                                        })) {}

    [[nodiscard]] int rank() const noexcept { return host_.rank(); }
    [[nodiscard]] int size() const noexcept { return host_.size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return host_.traffic() - before_; }
    [[nodiscard]] cudaStream_t stream() const noexcept { return exchange_->window().stream; }
    [[nodiscard]] int device() const noexcept { return exchange_->window().device; }
    /// How long the host waits for the stream: for whoever puts more on it.
    [[nodiscard]] detail::StreamPatience patience() const noexcept { return exchange_->window().patience; }
    /// Bytes of pinned memory held, together with what was split from the same communicator.
    [[nodiscard]] Index staging_bytes() const noexcept { return exchange_->window().memory.size(); }

    /// What is bound does its part in wait() or test(), so one of them must be called; both leave the host with
    /// everything done, not only enqueued. Its start never waits for other ranks; it throws TransportError for what
    /// CUDA refuses, BufferError for memory of another device.
    exchange_type bind(std::span<Send const> sends, std::span<Receive const> receives) {
        return {*exchange_, transport::bound_transfers("DeviceThreadCommunicator", sends, receives, size())};
    }

    [[nodiscard]] Verdict agree(Verdict const& mine) {
        exchange_->finish();
        return host_.agree(mine);
    }

    /// Collective. Ranks of one colour >= 0, ordered by (key, rank), on the same stream and with the same window. The
    /// new communicator shares the fate of this one: poison in one is poison in both.
    [[nodiscard]] BasicDeviceThreadCommunicator split(int colour, int key) {
        exchange_->finish();
        return {host_.split(colour, key), exchange_->shared_window()};
    }

    /// Throws BufferError for memory of another device.
    void check_memory(void const* memory) const { static_cast<void>(detail::reachable_kind(name, device(), memory)); }

    /// Where tensors of plans lie, each on the device or on the host, and who works on them: this stream.
    /// DeviceThreadCommunicator has no kernels, so prepare() refuses plans that fold, fill or scale.
    [[nodiscard]] MemoryPolicy const* memory() const noexcept { return &memory_; }

    void abort(ErrorCode code, std::string_view reason) noexcept { host_.abort(code, reason); }

private:
    BasicDeviceThreadCommunicator(ThreadCommunicator&& host, std::shared_ptr<detail::DeviceWindow> const& window)
        : host_(std::move(host)), before_(host_.traffic()), exchange_(telling(host_, [&, this] {
              return std::make_unique<Exchange>(detail::ThreadAccess::engine(host_).team(), host_.rank(), window);
          })) {}

    /// Whoever cannot go on is not waited for.
    template <class Make>
    [[nodiscard]] static auto telling(ThreadCommunicator& host, Make&& make) {
        return detail::watched(make, [&](ErrorCode code, std::string_view why) noexcept { host.abort(code, why); });
    }

    ThreadCommunicator host_;
    Traffic before_;  ///< what the plain communicator had moved
    std::unique_ptr<Exchange> exchange_;
    typename Copies::MixedMemory memory_{exchange_->window(), detail::source_of(exchange_->window().options.staging)};
};

using DeviceThreadCommunicator = BasicDeviceThreadCommunicator<detail::StridedCopies>;

static_assert(Communicator<DeviceThreadCommunicator>);

}  // namespace reshard::inline v0
