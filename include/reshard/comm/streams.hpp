// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/streams.hpp
/// \brief  A whole communicator over streams of bytes (pipes, sockets, ...): its author writes how bytes go and come.
/// \depends comm/communicator.hpp, comm/detail/failure_record.hpp, <chrono>, <map>, <memory>, <vector>.
///
/// Messages, packing, agreement, splits, deadlines and failures are here. An exchange sends every rank of the group one
/// message, if only to say that nothing comes: right for a node or a few, too many messages for thousands of ranks.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/detail/failure_record.hpp>

#include <chrono>  // milliseconds, minutes
#include <map>
#include <memory>  // shared_ptr, unique_ptr
#include <span>
#include <string>
#include <vector>

namespace reshard::inline v0 {

namespace transport {

/// Between two ranks are two streams each way: what is said when something fails must not wait behind data.
enum class StreamChannel { data, control };

/// What the author of a transport over streams writes. Bytes arrive in the order they were written, once, or the stream
/// is closed. Called by one thread.
class Streams {
public:
    static constexpr Index closed = -1;

    Streams() = default;
    Streams(Streams const&) = delete;
    Streams& operator=(Streams const&) = delete;
    virtual ~Streams();

    [[nodiscard]] virtual int rank() const noexcept = 0;
    [[nodiscard]] virtual int size() const noexcept = 0;
    /// As many bytes as go right now, and how many those were; 0: none yet; `closed`: the peer reads no more. Never
    /// blocks, and no signal ends the process (MSG_NOSIGNAL). `peer` is another rank.
    [[nodiscard]] virtual Index write_some(int peer, StreamChannel channel, std::span<std::byte const> bytes) = 0;
    /// As many bytes as are there, at most as many as `bytes` takes; `closed`: all has been read and nothing comes.
    [[nodiscard]] virtual Index read_some(int peer, StreamChannel channel, std::span<std::byte> bytes) = 0;
    /// Nothing moves at the moment: rests a little. By default for some 50 microseconds.
    virtual void idle();
};

}  // namespace transport

namespace detail {

enum class StreamCall : std::uint64_t { exchange, agree, split };
[[nodiscard]] std::string_view name(StreamCall call) noexcept;

/// In front of every message.
struct StreamHead {
    std::uint64_t group = 0;
    StreamCall call = StreamCall::exchange;
    std::uint64_t bytes = 0;  ///< after the head
};

/// One call of a group: a message to every other rank, and one from each.
class StreamRound {
public:
    struct Side {
        std::vector<std::byte> out;  ///< a head and what follows it
        std::vector<std::byte> in;   ///< without its head
        std::size_t written = 0;
        StreamHead head;  ///< of what arrived
        bool arrived = false;
    };

    StreamRound(std::uint64_t id, std::vector<int> members, int me)
        : id_(id), members_(std::move(members)), sides_(members_.size()), me_(me) {}

    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
    [[nodiscard]] int me() const noexcept { return me_; }
    [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
    /// The number of rank r of the group in the outermost communicator.
    [[nodiscard]] int outermost(int r) const noexcept { return members_[static_cast<std::size_t>(r)]; }
    [[nodiscard]] Side& side(int r) noexcept { return sides_[static_cast<std::size_t>(r)]; }
    [[nodiscard]] StreamCall call() const noexcept { return call_; }

    void begin(StreamCall call) noexcept;
    /// Where the body of the message to rank r is written.
    [[nodiscard]] std::span<std::byte> message_to(int r, std::size_t bytes);
    [[nodiscard]] Side* waiting_for(int outermost) noexcept;
    [[nodiscard]] bool complete() const noexcept;

private:
    std::uint64_t id_;
    std::vector<int> members_;
    std::vector<Side> sides_;
    int me_;
    StreamCall call_ = StreamCall::exchange;
};

class StreamFamily {
public:
    StreamFamily(std::unique_ptr<transport::Streams> streams, std::chrono::milliseconds deadline);

    [[nodiscard]] transport::Streams const& streams() const noexcept { return *streams_; }
    /// Throws what has poisoned the family, as a rank of that round hears it.
    void check(StreamRound const& round);
    void begin(StreamRound& round);
    /// Whether the round is complete; it is forgotten then. Throws when it cannot be.
    [[nodiscard]] bool advance(StreamRound& round, bool may_block);
    void poison(ErrorCode code, std::string_view reason, std::uint64_t group, int first, int second) noexcept;
    /// The same, and throws it.
    [[noreturn]] void fail(ErrorCode code, std::string const& reason, StreamRound const& round, int first, int second);

private:
    struct Message {
        StreamHead head;
        std::vector<std::byte> bytes;
    };
    struct Peer {
        StreamHead head;
        std::size_t head_read = 0;
        bool in_body = false;
        StreamRound::Side* side = nullptr;  ///< of the message in hand; null: nobody here has made that call yet
        std::size_t body_read = 0;
        Message early;
        StreamRound const* writer = nullptr;  ///< a message of that round has gone in part
        FailureRecord record;                 ///< what is said on the control channel, once
        std::size_t record_read = 0;
        bool closed = false;
    };

    [[nodiscard]] bool failed() const noexcept { return failure_.code != 0; }
    [[nodiscard]] Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] bool move_all(StreamRound& waiting);
    [[nodiscard]] bool write(StreamRound& round);
    [[nodiscard]] bool read(int rank, StreamRound const& waiting);
    void take_early(StreamRound& round);
    void hear() noexcept;
    /// All others of the failure, once: by who failed, and by everyone who heard.
    void tell() noexcept;

    std::unique_ptr<transport::Streams> streams_;
    std::chrono::milliseconds deadline_;
    std::vector<Peer> peers_;
    std::vector<StreamRound*> under_way_;
    std::map<std::pair<std::uint64_t, int>, Message> early_;  ///< by group and rank: at most one call ahead
    FailureRecord failure_;
    bool told_ = false;  ///< this rank has thrown the error itself
};

/// One rank's part in a group.
class StreamGroup final : public transport::Engine {
public:
    StreamGroup(std::shared_ptr<StreamFamily> family, std::uint64_t id, std::vector<int> members, int me)
        : family_(std::move(family)), round_(id, std::move(members), me) {}

    void start(transport::BoundTransfers const& transfers) override;
    [[nodiscard]] bool advance(bool may_block) override;

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
