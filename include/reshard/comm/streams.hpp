// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/streams.hpp
/// \brief  A whole communicator over streams of bytes (pipes, sockets, ...): its author writes how bytes go and come.
/// \depends comm/communicator.hpp, comm/detail/stream_family.hpp, <chrono>, <memory>.
///
/// Messages, packing, agreement, splits, deadlines and failures are here. An exchange sends every rank of the group one
/// message, if only to say that nothing comes: right for a node or a few, too many messages for thousands of ranks.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/detail/stream_family.hpp>

#include <chrono>  // milliseconds, minutes
#include <memory>  // shared_ptr, unique_ptr

namespace reshard::inline v0 {

namespace detail {

/// One rank's part in a group.
class StreamGroup final : public transport::Engine {
public:
    StreamGroup(std::shared_ptr<StreamFamily> family, std::uint64_t id, std::vector<int> members, int me)
        : family_(std::move(family)), round_(id, std::move(members), me) {}

    void start(transport::BoundTransfers const& transfers) override;
    void wait() override;
    [[nodiscard]] bool test() override;

    [[nodiscard]] Verdict agree(Verdict mine);
    [[nodiscard]] std::unique_ptr<StreamGroup> split(int colour, int key);
    void abort(ErrorCode code, std::string_view reason) noexcept { family_->poison(code, reason, 0, -1, -1); }

    [[nodiscard]] StreamRound const& round() const noexcept { return round_; }
    [[nodiscard]] Traffic const& traffic() const noexcept { return traffic_; }

private:
    void pack();
    void unpack();
    /// Throws, on both ranks, where what `peer` sends is not what this rank expects.
    void compare(int peer);
    void count();
    /// `mine` goes to all; what came of rank r is then round_.side(r).in.
    void gather(StreamCall call, std::span<std::byte const> mine);

    std::shared_ptr<StreamFamily> family_;
    StreamRound round_;
    transport::BoundTransfers transfers_;
    Traffic traffic_;
    std::uint64_t splits_ = 0;
};

}  // namespace detail

/// Ranks that are connected by streams of bytes.
class StreamCommunicator : public CommunicatorBase<StreamCommunicator> {
public:
    static constexpr std::string_view name = "streams";
    using exchange_type = transport::InOrder;
    using CommunicatorBase<StreamCommunicator>::split;

    /// `deadline`: how long a wait may last in which no byte moves.
    explicit StreamCommunicator(std::unique_ptr<transport::Streams> streams,
                                std::chrono::milliseconds deadline = std::chrono::minutes(5));

    [[nodiscard]] int rank() const noexcept { return group_->round().me(); }
    [[nodiscard]] int size() const noexcept { return group_->round().size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return group_->traffic(); }
    [[nodiscard]] exchange_type bind(std::span<Send const> sends, std::span<Receive const> receives) {
        return {*group_, transport::bound_transfers("StreamCommunicator", sends, receives, size())};
    }
    [[nodiscard]] Verdict agree(Verdict mine) { return group_->agree(std::move(mine)); }
    [[nodiscard]] StreamCommunicator split(int colour, int key) {
        return StreamCommunicator(group_->split(colour, key));
    }
    void abort(ErrorCode code, std::string_view reason) noexcept { group_->abort(code, reason); }

private:
    explicit StreamCommunicator(std::unique_ptr<detail::StreamGroup> group) noexcept : group_(std::move(group)) {}

    std::unique_ptr<detail::StreamGroup> group_;
};

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/comm/streams.ipp>
#endif
