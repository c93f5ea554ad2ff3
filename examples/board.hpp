// SPDX-License-Identifier: Apache-2.0
//
// A whole transport on a few pages: the worked example of docs/communicators.md. Ranks are threads that meet at a
// board: each pins up what it has, waits for the others, copies from their memory, and waits again.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/memory/copy.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace board {

using namespace reshard;

// One fate for a communicator and all that were split from it.
struct Family {
    std::chrono::milliseconds deadline;
    std::mutex mutex;
    std::condition_variable changed;
    int readers = 0;  // ranks that copy from the memory of others right now
    ErrorCode code = ErrorCode::none;
    std::string reason;
    void const* where = nullptr;  // the board, and the ranks on it, that get the error itself and not PeerFailed
    int first = -1;
    int second = -1;
};

struct Board;

// What one rank has pinned up. The others read it between two meetings.
struct Seat {
    Board* board = nullptr;
    int rank = 0;
    int outermost = 0;  // its number in the communicator that all others were split from
    int meetings = 0;
    bool pulled = false;
    std::span<transport::Send const> sends;
    std::span<transport::Receive const> receives;
    std::uint64_t number = 0;  // of the exchange
    transport::Verdict const* verdict = nullptr;
    int colour = 0;
    int key = 0;
    std::shared_ptr<Board> part;
    Traffic traffic;
};

struct Board {
    std::shared_ptr<Family> family;
    std::vector<Seat> seats;

    Board(std::shared_ptr<Family> shared, int ranks) : family(std::move(shared)), seats(std::size_t(ranks)) {
        for (int r = 0; r < ranks; ++r) at(r).board = this, at(r).rank = at(r).outermost = r;
    }
    Seat& at(int rank) { return seats[std::size_t(rank)]; }

    // 1. Failure: the first one counts. A rank leaves when nobody reads its memory any more.
    void poison(ErrorCode code, std::string reason, int first, int second) {
        if (family->code != ErrorCode::none) return;
        family->reason = std::move(reason);
        family->code = code;
        family->where = this, family->first = first, family->second = second;
        family->changed.notify_all();
    }
    void check(std::unique_lock<std::mutex>& lock, int me) {
        if (family->code == ErrorCode::none) return;
        family->changed.wait(lock, [&] { return family->readers == 0; });
        bool const mine = family->where == this && (family->first == me || family->second == me);
        if (mine) errors::raise(family->code, family->reason);
        errors::raise(ErrorCode::peer_failed, "board: another rank failed: ", family->reason);
    }

    // 2. Meetings: the only place where a rank waits, so one deadline covers all.
    void arrive(int me) {
        std::unique_lock lock(family->mutex);
        check(lock, me);
        ++at(me).meetings;
        family->changed.notify_all();
    }
    bool met(int me, bool may_block) {
        std::unique_lock lock(family->mutex);
        auto const late = [&] {
            return std::find_if(seats.begin(), seats.end(), [&](Seat& s) { return s.meetings < at(me).meetings; });
        };
        auto const over = [&] { return late() == seats.end() || family->code != ErrorCode::none; };
        if (may_block && !family->changed.wait_for(lock, family->deadline, over)) {
            poison(ErrorCode::deadline, errors::concat("board: rank ", late()->outermost, " is late. Fix: see why."),
                   me, me);
        }
        if (late() == seats.end()) return true;
        check(lock, me);
        return false;
    }
    template <class Body>
    void read(int me, Body&& body) {
        std::unique_lock lock(family->mutex);
        check(lock, me);
        ++family->readers;
        lock.unlock();
        std::exception_ptr error;
        try {
            body();
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        --family->readers;
        if (error) poison(ErrorCode::out_of_memory, "board: no memory", -1, -1);
        family->changed.notify_all();
        if (error) family->changed.wait(lock, [&] { return family->readers == 0; });
        if (error) std::rethrow_exception(error);
        check(lock, me);
    }
    template <class Body>
    void meet(int me, Body&& body) {
        arrive(me), met(me, true);
        read(me, body);
        arrive(me), met(me, true);
    }

    // 3. The exchange: the k-th send of s to d meets the k-th receive of d from s. Both check it, both throw.
    template <class T>
    static std::span<T const> with(std::span<T const> sorted, int peer) {
        auto const before = [](T const& a, T const& b) { return a.peer < b.peer; };
        auto const [low, high] = std::equal_range(sorted.begin(), sorted.end(), T{peer, nullptr, {}}, before);
        return {low, high};
    }
    bool matches(int from, int to) {
        auto const sends = with(at(from).sends, to);
        auto const receives = with(at(to).receives, from);
        std::string const text = at(from).number == at(to).number ? transport::mismatch_text(from, sends, to, receives)
                                                                  : transport::order_text(from, to);
        if (text.empty()) return true;
        std::lock_guard const lock(family->mutex);
        poison(ErrorCode::mismatch, text, from, to);
        return false;
    }
    void pull(int me) {
        for (int r = 0; r < int(seats.size()); ++r)
            if (!matches(me, r) || !matches(r, me)) return;  // read() throws
        for (int r = 0; r < int(seats.size()); ++r) {
            auto const sends = with(at(r).sends, me);
            auto const receives = with(at(me).receives, r);
            for (std::size_t k = 0; k < receives.size(); ++k) transport::deliver(sends[k], receives[k]);
        }
    }
    void count(Seat& own) {
        auto const add = [&](auto transfers, Index& messages, Index& bytes, Index& local) {
            for (auto const& transfer : transfers) {
                (transfer.peer == own.rank ? local : bytes) += transfer.payload_bytes();
                messages += transfer.peer == own.rank ? 0 : 1;
            }
        };
        Index same = 0;
        add(own.sends, own.traffic.messages_sent, own.traffic.bytes_sent, own.traffic.bytes_local);
        add(own.receives, own.traffic.messages_received, own.traffic.bytes_received, same);
    }
    bool advance(Seat& own, bool may_block) {  // one step; true: there is nothing left to do
        if (!met(own.rank, may_block)) return false;
        if (own.pulled) return count(own), true;
        read(own.rank, [&] { pull(own.rank); });
        arrive(own.rank);
        own.pulled = true;
        return false;
    }
};

// 4. The engine: carries out one exchange after the other. transport::InOrder makes of it what bind() returns.
struct Engine final : transport::Engine {
    explicit Engine(Seat& mine) : own(&mine) {}
    void start(transport::BoundTransfers const& transfers) override {
        own->sends = transfers.sends, own->receives = transfers.receives, own->number = transfers.number;
        own->pulled = false;
        own->board->arrive(own->rank);
    }
    bool advance(bool may_block) override { return own->board->advance(*own, may_block); }

    Seat* own;
};

// 5. The communicator: a seat at a board.
class BoardCommunicator : public CommunicatorBase<BoardCommunicator> {
public:
    static constexpr std::string_view name = "board";
    using exchange_type = transport::InOrder;
    using CommunicatorBase<BoardCommunicator>::split;

    BoardCommunicator(std::shared_ptr<Board> board, int rank)
        : board_(std::move(board)), own_(&board_->at(rank)), engine_(std::make_unique<Engine>(*own_)) {}
    BoardCommunicator(BoardCommunicator&&) = default;
    BoardCommunicator& operator=(BoardCommunicator&&) = default;

    int rank() const noexcept { return own_->rank; }
    int size() const noexcept { return int(board_->seats.size()); }
    Traffic traffic() const noexcept { return own_->traffic; }

    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return {*engine_, transport::bound_transfers("BoardCommunicator", sends, receives, size())};
    }
    transport::Verdict agree(transport::Verdict mine) {
        engine_->finish();
        own_->verdict = &mine;
        transport::Verdict joint;
        board_->meet(rank(), [&] {
            auto const verdict_of = [&](int r) -> transport::Verdict const& { return *board_->at(r).verdict; };
            joint = transport::joint_verdict(size(), verdict_of);
        });
        return joint;
    }
    BoardCommunicator split(int colour, int key) {
        engine_->finish();
        own_->colour = colour, own_->key = key;
        std::vector<int> ranks;
        std::shared_ptr<Board> part;
        board_->meet(rank(), [&] {
            for (int r = 0; r < size(); ++r)
                if (r == rank() || (colour >= 0 && board_->at(r).colour == colour)) ranks.push_back(r);
            auto const by_key = [&](int a, int b) { return board_->at(a).key < board_->at(b).key; };
            std::stable_sort(ranks.begin(), ranks.end(), by_key);
            if (ranks[0] != rank()) return;  // the first one brings the new board
            own_->part = std::make_shared<Board>(board_->family, int(ranks.size()));
            for (Seat& seat : own_->part->seats) seat.outermost = board_->at(ranks[std::size_t(seat.rank)]).outermost;
        });
        board_->meet(rank(), [&] { part = board_->at(ranks[0]).part; });
        own_->part.reset();
        return {std::move(part), int(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin())};
    }
    void abort(ErrorCode, std::string_view reason) noexcept {
        std::lock_guard const lock(board_->family->mutex);
        board_->poison(ErrorCode::user, errors::concat("rank ", own_->outermost, ": ", reason), -1, -1);
    }

private:
    std::shared_ptr<Board> board_;
    Seat* own_;
    std::unique_ptr<Engine> engine_;
};

static_assert(Communicator<BoardCommunicator>);

}  // namespace board
