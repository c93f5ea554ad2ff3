// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_exchange.hpp
/// \brief  One exchange of an MPI communicator from start to end, and what is kept from one to the next.
/// \depends comm/detail/{group_engine,mpi_pull}.hpp, memory/device_memory.hpp.
#pragma once

#include <reshard/comm/detail/group_engine.hpp>
#include <reshard/comm/detail/mpi_pull.hpp>
#include <reshard/memory/device_memory.hpp>

namespace reshard::inline v0_1::detail {

class MpiExchange final : public GroupEngine {
    /// Runs a part of a collective. If it throws, MPI gives up what it can.
    template <class Body>
    decltype(auto) closing(Body&& body) {
        try {
            return team_->guarded(body);
        } catch (Error const& error) {
            raise_with(error, give_up());
        } catch (...) {
            static_cast<void>(give_up());
            throw;
        }
    }

public:
    explicit MpiExchange(std::shared_ptr<MpiTeam> team)
        : GroupEngine(MpiTeam::name, team->rank(), team->size()), team_(std::move(team)) {}
    /// It and its team are left alone once its family has failed: MPI may still hold their buffers; and in a child
    /// that was forked.
    [[nodiscard]] static std::shared_ptr<MpiExchange> make(std::shared_ptr<MpiTeam> team) {
        return {new MpiExchange(std::move(team)), [](MpiExchange* exchange) {
                    MpiFamily const& family = *exchange->team()->family();
                    if (family.is_ours() && !family.poisoned) delete exchange;
                }};
    }

    [[nodiscard]] std::shared_ptr<MpiTeam> const& team() const noexcept { return team_; }
    void check_memory(void const* memory) const override { refuse_device_memory("mpi", memory); }
    void abort(ErrorCode code, std::string_view reason) noexcept override { team_->poison(code, reason); }

    /// Every collective call but an exchange starts here.
    void enter(TeamCall call) {
        check_mpi_thread();  // who is refused has made no call: the next one counts as on other ranks
        finish();
        team_->enter(call);
    }
    [[nodiscard]] Verdict agree(Verdict const& mine) override {
        enter(TeamCall::agree);
        Verdict joint = team_->agree(mine);
        // Who has not fetched by now what this rank left for it never expected it.
        closing([&] { static_cast<void>(late_have_read()); });
        late_.clear();
        return joint;
    }
    [[nodiscard]] std::shared_ptr<GroupEngine> split(int colour, int key) override {
        enter(TeamCall::split);
        auto part = team_->split(colour, key);
        return team_->guarded([&] { return make(std::move(part)); });
    }

    void start(transport::BoundTransfers const& transfers) override {
        team_->enter(TeamCall::exchange);
        closing([&] {
            transfers_ = transfers;
            ++epoch_;
            leaves_ = transfers.is_replay;
            send_modes_.assign(transfers.sends.size(), MpiMode::message);
            receive_modes_.assign(transfers.receives.size(), MpiMode::message);
            publish();
            lay_queues();
            // Everything that need not wait for another rank is on its way when this returns.
            team_->greet(transfers);
            expect_the_heard();
            incoming_.step(*team_, types_);
            outgoing_.step(*team_, types_);
        });
    }
    [[nodiscard]] bool advance(bool may_block) override {
        return closing([&, this] {
            return team_->advance(
                may_block, [&, this] { return step(); }, [&, this](auto visit) { missing(visit); });
        });
    }

private:
    /// After a failure: lets MPI finish what both sides have begun, and says whose memory it keeps all the same.
    [[nodiscard]] std::string give_up() {
        if (!mpi_is_usable()) return {};
        incoming_.cancel();
        auto const start = Clock::now();
        auto moved = start;
        while (incoming_.flying() + outgoing_.flying() > 0) {
            if (incoming_.drain() + outgoing_.drain() > 0) moved = Clock::now();
            auto const now = Clock::now();
            // What only one side has begun never ends.
            if (now - moved >= std::chrono::milliseconds(200) || now - start >= std::chrono::seconds(2)) break;
            sched_yield();
        }
        std::string text;
        auto const add_held = [&, this](auto const& queues, std::string_view what) {
            int last = -1;
            queues.held([&, this](int peer) {
                int const pid = team_->process(peer);
                if (peer == last || (pid != 0 && !process_lives(pid))) return;
                append(text, {last >= 0 ? ", " : text.empty() ? "" : " ", last < 0 ? what : "", peer});
                last = peer;
            });
            if (last >= 0) text += '.';
        };
        add_held(incoming_, "MPI may still write to the destination of what comes from rank ");
        add_held(outgoing_, "MPI may still read the source of what goes to rank ");
        if (!text.empty()) team_->family()->hold_still();
        return text.empty() ? text : concat(text, " Keep that memory until the process ends.");
    }

    /// Lays the sends to ranks of this node open.
    void publish() {
        if (!team_->node()) return;
        MpiNode& node = *team_->node();
        MpiSeat& seat = node.own();
        auto const sends = transfers_.sends;
        seat.published.store(2 * epoch_ - 1, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);
        bool const copies = team_->family()->options.path != MpiPath::messages;
        Index room = 0;
        for (Send const& send : sends) {
            int const there = team_->local(send.peer);
            if (copies && there >= 0 && there != node.me()) room += mpi_listed_room(send);
        }
        room = smaller(room, mpi_listed_total);
        Index place = MpiList::copies_at(node.ranks(), sends.size());
        Index const end = place + room;
        std::atomic<std::uint64_t>* const slot =
            end <= MpiNode::slot_bytes ? &node.slot_epoch(node.me(), epoch_) : nullptr;
        // Whoever finds the slot in use again also finds `published` beyond its epoch.
        if (slot != nullptr) slot->store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        std::byte* const list = slot != nullptr ? node.slot(node.me(), epoch_) : node.own_list(end);
        leaves_ = leaves_ && slot != nullptr;
        MpiList::number(list) = transfers_.number;
        std::uint32_t* const starts = MpiList::starts(list);
        MpiPublished* const entries = MpiList::entries(list, node.ranks());
        std::uint32_t count = 0;
        std::size_t at = 0;
        for (int l = 0; l < node.ranks(); ++l) {  // ascending in rank as well
            starts[l] = count;
            int const rank = team_->rank_of_local(l);
            while (at < sends.size() && sends[at].peer < rank) ++at;
            if (l == node.me()) continue;
            for (; at < sends.size() && sends[at].peer == rank; ++at) {
                Send const& send = sends[at];
                MpiPublished& entry = entries[count++];
                entry = mpi_describe(*team_->family(), team_->attach(), send);
                Index const copied = copies ? mpi_listed_room(send) : 0;
                if (entry.mode != MpiMode::segment && copied != 0 && place + copied <= end) {
                    entry.mode = MpiMode::list;
                    entry.offset = place;
                    deliver(send, packed_at(list + place, send, order_of(send.box)));
                    place += copied;
                }
                send_modes_[at] = entry.mode;
                leaves_ = leaves_ && entry.mode == MpiMode::list;
            }
        }
        starts[node.ranks()] = count;
        if (slot != nullptr) slot->store(epoch_, std::memory_order_release);
        seat.published.store(2 * epoch_, std::memory_order_release);
    }

    void lay_queues() {
        int const me = team_->rank();
        outgoing_.begin(transfers_.sends, send_modes_, epoch_);
        incoming_.begin(transfers_.receives, receive_modes_, epoch_);
        readers_.clear();
        sources_.clear();
        far_.clear();
        heard_ = 0;
        self_sends_ = transfers_with(transfers_.sends, me);
        self_receives_ = transfers_with(transfers_.receives, me);
        for_each_peer(transfers_.sends, me, [&](int peer, std::span<Send const> sends) {
            if (peer == me) return;
            auto const first = as_size(sends.data() - transfers_.sends.data());
            std::size_t const last = first + sends.size();
            int const local = team_->local(peer);
            bool const asks = local < 0 && mpi_may_go_long(sends);
            std::size_t const queue = outgoing_.add(peer, first, last);
            if (!asks) outgoing_.make_ready(queue, common_order(sends));
            if (local >= 0) readers_.push_back({peer, local, first, last, 0, sends[0].payload_bytes(), false});
            if (asks) far_.push_back({peer, local, first, last, queue, 0, false, true});
        });
        late_.reserve(readers_.size());
        for_each_peer<Way::down>(transfers_.receives, me, [&](int peer, std::span<Receive const> receives) {
            if (peer == me) return;
            auto const first = as_size(receives.data() - transfers_.receives.data());
            int const local = team_->local(peer);
            std::size_t const queue = incoming_.add(peer, first, first + receives.size());
            (local >= 0 ? sources_ : far_).push_back({peer, local, first, first + receives.size(), queue, 0, false});
        });
        self_done_ = self_sends_.empty() && self_receives_.empty();
        Index const here = team_->node() ? team_->node()->ranks() : 1;
        hint_ = hint_for(transfers_.receive_bytes * here, team_->family()->options.streaming_threshold_bytes);
    }

    [[nodiscard]] TeamStep step() {
        bool moved = false;
        MpiGreetings& greetings = team_->greetings();
        if (!greetings.all_heard()) team_->listen();
        if (expect_the_heard()) moved = true;  // await() listens as well
        if (outgoing_.step(*team_, types_)) moved = true;
        if (!self_done_) {
            copy_to_self();
            moved = self_done_ = true;
        }
        bool all = true;
        for (MpiNeighbour& source : sources_) {
            if (source.done) continue;
            source.done = pull(source);
            moved = moved || source.done;
            all = all && source.done;
        }
        if (incoming_.step(*team_, types_)) moved = true;
        if (all && team_->node() && team_->node()->own().finished.load(std::memory_order_relaxed) != epoch_)
            team_->node()->own().finished.store(epoch_, std::memory_order_release);
        all = late_have_read() && all;
        for (MpiNeighbour& reader : readers_) {
            if (reader.done || leaves_) continue;
            reader.done = was_read(reader, epoch_);
            moved = moved || reader.done;
            all = all && reader.done;
        }
        if (!all || !incoming_.complete() || !outgoing_.complete() || !greetings.complete())
            return moved ? TeamStep::moved : TeamStep::idle;
        late_epoch_ = epoch_;
        if (leaves_) late_ = readers_;
        Index const local = payload_of(self_sends_);
        auto const read = [](std::vector<MpiMode> const& modes) {  // by the receiver: each is a message, too
            return as_index(modes.size()) - std::count(modes.begin(), modes.end(), MpiMode::message);
        };
        traffic_ += {read(send_modes_) + outgoing_.take_messages(), transfers_.send_bytes - local,
                     read(receive_modes_) + incoming_.take_messages(), transfers_.receive_bytes - local, local};
        return TeamStep::complete;
    }

    /// Ranks of other nodes that have said what they send, which is what this one expects, and how they take what is
    /// long. Whether there are new ones.
    bool expect_the_heard() {
        MpiGreetings const& greetings = team_->greetings();
        if (greetings.heard() == heard_) return false;
        heard_ = greetings.heard();
        for (MpiNeighbour& far : far_) {
            auto const peer = greetings.find(far.rank);
            if (far.done || !peer->heard) continue;
            far.done = true;
            if (far.sends) {
                outgoing_.make_ready(far.queue, peer->greeting.listing.sends.order, peer->sends_long);
            } else {
                incoming_.make_ready(far.queue, peer->order, peer->receives_long);
            }
        }
        return true;
    }

    void copy_to_self() {
        int const me = team_->rank();
        std::string const text = transport::mismatch_text(me, self_sends_, me, self_receives_);
        if (!text.empty()) team_->raise_mismatch(me, me, text);
        std::optional<RaisedFlag<std::uint32_t>> busy;
        if (team_->node()) busy.emplace(team_->node()->own().reading);
        for (std::size_t k = 0; k < self_sends_.size(); ++k) deliver(self_sends_[k], self_receives_[k], hint_);
    }

    /// Fetches what a rank of this node has published for this one. False if it has not published yet.
    [[nodiscard]] bool pull(MpiNeighbour const& source) {
        MpiNode& node = *team_->node();
        MpiSeat const& seat = node.seat(source.local);
        std::uint64_t const published = seat.published.load(std::memory_order_acquire);
        if (published < 2 * epoch_) return false;
        RaisedFlag const flag(node.own().reading);
        if (team_->family()->hear()) team_->raise_failure();
        std::span<MpiPublished const> entries;
        std::byte const* list = nullptr;
        std::atomic<std::uint64_t> const& slot = node.slot_epoch(source.local, epoch_);
        bool const in_slot = slot.load(std::memory_order_acquire) == epoch_;
        if (in_slot || published == 2 * epoch_) {
            list = in_slot ? node.slot(source.local, epoch_) : node.list_of(source.local);
            if (list == nullptr)
                team_->raise_unreachable(source.rank, "opening the list of sends", "raise the limit of open files");
            Index const size = in_slot ? MpiNode::slot_bytes : seat.list_bytes.load(std::memory_order_acquire);
            std::uint64_t const number = MpiList::number(list);
            entries = MpiList::of(list, size, node.ranks(), node.me());
            std::atomic_thread_fence(std::memory_order_acquire);
            // It has moved on without waiting for this rank: there was nothing for it.
            bool const stands = in_slot ? slot.load(std::memory_order_relaxed) == epoch_
                                        : seat.published.load(std::memory_order_relaxed) == published;
            if (!stands) entries = {};
            if (stands && number != transfers_.number)
                team_->raise_mismatch(-1, -1, transport::order_text(source.rank, team_->rank()));
        }
        auto const receives = transfers_.receives.subspan(source.first, source.last - source.first);
        for (std::size_t k = 0; k < larger(entries.size(), receives.size()); ++k) {
            Send const* const send = k < entries.size() ? &entries[k].send : nullptr;
            Receive const* const receive = k < receives.size() ? &receives[k] : nullptr;
            if (send != nullptr && receive != nullptr && transport::same_extents(*send, *receive)) continue;
            std::string const text = transport::mismatch_text(source.rank, transport::side_of(send), team_->rank(),
                                                              transport::side_of(receive), static_cast<int>(k));
            team_->raise_mismatch(source.rank, team_->rank(), text);
        }
        AttachReader rows(seat.pid);  // short ones of several transfers are read together
        for (std::size_t k = 0; k < receives.size(); ++k) {
            receive_modes_[source.first + k] = entries[k].mode;
            if (entries[k].mode != MpiMode::message) fetch(source, list, entries[k], receives[k], rows);
        }
        team_->check_read(rows.flush(), source.rank);
        // Had the owner of that memory failed meanwhile, it would have said so before it touched the memory again.
        std::atomic_thread_fence(std::memory_order_acquire);
        if (team_->family()->hear()) team_->raise_failure();
        incoming_.make_ready(
            source.queue, common_order(entries, [](MpiPublished const& entry) -> Send const& { return entry.send; }));
        node.pulled(node.me(), source.local, epoch_).store(epoch_, std::memory_order_release);
        return true;
    }
    void fetch(MpiNeighbour const& source, std::byte const* list, MpiPublished const& sent, Receive const& receive,
               AttachReader& rows) {
        int const pid = team_->node()->seat(source.local).pid;
        if (sent.mode == MpiMode::list) {
            deliver(packed_at(list + sent.offset, sent.send, order_of(sent.send.box)), receive);
        } else if (sent.mode == MpiMode::segment) {
            std::byte const* const memory =
                team_->family()->peer_memory(pid, sent.segment, sent.file, sent.segment_bytes);
            if (memory == nullptr) {
                team_->raise_unreachable(source.rank, "mapping the shared buffer",
                                         "keep buffers of allocate() until all have received from them");
            }
            Send there = sent.send;
            there.base = memory + sent.offset;
            deliver(there, receive, hint_);
        } else {
            team_->check_read(attach_.read(rows, sent.send, receive, hint_), source.rank);
        }
    }

    /// Whether a rank of this node has fetched what this one published for it. Throws MismatchError where it is over
    /// for that rank, and it has not.
    [[nodiscard]] bool was_read(MpiNeighbour const& reader, std::uint64_t epoch) {
        MpiNode& node = *team_->node();
        auto const read = [&] {
            return node.pulled(reader.local, node.me(), epoch).load(std::memory_order_acquire) >= epoch;
        };
        if (read()) return true;
        if (node.seat(reader.local).finished.load(std::memory_order_acquire) < epoch || read()) return read();
        int const me = team_->rank();
        team_->raise_mismatch(me, reader.rank, transport::mismatch_text(me, {reader.bytes}, reader.rank, {}, 0));
    }
    /// The same of the exchange before this one.
    [[nodiscard]] bool late_have_read() {
        while (!late_.empty() && was_read(late_.back(), late_epoch_)) late_.pop_back();
        return late_.empty();
    }

    void missing(FunctionRef<void(int)> visit) const {
        for (MpiNeighbour const& source : sources_)
            if (!source.done) visit(source.rank);
        for (MpiNeighbour const& reader : readers_)
            if (!reader.done && !leaves_) visit(reader.rank);
        for (MpiNeighbour const& reader : late_) visit(reader.rank);
        incoming_.missing(visit);
        outgoing_.missing(visit);
        team_->greetings().missing(visit);
    }

    std::shared_ptr<MpiTeam> team_;
    MpiTypes types_;
    MpiPeerQueues<std::byte const> outgoing_;
    MpiPeerQueues<std::byte> incoming_;
    MpiAttach attach_;
    transport::BoundTransfers transfers_;
    std::span<Send const> self_sends_;
    std::span<Receive const> self_receives_;
    std::vector<MpiMode> send_modes_;
    std::vector<MpiMode> receive_modes_;
    std::vector<MpiNeighbour> readers_;
    std::vector<MpiNeighbour> sources_;
    std::vector<MpiNeighbour> late_;  ///< readers of the exchange before, that may not have fetched what is theirs
    std::vector<MpiNeighbour> far_;   ///< of other nodes, that send, or receive what is long; done: they have said how
    std::size_t heard_ = 0;
    std::uint64_t epoch_ = 0;
    std::uint64_t late_epoch_ = 0;
    CopyHint hint_ = CopyHint::cached;
    bool self_done_ = false;
    bool leaves_ = false;  ///< without waiting for readers
};

}  // namespace reshard::inline v0_1::detail
