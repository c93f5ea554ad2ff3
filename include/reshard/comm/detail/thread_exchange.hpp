// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/thread_exchange.hpp
/// \brief  What ranks that are threads do: agree, split, and exchange, where they match what peers laid out and pull it
///         from their memory, once.
/// \depends comm/detail/{group_engine,peers,thread_team}.hpp, memory/{copy,device_memory}.hpp. No allocation, except
/// for the text of an error.
#pragma once

#include <reshard/comm/detail/group_engine.hpp>
#include <reshard/comm/detail/peers.hpp>
#include <reshard/comm/detail/thread_team.hpp>
#include <reshard/memory/copy.hpp>
#include <reshard/memory/device_memory.hpp>

namespace reshard::inline v0_1::detail {

/// Phase 1 is over: every rank's transfers lie open. Both ends of a pair check it, so both throw the MismatchError
/// unless the k-th send meets a k-th receive of the same extents and types; then move(bytes that all ranks receive)
/// fetches what this rank receives.
template <class Move>
void pull(ThreadTeam& team, int me, TeamCall call, Move&& move) {
    team.read_others(me, call, [&] {
        ThreadSeat& own = team.seat(me);
        Index total = 0;
        for (int r = 0; r < team.size(); ++r) {
            total += team.seat(r).transfers.receive_bytes;
            if (team.seat(r).transfers.number != own.transfers.number)
                team.raise_mismatch(me, -1, -1, transport::order_text(me, r));
        }
        auto const check = [&](int sender, auto sends, int receiver, auto receives) {
            std::string const text = transport::mismatch_text(sender, sends, receiver, receives);
            if (!text.empty()) team.raise_mismatch(me, sender, receiver, text);
        };
        for_each_peer(own.transfers.sends, 0, [&](int peer, std::span<Send const> sends) {
            check(me, sends, peer, transfers_with(team.seat(peer).transfers.receives, me));
        });
        for_each_peer(own.transfers.receives, 0, [&](int peer, std::span<Receive const> receives) {
            check(peer, transfers_with(team.seat(peer).transfers.sends, me), me, receives);
        });
        move(total);
    });
}

/// Calls body(peer, sends, receives) for each rank this one receives from. Everybody starts with another peer, so that
/// ranks do not queue for the same memory.
template <class Body>
void for_each_sender(ThreadTeam& team, int me, Body&& body) {
    for_each_peer(team.seat(me).transfers.receives, me, [&](int peer, std::span<Receive const> receives) {
        body(peer, transfers_with(team.seat(peer).transfers.sends, me), receives);
    });
}

/// Copies from the peers' memory.
inline void pull(ThreadTeam& team, int me) {
    pull(team, me, TeamCall::exchange, [&](Index total) {
        CopyHint const hint = hint_for(total, team.family()->options().streaming_threshold_bytes);
        for_each_sender(team, me, [&](int, std::span<Send const> sends, std::span<Receive const> receives) {
            for (std::size_t k = 0; k < receives.size(); ++k) {
                team.check_poison(me);
                deliver(sends[k], receives[k], hint);
            }
        });
    });
}

/// What has moved when the exchange is over for everybody.
[[nodiscard]] inline Traffic moved_by(transport::BoundTransfers const& all, int me) noexcept {
    auto const sends = transfers_with(all.sends, me);
    Index const local = payload_of(sends);  // as much as it receives from itself
    return {as_index(all.sends.size() - sends.size()), all.send_bytes - local,
            as_index(all.receives.size() - sends.size()), all.receive_bytes - local, local};
}

/// What one rank of a team exchanges.
class ThreadEngine final : public GroupEngine {
public:
    ThreadEngine(std::shared_ptr<ThreadTeam> team, int rank) noexcept
        : GroupEngine("ThreadCommunicator", rank, team->size()), team_(std::move(team)) {}

    [[nodiscard]] std::shared_ptr<ThreadTeam> const& team() const noexcept { return team_; }
    void check_memory(void const* memory) const override { refuse_device_memory("threads", memory); }
    void abort(ErrorCode code, std::string_view reason) noexcept override {
        team_->poison(code, team_->member(rank_), rank_, rank_, reason);
    }

    void start(transport::BoundTransfers const& transfers) override {
        team_->check_poison(rank_, false);
        team_->say(rank_, {TeamCall::exchange});
        team_->seat(rank_).transfers = transfers;  // all can read them when all have arrived
        pulled_ = false;
        team_->arrive(rank_);
    }
    /// One step: pull after phase 1, count after phase 2.
    [[nodiscard]] bool advance(bool may_block) override {
        bool over = false;
        team_->guarded(rank_, [&] {
            if (!team_->meets(rank_, may_block)) return;
            if (!pulled_) {
                pull(*team_, rank_);
                team_->arrive(rank_);
                pulled_ = true;
            }
            over = team_->reached(rank_);
            if (over) traffic_ += moved_by(team_->seat(rank_).transfers, rank_);
        });
        return over;
    }

    [[nodiscard]] Verdict agree(Verdict const& mine) override {
        bool const quiet = mine.ok() && mine.reason.empty();
        ThreadSeat& own = enter({TeamCall::agree, quiet, mine.mark()});
        own.verdict = &mine;
        Verdict joint;
        team_->guarded(rank_, [&] {
            team_->assemble(rank_);
            if (team_->of_one_mind(rank_)) {
                joint.rank = 0;
                joint.digest = mine.digest;
                return;
            }
            read_and_meet([&] {
                auto const verdict = [&](int r) -> Verdict const& { return *team_->seat(r).verdict; };
                joint = transport::joint_verdict(team_->size(), verdict);
            });
        });
        return joint;
    }
    /// Not in line: callers that know the type would have all of it again.
    [[nodiscard, gnu::noinline]] std::shared_ptr<GroupEngine> split(int colour, int key) override {
        ThreadSeat& own = enter({TeamCall::split});
        own.colour = colour;
        own.key = key;
        std::shared_ptr<GroupEngine> mine;
        team_->guarded(rank_, [&, this] {
            int place = 0;
            std::vector<int> ranks;
            team_->assemble(rank_);
            read_and_meet([&, this] {
                ranks = ranks_of_part(rank_, team_->size(), [&](int r) -> ThreadSeat& { return team_->seat(r); });
                while (ranks[as_size(place)] != rank_) ++place;
                if (place == 0) own.child = make_child(ranks);
            });
            team_->assemble(rank_);
            read_and_meet([&, this] { mine = std::make_shared<ThreadEngine>(team_->seat(ranks[0]).child, place); });
            own.child.reset();
        });
        return mine;
    }

private:
    /// Every collective call but an exchange starts here.
    ThreadSeat& enter(ThreadWord const& word) {
        finish();
        team_->check_poison(rank_, false);
        team_->say(rank_, word);
        return team_->seat(rank_);
    }
    /// What follows the first phase.
    void read_and_meet(FunctionRef<void()> body) {
        team_->read_others(rank_, team_->seat(rank_).call, body);
        team_->assemble(rank_);
    }
    [[nodiscard]] std::shared_ptr<ThreadTeam> make_child(std::vector<int> ranks) const {
        for (int& rank : ranks) rank = team_->member(rank);
        return std::make_shared<ThreadTeam>(team_->family(), std::move(ranks));
    }

    std::shared_ptr<ThreadTeam> team_;
    bool pulled_ = false;
};

}  // namespace reshard::inline v0_1::detail
