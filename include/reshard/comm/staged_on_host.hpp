// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/staged_on_host.hpp
/// \brief  StagedOnHost<C>: memory of devices travels over a transport of the host. Memory as a policy.
/// \depends comm/policy.hpp, comm/detail/staged_on_host_exchange.hpp, the CUDA runtime. Link reshard::device.
///
///     auto comm = compose<StagedOnHost>(MpiCommunicator{MPI_COMM_WORLD}, StagedOnHostOptions{stream});
///
/// for an MPI that knows nothing of CUDA, and for threads that other means do not suit. Tensors of devices pass through
/// a bounded window of pinned memory, in as many rounds as that takes; tensors of the host go as they would without.
/// What stays with a rank stays on its device. Values change on the host. comm/staged_on_host.cuh packs by kernels, and
/// computes.
#pragma once

#include <reshard/comm/detail/staged_on_host_exchange.hpp>
#include <reshard/comm/policy.hpp>

#include <memory>  // unique_ptr

namespace reshard::inline v0_1 {

/// Every rank of `C` is one of these. Memory of the host is ready when an exchange is started; memory of the device
/// when the stream has come to what was enqueued before. StagedOnHost copies by strided copies of CUDA.
template <class C, class Copies>
class BasicStagedOnHost : public detail::Around<BasicStagedOnHost<C, Copies>, C> {
    static_assert(Communicator<C>, "reshard::StagedOnHost: wraps a communicator. Fix: see the concept Communicator.");
    using Base = detail::Around<BasicStagedOnHost, C>;
    using Exchange = detail::StagedOnHostExchange<C, Copies>;

public:
    using Base::name;
    using exchange_type = transport::InOrder;
    using Base::split;

    /// On the current device, whose stream options.stream is. Throws TransportError, and tells the others.
    BasicStagedOnHost(C inner, StagedOnHostOptions const& options)
        : exchange_(detail::watched([&] { return std::make_unique<Exchange>(std::move(inner), options); },
                                    [&](ErrorCode code, std::string_view why) noexcept { inner.abort(code, why); })) {}

    [[nodiscard]] C& inner() const noexcept { return exchange_->inner(); }
    /// Without what ranks tell each other to count rounds; a transfer that goes in rounds counts once for each.
    [[nodiscard]] Traffic traffic() const noexcept { return exchange_->traffic(); }
    [[nodiscard]] cudaStream_t stream() const noexcept { return exchange_->options().stream; }
    [[nodiscard]] int device() const noexcept { return exchange_->device(); }
    /// How long the host waits for the stream: for whoever puts more on it.
    [[nodiscard]] detail::StreamPatience patience() const noexcept { return exchange_->host_staging().patience; }
    /// Bytes of pinned memory held.
    [[nodiscard]] Index staging_bytes() const noexcept { return exchange_->staging_bytes(); }

    /// What is bound goes in rounds: it does its part in wait() or test(), so one of them must be called; both leave
    /// the host with everything done, not only enqueued. Starting it throws TransportError for what CUDA refuses,
    /// BufferError for memory of another device; OutOfMemory comes from there or from wait(). The others are told.
    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return {*exchange_, transport::bound_transfers("StagedOnHost", sends, receives, this->size())};
    }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) {
        exchange_->finish();
        return Base::agree(std::move(mine));
    }
    [[nodiscard]] BasicStagedOnHost split(int colour, int key) {
        exchange_->finish();
        detail::CurrentDevice const here(device());
        StagedOnHostOptions options = exchange_->options();
        options.staging.reserve_bytes = 0;  // what a part needs is not what the whole needed
        BasicStagedOnHost part(inner().split(colour, key), options);
        part.exchange_->host_staging().patience = exchange_->host_staging().patience;  // one stream, one device
        return part;
    }
    /// Throws BufferError for memory of another device.
    void check_memory(void const* memory) const { static_cast<void>(detail::reachable_kind(name, device(), memory)); }
    /// Where tensors of plans lie, each on the device or on the host, and who works on them: this stream. StagedOnHost
    /// has no kernels, so prepare() refuses plans that fold, fill or scale.
    [[nodiscard]] MemoryPolicy const* memory() const noexcept { return &memory_; }

private:
    std::unique_ptr<Exchange> exchange_;
    typename Copies::MixedMemory memory_{exchange_->host_staging(), {}};
};

template <class C>
using StagedOnHost = BasicStagedOnHost<C, detail::StridedCopies>;

template <>
inline constexpr PolicyKind policy_kind<StagedOnHost> = PolicyKind::memory;

}  // namespace reshard::inline v0_1
