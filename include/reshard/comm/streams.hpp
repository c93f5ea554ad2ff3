// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/streams.hpp
/// \brief  A whole communicator over streams of bytes (pipes, sockets, ...): its author writes how bytes go and come.
/// \depends comm/detail/{failure_record,group_engine}.hpp, <chrono>, <memory>, <vector>.
///
/// Messages, packing, agreement, splits, deadlines and failures are here. An exchange sends every rank of the group one
/// message, if only to say that nothing comes: right for a node or a few, too many messages for thousands of ranks.
#pragma once

#include <reshard/comm/detail/failure_record.hpp>
#include <reshard/comm/detail/group_engine.hpp>
#include <reshard/core/detail/watched.hpp>

#include <chrono>  // milliseconds, minutes
#include <memory>  // shared_ptr, unique_ptr
#include <span>
#include <vector>

namespace reshard::inline v0_1 {

namespace transport {

/// Between two ranks are two streams each way: what is said when something fails must not wait behind data.
enum class StreamChannel { data, control };
/// What a control stream takes each way while nobody reads it: a rank that fails says so once, in so many bytes, and
/// may then end; who is busy elsewhere reads it later. Where fewer go within 100 ms, that rank hears that a peer has
/// ended, and not why. Pipes and sockets of the system have room for more.
inline constexpr Index control_bytes = sizeof(detail::FailureRecord);

/// What the author of a transport over streams writes. Bytes arrive in the order they were written, once, or the stream
/// is closed; else a rank that sees it throws TransportError. Called by one thread.
class Streams {
public:
    static constexpr Index closed = -1;

    Streams& operator=(Streams&&) = delete;
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

/// Ends every head and every message: where bytes were lost, or came twice, something else is there.
inline constexpr std::uint64_t stream_mark = 0x9d4b'e1f7'3c86'a52dU;
/// That of all ranks. The first message between two is of this group, and says which version they have instead.
inline constexpr std::uint64_t outermost_group = 1;

/// In front of every message. What is known beforehand comes last: where it is right, so is `bytes`.
struct StreamHead {
    std::uint64_t group = 0;
    StreamCall call = StreamCall::exchange;
    std::uint64_t bytes = 0;   ///< between the head and the mark at the end
    std::uint64_t number = 0;  ///< of all from the one to the other, from 1
    int from = 0;              ///< in the outermost communicator, like `to`
    int to = 0;
    std::uint64_t mark = stream_mark;
};
struct StreamMessage {
    StreamHead head;
    std::vector<std::byte> body;
};

/// What a rank has for another one, and from it.
struct StreamPeer {
    std::vector<std::byte> out;  ///< messages, of which `listed - written` bytes at the end have not gone yet
    std::uint64_t listed = 0;
    std::uint64_t written = 0;
    std::uint64_t sent = 0;  ///< messages
    std::uint64_t came = 0;
    StreamMessage reading;
    std::size_t head_read = 0;
    std::size_t body_read = 0;
    std::vector<StreamMessage> inbox;  ///< in the order they came; some are of calls that nobody here has made yet
    std::vector<std::byte> spare;      ///< memory of a message that was taken
    FailureRecord record;              ///< what is said on the control channel, once
    std::size_t record_read = 0;
    bool closed = false;

    /// The next message of a group, or null.
    [[nodiscard]] StreamMessage* next_of(std::uint64_t group) noexcept;
};

/// What all groups of a rank share: the streams, and the first failure.
class StreamFamily : public TeamFamily {
public:
    StreamFamily(std::unique_ptr<transport::Streams> streams, std::chrono::milliseconds deadline,
                 bool (*interrupted)());

    [[nodiscard]] transport::Streams& streams() const noexcept { return *streams_; }
    [[nodiscard]] StreamPeer& peer(int other) noexcept { return peers_[as_size(other)]; }
    /// Where the body of a message to rank `other` is written, before the next one is asked for.
    [[nodiscard]] std::span<std::byte> message_to(int other, StreamHead head);
    /// Writes and reads what goes right now; this rank waits in a call of group `waiting`. Whether anything moved.
    bool move(std::uint64_t waiting);
    /// Whether anybody has failed.
    void hear() noexcept;
    /// `who` has failed, by its number in the outermost communicator.
    void poison(ErrorCode code, int who, std::string_view reason, std::uint64_t group, int first, int second) noexcept;
    /// What may also be wrong where no message of `other` comes: a transport that loses some; empty: nothing.
    [[nodiscard]] std::string hint(int other);

private:
    /// Throws where the first word of `other` is that of another version.
    void compare_versions(int other);
    /// Throws unless `head` is that of the next message of `other`, and `mark` stands at the end.
    void expect(int other, StreamHead const& head, std::uint64_t mark);
    [[nodiscard]] bool write(int other);
    [[nodiscard]] bool read(int other, std::uint64_t waiting);
    /// All others of the failure, once: by who failed, and by everyone who heard.
    void tell() noexcept;

    std::unique_ptr<transport::Streams> streams_;
    std::vector<StreamPeer> peers_;
};

/// One rank's part in a group. In each call it sends a message to every other rank, and gets one from each.
class StreamGroup final : public GroupEngine {
public:
    /// `members[r]` is the number of rank r in the outermost communicator.
    StreamGroup(std::shared_ptr<StreamFamily> family, std::uint64_t id, std::vector<int> members, int me)
        : GroupEngine("StreamCommunicator", me, static_cast<int>(members.size())),
          family_(std::move(family)),
          id_(id),
          members_(std::move(members)),
          listed_(members_.size()),
          in_(members_.size()) {}

    void start(transport::BoundTransfers const& transfers) override;
    [[nodiscard]] bool advance(bool may_block) override;
    [[nodiscard]] Verdict agree(Verdict const& mine) override;
    [[nodiscard]] std::shared_ptr<GroupEngine> split(int colour, int key) override;
    void abort(ErrorCode code, std::string_view reason) noexcept override {
        family_->poison(code, family_->rank, reason, 0, -1, -1);
    }

private:
    /// Whatever it throws ends the group: peers would take what comes next for what did not come.
    template <class Body>
    decltype(auto) guarded(Body&& body) {
        return or_abort(*this, body);
    }
    [[nodiscard]] int outermost(int r) const noexcept { return members_[as_size(r)]; }
    [[nodiscard]] StreamPeer& peer(int r) noexcept { return family_->peer(outermost(r)); }
    [[nodiscard]] std::vector<std::byte>& in(int r) noexcept { return in_[as_size(r)]; }
    /// Throws what has poisoned the family, as this rank hears it: `waiting` for others, or when it begins a call.
    void check(bool waiting, int late = -1);
    void begin() {
        family_->hear();
        check(false);
    }
    /// Poisons it, unless somebody has failed before, and throws.
    [[noreturn]] void fail(ErrorCode code, std::string const& reason, int first, int second, int late = -1);
    [[nodiscard]] std::span<std::byte> message_to(int r, std::size_t bytes);
    /// Whether all messages of this call have gone and come; then they are in in(). Throws when they cannot; where
    /// somebody has failed, what is on its way has so much longer to come.
    [[nodiscard]] bool meet(bool may_block, std::chrono::milliseconds patience);
    /// `mine` goes to all; what came of rank r is then in(r).
    void gather(StreamCall call, std::span<std::byte const> mine, std::chrono::milliseconds patience);
    void pack();
    void unpack();
    /// Throws, on both ranks, where what `peer` sends is not what this rank expects.
    void compare(int peer);

    std::shared_ptr<StreamFamily> family_;
    std::uint64_t id_;
    std::vector<int> members_;
    StreamCall call_ = StreamCall::exchange;
    std::vector<std::uint64_t> listed_;  ///< of each peer, up to the message of this call
    std::vector<std::vector<std::byte>> in_;
    transport::BoundTransfers transfers_;
    std::uint64_t splits_ = 0;
};

}  // namespace detail

/// Ranks that are connected by streams of bytes.
class StreamCommunicator : public detail::GroupCommunicator<StreamCommunicator> {
public:
    static constexpr std::string_view name = "streams";
    using detail::GroupCommunicator<StreamCommunicator>::GroupCommunicator;

    /// `deadline`: how long a wait may last in which no byte moves. `interrupted` ends a wait, see MpiOptions.
    explicit StreamCommunicator(std::unique_ptr<transport::Streams> streams,
                                std::chrono::milliseconds deadline = std::chrono::minutes(5),
                                bool (*interrupted)() = nullptr);
};

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/comm/streams.ipp>
#endif
