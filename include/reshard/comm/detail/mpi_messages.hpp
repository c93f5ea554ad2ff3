// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_messages.hpp
/// \brief  The data plane between nodes: transfers as MPI messages, a few of each peer on their way at a time.
/// \depends comm/detail/mpi_team.hpp, comm/detail/box_pieces.hpp. Allocates slots and types once, then keeps them.
///
/// Every message is a run of bytes, the dimensions in the order in which the sender's memory has them: both sides see
/// that order on a node, and greetings tell it between nodes. Where they lie side by side in memory, MPI gets the
/// address; where they lie in rows worth the name, a derived type; otherwise they are packed, 512 KiB at a time.
/// Between nodes, of more than 2 MiB that neither side packs, a message is 8 MiB: the sender waits with them for the
/// receiver's greeting. On a node the sender does not know how the receiver's memory lies.
///
/// Nobody waits in a circle. Rank r serves its peers r+1, r+2, ... and expects r-1, r-2, ...; free slots go to the
/// earliest peer that has work, and peers behind one whose messages are not known yet, or how they are cut, leave half
/// of them free. So of all pairs that are not done, one with the smallest distance has a slot at both ends.
///
/// What comes from a rank is received once that rank has said what it sends (mpi_greetings.hpp), or has laid it open on
/// the node: memory of this rank is never promised to a message that may not come, or may be another one.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/mpi_team.hpp>

namespace reshard::inline v0_1::detail {

/// How a transfer gets from rank to rank: as a message, or read by the receiver: in a segment of allocate(), in the
/// sender's own memory, or in the sender's list, where the sender has copied it. Chosen by the sender.
enum class MpiMode : std::uint8_t { message, segment, attach, list };

/// Committed types by what they describe. Compared exactly; when there are too many, it begins anew.
class MpiTypes {
public:
    MpiTypes& operator=(MpiTypes&&) = delete;
    ~MpiTypes() {
        if (mpi_is_usable()) forget();
    }

    [[nodiscard]] MPI_Datatype of(StridedBox const& box) {
        for (auto const& [known, type] : types_)
            if (known.element_bytes == box.element_bytes && known.dims == box.dims) return type;
        if (types_.size() == 64) forget();
        types_.emplace_back(box, make(box));
        return types_.back().second;
    }

private:
    void forget() noexcept {
        for (auto& [box, type] : types_) MPI_Type_free(&type);  // messages under way keep theirs
        types_.clear();
    }
    [[nodiscard]] static MPI_Datatype make(StridedBox const& box) {
        auto const [run, left] = run_of(box);
        MPI_Datatype type = MPI_DATATYPE_NULL;
        mpi_check(MPI_Type_contiguous(static_cast<int>(run), MPI_BYTE, &type), "MPI_Type_contiguous");
        for (int d = left - 1; d >= 0; --d) {
            MPI_Datatype const inner = type;
            mpi_check(MPI_Type_create_hvector(static_cast<int>(box.dims[d].extent), 1,
                                              static_cast<MPI_Aint>(box.dims[d].stride), inner, &type),
                      "MPI_Type_create_hvector");
            MPI_Datatype done = inner;
            MPI_Type_free(&done);
        }
        mpi_check(MPI_Type_commit(&type), "MPI_Type_commit");
        return type;
    }

    std::vector<std::pair<StridedBox, MPI_Datatype>> types_;
};

/// All messages one way. `Byte` is std::byte const: sends; std::byte: receives.
template <class Byte>
class MpiPeerQueues {
    static constexpr bool sending = std::is_const_v<Byte>;

public:
    MpiPeerQueues()
        : requests_(slot_count, MPI_REQUEST_NULL), slots_(slot_count), finished_(slot_count), statuses_(slot_count) {}
    MpiPeerQueues& operator=(MpiPeerQueues&&) = delete;
    ~MpiPeerQueues() {
        if (flying_ != 0) keep_for_good(std::move(slots_));  // after a failure
    }

    /// A new exchange. `modes` says which of the transfers are messages.
    void begin(std::span<Transfer<Byte> const> transfers, std::span<MpiMode const> modes,
               std::uint64_t epoch) noexcept {
        transfers_ = transfers;
        modes_ = modes;
        messages_of_.clear();
        // Late messages of a failed pairing must not be taken for those of a later exchange.
        tag_ = static_cast<int>(epoch % 16384U);
        queues_.clear();
        first_ = 0;
        wanted_ = 0;
    }
    /// The transfers [first, last) of one peer. Queues come in the order in which they are served; those behind one
    /// that is not ready leave it half of the slots. Returns its number.
    std::size_t add(int peer, std::size_t first, std::size_t last) {
        queues_.push_back({{peer, 0, first}, last});
        return queues_.size() - 1;
    }
    /// From now on the modes of its transfers are known, the order of their dimensions, and whether those that are long
    /// go in long pieces. Finds those that are messages, and buffers for as many as may be under way: how many there
    /// are at a time is a matter of luck, but allocating is not.
    void make_ready(std::size_t number, DimOrder order, bool goes_long = false) {
        Queue& queue = queues_[number];
        queue.ready = true;
        queue.goes_long = goes_long;
        std::size_t const first = messages_of_.size();
        Index count = 0;
        bool packs = false;
        bool cut = false;
        for (; queue.at < queue.last; ++queue.at) {
            if (modes_[queue.at] != MpiMode::message) continue;
            Transfer<Byte> const& transfer = messages_of_.emplace_back(in_order(transfers_[queue.at], order));
            if (queue.is_alone(transfer)) continue;
            ++count;
            cut = cut || together.rule_of(transfer).pieces > 1;
            packs = packs || mpi_must_pack(transfer);
        }
        queue.at = queue.end = first;
        queue.last = messages_of_.size();
        if (!packs && count < 2) return;
        wanted_ += cut ? window : smaller<Index>(window, count);
        for (; made_ < smaller<Index>(wanted_, slot_count); ++made_) {
            spare_.emplace_back(new std::byte[as_size(piece_bytes)]);
        }
        spare_.reserve(slot_count);
    }
    [[nodiscard]] bool complete() const noexcept { return first_ == queues_.size(); }
    /// Messages since it was last asked.
    [[nodiscard]] Index take_messages() noexcept { return std::exchange(messages_, 0); }
    void missing(FunctionRef<void(int)> visit) const {
        for (std::size_t i = first_; i < queues_.size(); ++i)
            if (!queues_[i].done()) visit(queues_[i].peer);
    }

    /// Whether anything moved. Throws TransportError.
    bool step(MpiTeam& team, MpiTypes& types) {
        if (complete()) return false;
        bool moved = false;
        if (flying_ > 0) moved = collect();
        int most = slot_count;
        for (std::size_t i = first_; i < queues_.size() && flying_ < most; ++i) {
            if (!queues_[i].ready) most = slot_count / 2;
            while (queues_[i].ready && queues_[i].at < queues_[i].last && queues_[i].flying < window &&
                   flying_ < most) {
                post(team, types, i);
                moved = true;
            }
        }
        while (first_ < queues_.size() && queues_[first_].done()) ++first_;
        return moved;
    }

    /// After a failure: what has not been matched shall not be. \pre MPI is usable.
    void cancel() noexcept {
        if constexpr (!sending) {
            for (auto& request : requests_)
                if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
        }
    }
    /// What MPI is in the middle of, it may finish. How many messages did.
    int drain() noexcept {
        int ended = 0;
        for (auto& request : requests_) {
            if (request == MPI_REQUEST_NULL) continue;
            int done = 0;
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (request != MPI_REQUEST_NULL) continue;
            ++ended;
            flying_ -= slots_[as_size(&request - requests_.data())].pieces();
        }
        return ended;
    }
    [[nodiscard]] int flying() const noexcept { return flying_; }
    /// Visits the peers of messages that MPI still has in memory of the caller.
    void held(FunctionRef<void(int)> visit) const {
        for (std::size_t i = 0; i < requests_.size(); ++i)
            if (requests_[i] != MPI_REQUEST_NULL && !slots_[i].packed()) visit(queues_[slots_[i].queue].peer);
    }

private:
    static constexpr int window = static_cast<int>(mpi_long_bytes / piece_bytes);  ///< messages of one peer under way
    static constexpr int slot_count = 64;  ///< of all peers, and how many pieces of 512 KiB are under way, nearly
    static constexpr PairShare together{INT_MAX, piece_bytes, 0};
    static constexpr PairShare alone{1, mpi_long_piece_bytes, 0};

    /// Its transfers [at, end) are cut alike.
    struct Queue : PeerQueue {
        std::size_t last = 0;  ///< where those of the peer end
        int flying = 0;
        bool ready = false;
        bool goes_long = false;
        [[nodiscard]] bool done() const noexcept { return ready && at >= last && flying == 0; }
        /// Whether it goes in long pieces, which share no message.
        [[nodiscard]] bool is_alone(Transfer<Byte> const& transfer) const noexcept {
            return goes_long && transfer.payload_bytes() > mpi_long_bytes;
        }
    };
    struct Slot {
        std::unique_ptr<std::byte[]> buffer;
        std::size_t queue = 0;
        PeerQueue begin;       ///< where its queue was
        int parts = 0;         ///< transfers, or pieces of them, in the message
        Transfer<Byte> first;  ///< of them
        Index payload = 0;
        [[nodiscard]] bool packed() const noexcept { return buffer != nullptr; }
        /// What it counts for: all that is under way is to end soon where some rank fails.
        [[nodiscard]] int pieces() const noexcept { return static_cast<int>(1 + payload / (piece_bytes + 1)); }
    };

    /// Calls body(transfer or piece) for what the next message of the queue holds, and advances it.
    template <class Body>
    void take(PeerQueue& queue, PairShare const& share, Body&& body) const {
        take_round(std::span<Transfer<Byte> const>(messages_of_), queue, share,
                   [&](auto const&, Transfer<Byte> const& part) { body(part); });
    }
    /// Calls body(transfer or piece, place in the message) for one that is packed.
    template <class Body>
    void for_each_part(Slot const& slot, Body&& body) const {
        PeerQueue queue = slot.begin;
        Index place = 0;
        take(queue, together, [&](Transfer<Byte> const& part) {
            body(part, place);
            place += part.payload_bytes();
        });
    }

    void post(MpiTeam& team, MpiTypes& types, std::size_t number) {
        int free = 0;
        while (requests_[as_size(free)] != MPI_REQUEST_NULL) ++free;
        Slot& slot = slots_[as_size(free)];
        Queue& queue = queues_[number];
        bool const is_alone = queue.is_alone(messages_of_[queue.at]);
        if (queue.at == queue.end)
            while (queue.end < queue.last && queue.is_alone(messages_of_[queue.end]) == is_alone) ++queue.end;
        slot.queue = number;
        slot.begin = queue;
        slot.parts = 0;
        slot.payload = 0;
        take(queue, is_alone ? alone : together, [&](Transfer<Byte> const& part) {
            if (slot.parts++ == 0) slot.first = part;
            slot.payload += part.payload_bytes();
        });
        Byte* address = slot.first.base;
        MPI_Datatype type = MPI_BYTE;
        int count = static_cast<int>(slot.payload);
        if (slot.parts > 1 || mpi_must_pack(slot.first)) {
            slot.buffer = std::move(spare_.back());
            spare_.pop_back();
            address = slot.buffer.get();
            if constexpr (sending) {
                for_each_part(
                    slot, [&](Send const& part, Index at) { deliver(part, packed_at(slot.buffer.get() + at, part)); });
            } else {
                count = static_cast<int>(piece_bytes);  // a longer message than expected shows its length
            }
        } else if (run_of(slot.first.box).dims_left > 0) {
            type = types.of(slot.first.box);
            count = 1;
        }
        MPI_Request& request = requests_[as_size(free)];
        if constexpr (sending) {
            mpi_check(MPI_Isend(address, count, type, queue.peer, tag_, team.comm(), &request), "MPI_Isend",
                      queue.peer);
        } else {
            mpi_check(MPI_Irecv(address, count, type, queue.peer, tag_, team.comm(), &request), "MPI_Irecv",
                      queue.peer);
        }
        ++queue.flying;
        flying_ += slot.pieces();
        ++messages_;
    }

    bool collect() {
        int count = 0;
        int const code = MPI_Testsome(slot_count, requests_.data(), &count, finished_.data(), statuses_.data());
        if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) mpi_check(code, "MPI_Testsome");
        if (count == MPI_UNDEFINED) return false;
        for (int i = 0; i < count; ++i) {
            Slot& slot = slots_[as_size(finished_[as_size(i)])];
            MPI_Status const& status = statuses_[as_size(i)];
            Queue& queue = queues_[slot.queue];
            flying_ -= slot.pieces();
            --queue.flying;
            int const error = code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;
            mpi_check(error, sending ? "MPI_Isend" : "MPI_Irecv", queue.peer);
            if constexpr (!sending) {
                check_length(queue, slot, status);
                if (slot.packed())
                    for_each_part(slot, [&](Receive const& part, Index at) {
                        deliver(packed_at<std::byte const>(slot.buffer.get() + at, part), part);
                    });
            }
            if (slot.packed()) spare_.push_back(std::move(slot.buffer));
        }
        return count > 0;
    }

    /// Both sides know what the message holds: it was announced, or lies open on the node.
    static void check_length(Queue const& queue, Slot const& slot, MPI_Status const& status) {
        MPI_Count got = 0;
        mpi_check(MPI_Get_elements_x(&status, MPI_BYTE, &got), "MPI_Get_elements_x");
        if (got == slot.payload) return;
        raise(ErrorCode::transport, "reshard::MpiCommunicator: a message from rank ", queue.peer, " holds ",
              as_index(got), " bytes, not the ", slot.payload,
              " it was announced with. Fix: this is a defect of reshard or of the MPI; please report it.");
    }

    std::span<Transfer<Byte> const> transfers_;
    std::span<MpiMode const> modes_;
    std::vector<Transfer<Byte>> messages_of_;  ///< the transfers that are messages, queue by queue
    std::vector<Queue> queues_;
    std::vector<MPI_Request> requests_;
    std::vector<Slot> slots_;
    std::vector<int> finished_;
    std::vector<MPI_Status> statuses_;
    std::vector<std::unique_ptr<std::byte[]>> spare_;
    Index made_ = 0;
    Index wanted_ = 0;
    std::size_t first_ = 0;
    int flying_ = 0;  ///< pieces of 512 KiB, or less, that are under way
    int tag_ = 0;
    Index messages_ = 0;
};

}  // namespace reshard::inline v0_1::detail
