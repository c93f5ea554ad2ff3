// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_messages.hpp
/// \brief  The data plane between nodes: transfers as MPI messages, a few of each peer on their way at a time.
/// \depends comm/detail/mpi_team.hpp, comm/detail/box_pieces.hpp. Allocates slots and types once, then keeps them.
///
/// Every message is a run of bytes in the order of the elements. Where they lie side by side in memory, MPI gets the
/// address; where they lie in rows worth the name, a derived type; otherwise they are packed, 512 KiB at a time.
///
/// Nobody waits in a circle. Rank r serves its peers r+1, r+2, ... and expects r-1, r-2, ...; free slots go to the
/// earliest peer that has work, and peers behind one whose messages are not known yet leave half of them free. So of
/// all pairs that are not done, one with the smallest distance has a slot at both ends.
///
/// What comes from a rank is received once that rank has said what it sends (mpi_greetings.hpp), or has laid it open on
/// the node: memory of this rank is never promised to a message that may not come, or may be another one.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/mpi_team.hpp>

namespace reshard::inline v0::detail {

/// How a transfer gets from rank to rank: as a message, or read by the receiver: in a segment of allocate(), in the
/// sender's own memory, or in the sender's list, where the sender has copied it. Chosen by the sender.
enum class MpiMode : std::uint8_t { message, segment, attach, list };

/// Rows from which MPI, and the system, are told of rows instead of being given one packed run.
inline constexpr Index mpi_row_bytes = 512;

/// Committed types by what they describe. Compared exactly; the least recently used of too many goes.
class MpiTypes {
public:
    MpiTypes() = default;
    MpiTypes(MpiTypes const&) = delete;
    MpiTypes& operator=(MpiTypes const&) = delete;
    ~MpiTypes() {
        if (!mpi_is_usable()) return;
        for (auto& entry : entries_) MPI_Type_free(&entry.type);
    }

    [[nodiscard]] MPI_Datatype of(StridedBox const& box) {
        Entry* oldest = nullptr;
        for (auto& entry : entries_) {
            if (entry.box.element_bytes == box.element_bytes && entry.box.dims == box.dims) {
                entry.used = ++clock_;
                return entry.type;
            }
            if (oldest == nullptr || entry.used < oldest->used) oldest = &entry;
        }
        Entry made{box, make(box), ++clock_};
        if (entries_.size() < capacity) {
            entries_.push_back(made);
        } else {
            MPI_Type_free(&oldest->type);  // messages under way keep theirs
            *oldest = made;
        }
        return made.type;
    }

private:
    static constexpr std::size_t capacity = 64;
    struct Entry {
        StridedBox box;
        MPI_Datatype type;
        std::uint64_t used;
    };

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

    std::vector<Entry> entries_;
    std::uint64_t clock_ = 0;
};

/// All messages one way. `Byte` is std::byte const: sends; std::byte: receives.
template <class Byte>
class MpiLanes {
    static constexpr bool sending = std::is_const_v<Byte>;

public:
    MpiLanes()
        : requests_(slot_count, MPI_REQUEST_NULL), slots_(slot_count), finished_(slot_count), statuses_(slot_count) {}

    /// A new exchange. `modes` says which of the transfers are messages.
    void begin(std::span<Transfer<Byte> const> transfers, std::span<MpiMode const> modes,
               std::uint64_t epoch) noexcept {
        transfers_ = transfers;
        modes_ = modes;
        // Late messages of a failed pairing must not be taken for those of a later exchange.
        tag_ = static_cast<int>(epoch % 16384U);
        lanes_.clear();
        first_ = 0;
        wanted_ = 0;
    }
    /// The transfers [first, last) of one peer. Lanes come in the order in which they are served; those behind one
    /// that is not ready leave it half of the slots. Returns its number.
    std::size_t add(int peer, std::size_t first, std::size_t last, bool ready) {
        Lane lane{peer, first, last};
        lane.ready = ready;
        if (ready) prepare(lane);
        lanes_.push_back(lane);
        return lanes_.size() - 1;
    }
    /// From now on the modes of its transfers are known.
    void make_ready(std::size_t number) noexcept {
        lanes_[number].ready = true;
        prepare(lanes_[number]);
    }
    [[nodiscard]] bool complete() const noexcept { return first_ == lanes_.size(); }
    /// Messages since it was last asked.
    [[nodiscard]] Index take_messages() noexcept { return std::exchange(messages_, 0); }
    template <class Visit>
    void missing(Visit&& visit) const {
        for (std::size_t i = first_; i < lanes_.size(); ++i)
            if (!lanes_[i].done()) visit(lanes_[i].peer);
    }

    /// Whether anything moved. Throws TransportError.
    bool step(MpiTeam& team, MpiTypes& types) {
        if (complete()) return false;
        bool moved = false;
        if (flying_ > 0) moved = collect();
        int most = slot_count;
        for (std::size_t i = first_; i < lanes_.size() && flying_ < most; ++i) {
            if (!lanes_[i].ready) most = slot_count / 2;
            while (lanes_[i].ready && lanes_[i].at < lanes_[i].end && lanes_[i].flying < window && flying_ < most) {
                post(team, types, i);
                moved = true;
            }
        }
        while (first_ < lanes_.size() && lanes_[first_].done()) ++first_;
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
            --flying_;
        }
        return ended;
    }
    [[nodiscard]] int flying() const noexcept { return flying_; }
    /// Visits the peers of messages that MPI still has in memory of the caller.
    template <class Visit>
    void held(Visit&& visit) const {
        for (std::size_t i = 0; i < requests_.size(); ++i)
            if (requests_[i] != MPI_REQUEST_NULL && !slots_[i].packed) visit(lanes_[slots_[i].lane].peer);
    }

private:
    static constexpr int window = 4;       ///< messages of one peer under way
    static constexpr int slot_count = 64;  ///< of all peers

    struct Lane {
        int peer = 0;
        std::size_t at = 0;  ///< next transfer
        std::size_t end = 0;
        Index piece = 0;  ///< next piece of it
        PieceRule rule{};
        int flying = 0;
        bool ready = true;
        [[nodiscard]] bool done() const noexcept { return ready && at >= end && flying == 0; }
    };
    struct Slot {
        std::unique_ptr<std::byte[]> buffer;
        std::size_t lane = 0;
        std::size_t first = 0;
        std::size_t last = 0;
        Index payload = 0;
        Transfer<Byte> piece;  ///< of `first`, where last == first + 1
        bool packed = false;
    };

    /// Whether MPI cannot be given the memory itself.
    [[nodiscard]] static bool must_pack(Transfer<Byte> const& transfer) noexcept {
        auto const [run, left] = run_of(transfer.box);
        return !transfer.conversion.is_plain() || (left > 0 && run < mpi_row_bytes);
    }
    /// Finds the first message of a lane, and buffers for as many as it may have under way: how many there are at a
    /// time is a matter of luck, but allocating is not.
    void prepare(Lane& lane) {
        skip(lane);
        Index short_ones = 0;
        bool packs = false;
        bool cut = false;
        for (std::size_t k = lane.at; k < lane.end; ++k) {
            if (modes_[k] != MpiMode::message) continue;
            bool const is_long = transfers_[k].payload_bytes() > piece_bytes;
            cut = cut || is_long;
            short_ones += is_long ? 0 : 1;
            packs = packs || must_pack(transfers_[k]);
        }
        if (!packs && short_ones < 2) return;
        wanted_ += cut ? window : smaller<Index>(window, short_ones);
        for (; made_ < smaller<Index>(wanted_, slot_count); ++made_) {
            spare_.emplace_back(new std::byte[static_cast<std::size_t>(piece_bytes)]);
        }
        spare_.reserve(slot_count);
    }
    void skip(Lane& lane) const noexcept {
        while (lane.at < lane.end && modes_[lane.at] != MpiMode::message) ++lane.at;
    }

    /// Takes the next message of a lane: transfers [first, last), or one piece of `first`.
    void take(Lane& lane, Slot& slot) {
        Transfer<Byte> const& head = transfers_[lane.at];
        slot.first = lane.at;
        slot.last = lane.at + 1;
        slot.piece = head;
        slot.payload = head.payload_bytes();
        if (slot.payload > piece_bytes) {
            if (lane.piece == 0) lane.rule = piece_rule_of(head.box, head.wire_element_bytes(), piece_bytes);
            slot.piece = piece_of(head, lane.rule, lane.piece);
            slot.payload = slot.piece.payload_bytes();
            if (++lane.piece < lane.rule.pieces) return;
            lane.piece = 0;
            ++lane.at;
        } else {
            for (++lane.at; lane.at < lane.end; ++lane.at) {
                if (modes_[lane.at] != MpiMode::message) continue;
                Index const more = transfers_[lane.at].payload_bytes();
                if (slot.payload + more > piece_bytes) break;
                slot.payload += more;
                slot.last = lane.at + 1;
            }
        }
        skip(lane);
    }
    /// Calls body(transfer or piece, place in the message).
    template <class Body>
    void for_each_part(Slot const& slot, Body&& body) const {
        if (slot.last == slot.first + 1) return body(slot.piece, Index{0});
        Index place = 0;
        for (std::size_t k = slot.first; k < slot.last; ++k) {
            if (modes_[k] != MpiMode::message) continue;
            body(transfers_[k], place);
            place += transfers_[k].payload_bytes();
        }
    }

    void post(MpiTeam& team, MpiTypes& types, std::size_t number) {
        int free = 0;
        while (requests_[static_cast<std::size_t>(free)] != MPI_REQUEST_NULL) ++free;
        Slot& slot = slots_[static_cast<std::size_t>(free)];
        Lane& lane = lanes_[number];
        slot.lane = number;
        take(lane, slot);
        slot.packed = slot.last != slot.first + 1 || must_pack(transfers_[slot.first]);
        Byte* address = slot.piece.base;
        MPI_Datatype type = MPI_BYTE;
        int count = static_cast<int>(slot.payload);
        if (slot.packed) {
            slot.buffer = std::move(spare_.back());
            spare_.pop_back();
            address = slot.buffer.get();
            if constexpr (sending) {
                pack(slot);
            } else {
                count = static_cast<int>(piece_bytes);  // a longer message than expected shows its length
            }
        } else if (run_of(slot.piece.box).dims_left > 0) {
            type = types.of(slot.piece.box);
            count = 1;
        }
        MPI_Request& request = requests_[static_cast<std::size_t>(free)];
        if constexpr (sending) {
            mpi_check(MPI_Isend(address, count, type, lane.peer, tag_, team.comm(), &request), "MPI_Isend", lane.peer);
        } else {
            mpi_check(MPI_Irecv(address, count, type, lane.peer, tag_, team.comm(), &request), "MPI_Irecv", lane.peer);
        }
        ++lane.flying;
        ++flying_;
        ++messages_;
    }

    bool collect() {
        int count = 0;
        int const code = MPI_Testsome(slot_count, requests_.data(), &count, finished_.data(), statuses_.data());
        if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) mpi_check(code, "MPI_Testsome");
        if (count == MPI_UNDEFINED) return false;
        for (int i = 0; i < count; ++i) {
            Slot& slot = slots_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])];
            MPI_Status const& status = statuses_[static_cast<std::size_t>(i)];
            Lane& lane = lanes_[slot.lane];
            --flying_;
            --lane.flying;
            int const error = code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;
            mpi_check(error, sending ? "MPI_Isend" : "MPI_Irecv", lane.peer);
            if constexpr (!sending) {
                check_length(lane, slot, status);
                if (slot.packed) unpack(slot);
            }
            if (slot.packed) spare_.push_back(std::move(slot.buffer));
        }
        return count > 0;
    }

    void pack(Slot const& slot) const noexcept {
        for_each_part(
            slot, [&](Send const& part, Index place) { deliver(part, packed_at(slot.buffer.get() + place, part)); });
    }
    void unpack(Slot const& slot) const noexcept {
        for_each_part(slot, [&](Receive const& part, Index place) {
            deliver(packed_at<std::byte const>(slot.buffer.get() + place, part), part);
        });
    }

    /// Both sides know what the message holds: it was announced, or lies open on the node.
    static void check_length(Lane const& lane, Slot const& slot, MPI_Status const& status) {
        MPI_Count got = 0;
        mpi_check(MPI_Get_elements_x(&status, MPI_BYTE, &got), "MPI_Get_elements_x");
        if (got == slot.payload) return;
        raise(ErrorCode::transport,
              concat("reshard::MpiCommunicator: a message from rank ", lane.peer, " holds ", static_cast<Index>(got),
                     " bytes, not the ", slot.payload,
                     " it was announced with. Fix: this is a defect of reshard or of the MPI; please report it."));
    }

    std::span<Transfer<Byte> const> transfers_;
    std::span<MpiMode const> modes_;
    std::vector<Lane> lanes_;
    std::vector<MPI_Request> requests_;
    std::vector<Slot> slots_;
    std::vector<int> finished_;
    std::vector<MPI_Status> statuses_;
    std::vector<std::unique_ptr<std::byte[]>> spare_;
    Index made_ = 0;
    Index wanted_ = 0;
    std::size_t first_ = 0;
    int flying_ = 0;
    int tag_ = 0;
    Index messages_ = 0;
};

}  // namespace reshard::inline v0::detail
