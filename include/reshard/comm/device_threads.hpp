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

namespace reshard::inline v0_1 {

/// A rank among threads, on a device. Used by its own thread only; must be gone before the stream is.
/// DeviceThreadCommunicator copies by strided copies of CUDA.
///
/// What is bound does its part in wait() or test(), so one of them must be called; both leave the host with everything
/// done, not only enqueued. Its start never waits for other ranks; it throws TransportError for what CUDA refuses,
/// BufferError for memory of another device. What is split off is on the same stream and has the same window.
template <class Copies>
class BasicDeviceThreadCommunicator : public detail::GroupCommunicator<BasicDeviceThreadCommunicator<Copies>> {
    using Base = detail::GroupCommunicator<BasicDeviceThreadCommunicator>;
    using Exchange = detail::DeviceThreadExchange<Copies>;

public:
    static constexpr std::string_view name = "device_threads";
    using Base::Base;

    /// On the current device, whose stream `stream` is. What exchanges read must be produced in that stream, or awaited
    /// there. Every rank of `host` does this. Not collective: throws OutOfMemory and TransportError, and tells the
    /// others.
    BasicDeviceThreadCommunicator(ThreadCommunicator host, cudaStream_t stream, DeviceThreadOptions const& options = {})
        : Base(Exchange::make(engine_of(host), [&] {
              return std::make_shared<detail::DeviceWindow>(stream, detail::current_device(), options);
          })) {}

    [[nodiscard]] cudaStream_t stream() const noexcept { return window().stream; }
    [[nodiscard]] int device() const noexcept { return window().device; }
    /// How long the host waits for the stream: for whoever puts more on it.
    [[nodiscard]] detail::StreamPatience patience() const noexcept { return window().patience; }
    /// Bytes of pinned memory held, together with what was split from the same communicator.
    [[nodiscard]] Index staging_bytes() const noexcept { return window().memory.size(); }

    /// Where tensors of plans lie, each on the device or on the host, and who works on them: this stream.
    /// DeviceThreadCommunicator has no kernels, so prepare() refuses plans that fold, fill or scale.
    [[nodiscard]] MemoryPolicy const* memory() const noexcept { return &memory_; }

private:
    [[nodiscard]] detail::DeviceWindow& window() const noexcept {
        return static_cast<Exchange&>(*this->engine_).window();
    }

    typename Copies::MixedMemory memory_{window(), detail::source_of(window().options.staging)};
};

using DeviceThreadCommunicator = BasicDeviceThreadCommunicator<detail::StridedCopies>;

static_assert(Communicator<DeviceThreadCommunicator>);

}  // namespace reshard::inline v0_1
