// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/nccl.hpp
/// \brief  Ranks that are GPUs: NcclCommunicator around an ncclComm_t of yours or its own, nccl_from() which makes one.
/// \depends comm/communicator.hpp, comm/collectives.hpp, NCCL 2.18, the CUDA runtime. g++ will do: no kernels. Link
/// reshard::nccl.
///
/// Everything is enqueued on the stream the communicator was given: what it reads must be produced there, or awaited
/// there. What a plan does after its last exchange (a fold, an average) is complete in the order of the stream. Boxes
/// that lie in a row are sent and received in place; others pass through staging memory, packed by strided copies.
/// Values that change on the way do so on the host, which is right and slow, and plans that compute on their own memory
/// (Partial) are refused: comm/nccl.cuh does both by kernels.
///
/// NCCL has no deadline and tells nobody why a rank stopped. So every wait looks at NCCL's asynchronous error, at the
/// stream and at the clock; ranks of one node tell each other what failed, and who has come how far, in shared memory.
/// Ranks of other nodes learn of a failure from NCCL, or by their deadline. A failed communicator has its operations
/// aborted (ncclCommAbort; ncclCommRevoke on one that is yours), so nothing of it runs on the device any more.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/detail/nccl_exchange.hpp>
#include <reshard/core/detail/keep_for_good.hpp>

namespace reshard::inline v0_1 {

/// A new id for make() of a communicator, on one rank; the others must be told. Throws TransportError.
[[nodiscard]] inline ncclUniqueId nccl_unique_id() {
    ncclUniqueId id{};
    detail::nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return id;
}

/// A rank on a GPU. Used by one thread at a time; must be gone before the stream is: its end waits until what others
/// still need of this rank has left it, at most ten seconds or the deadline. NcclCommunicator packs by strided copies.
///
/// What is bound waits for other ranks where NCCL does: until ranks that meet for the first time are connected. With
/// NcclOptions::compare, what moves is enqueued in wait() or test() when it is first started, so one of them must be
/// called; from then on by start(). Starting it throws OutOfMemory, and, with NcclOptions::compare, BufferError for
/// memory that is not of this device. What is split off is on the same stream.
template <class Copies>
class BasicNcclCommunicator : public detail::GroupCommunicator<BasicNcclCommunicator<Copies>> {
    using Base = detail::GroupCommunicator<BasicNcclCommunicator>;
    using Exchange = detail::NcclExchange<Copies>;

public:
    static constexpr std::string_view name = "nccl";
    using Base::Base;

    /// Collective over `comm`, which stays the program's: destroy it after this object and after what was split from
    /// it. After a failure it is revoked, or, by an NCCL before 2.28, aborted, and then gone. No other operation may be
    /// under way on it. If it blocks (ncclConfig_t::blocking), no deadline holds inside NCCL's own calls. Throws
    /// TransportError, MismatchError for options that differ, DeadlineExceeded.
    BasicNcclCommunicator(ncclComm_t comm, cudaStream_t stream, NcclOptions const& options = {})
        : Base(made(team_of(checked(comm), false, stream, options))) {}

    /// Collective: rank `rank` of `ranks` on the current device, with a communicator of its own that does not block.
    /// `id` is nccl_unique_id() of one of them. A rank that never comes is a DeadlineExceeded.
    [[nodiscard]] static BasicNcclCommunicator make(ncclUniqueId const& id, int rank, int ranks, cudaStream_t stream,
                                                    NcclOptions const& options = {}) {
        if (ranks < 1 || rank < 0 || rank >= ranks) {
            errors::raise(ErrorCode::mesh, "reshard::NcclCommunicator: rank ", rank, " of ", ranks,
                          " ranks. Fix: ranks count from 0, and there is one at least.");
        }
        return make(id, rank, ranks, team_of(nullptr, true, stream, options));
    }
    /// nccl_from(), below.
    [[nodiscard]] static BasicNcclCommunicator from(CommunicatorRef host, cudaStream_t stream,
                                                    NcclOptions const& options) {
        ncclUniqueId id{};
        std::shared_ptr<detail::NcclTeam> team;
        agree_on_errors(
            host,
            [&] {
                team = team_of(nullptr, true, stream, options);
                team->prepare(host.size());
                if (host.rank() == 0) id = nccl_unique_id();
            },
            "nccl_from");
        broadcast(host, std::as_writable_bytes(std::span(&id, 1)), 0);
        return make(id, host.rank(), host.size(), std::move(team));
    }

    [[nodiscard]] cudaStream_t stream() const noexcept { return team().stream(); }
    [[nodiscard]] int device() const noexcept { return team().device(); }
    /// How long the host waits for the stream: for whoever puts more on it.
    [[nodiscard]] detail::StreamPatience patience() const noexcept { return team().family()->patience; }
    /// For calls of NCCL's own. Null for a group of one that was split off, and after a failure.
    [[nodiscard]] ncclComm_t native() const noexcept { return team().comm(); }
    /// Bytes of staging memory held on the device.
    [[nodiscard]] Index staging_bytes() const noexcept { return engine().staging_bytes(); }

    /// Where tensors of plans lie, and who works on them: this stream. NcclCommunicator has no kernels, so prepare()
    /// refuses plans that fold, fill or scale.
    [[nodiscard]] MemoryPolicy const* memory() const noexcept { return &memory_; }

    /// For collectives of NCCL's own (comm/nccl_collectives.hpp): enqueues what `start(native, stream)` does and waits
    /// for it like for everything. Collective.
    template <class Start>
    void run_native(std::string_view call, Start&& start) {
        engine().enter(detail::TeamCall::native);
        team().guarded([&] {
            team().settle(start(team().comm(), team().stream()), call);
            team().mark();
            team().await([&] { return team().done(); }, team().everybody());
        });
    }

private:
    [[nodiscard]] static ncclComm_t checked(ncclComm_t comm) {
        if (comm != nullptr) return comm;
        errors::raise(ErrorCode::transport,
                      "reshard::NcclCommunicator: a null ncclComm_t. Fix: pass one that ncclCommInitRank has made.");
    }
    [[nodiscard]] static BasicNcclCommunicator make(ncclUniqueId const& id, int rank, int ranks,
                                                    std::shared_ptr<detail::NcclTeam> team) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        detail::NcclPlace place = std::make_unique<ncclComm_t>();
        return detail::watched(
            [&] {
                detail::nccl_check(ncclCommInitRankConfig(place.get(), ranks, id, rank, &config),
                                   "ncclCommInitRankConfig");
                if (*place == nullptr) {
                    errors::raise(ErrorCode::transport,
                                  "reshard::NcclCommunicator: ncclCommInitRankConfig made no communicator. Fix: "
                                  "NCCL_DEBUG=WARN says why.");
                }
                team->own(*place);
                return BasicNcclCommunicator(made(std::move(team)));
            },
            [&](ErrorCode, std::string_view) noexcept { detail::keep_for_good(std::move(place)); });
    }
    [[nodiscard]] static std::shared_ptr<detail::NcclTeam> team_of(ncclComm_t comm, bool owned, cudaStream_t stream,
                                                                   NcclOptions const& options) {
        auto family = std::make_shared<detail::NcclFamily>();
        family->options = options;
        family->interruption.asked = options.interrupted;
        family->patience.deadline = family->deadline = detail::check_deadline("NcclOptions", options.deadline);
        return std::make_shared<detail::NcclTeam>(comm, owned, stream, std::move(family));
    }
    [[nodiscard]] static std::shared_ptr<Exchange> made(std::shared_ptr<detail::NcclTeam> team) {
        team->set_up();
        return team->guarded([&] { return std::make_shared<Exchange>(team, true); });
    }

    [[nodiscard]] Exchange& engine() const noexcept { return static_cast<Exchange&>(*this->engine_); }
    [[nodiscard]] detail::NcclTeam& team() const noexcept { return *engine().team(); }

    typename Copies::Memory memory_{team().stream(), team().device(),
                                    detail::source_of(team().family()->options.staging), team().family()->deadline};
};

using NcclCommunicator = BasicNcclCommunicator<detail::StridedCopies>;

static_assert(Communicator<NcclCommunicator>);

/// Collective over `host`, a communicator that moves memory of the host: one rank of NCCL for each of its ranks, on the
/// device that is current on each. `host` is needed only while this runs. Throws the same error on every rank if one
/// has no memory, or no device; one that NCCL refuses ends the others at their deadline.
template <Communicator Result = NcclCommunicator>
[[nodiscard]] Result nccl_from(CommunicatorRef host, cudaStream_t stream, NcclOptions const& options = {}) {
    return Result::from(host, stream, options);
}

}  // namespace reshard::inline v0_1
