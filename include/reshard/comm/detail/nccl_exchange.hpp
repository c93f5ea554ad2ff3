// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_exchange.hpp
/// \brief  One exchange over NCCL from start to end: rounds of grouped sends and receives, packed where they must be.
/// \depends comm/{transfer_listing,detail/{device_copies,group_engine,nccl_team,peers}}.hpp.
///
/// Groups start in the order of the stream, and one that waits for a peer holds up all behind it. So the two sides of a
/// message must give it the same place in that order: (round, block of distances). Distances are peer - rank, counted
/// around; the round of a message follows from the messages of its pair and from how many peers its two ranks have,
/// which both sides know. Every rank walks the places in ascending order and leaves out those where it has nothing, so
/// no two ranks wait for each other.
#pragma once

#include <reshard/comm/detail/device_copies.hpp>
#include <reshard/comm/detail/group_engine.hpp>
#include <reshard/comm/detail/nccl_team.hpp>
#include <reshard/comm/detail/peers.hpp>
#include <reshard/comm/transfer_listing.hpp>
#include <reshard/core/detail/keep_for_good.hpp>

namespace reshard::inline v0_1::detail {

/// `Copies` is how boxes are packed and unpacked: StridedCopies. Where it does not convert, the host does.
template <class Copies>
class NcclExchange final : public GroupEngine {
public:
    /// What a part needs is not what the whole needed: what was split off reserves nothing.
    NcclExchange(std::shared_ptr<NcclTeam> team, bool reserves)
        : GroupEngine(NcclTeam::name, team->rank(), team->size()),
          team_(std::move(team)),
          rounds_(team_->rank(), team_->size(), team_->family()->options.window_bytes),
          near_(team_->family()->options.staging),
          host_(team_->family()->options.host_staging),
          copies_(team_->family()->options.host_staging, team_->family()->options.staging) {
        messages_.reserve(nccl_group_limit);
        if (!reserves) return;
        CurrentDevice const device(team_->device());
        static_cast<void>(near_.grow(near_.options().reserve_bytes));  // if there is none, an exchange says so
        static_cast<void>(host_.grow(host_.options().reserve_bytes));
    }
    ~NcclExchange() {
        CurrentDevice const device(team_->device(), std::nothrow);
        team_->heed();
        bool const stuck = team_->stuck();
        near_.close(stuck);
        host_.close(stuck);
        copies_.close(stuck);
        if (stuck) keep_for_good(std::move(jobs_));  // the device may call them yet
    }

    [[nodiscard]] std::shared_ptr<NcclTeam> const& team() const noexcept { return team_; }
    [[nodiscard]] Index staging_bytes() const noexcept { return near_.size(); }
    void check_memory(void const* memory) const override { check_nccl_memory(team_->device(), memory); }
    void abort(ErrorCode code, std::string_view reason) noexcept override { team_->poison(code, reason); }

    /// Every collective call but an exchange starts here.
    void enter(TeamCall call) {
        finish();
        team_->enter(call);
    }
    [[nodiscard]] Verdict agree(Verdict const& mine) override {
        enter(TeamCall::agree);
        return team_->agree(mine);
    }
    [[nodiscard]] std::shared_ptr<GroupEngine> split(int colour, int key) override {
        enter(TeamCall::split);
        auto part = team_->split(colour, key);
        return team_->guarded([&] { return std::make_shared<NcclExchange>(std::move(part), false); });
    }

    void start(transport::BoundTransfers const& transfers) override {
        team_->enter(TeamCall::exchange);
        team_->guarded([&] {
            moving_ = {};
            check(transfers.sends);
            check(transfers.receives);
            lay_queues(transfers);
            // What has been compared once is the same on both sides as long as all start the same exchanges.
            compares_ = team_->family()->options.compare && team_->size() > 1 && !transfers.is_replay;
            if (compares_) transfers.notes->assign(as_size(team_->size()), 0);
            rounds_.peers = transfers.notes->empty() ? nullptr : transfers.notes->data();
            make_room();  // a rank that has none says so before anybody moves anything
            team_->carry_out(transfers.number);
            compares_ ? greet(transfers) : move();
        });
    }
    [[nodiscard]] bool advance(bool may_block) override {
        return team_->guarded([&, this] {
            return team_->advance(
                may_block, [&, this] { return step(); }, team_->everybody());
        });
    }

private:
    /// What a group sends or receives.
    struct Message {
        std::byte const* address;
        std::size_t bytes;
        int peer;
    };
    struct Greeting {
        PairListing listing;
        std::uint64_t peers = 0;  ///< of who says it
    };
    static_assert(sizeof(Greeting) == 8 * NcclTeam::words_per_peer);

    template <class Byte>
    void check(std::span<Transfer<Byte> const> transfers) const {
        for (auto const& transfer : transfers) {
            if (team_->family()->options.compare) check_memory(transfer.base);
            if (!transfer.conversion.is_plain()) Copies::check_alignment(transfer.base, transfer.box);
        }
    }

    void lay_queues(transport::BoundTransfers const& transfers) {
        int const me = team_->rank();
        queues_.out.lay(transfers.sends, me, team_->size());
        queues_.in.lay(transfers.receives, me, team_->size());
        queues_.leave_out_own();
        std::string const text = transport::mismatch_text(me, queues_.out.own, me, queues_.in.own);
        if (!text.empty()) team_->raise_mismatch(me, me, text);
        for (std::size_t k = 0; k < queues_.out.own.size(); ++k) {  // the two sides are converted as one
            Send const& send = queues_.out.own[k];
            Receive const& receive = queues_.in.own[k];
            if (Copies::takes(send, receive)) continue;
            Copies::check_alignment(send.base, send.box);
            Copies::check_alignment(receive.base, receive.box);
        }
    }

    /// One way: what is sent has half of the window, and what is received the other.
    [[nodiscard]] int own_peers() const noexcept {
        return static_cast<int>(larger(queues_.out.all.size(), queues_.in.all.size()));
    }

    // ---- Comparing -------------------------------------------------------------------------------------------

    /// Tells every peer what this rank is about to move, and asks it the same.
    void greet(transport::BoundTransfers const& transfers) {
        int const ranks = team_->size();
        auto* const out = reinterpret_cast<Greeting*>(team_->host_in());
        std::fill_n(out, ranks, Greeting{});
        auto const peers = static_cast<std::uint64_t>(own_peers());
        auto const listing = [&](auto those) { return TransferListing::of(those, transfers.number); };
        for_each_pair(transfers.sends, transfers.receives, [&](int peer, auto mine, auto theirs) {
            if (peer != team_->rank()) out[peer] = {{listing(mine), listing(theirs)}, peers};
        });
        Index const bytes = Index{sizeof(Greeting)} * ranks;
        team_->begin_meeting(bytes, bytes, "ncclGroupEnd", [&](std::byte* from, std::byte* to) {
            for (int first = 1; first < ranks; first += rounds_.distances) {
                NcclGroup group;
                for (int d = first; d < smaller(first + rounds_.distances, ranks); ++d) {
                    int const next = (team_->rank() + d) % ranks;
                    int const previous = (team_->rank() + ranks - d) % ranks;
                    send({from + greeting_at(next), sizeof(Greeting), next});
                    receive({to + greeting_at(previous), sizeof(Greeting), previous});
                }
                team_->settle(group.end(), "ncclGroupEnd");
            }
            return ncclSuccess;
        });
    }
    [[nodiscard]] static std::size_t greeting_at(int peer) noexcept { return sizeof(Greeting) * as_size(peer); }
    /// Throws MismatchError, on both ranks, unless each peer sends what this one expects, and the other way round.
    /// Notes how many peers they have.
    void compare() {
        int const me = team_->rank();
        auto const* const mine = reinterpret_cast<Greeting const*>(team_->host_in());
        auto const* const theirs = reinterpret_cast<Greeting const*>(team_->host_out());
        rounds_.peers[me] = own_peers();
        for (int peer = 0; peer < team_->size(); ++peer) {
            if (peer == me) continue;
            if (auto const differs = mismatch_of(me, mine[peer].listing, peer, theirs[peer].listing))
                team_->raise_mismatch(differs->sender, differs->receiver, differs->text);
            rounds_.peers[peer] = static_cast<int>(theirs[peer].peers);
        }
    }

    // ---- Moving ----------------------------------------------------------------------------------------------

    [[nodiscard]] bool step() {
        if (!team_->done()) return false;
        if (std::exchange(compares_, false)) {
            compare();
            move();
            if (!team_->done()) return false;
        }
        team_->check_same_exchange();
        traffic_ += moving_;
        return true;
    }

    /// Enqueues everything.
    void move() {
        move_to_self();
        queues_.rewind();
        while (queues_.go_on()) {
            for (int first = 1; first < team_->size(); first += rounds_.distances)
                move_group(first, first + rounds_.distances);
        }
        team_->mark();
    }
    /// The next round of the queues whose distance is in [first, last).
    void move_group(int first, int last) {
        Index place = 0;
        messages_.clear();
        arrivals_.clear();
        // Where the piece is staged, as it travels; null: it travels from where it lies, or to there.
        auto const list = [&, this](auto const& piece, Index& moved) -> std::byte* {
            Index const bytes = piece.payload_bytes();
            std::byte* const staged = nccl_goes_straight(piece) ? nullptr : near_.data() + place;
            if (staged != nullptr) place += staging_slot(bytes);
            messages_.push_back({staged != nullptr ? staged : piece.base, as_size(bytes), piece.peer});
            moved += bytes;
            return staged;
        };
        queues_.out.take_rounds(rounds_, first, last, [&, this](Send const&, Send const& piece) {
            if (std::byte* const at = list(piece, moving_.bytes_sent)) bring(piece, packed_at(at, piece));
        });
        std::size_t const sent = messages_.size();
        queues_.in.take_rounds(rounds_, first, last, [&, this](Receive const&, Receive const& piece) {
            if (std::byte* const at = list(piece, moving_.bytes_received))
                arrivals_.push_back({packed_at<std::byte const>(at, piece), piece});
        });
        if (messages_.empty()) return;
        copies_.flush(team_->stream());
        NcclGroup group;
        for (std::size_t k = 0; k < messages_.size(); ++k) k < sent ? send(messages_[k]) : receive(messages_[k]);
        team_->settle(group.end(), "ncclGroupEnd");
        moving_.messages_sent += as_index(sent);
        moving_.messages_received += as_index(messages_.size() - sent);
        for (Delivery const& arrival : arrivals_) bring(arrival.from, arrival.to);
        copies_.flush(team_->stream());
    }
    void send(Message const& message) {
        nccl_check(ncclSend(message.address, message.bytes, ncclInt8, message.peer, team_->comm(), team_->stream()),
                   "ncclSend", team_->comm());
    }
    void receive(Message const& message) {
        nccl_check(ncclRecv(const_cast<std::byte*>(message.address), message.bytes, ncclInt8, message.peer,
                            team_->comm(), team_->stream()),
                   "ncclRecv", team_->comm());
    }

    [[nodiscard]] static bool by_copies(Conversion const& from, Conversion const& to) noexcept {
        return Copies::converts || (from.is_plain() && to.is_plain());
    }
    void bring(Send const& from, Receive const& to) {
        if (by_copies(from.conversion, to.conversion)) return copies_.add(from, to, team_->stream());
        change_on_host(from, to);
    }
    /// Values change on the host: without a kernel nothing else can. They come and go in the order of the stream.
    void change_on_host(Send const& from, Receive const& to) {
        auto const raw = dense_at<std::byte const>(host_.data(), from);
        Receive const made = dense_at(host_.data() + staging_slot(raw.box.payload_bytes()), to);
        copy_on_stream(from.base, from.box, host_.data(), raw.box, team_->stream());
        jobs_.add(raw, made, team_->stream());
        copy_on_stream(made.base, made.box, to.base, to.box, team_->stream());
    }

    /// Calls body(send, receive) for what stays with this rank: whole, or in pieces where the host changes values.
    template <class Body>
    void for_each_own(Body&& body) const {
        for (std::size_t k = 0; k < queues_.out.own.size(); ++k) {
            Send const& send = queues_.out.own[k];
            Receive const& receive = queues_.in.own[k];
            if (by_copies(send.conversion, receive.conversion)) {
                body(send, receive);
                continue;
            }
            PieceRule const rule = rounds_.shared_by_all().rule_of(send);
            for (Index n = 0; n < rule.pieces; ++n) body(piece_of(send, rule, n), piece_of(receive, rule, n));
        }
    }
    void move_to_self() {
        moving_.bytes_local += payload_of(queues_.out.own);
        for_each_own([&](Send const& from, Receive const& to) { bring(from, to); });
        copies_.flush(team_->stream());
    }

    /// What an exchange needs beside its window.
    struct Need {
        Index host = 0;  ///< bytes
        Index jobs = 0;
        Index copies = 0;

        /// The host changes values, `pieces` times, of boxes of so many bytes in memory and on the wire.
        void add_jobs(Index pieces, Index in_memory, Index on_wire) noexcept {
            jobs += pieces;
            host = larger(host, staging_slot(in_memory) + staging_slot(on_wire));
        }
    };

    /// Takes what all rounds may need, once and before peers are asked: memory that is in use cannot grow, and as soon
    /// as peers have answered some of them move, and would wait for a rank that has no memory. So it is enough for
    /// every share that can follow from their answers: at least that of ranks with all others as peers, at most that of
    /// a rank with as many peers as this one.
    void make_room() {
        Index near = 0;
        Need need;
        for_each_own([&](Send const& from, Receive const& to) {
            if (by_copies(from.conversion, to.conversion)) {
                ++need.copies;
            } else {
                need.add_jobs(1, from.box.payload_bytes(), to.box.payload_bytes());
            }
        });
        for (int first = 1; first < team_->size(); first += rounds_.distances)
            near = larger(near, count_staged(queues_.out, first, need) + count_staged(queues_.in, first, need));
        if (!near_.grow(near) || !host_.grow(need.host) || !copies_.reserve(need.copies)) {
            raise_no_memory(
                team_->stream(),
                concat("reshard::NcclCommunicator: no memory for ", near, " bytes of staging on the device and ",
                       need.host,
                       " on the host. Fix: a smaller NcclOptions::window_bytes, or a larger source of memory."));
        }
        jobs_.reserve(need.jobs);
    }
    /// Bytes of staging memory, at most, for a round of the queues in a block of distances; adds to `need` what all of
    /// their rounds take. The least share makes the most pieces, the largest one the largest pieces and rounds.
    template <class Byte>
    [[nodiscard]] Index count_staged(PeerQueues<Byte> const& queues, int first, Need& need) const {
        PairShare const least = rounds_.shared_by_all();
        PairShare const most = rounds_.peers == nullptr ? least : rounds_.shared_by(own_peers());
        Index room = 0;
        for (PeerQueue const& queue : queues.all) {
            if (queue.distance < first || queue.distance >= first + rounds_.distances) continue;
            Index staged = 0;
            Index in_round = most.bytes;
            for (auto const& transfer : queues.transfers.subspan(queue.at, queue.end - queue.at)) {
                if (nccl_goes_straight(transfer)) continue;
                Index const cut = least.rule_of(transfer).pieces;
                staged += transfer.payload_bytes() + cut * least.overhead;
                in_round = larger(in_round, staging_slot(transfer.wire_element_bytes()));  // an element goes whole
                if (by_copies(transfer.conversion, {})) {
                    need.copies += cut;
                } else {
                    auto const piece = piece_of(transfer, most.rule_of(transfer), 0);
                    need.add_jobs(cut, piece.box.payload_bytes(), piece.payload_bytes());
                }
            }
            room += smaller(staged, in_round);
        }
        return room;
    }

    std::shared_ptr<NcclTeam> team_;
    NcclRounds rounds_;
    StagingMemory near_;
    StagingMemory host_;
    Copies copies_;
    RoundQueues queues_;
    std::vector<Message> messages_;
    std::vector<Delivery> arrivals_;  ///< what becomes of received messages
    HostJobs jobs_;
    Traffic moving_;         ///< counted when the exchange is complete
    bool compares_ = false;  ///< what peers say has not come yet
};

}  // namespace reshard::inline v0_1::detail
