// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/replay.hpp
/// \brief  A world of any number of ranks in one thread: each rank runs until it needs the others, then starts anew.
///
/// At a collective call whose outcome is not known yet a rank leaves what it brings and stops (by an exception that no
/// library code may catch). When all have, the outcome is known, and every rank runs again from its beginning, up to
/// the next one. So the body must not change anything that it reads before its last collective call: what a call that
/// is all or nothing promises is needed to run it here. A rank that decides by itself to go elsewhere, which would hang
/// a real world, is seen at once: the ranks stand at different calls.
///
///     std::vector<RankEnd> ends = ReplayWorld(1024).run([&](ReplayCommunicator& comm) { ... });
#pragma once

#include <reshard/comm/communicator.hpp>

#include <support/allocations.hpp>

#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace reshard::test {

/// How a rank's body ended.
struct RankEnd {
    ErrorCode code = ErrorCode::none;
    std::string message;
    Traffic traffic;
    int agreements = 0;
    int exchanges = 0;
};

namespace replay {

struct Stop {};  ///< not a std::exception: verdict_of() and its like would swallow that

enum class Call : std::uint8_t { none, agreement, exchange };

/// What a rank may not allocate does not bind what stands for the network.
class Unlimited {
public:
    Unlimited() { allocation_counter().refused_from = SIZE_MAX; }
    ~Unlimited() { allocation_counter().refused_from = before_; }
    Unlimited(Unlimited const&) = delete;
    Unlimited& operator=(Unlimited const&) = delete;

private:
    std::size_t before_ = allocation_counter().refused_from;
};

/// What a rank brings to a collective call.
struct Brought {
    Call call = Call::none;
    transport::Verdict verdict;
    std::vector<std::byte> bytes;  ///< all it sends, one transfer behind the other
    struct Piece {
        int peer = 0;
        Index begin = 0;
        Index size = 0;
    };
    std::vector<Piece> pieces;
};
/// A collective call that all ranks have come to.
struct Done {
    std::vector<Brought> brought;  ///< by rank
    transport::Verdict joint;
    std::vector<std::vector<std::pair<int, Brought::Piece>>> inbox;  ///< by destination: (source, where), by source
};

/// Where a dense transfer begins. All that the mch room moves is dense.
template <class Byte>
[[nodiscard]] Byte* dense(transport::Transfer<Byte> const& transfer) {
    Index expected = transfer.box.element_bytes;
    for (int d = transfer.box.dims.size() - 1; d >= 0; --d) {
        if (transfer.box.dims[d].stride != expected && transfer.box.dims[d].extent != 1) {
            errors::raise(ErrorCode::transport, "tests: the replayed world moves dense memory only.");
        }
        expected *= transfer.box.dims[d].extent;
    }
    return transfer.base;
}

}  // namespace replay

class ReplayCommunicator;

class ReplayWorld {
public:
    explicit ReplayWorld(int ranks) : ranks_(ranks) {}

    /// Makes `rank` say in its n-th agreement (from 0) that it failed.
    void fail(int rank, int nth, ErrorCode code, std::string reason) {
        failing_rank_ = rank;
        failing_nth_ = nth;
        failure_ = {code, rank, std::move(reason), 0};
    }

    /// Overwrites a number in what `source` sends `destination` in the n-th exchange (from 0), `at` bytes from its
    /// begin.
    void tamper(int nth, int source, int destination, Index at, Index value) {
        tampers_.push_back({nth, source, destination, at, value});
    }

    /// One entry per rank. Where ranks go different ways, every entry is a TransportError that says so.
    template <class Body>
    [[nodiscard]] std::vector<RankEnd> run(Body&& body);

    [[nodiscard]] int size() const noexcept { return ranks_; }

private:
    friend class ReplayCommunicator;

    /// True when all ranks that go on stand at the same call, which then is done.
    [[nodiscard]] bool complete(std::vector<replay::Brought>&& brought) {
        replay::Done done;
        done.brought = std::move(brought);
        replay::Call const call = done.brought[0].call;
        for (replay::Brought const& one : done.brought)
            if (one.call != call) return false;
        if (call == replay::Call::agreement) {
            done.joint = transport::joint_verdict(ranks_, [&](int r) -> transport::Verdict const& {
                return done.brought[static_cast<std::size_t>(r)].verdict;
            });
        } else {
            for (Tamper const& one : tampers_) {
                if (one.nth != exchanges_) continue;
                replay::Brought& from = done.brought[static_cast<std::size_t>(one.source)];
                for (auto const& piece : from.pieces) {
                    if (piece.peer != one.destination) continue;
                    std::memcpy(from.bytes.data() + piece.begin + one.at, &one.value, sizeof(one.value));
                }
            }
            ++exchanges_;
            done.inbox.resize(static_cast<std::size_t>(ranks_));
            for (int r = 0; r < ranks_; ++r) {
                for (auto const& piece : done.brought[static_cast<std::size_t>(r)].pieces) {
                    done.inbox[static_cast<std::size_t>(piece.peer)].push_back({r, piece});
                }
            }
        }
        done_.push_back(std::move(done));
        return true;
    }

    struct Tamper {
        int nth;
        int source;
        int destination;
        Index at;
        Index value;
    };

    int ranks_;
    int exchanges_ = 0;
    int failing_rank_ = -1;
    int failing_nth_ = 0;
    transport::Verdict failure_;
    std::vector<Tamper> tampers_;
    std::vector<replay::Done> done_;
    std::vector<replay::Brought> next_;  ///< what ranks bring to the call that is not done
};

class ReplayCommunicator : public CommunicatorBase<ReplayCommunicator> {
public:
    static constexpr std::string_view name = "replay";
    using exchange_type = transport::InOrder;
    using CommunicatorBase<ReplayCommunicator>::split;

    ReplayCommunicator(ReplayWorld& world, int rank) noexcept : world_(&world), rank_(rank) {}
    ReplayCommunicator(ReplayCommunicator&&) noexcept = default;
    ReplayCommunicator& operator=(ReplayCommunicator&&) noexcept = default;
    ReplayCommunicator(ReplayCommunicator const&) = delete;
    ReplayCommunicator& operator=(ReplayCommunicator const&) = delete;
    ~ReplayCommunicator() = default;

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return world_->ranks_; }
    [[nodiscard]] Traffic traffic() const noexcept { return end_.traffic; }
    [[nodiscard]] RankEnd& end() noexcept { return end_; }

    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) {
        replay::Unlimited const unlimited;
        bool const fails = rank_ == world_->failing_rank_ && end_.agreements == world_->failing_nth_;
        ++end_.agreements;
        if (auto const* done = next(replay::Call::agreement)) return done->joint;
        brought().call = replay::Call::agreement;
        brought().verdict = fails ? world_->failure_ : std::move(mine);
        throw replay::Stop{};
    }

    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        engine_.comm = this;
        return {engine_, {sends, receives, 0, 0, 0}};
    }

    [[noreturn]] ReplayCommunicator split(int, int) { refuse("no split"); }
    void abort(ErrorCode, std::string_view) noexcept {}

private:
    struct Engine final : transport::Engine {
        ReplayCommunicator* comm = nullptr;
        void start(transport::BoundTransfers const& transfers) override {
            comm->move(transfers.sends, transfers.receives);
        }
        [[nodiscard]] bool advance(bool) override { return true; }
    };
    void move(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        replay::Unlimited const unlimited;
        ++end_.exchanges;
        if (auto const* done = next(replay::Call::exchange)) {
            return receive(*done, receives);
        }
        replay::Brought& mine = brought();
        mine.call = replay::Call::exchange;
        int last = 0;
        for (transport::Send const& send : sends) {
            if (send.peer < last || send.peer >= size()) refuse("sends are not sorted by peer");
            last = send.peer;
            Index const size = send.payload_bytes();
            auto const begin = static_cast<Index>(mine.bytes.size());
            mine.pieces.push_back({send.peer, begin, size});
            std::byte const* const base = replay::dense(send);
            mine.bytes.insert(mine.bytes.end(), base, base + size);
        }
        throw replay::Stop{};
    }
    [[noreturn]] static void refuse(std::string_view what) {
        errors::raise(ErrorCode::transport, errors::concat("tests: replayed world: ", what, "."));
    }
    [[nodiscard]] replay::Brought& brought() { return world_->next_[static_cast<std::size_t>(rank_)]; }
    [[nodiscard]] replay::Done const* next(replay::Call call) {
        if (at_ == world_->done_.size()) return nullptr;
        replay::Done const& done = world_->done_[at_++];
        if (done.brought[0].call != call) refuse("a rank went another way the second time");
        return &done;
    }
    void receive(replay::Done const& done, std::span<transport::Receive const> receives) {
        auto const& inbox = done.inbox[static_cast<std::size_t>(rank_)];
        if (inbox.size() != receives.size()) refuse("transfers that are sent and received differ in number");
        for (std::size_t i = 0; i < receives.size(); ++i) {
            auto const& [source, piece] = inbox[i];
            Index const size = receives[i].payload_bytes();
            if (receives[i].peer != source || size != piece.size) refuse("transfers differ in peers or sizes");
            replay::Brought const& from = done.brought[static_cast<std::size_t>(source)];
            std::memcpy(replay::dense(receives[i]), from.bytes.data() + piece.begin, static_cast<std::size_t>(size));
            if (source == rank_) {
                end_.traffic.bytes_local += size;
            } else {
                end_.traffic.bytes_received += size;
                ++end_.traffic.messages_received;
            }
        }
        int last = -1;
        for (auto const& piece : done.brought[static_cast<std::size_t>(rank_)].pieces) {
            if (piece.peer == rank_) continue;
            end_.traffic.bytes_sent += piece.size;
            end_.traffic.messages_sent += piece.peer != last ? 1 : 0;
            last = piece.peer;
        }
    }

    ReplayWorld* world_;
    int rank_;
    std::size_t at_ = 0;
    Engine engine_;
    RankEnd end_;
};

template <class Body>
std::vector<RankEnd> ReplayWorld::run(Body&& body) {
    auto const ranks = static_cast<std::size_t>(ranks_);
    std::vector<std::optional<RankEnd>> ends(ranks);
    done_.clear();
    exchanges_ = 0;
    for (;;) {
        std::size_t ended = 0;
        next_.assign(ranks, {});
        for (std::size_t r = 0; r < ranks; ++r) {
            ReplayCommunicator comm(*this, static_cast<int>(r));
            try {
                body(comm);
                ends[r] = comm.end();
            } catch (replay::Stop const&) {
                continue;
            } catch (Error const& error) {
                ends[r] = comm.end();
                ends[r]->code = error.code();
                ends[r]->message = error.message();
            } catch (std::exception const& error) {
                ends[r] = comm.end();
                ends[r]->code = ErrorCode::user;
                ends[r]->message = errors::concat("tests: what the caller does not expect: ", error.what());
            }
            ++ended;
        }
        if (ended == ranks) break;
        if (ended == 0 && complete(std::move(next_))) continue;
        std::string text = "tests: ranks went different ways:";  // in a real world they would wait forever
        for (std::size_t r = 0; r < ranks; ++r) {
            text += errors::concat(" rank ", r,
                                   ends[r] ? errors::concat(" ended (", ends[r]->message, ")")
                                   : next_.size() == ranks && next_[r].call == replay::Call::exchange
                                       ? std::string(" exchanges")
                                       : std::string(" waits"));
        }
        RankEnd diverged;
        diverged.code = ErrorCode::transport;
        diverged.message = text;
        return std::vector<RankEnd>(ranks, diverged);
    }
    std::vector<RankEnd> result;
    for (auto& end : ends) result.push_back(std::move(*end));
    return result;
}

}  // namespace reshard::test
