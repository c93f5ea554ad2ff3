// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/staged_on_host_exchange.hpp
/// \brief  One exchange of device memory over a transport of the host: packed into a window, moved, unpacked, in
///         rounds.
/// \depends comm/communicator.hpp, comm/detail/{box_pieces,device_copies}.hpp.
///
/// The transport's exchange() is collective, so every rank must take part in as many rounds, and the two sides of a
/// pair must cut what they move alike. Neither is known to a rank alone. So ranks first count: in each step, every rank
/// tells up to 31 others the largest numbers it has heard of, and after log32(ranks) steps all know the largest of all:
/// the peers that some rank has, whether some rank's transfers exceed its window, and the smallest window. If nobody's
/// do, there is one round. Else a pair's share of a round is the window divided by the peers; the rounds follow from
/// it, and are counted the same way. What travels in a round follows from the share and from the pair's transfers alone
/// (detail/box_pieces.hpp): whether a side packs is its own matter.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/device_copies.hpp>
#include <reshard/core/detail/keep_for_good.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/memory/cuda_call.hpp>

#include <algorithm>  // find, sort
#include <array>
#include <memory>  // unique_ptr

namespace reshard::inline v0_1 {

/// How device memory passes through the host. `stream` is of the device that is current when the communicator is made;
/// what exchanges read must be produced there, or awaited there.
struct StagedOnHostOptions {
    explicit StagedOnHostOptions(cudaStream_t its_stream) noexcept : stream(its_stream) {}

    cudaStream_t stream;
    /// At most about so much pinned memory per communicator (256 bytes for each peer, single elements, and what load()
    /// reads into, which is kept for the next, aside): a larger exchange goes in rounds. The smallest of all ranks
    /// counts.
    Index window_bytes = Index{64} << 20;
    /// Where it comes from; with kernels, they must reach it. It grows to what the largest exchange needed; with a
    /// reserve of window_bytes this communicator, though not what is split from it, allocates nothing later.
    StagingOptions staging = pinned_staging();
    std::chrono::milliseconds deadline = std::chrono::minutes(5);  ///< of a wait for the device; ranks have their own
};

namespace detail {

template <class C, class Copies>
class StagedOnHostExchange final : public transport::Engine {
public:
    /// If it throws, `inner` is as it was.
    StagedOnHostExchange(C&& inner, StagedOnHostOptions const& options)
        : options_(checked(options)),
          device_(current_device()),
          window_(options.staging),
          host_staging_(C::name, options.stream, device_, options.staging,
                        smaller(options.window_bytes, host_staging_bytes)),
          copies_(options.staging, device_staging()),
          inner_(std::move(inner)) {
        host_staging_.patience.deadline = options_.deadline;
        static_cast<void>(window_.grow(options.staging.reserve_bytes));  // if there is none, an exchange says so
    }
    StagedOnHostExchange& operator=(StagedOnHostExchange&&) = delete;
    ~StagedOnHostExchange() {
        bool const stuck = host_staging_.is_stuck();
        window_.close(stuck || lost_);
        copies_.close(stuck);
        if (lost_) keep_for_good(std::move(told_));
    }

    [[nodiscard]] C& inner() noexcept { return inner_; }
    [[nodiscard]] StagedOnHostOptions const& options() const noexcept { return options_; }
    [[nodiscard]] int device() const noexcept { return device_; }
    [[nodiscard]] Traffic const& traffic() const noexcept { return traffic_; }
    [[nodiscard]] Index staging_bytes() const noexcept { return window_.size() + host_staging_.memory.size(); }
    /// For what plans do between exchanges: the window is in use while one is under way.
    [[nodiscard]] HostStaging& host_staging() noexcept { return host_staging_; }

    /// Never waits for other ranks.
    void start(transport::BoundTransfers const& transfers) override {
        closing([&, this] {
            transfers_ = transfers;
            uses_device_ = look_up(transfers.sends, sent_from_);
            uses_device_ = look_up(transfers.receives, received_in_) || uses_device_;
            queues_.out.lay(transfers.sends, inner_.rank(), inner_.size());
            queues_.in.lay(transfers.receives, inner_.rank(), inner_.size());
            keep_own();
            share_ = {INT_MAX, INT64_MAX / 4, 0};
            need_ = walk_rounds();
            told_->known = {as_index(larger(queues_.out.all.size(), queues_.in.all.size())),
                            need_.room > options_.window_bytes ? Index{1} : Index{0}, -options_.window_bytes};
            counts_rounds_ = false;
            count_on(1);
        });
    }
    [[nodiscard]] bool advance(bool may_block) override {
        closing([&] {
            if (stage_ == Stage::counting || stage_ == Stage::moving) {
                if (!watched([&, this] { return may_block ? (round_.wait(), true) : round_.test(); }, losing())) return;
                return stage_ == Stage::counting ? heard() : unpack();
            }
            if (uses_device_ && !event_.reached()) {
                if (may_block) await_device();
                return;
            }
            if (stage_ == Stage::packing) return move();
            traffic_ += moving_;
            stage_ = Stage::idle;
        });
        return stage_ == Stage::idle;
    }

private:
    enum class Stage : std::uint8_t { idle, counting, packing, moving, landing };

    [[nodiscard]] static StagedOnHostOptions checked(StagedOnHostOptions options) {
        options.deadline = check_deadline("StagedOnHostOptions", options.deadline);
        return options;
    }
    static constexpr Index host_staging_bytes = Index{4} << 20;
    static constexpr int told_at_once = 32;  ///< ranks that know the same after the first step of counting

    struct Need {
        Index rounds = 0;
        Index room = 0;  ///< of the window, in the largest round
        Index copies = 0;
    };

    // ---- Who moves what ---------------------------------------------------------------------------------------

    /// Finds out where each lies; whether any does on the device.
    template <class Byte>
    [[nodiscard]] bool look_up(std::span<Transfer<Byte> const> transfers, std::vector<MemoryKind>& kinds) const {
        kinds.clear();
        for (auto const& transfer : transfers) kinds.push_back(reachable_kind(C::name, device_, transfer.base));
        return std::find(kinds.begin(), kinds.end(), MemoryKind::device) != kinds.end();
    }
    /// What stays with the rank stays on the device, if it lies there and keeps its values.
    void keep_own() {
        auto& sends = queues_.out.own;
        auto& receives = queues_.in.own;
        bool keeps = sends.size() == receives.size();
        for (std::size_t k = 0; keeps && k < sends.size(); ++k) {
            Send const& send = sends[k];
            Receive const& receive = receives[k];
            keeps = is_staged(send) && is_staged(receive) && send.conversion.is_plain() &&
                    receive.conversion.is_plain() && transport::same_extents(send, receive);
        }
        if (keeps) return queues_.leave_out_own();
        sends = {};  // the transport knows what to do, or to say
        receives = {};
    }

    [[nodiscard]] bool is_staged(Send const& send) const noexcept {
        return sent_from_[as_size(&send - queues_.out.transfers.data())] == MemoryKind::device;
    }
    [[nodiscard]] bool is_staged(Receive const& receive) const noexcept {
        return received_in_[as_size(&receive - queues_.in.transfers.data())] == MemoryKind::device;
    }
    [[nodiscard]] Need walk_rounds() {
        Need need;
        need.copies = as_index(queues_.out.own.size());
        queues_.rewind();
        do {
            Index room = 0;
            auto const count = [&](auto const& transfer, auto const& piece) {
                if (!is_staged(transfer)) return;
                room += staging_slot(piece.payload_bytes());
                if (!transfer.conversion.is_plain()) room += staging_slot(piece.box.payload_bytes());
                ++need.copies;
            };
            queues_.out.take_rounds(share_, 0, inner_.size(), count);
            queues_.in.take_rounds(share_, 0, inner_.size(), count);
            need.room = larger(need.room, room);
            ++need.rounds;
        } while (queues_.go_on());
        return need;
    }

    // ---- Counting ---------------------------------------------------------------------------------------------

    /// The step in which each rank tells those at 1, 2, ... 31 times `distance` what it knows.
    void count_on(int distance) {
        int const ranks = inner_.size();
        if (distance >= ranks) return counted();
        distance_ = distance;
        now_sent_.clear();
        now_received_.clear();
        StridedBox const box{{}, Index{sizeof(Known)}};
        for (int k = 1; k < told_at_once && Index{k} * distance < ranks; ++k) {
            int const ahead = k * distance;
            now_sent_.push_back(
                {(inner_.rank() + ahead) % ranks, reinterpret_cast<std::byte const*>(&told_->known), box});
            now_received_.push_back({(inner_.rank() + ranks - ahead) % ranks,
                                     reinterpret_cast<std::byte*>(&told_->heard[as_size(k)]), box});
        }
        std::ranges::sort(now_sent_, {}, &Send::peer);
        std::ranges::sort(now_received_, {}, &Receive::peer);
        pass_on(Stage::counting);
    }
    void heard() {
        Known& known = told_->known;
        for (std::size_t k = 1; k <= now_received_.size(); ++k)
            for (std::size_t i = 0; i < known.size(); ++i) known[i] = larger(known[i], told_->heard[k][i]);
        // * would overflow for the last step of very many ranks
        count_on(distance_ > inner_.size() / told_at_once ? inner_.size() : distance_ * told_at_once);
    }
    void counted() {
        Known& known = told_->known;
        if (!counts_rounds_ && known[1] != 0) {
            constexpr Index overhead = 2 * StagingOptions::alignment;  // of two areas
            share_ = {INT_MAX, larger<Index>(-known[2] / 2 / larger<Index>(known[0], 1), 2 * overhead), overhead};
            need_ = walk_rounds();
            known = {0, need_.rounds, 0};
            counts_rounds_ = true;
            return count_on(1);
        }
        rounds_ = counts_rounds_ ? known[1] : 1;
        if (!window_.grow(need_.room) || !copies_.reserve(need_.copies)) {
            raise_no_memory(
                options_.stream,
                concat("reshard::StagedOnHost (", std::string_view(C::name), "): no pinned memory for ", need_.room,
                       " bytes. Fix: a smaller StagedOnHostOptions::window_bytes, or a larger source of memory."));
        }
        queues_.rewind();
        moving_ = {};
        for (std::size_t k = 0; k < queues_.out.own.size(); ++k) {
            Send const& send = queues_.out.own[k];
            Receive const& receive = queues_.in.own[k];
            copies_.add(send, receive, options_.stream);
            moving_.bytes_local += send.payload_bytes();
        }
        pack();
    }

    // ---- Rounds -----------------------------------------------------------------------------------------------

    void pack() {
        Index place = 0;
        now_sent_.clear();
        now_received_.clear();
        converting_.clear();
        arriving_.clear();
        auto const room_for = [&](Index bytes) {
            std::byte* const at = window_.data() + place;
            place += staging_slot(bytes);
            return at;
        };
        queues_.out.take_rounds(share_, 0, inner_.size(), [&](Send const& send, Send const& mine) {
            if (!is_staged(send)) return now_sent_.push_back(mine);
            Delivery const wire = staged(mine, room_for);
            copies_.add({0, mine.base, mine.box}, {0, const_cast<std::byte*>(wire.from.base), wire.from.box},
                        options_.stream);
            if (!mine.conversion.is_plain()) converting_.push_back(wire);
            now_sent_.push_back({send.peer, wire.to.base, wire.to.box, wire.to.conversion});
        });
        queues_.in.take_rounds(share_, 0, inner_.size(), [&](Receive const& receive, Receive const& mine) {
            if (!is_staged(receive)) return now_received_.push_back(mine);
            Delivery const wire = staged(mine, room_for);
            now_received_.push_back(wire.to);
            arriving_.push_back({wire.from, mine});
        });
        copies_.flush(options_.stream);
        mark();
        stage_ = Stage::packing;
    }
    /// The piece in the window: `from` as it lies in memory, but dense, `to` as it travels; the same where values keep.
    /// Both in the order of that memory: the transport is told how they lie.
    template <class Byte, class Room>
    [[nodiscard]] static Delivery staged(Transfer<Byte> const& mine, Room const& room_for) {
        Delivery piece;
        DimOrder const order = order_of(mine.box);
        piece.to = {mine.peer, nullptr, dense_box(mine.box, mine.wire_element_bytes(), order),
                    mine.conversion.is_active() ? on_wire(mine.conversion) : Conversion{}};
        piece.to.base = room_for(piece.to.box.payload_bytes());
        piece.from = dense_at<std::byte const>(piece.to.base, mine, order);
        if (!mine.conversion.is_plain()) piece.from.base = room_for(piece.from.box.payload_bytes());
        return piece;
    }
    void move() {
        for (Delivery const& piece : converting_) deliver(piece.from, piece.to);
        before_ = inner_.traffic();
        pass_on(Stage::moving);
    }
    /// Starts what the transport is to do now.
    void pass_on(Stage stage) {
        stage_ = stage;
        watched(
            [&, this] {
                static_cast<void>(
                    round_ = transport::exchange_for(transfers_, inner_, now_sent_, now_received_));  // for nvcc 13
            },
            losing());
    }
    /// What an error of the transport means: it may still use what it was given.
    [[nodiscard]] auto losing() noexcept {
        return [this](ErrorCode, std::string_view) noexcept { lost_ = true; };
    }
    void unpack() {
        moving_ += inner_.traffic() - before_;
        for (Delivery const& piece : arriving_) {
            auto* const at = const_cast<std::byte*>(piece.from.base);
            Receive const& to = piece.to;
            if (!to.conversion.is_plain()) {  // what travelled lies before it: see staged()
                StridedBox const wire = dense_box(to.box, to.wire_element_bytes(), order_of(to.box));
                deliver(Send{0, at - staging_slot(wire.payload_bytes()), wire, on_wire(to.conversion)},
                        Receive{0, at, piece.from.box, to.conversion});
            }
            copies_.add({0, at, piece.from.box}, {0, to.base, to.box}, options_.stream);
        }
        copies_.flush(options_.stream);
        if (--rounds_ > 0) return pack();
        mark();
        stage_ = Stage::landing;
    }
    void mark() {
        if (uses_device_) event_.record(options_.stream);
        marked_ = Clock::now();
    }

    void await_device() const {
        if (detail::await_device(marked_, options_.deadline)) return;
        raise(ErrorCode::deadline, "reshard::StagedOnHost (", std::string_view(C::name), "): waited ",
              as_index(options_.deadline.count()),
              " ms for its device. Fix: look for what keeps the stream busy, or raise "
              "StagedOnHostOptions::deadline.");
    }

    template <class Body>
    void closing(Body&& body) {
        watched(
            [&] {
                CurrentDevice const device(device_);
                body();
            },
            [&](ErrorCode code, std::string_view reason) noexcept {
                inner_.abort(code, reason);
                quietly([&] { leave(); });  // a device that fails does nothing more
            });
    }
    /// Until the device does nothing with this rank's memory any more, at most the deadline.
    void leave() {
        if (!uses_device_) return;
        CurrentDevice const device(device_);
        event_.record(options_.stream);
        if (event_.outlasts(Clock::now(), options_.deadline)) *host_staging_.patience.stuck = true;
    }

    using Known = std::array<Index, 3>;  ///< most peers; exceeds its window, or rounds; minus the window

    StagedOnHostOptions options_;
    int device_;
    CudaEvent event_;
    StagingMemory window_;
    HostStaging host_staging_;
    Copies copies_;
    struct Told {
        std::array<Known, told_at_once> heard{};
        Known known{};
    };
    std::unique_ptr<Told> told_ = std::make_unique<Told>();  ///< by rank to rank: the transport's, as the window is
    C inner_;                                                ///< behind all that may throw before it is moved here
    Clock::time_point marked_;
    std::vector<MemoryKind> sent_from_;
    std::vector<MemoryKind> received_in_;
    RoundQueues queues_;
    std::vector<Send> now_sent_;
    std::vector<Receive> now_received_;
    std::vector<Delivery> converting_;  ///< by the host, before they travel
    std::vector<Delivery> arriving_;    ///< to the device
    transport::BoundTransfers transfers_;
    typename C::exchange_type round_;
    PairShare share_;
    Need need_;
    Index rounds_ = 0;
    int distance_ = 1;
    Traffic traffic_;
    Traffic before_;
    Traffic moving_;  ///< counted when the exchange is complete
    Stage stage_ = Stage::idle;
    bool uses_device_ = false;
    bool counts_rounds_ = false;
    bool lost_ = false;  ///< the transport may still write to the window, and to what ranks tell each other
};

}  // namespace detail
}  // namespace reshard::inline v0_1
