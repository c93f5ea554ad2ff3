// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_exchange.hpp
/// \brief  One exchange of an MPI communicator from start to end, and what is kept from one to the next.
/// \depends comm/detail/{mpi_pull,peers}.hpp.
#pragma once

#include <reshard/comm/detail/mpi_pull.hpp>
#include <reshard/comm/detail/peers.hpp>

#include <cerrno>

namespace reshard::inline v0::detail {

class MpiExchange final : public transport::Engine {
public:
    explicit MpiExchange(std::shared_ptr<MpiTeam> team) : team_(std::move(team)) {}
    MpiExchange(MpiExchange const&) = delete;
    MpiExchange& operator=(MpiExchange const&) = delete;
    ~MpiExchange() = default;

    [[nodiscard]] std::shared_ptr<MpiTeam> const& team() const noexcept { return team_; }
    [[nodiscard]] Traffic const& traffic() const noexcept { return traffic_; }

    void start(transport::BoundTransfers const& transfers) override {
        team_->enter(TeamCall::exchange);
        closing([&] {
            sends_ = transfers.sends;
            receives_ = transfers.receives;
            send_bytes_ = transfers.send_bytes;
            receive_bytes_ = transfers.receive_bytes;
            number_ = transfers.number;
            ++epoch_;
            direct_sent_ = direct_received_ = 0;
            finished_ = false;
            leaves_ = transfers.is_replay;
            send_modes_.assign(sends_.size(), MpiMode::message);
            receive_modes_.assign(receives_.size(), MpiMode::message);
            publish();
            lay_lanes();
            // Everything that need not wait for another rank is on its way when this returns.
            team_->greet(transfers);
            expect_the_heard();
            incoming_.step(*team_, types_);
            outgoing_.step(*team_, types_);
        });
    }
    [[nodiscard]] bool advance(bool may_block) override {
        bool complete = may_block;
        closing([&, this] {
            if (may_block) return team_->await([&] { return step(); }, [&](auto&& visit) { missing(visit); });
            complete = step() == MpiStep::complete;
            if (!complete) team_->glance([&](auto&& visit) { missing(visit); });
        });
        return complete;
    }

    /// In an agreement, which all have entered: who has not fetched by now what this rank left for it never expected
    /// it. Throws MismatchError then.
    void settle_late() {
        closing([&] { static_cast<void>(late_have_read()); });
        late_.clear();
    }

private:
    /// Ranks with which this rank exchanges something, and how far that is.
    struct Neighbour {
        int rank = 0;
        int local = 0;
        std::size_t first = 0;  ///< transfers [first, last)
        std::size_t last = 0;
        std::size_t lane = 0;
        Index bytes = 0;  ///< of the first transfer, of readers
        bool done = false;
    };

    template <class Body>
    void closing(Body&& body) {
        try {
            team_->guarded(body);
        } catch (Error const& error) {
            std::string const held = give_up();
            if (held.empty()) throw;
            raise(error.code(), concat(error.message(), held));
        } catch (...) {
            static_cast<void>(give_up());
            throw;
        }
    }
    /// After a failure: lets MPI finish what both sides have begun, and says whose memory it keeps all the same.
    [[nodiscard]] std::string give_up();

    /// Lays the sends to ranks of this node open.
    void publish();

    void lay_lanes();

    [[nodiscard]] MpiStep step() {
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
        for (Neighbour& source : sources_) {
            if (source.done) continue;
            source.done = pull(source);
            moved = moved || source.done;
            all = all && source.done;
        }
        if (incoming_.step(*team_, types_)) moved = true;
        if (all && !finished_) {
            finished_ = true;
            if (team_->node()) team_->node()->own().finished.store(epoch_, std::memory_order_release);
        }
        all = late_have_read() && all;
        for (Neighbour& reader : readers_) {
            if (reader.done || leaves_) continue;
            reader.done = was_read(reader, epoch_);
            moved = moved || reader.done;
            all = all && reader.done;
        }
        if (!all || !incoming_.complete() || !outgoing_.complete() || !greetings.complete())
            return moved ? MpiStep::moved : MpiStep::idle;
        settle();
        return MpiStep::complete;
    }

    /// Ranks of other nodes that have said what they send, which is what this one expects. Whether there are new ones.
    bool expect_the_heard() {
        std::size_t const heard = team_->greetings().heard();
        if (heard == heard_) return false;
        heard_ = heard;
        for (Neighbour& far : far_) {
            if (far.done || !team_->greetings().heard(far.rank)) continue;
            far.done = true;
            incoming_.make_ready(far.lane);
        }
        return true;
    }

    void copy_to_self() {
        int const me = team_->rank();
        std::string const text = transport::mismatch_text(me, self_sends_, me, self_receives_);
        if (!text.empty()) team_->raise_mismatch(me, me, text);
        for (std::size_t k = 0; k < self_sends_.size(); ++k) deliver(self_sends_[k], self_receives_[k], hint_);
    }

    /// Fetches what a rank of this node has published for this one. False if it has not published yet.
    [[nodiscard]] bool pull(Neighbour const& source) {
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
                raise_unreachable(source.rank, "opening the list of sends", "raise the limit of open files");
            Index const size = in_slot ? MpiNode::slot_bytes : seat.list_bytes.load(std::memory_order_acquire);
            std::uint64_t const number = MpiList::number(list);
            entries = MpiList::of(list, size, node.ranks(), node.me());
            std::atomic_thread_fence(std::memory_order_acquire);
            // It has moved on without waiting for this rank: there was nothing for it.
            bool const stands = in_slot ? slot.load(std::memory_order_relaxed) == epoch_
                                        : seat.published.load(std::memory_order_relaxed) == published;
            if (!stands) entries = {};
            if (stands && number != number_)
                team_->raise_mismatch(-1, -1, transport::order_text(source.rank, team_->rank()));
        }
        auto const receives = receives_.subspan(source.first, source.last - source.first);
        for (std::size_t k = 0; k < larger(entries.size(), receives.size()); ++k) {
            check_pair(source.rank, k < entries.size() ? &entries[k].send : nullptr, team_->rank(),
                       k < receives.size() ? &receives[k] : nullptr, k);
        }
        for (std::size_t k = 0; k < receives.size(); ++k) {
            receive_modes_[source.first + k] = entries[k].mode;
            if (entries[k].mode == MpiMode::message) continue;
            fetch(source, list, entries[k], receives[k]);
            ++direct_received_;
        }
        // Had the owner of that memory failed meanwhile, it would have said so before it touched the memory again.
        std::atomic_thread_fence(std::memory_order_acquire);
        if (team_->family()->hear()) team_->raise_failure();
        incoming_.make_ready(source.lane);
        node.pulled(node.me(), source.local, epoch_).store(epoch_, std::memory_order_release);
        return true;
    }
    void fetch(Neighbour const& source, std::byte const* list, MpiPublished const& sent, Receive const& receive);
    /// What a rank of this node has laid open cannot be reached: because it has died, or for a reason of its own.
    [[noreturn]] void raise_unreachable(int rank, std::string_view what, std::string_view fix) {
        if (team_->family()->hear(true)) team_->raise_failure();
        int const pid = team_->process(rank);
        if (!process_lives(pid)) team_->raise_death(rank, pid);
        raise(ErrorCode::transport, concat("reshard::MpiCommunicator: ", what, " of rank ", rank, " (process ", pid,
                                           ") failed. Fix: ", fix, "."));
    }

    /// Whether a rank of this node has fetched what this one published for it. Throws MismatchError where it is over
    /// for that rank, and it has not.
    [[nodiscard]] bool was_read(Neighbour const& reader, std::uint64_t epoch) {
        MpiNode& node = *team_->node();
        auto const read = [&] {
            return node.pulled(reader.local, node.me(), epoch).load(std::memory_order_acquire) >= epoch;
        };
        if (read()) return true;
        if (node.seat(reader.local).finished.load(std::memory_order_acquire) < epoch || read()) return read();
        int const me = team_->rank();
        team_->raise_mismatch(me, reader.rank, transport::mismatch_text(me, reader.bytes, reader.rank, -1, 0));
    }
    /// The same of the exchange before this one.
    [[nodiscard]] bool late_have_read() {
        while (!late_.empty() && was_read(late_.back(), late_epoch_)) late_.pop_back();
        return late_.empty();
    }
    /// Throws MismatchError, on both ranks, unless the k-th send meets a k-th receive of the same extents and types.
    void check_pair(int sender, Send const* send, int receiver, Receive const* receive, std::size_t nth) {
        if (send != nullptr && receive != nullptr && transport::same_extents(*send, *receive)) return;
        team_->raise_mismatch(sender, receiver,
                              transport::mismatch_text(sender, send, receiver, receive, static_cast<int>(nth)));
    }

    template <class Visit>
    void missing(Visit&& visit) const {
        for (Neighbour const& source : sources_)
            if (!source.done) visit(source.rank);
        for (Neighbour const& reader : readers_)
            if (!reader.done && !leaves_) visit(reader.rank);
        for (Neighbour const& reader : late_) visit(reader.rank);
        incoming_.missing(visit);
        outgoing_.missing(visit);
        team_->greetings().missing(visit);
    }

    void settle() noexcept {
        late_epoch_ = epoch_;
        for (Neighbour const& reader : readers_)
            if (leaves_) late_.push_back(reader);
        Index const local = payload_of(self_sends_);
        traffic_ += {direct_sent_ + outgoing_.take_messages(), send_bytes_ - local,
                     direct_received_ + incoming_.take_messages(), receive_bytes_ - local, local};
    }

    std::shared_ptr<MpiTeam> team_;
    MpiTypes types_;
    MpiLanes<std::byte const> outgoing_;
    MpiLanes<std::byte> incoming_;
    MpiAttach attach_;
    std::span<Send const> sends_;
    std::span<Receive const> receives_;
    std::span<Send const> self_sends_;
    std::span<Receive const> self_receives_;
    std::vector<MpiMode> send_modes_;
    std::vector<MpiMode> receive_modes_;
    std::vector<Neighbour> readers_;
    std::vector<Neighbour> sources_;
    std::vector<Neighbour> late_;  ///< readers of the exchange before, that may not have fetched what is theirs
    std::vector<Neighbour> far_;   ///< ranks of other nodes that this one receives from; done: it knows what
    std::size_t heard_ = 0;
    std::uint64_t epoch_ = 0;
    std::uint64_t late_epoch_ = 0;
    std::uint64_t number_ = 0;
    Index send_bytes_ = 0;
    Index receive_bytes_ = 0;
    Index direct_sent_ = 0;
    Index direct_received_ = 0;
    CopyHint hint_ = CopyHint::cached;
    Traffic traffic_;
    bool self_done_ = false;
    bool finished_ = false;
    bool leaves_ = false;  ///< without waiting for readers
};

/// Left alone once its family has failed, as a team is.
[[nodiscard]] inline std::shared_ptr<MpiExchange> make_mpi_exchange(std::shared_ptr<MpiTeam> team) {
    return {new MpiExchange(std::move(team)), [](MpiExchange* exchange) {
                if (!exchange->team()->family()->poisoned()) delete exchange;
            }};
}

}  // namespace reshard::inline v0::detail

#include <reshard/comm/detail/mpi_exchange.ipp>
