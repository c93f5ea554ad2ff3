// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/device_thread_exchange.hpp
/// \brief  The data plane of ranks that are threads with a device each: the destination fetches from its peer's memory.
/// \depends comm/detail/{thread_exchange,device_copies,box_pieces}.hpp.
///
/// Ranks meet as those of ThreadCommunicator do, in two phases; what they enqueue between them is ordered by events.
/// Before phase 1 a rank records `ready`: what it sends is there. After it, each destination lets its stream wait for
/// the `ready` of its peers, enqueues its copies and records `fetched`. After phase 2 each rank lets its stream wait
/// for the `fetched` of those it sent to, so whatever it does next overwrites nothing that is still read. The host
/// waits once, at the end.
///
/// Leaving after a failure. Before a rank lowers its flag `reading` it has recorded `fetched` and said so; a rank that
/// leaves has waited for the flags, and then waits for those events, its own among them.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/device_copies.hpp>
#include <reshard/comm/detail/thread_exchange.hpp>
#include <reshard/core/detail/keep_for_good.hpp>
#include <reshard/core/detail/watched.hpp>

namespace reshard::inline v0_1 {

/// How ranks that are threads with devices behave. The deadline is that of ThreadOptions.
struct DeviceThreadOptions {
    /// Pinned memory that pageable or strided memory of the host and values that change pass through, piece by piece.
    /// Taken at once, and shared with what is split off; 0: such transfers are refused. What load() reads into comes on
    /// top, and is kept for the next.
    Index window_bytes = Index{16} << 20;
    /// Of the window and of lists of boxes: a kernel on the device must reach it.
    StagingOptions host_staging = pinned_staging();
    StagingOptions staging = device_staging();  ///< of lists of boxes on the device; where copies are kernels
    /// Open the memory of each device to the others of the exchange, where the machine can do that. Without it copies
    /// between devices go through the host, by CUDA's own means.
    bool peer_access = true;
};

namespace detail {

/// What peers see of a rank beside its seat.
struct DevicePlace {
    explicit DevicePlace(int on) : device(on) {}

    int device;
    std::vector<MemoryKind> sent_from;  ///< where the memory of each send lies
    CudaEvent ready;
    CudaEvent fetched;
    CudaEvent complete;                 ///< the owner's alone
    std::atomic<bool> fetching{false};  ///< `fetched` stands for what this exchange reads, perhaps still
};

/// What one rank's communicators share that were split from one: they are used in the order of one stream.
struct DeviceWindow : HostStaging {
    DeviceWindow(cudaStream_t its_stream, int its_device, DeviceThreadOptions const& its_options)
        : HostStaging("device_threads", its_stream, its_device, its_options.host_staging, its_options.window_bytes),
          options(its_options) {
        open();
    }

    DeviceThreadOptions options;
};

/// `Copies` is how boxes of devices are copied: StridedCopies.
template <class Copies>
class DeviceThreadExchange final : public GroupEngine {
public:
    /// `host` is that of the same rank among threads. Whoever cannot go on is not waited for.
    template <class MakeWindow>
    [[nodiscard]] static std::shared_ptr<DeviceThreadExchange> make(std::shared_ptr<GroupEngine> const& host,
                                                                    MakeWindow&& window) {
        return watched(
            [&] {
                return std::make_shared<DeviceThreadExchange>(std::static_pointer_cast<ThreadEngine>(host), window());
            },
            [&](ErrorCode code, std::string_view why) noexcept { host->abort(code, why); });
    }
    DeviceThreadExchange(std::shared_ptr<ThreadEngine> host, std::shared_ptr<DeviceWindow> window)
        : GroupEngine("DeviceThreadCommunicator", host->rank(), host->size()),
          host_(std::move(host)),
          team_(host_->team()),
          window_(std::move(window)),
          copies_(window_->options.host_staging, window_->options.staging),
          jobs_(std::shared_ptr<std::atomic<std::uint32_t> const>(team_->family(), &team_->family()->state())) {
        CurrentDevice const device(window_->device);
        window_->patience.deadline = comparable(team_->family()->options().deadline);
        auto place = std::make_shared<DevicePlace>(window_->device);
        place_ = place.get();
        ThreadSeat& own = team_->seat(rank_);
        own.kept = std::move(place);  // peers may ask its events after this rank has gone
        own.shown.store(place_, std::memory_order_release);
    }
    ~DeviceThreadExchange() {
        CurrentDevice const device(window_->device, std::nothrow);
        bool const stuck = window_->is_stuck();
        if (stuck) keep_for_good(std::move(jobs_));
        copies_.close(stuck);
    }

    [[nodiscard]] DeviceWindow& window() const noexcept { return *window_; }

    [[nodiscard]] Verdict agree(Verdict const& mine) override {
        finish();
        return host_->agree(mine);
    }
    [[nodiscard]] std::shared_ptr<GroupEngine> split(int colour, int key) override {
        finish();
        return make(host_->split(colour, key), [this] { return window_; });
    }
    void check_memory(void const* memory) const override {
        static_cast<void>(reachable_kind("device_threads", window_->device, memory));
    }
    void abort(ErrorCode code, std::string_view reason) noexcept override { host_->abort(code, reason); }

    void start(transport::BoundTransfers const& transfers) override {
        team_->check_poison(rank_, false);
        closing([&] {
            ThreadSeat& own = team_->seat(rank_);
            team_->say(rank_, {TeamCall::device_exchange});
            own.transfers = {};
            look_up(transfers.sends, place_->sent_from);
            look_up(transfers.receives, received_in_);
            own.transfers = transfers;
            place_->ready.record(window_->stream);
            stage_ = Stage::published;
            team_->arrive(rank_);
        });
    }
    [[nodiscard]] bool advance(bool may_block) override {
        bool over = false;
        closing([&] {
            if (stage_ != Stage::draining && !team_->meets(rank_, may_block)) return;
            if (stage_ == Stage::published) {
                fetch();
                team_->arrive(rank_);
                stage_ = Stage::fetched;
            } else if (stage_ == Stage::fetched) {
                join();
                stage_ = Stage::draining;
            } else if (place_->complete.reached()) {
                if (jobs_.any_called_off()) team_->raise_failure(rank_, true);
                traffic_ += moved_by(team_->seat(rank_).transfers, rank_);
                team_->seat(rank_).transfers = {};  // leave() looks at them
                place_->fetching.store(false, std::memory_order_release);
                over = true;
            } else if (may_block) {
                await_device();
            }
        });
        return over;
    }

private:
    enum class Stage : std::uint8_t { published, fetched, draining };
    /// How a transfer travels.
    enum class Route : std::uint8_t {
        copied,    ///< by `Copies`, where values may change as well
        direct,    ///< by strided copies of CUDA
        by_host,   ///< the host copies, or converts, in the order of the stream
        windowed,  ///< the same, piece by piece, through the window
    };

    template <class Byte>
    void look_up(std::span<Transfer<Byte> const> transfers, std::vector<MemoryKind>& kinds) const {
        kinds.clear();
        for (auto const& transfer : transfers) {
            kinds.push_back(reachable_kind("device_threads", window_->device, transfer.base));
            if (!transfer.conversion.is_plain() && kinds.back() == MemoryKind::device)
                Copies::check_alignment(transfer.base, transfer.box);
        }
    }

    /// Between the phases: enqueues everything this rank receives.
    void fetch() {
        pull(*team_, rank_, TeamCall::device_exchange, [&](Index) {
            make_room();
            place_->fetching.store(true, std::memory_order_relaxed);  // the flag that is up orders it
            watched(
                [&] {
                    for_each_transfer([&](auto const& move) { fetch(move); },
                                      [&](int peer) {
                                          team_->check_poison(rank_);
                                          if (peer != rank_) place_of(peer).ready.hold_up(window_->stream);
                                      });
                    copies_.flush(window_->stream);
                },
                [&](ErrorCode, std::string_view) noexcept {
                    quietly([&] { place_->fetched.record(window_->stream); });  // for what has begun
                });
            place_->fetched.record(window_->stream);
        });
    }
    /// After phase 2: what this rank's stream does next comes after all reads of its memory.
    void join() {
        for_each_peer(team_->seat(rank_).transfers.sends, 0, [&](int peer, std::span<Send const>) {
            if (peer != rank_) place_of(peer).fetched.hold_up(window_->stream);
        });
        place_->complete.record(window_->stream);
        waiting_since_ = Clock::now();
    }
    [[nodiscard]] DevicePlace& place_of(int peer) noexcept {
        return *static_cast<DevicePlace*>(team_->seat(peer).shown.load(std::memory_order_acquire));
    }

    /// A transfer as its receiver sees it.
    struct Move {
        Send const& send;
        Receive const& receive;
        bool from_device;
        bool to_device;
        Route route;
        bool reaches;  ///< whether kernels of this device reach the sender's
    };
    /// Calls begin(peer), then body(move) for each transfer from that peer.
    template <class Body, class Begin>
    void for_each_transfer(Body&& body, Begin&& begin) {
        ThreadSeat const& own = team_->seat(rank_);
        for_each_sender(*team_, rank_, [&](int peer, std::span<Send const> sends, std::span<Receive const> receives) {
            begin(peer);
            DevicePlace const& place = place_of(peer);
            bool const reaches = can_reach(place.device);
            auto const first_send = as_size(sends.data() - team_->seat(peer).transfers.sends.data());
            auto const first_receive = as_size(receives.data() - own.transfers.receives.data());
            for (std::size_t k = 0; k < receives.size(); ++k) {
                MemoryKind const from = place.sent_from[first_send + k];
                MemoryKind const to = received_in_[first_receive + k];
                body(Move{sends[k], receives[k], from == MemoryKind::device, to == MemoryKind::device,
                          route(sends[k], from, receives[k], to, reaches), reaches});
            }
        });
    }
    [[nodiscard]] Route route(Send const& send, MemoryKind from, Receive const& receive, MemoryKind to,
                              bool reaches) const noexcept {
        bool const plain = send.conversion.is_plain() && receive.conversion.is_plain();
        bool const from_device = from == MemoryKind::device;
        bool const to_device = to == MemoryKind::device;
        if (!from_device && !to_device) return Route::by_host;
        if (from_device && to_device) {
            if (reaches && Copies::takes(send, receive)) return Route::copied;
            return plain ? Route::direct : Route::windowed;
        }
        bool const pinned = from == MemoryKind::pinned || to == MemoryKind::pinned;
        bool const is_run = run_of(from_device ? receive.box : send.box).dims_left == 0;
        return plain && pinned && is_run ? Route::direct : Route::windowed;
    }
    /// Asks CUDA once for each device.
    [[nodiscard]] bool can_reach(int device) {
        if (device == window_->device) return true;
        for (auto const& [known, can] : peers_)
            if (known == device) return can;
        bool const can = window_->options.peer_access && open_peer(window_->device, device);
        peers_.emplace_back(device, can);
        return can;
    }

    /// How a transfer is cut for the window, as long as this rank alone moves it.
    [[nodiscard]] PieceRule pieces_of(Move const& move) const {
        Index const bytes = (move.from_device ? move.send.box.element_bytes : 0) +
                            (move.to_device ? move.receive.box.element_bytes : 0);
        Index const most = window_->memory.size() - 2 * StagingOptions::alignment;
        if (bytes > most) {
            raise(ErrorCode::out_of_memory, "reshard::DeviceThreadCommunicator: an element takes ", bytes,
                  " bytes on its way through pinned memory, and the window has ", window_->memory.size(),
                  ". Fix: a larger DeviceThreadOptions::window_bytes, or memory that lies in a row and is "
                  "pinned.");
        }
        return piece_rule_of(move.receive.box, bytes, most);
    }
    /// Before anything is enqueued: what is in use cannot grow.
    void make_room() {
        Index copies = 0;
        Index jobs = 0;
        for_each_transfer(
            [&](Move const& move) {
                if (move.route == Route::copied) ++copies;
                if (move.route == Route::by_host) ++jobs;
                if (move.route != Route::windowed) return;
                Index const pieces = pieces_of(move).pieces;
                jobs += pieces;
                copies += 2 * pieces;
            },
            [](int) {});
        jobs_.reserve(jobs);
        if (copies_.reserve(copies)) return;
        raise_no_memory(window_->stream, concat("reshard::DeviceThreadCommunicator: no memory to list ", copies,
                                                " boxes. Fix: give DeviceThreadOptions a larger source."));
    }

    void fetch(Move const& move) {
        Send const& send = move.send;
        Receive const& receive = move.receive;
        switch (move.route) {
            case Route::copied: return copies_.add(send, receive, window_->stream);
            case Route::direct: return copy_on_stream(send.base, send.box, receive.base, receive.box, window_->stream);
            case Route::by_host: return jobs_.add(send, receive, window_->stream);
            case Route::windowed: return windowed(move);
        }
    }
    /// What lies on a device passes through the window, where the host finds it, or leaves it. The stream keeps pieces
    /// apart.
    void windowed(Move const& move) {
        PieceRule const rule = pieces_of(move);
        for (Index n = 0; n < rule.pieces; ++n) {
            Send from = piece_of(move.send, rule, n);
            Receive const to = piece_of(move.receive, rule, n);
            std::byte* at = window_->memory.data();
            if (move.from_device) {
                through(from, dense_at(at, from), move.reaches);
                from = dense_at<std::byte const>(at, from);
                at += staging_slot(from.box.payload_bytes());
            }
            jobs_.add(from, move.to_device ? dense_at(at, to) : to, window_->stream);
            if (move.to_device) through(dense_at<std::byte const>(at, to), to, true);
        }
    }
    void through(Send const& from, Receive const& to, bool reaches) {
        if (!reaches) return copy_on_stream(from.base, from.box, to.base, to.box, window_->stream);
        copies_.add({0, from.base, from.box}, {0, to.base, to.box}, window_->stream);
        copies_.flush(window_->stream);
    }

    // ---- Waiting for devices, and failure --------------------------------------------------------------------

    [[nodiscard]] std::chrono::milliseconds deadline() const noexcept { return window_->patience.deadline; }
    void await_device() {
        if (detail::await_device(waiting_since_, deadline())) return;
        team_->raise_deadline(
            rank_, concat("reshard::DeviceThreadCommunicator: rank ", team_->member(rank_), " waited ",
                          as_index(deadline().count()),
                          " ms for its device, or for those it sends to, to be done with an exchange. Fix: look for "
                          "what keeps a stream busy, or raise ThreadOptions::deadline."));
    }

    template <class Body>
    void closing(Body&& body) {
        watched(
            [&] {
                team_->guarded(rank_, [&] {
                    CurrentDevice const device(window_->device);
                    body();
                });
            },
            [&](ErrorCode, std::string_view) noexcept { leave(); });
    }
    /// Nobody reads this rank's seat any more. Until no device reads, or writes, its memory, but at most the deadline.
    void leave() noexcept {
        auto const since = Clock::now();
        for (int r = 0; r < team_->size(); ++r) {
            if (r != rank_ && transfers_with(team_->seat(rank_).transfers.sends, r).empty()) continue;
            auto const* const place =
                static_cast<DevicePlace const*>(team_->seat(r).shown.load(std::memory_order_acquire));
            if (place == nullptr || !place->fetching.load(std::memory_order_acquire)) continue;
            if (!place->fetched.outlasts(since, deadline())) continue;
            *window_->patience.stuck = true;
            return;
        }
    }

    std::shared_ptr<ThreadEngine> host_;
    std::shared_ptr<ThreadTeam> team_;
    std::shared_ptr<DeviceWindow> window_;
    Copies copies_;
    DevicePlace* place_ = nullptr;
    std::vector<MemoryKind> received_in_;
    HostJobs jobs_;
    std::vector<std::pair<int, bool>> peers_;  ///< devices, and whether kernels reach them
    Clock::time_point waiting_since_;
    Stage stage_ = Stage::published;
};

}  // namespace detail
}  // namespace reshard::inline v0_1
