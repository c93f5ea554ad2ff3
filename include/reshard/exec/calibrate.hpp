// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/calibrate.hpp
/// \brief  A topology measured: latency and bandwidth of every tier from a short run on a communicator.
/// \depends plan/topology, comm/collectives; <algorithm>, <chrono>, <span>, <vector>. Not part of the umbrella.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/plan/topology.hpp>

#include <algorithm>  // sort
#include <chrono>     // steady_clock
#include <span>       // span
#include <vector>     // vector

namespace reshard::inline v0_1 {

/// How long a calibration measures.
struct CalibrateOptions {
    Index small_bytes = 8;        ///< a message whose time is all latency
    Index large_bytes = 4 << 20;  ///< a message whose time is nearly all bandwidth
    int repeats = 15;             ///< of each; the median counts
};

namespace detail {

/// Rank 0's clock on exchanges in which some ranks trade one message, both ways at once.
class PairClock {
public:
    explicit PairClock(CommunicatorRef comm) noexcept : comm_(comm) {}

    /// Local, where all ranks agree next: what follows asks for no memory.
    void make_room(CalibrateOptions const& options) {
        sent_.resize(as_size(options.large_bytes));
        received_.resize(as_size(options.large_bytes));
        lists_.make_room(comm_.size());
        times_.resize(as_size(options.repeats));
    }

    /// Median seconds while ranks first .. first + count - 1 trade with those `distance` further. Collective.
    [[nodiscard]] double seconds(Index bytes, Index count, Index distance) {
        Index const rank = comm_.rank();
        Index const peer = rank < count                                  ? rank + distance
                           : rank >= distance && rank < distance + count ? rank - distance
                                                                         : -1;
        auto const size = as_size(bytes);
        lists_.clear();
        if (peer >= 0) {
            lists_.send(static_cast<int>(peer), std::span(sent_).first(size));
            lists_.receive(static_cast<int>(peer), std::span(received_).first(size));
        }
        for (std::size_t i = 0; i <= times_.size(); ++i) {
            static_cast<void>(comm_.agree({}));  // so that all start together
            auto const start = std::chrono::steady_clock::now();
            comm_.exchange(lists_.sends, lists_.receives).wait();
            std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - start;
            if (i > 0) times_[i - 1] = taken.count();  // the first one warms up
        }
        std::sort(times_.begin(), times_.end());
        return times_[times_.size() / 2];
    }
    /// Rank 0's, to all. Collective.
    void share(std::span<double> numbers) { broadcast(comm_, std::as_writable_bytes(numbers), 0, lists_); }

private:
    CommunicatorRef comm_;
    std::vector<std::byte> sent_;
    std::vector<std::byte> received_;
    TransferLists lists_;
    std::vector<double> times_;
};

/// Throws MeshError, BufferError.
inline void require_calibration(Topology const& topology, Index ranks, CalibrateOptions const& options) {
    if (options.small_bytes < 1 || options.large_bytes <= options.small_bytes || options.repeats < 1) {
        raise(ErrorCode::buffer, "reshard::calibrate: messages of ", options.small_bytes, " and ", options.large_bytes,
              " bytes, ", options.repeats, " times. Fix: give a small and a larger size, and one repeat or more.");
    }
    topology.require(ranks - 1);
    for (int i = 0; i < topology.size(); ++i) {
        Index const inner = i == 0 ? 1 : topology.tier(i - 1).ranks;
        if (inner < ranks && (topology.tier(i).ranks == 0 || inner < topology.tier(i).ranks)) continue;
        raise(ErrorCode::mesh, "reshard::calibrate: no two of ", ranks, " ranks meet in tier '", topology.tier(i).name,
              "'. Fix: leave the tier out, or run on more ranks.");
    }
}

}  // namespace detail

/// Measures a topology; collective. Of `tiers` only names and ranks per unit are read, the same on every rank. Per
/// tier, rank 0 and the nearest rank that it meets there trade a small and a large message: the small one is the
/// latency, the large one the bandwidth (Hockney). Then a whole unit of the tier inside trades with the next one: what
/// that reaches, when it is less than its ranks could alone, is the inner tier's uplink. Every rank gets rank 0's
/// numbers. Throws MeshError for tiers that are no topology or in which no two ranks meet, BufferError for sizes that
/// make no sense, and what the communicator throws. Memory: twice large_bytes per rank.
[[nodiscard]] inline Topology calibrate(CommunicatorRef comm, std::vector<Tier> tiers,
                                        CalibrateOptions const& options = {}) {
    for (Tier& tier : tiers) {
        tier.latency = 0;
        tier.bandwidth = 1;
        tier.uplink = 0;
    }
    detail::PairClock clock(comm);
    std::vector<double> numbers;
    auto const work = [&] {
        detail::require_calibration(Topology(tiers), comm.size(), options);
        clock.make_room(options);
        numbers.reserve(3 * tiers.size());
    };
    agree_on_errors(comm, work, "calibrate");
    constexpr double least = 1e-12;  // a clock may stand still
    auto const large = static_cast<double>(options.large_bytes);
    for (std::size_t i = 0; i < tiers.size(); ++i) {
        Index const inner = i == 0 ? 1 : tiers[i - 1].ranks;
        double const latency = detail::larger(clock.seconds(options.small_bytes, 1, inner), least);
        double const seconds = clock.seconds(options.large_bytes, 1, inner);
        double const bandwidth = large / detail::larger(seconds - latency, seconds / 2 + least);
        numbers.push_back(latency);
        numbers.push_back(bandwidth);
        double uplink = 0;
        if (i > 0 && 2 * inner <= comm.size()) {
            double const together = detail::larger(clock.seconds(options.large_bytes, inner, inner) - latency, least);
            double const rate = large * static_cast<double>(inner) / together;
            if (rate < bandwidth * static_cast<double>(inner)) uplink = rate;
        }
        numbers.push_back(uplink);
    }
    clock.share(numbers);
    for (std::size_t i = 0; i != tiers.size(); ++i) {
        tiers[i].latency = numbers[3 * i];
        tiers[i].bandwidth = numbers[3 * i + 1];
        if (i > 0) tiers[i - 1].uplink = numbers[3 * i + 2];
    }
    return Topology(std::move(tiers));
}

}  // namespace reshard::inline v0_1
