// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/mch_rows.hpp
/// \brief  Columns of a managed-collision table: partitioned, sorted, or merely copied.
#pragma once

#include "paired.hpp"

#include <reshard/mch/partition.hpp>

#include <algorithm>  // stable_sort, sort
#include <cstring>    // memcpy
#include <numeric>    // iota
#include <random>     // mt19937_64
#include <utility>    // swap

namespace reshard::bench {

template <class Task>
[[nodiscard]] double timed(Task&& task) {
    double const start = now_seconds();
    task();
    return now_seconds() - start;
}

/// The owner of a slot among equal blocks, and none for an empty entry: a multiplication instead of a division, exact
/// while slots x block < 2^64.
class SlotOwner {
public:
    SlotOwner(Index const* raw, Index const* slots, Index table, Index world)
        : raw_(raw),
          slots_(slots),
          magic_(~std::uint64_t{0} / static_cast<std::uint64_t>(detail::ceil_div(table, world)) + 1) {
        if (world == 1) magic_ = 0;
    }
    [[nodiscard]] Index operator()(Index entry) const noexcept {
        __extension__ using Wide = unsigned __int128;
        auto const owner = static_cast<Index>((Wide{magic_} * static_cast<std::uint64_t>(slots_[entry])) >> 64);
        return raw_[entry] == INT64_MAX ? -1 : owner;
    }

private:
    Index const* raw_;
    Index const* slots_;
    std::uint64_t magic_;
};

/// Raw ids, slots and two columns of metadata; 5 % of the entries are empty. Slots are in no order.
class MchRows {
public:
    static constexpr std::size_t columns = 4;

    MchRows(Index entries, int threads) : entries_(entries), threads_(threads) {
        std::mt19937_64 random(1);
        for (auto& column : columns_) column.resize(size());
        std::iota(columns_[1].begin(), columns_[1].end(), Index{0});
        for (std::size_t i = size(); i > 1; --i) std::swap(columns_[1][i - 1], columns_[1][random() % i]);
        for (std::size_t i = 0; i != size(); ++i) {
            columns_[0][i] = random() % 100 < 5 ? INT64_MAX : static_cast<Index>(random() >> 1);
            columns_[2][i] = static_cast<Index>(i);
            columns_[3][i] = static_cast<Index>(3 * i);
        }
        packed_.resize(columns * size());
        copied_.resize(columns * size());
        order_.resize(size());
    }

    [[nodiscard]] Index copied_bytes() const noexcept { return 2 * 8 * static_cast<Index>(columns) * entries_; }

    /// Every thread copies its share of every column.
    void copy() {
        detail::run_parts(threads_, threads_, [&, this](int thread) {
            Index const begin = entries_ / threads_ * thread;
            Index const end = thread + 1 == threads_ ? entries_ : begin + entries_ / threads_;
            for (std::size_t c = 0; c != columns; ++c) {
                std::memcpy(copied_.data() + c * size() + begin, columns_[c].data() + begin,
                            static_cast<std::size_t>(end - begin) * 8);
            }
        });
    }

    void partition(Index world) {
        Partition partition(entries_, world, threads_);
        auto const rule = owner(world);
        partition.count(rule);
        PartitionColumn list[columns];
        for (std::size_t c = 0; c != columns; ++c) list[c] = {bytes(columns_[c]), 8};
        partition.scatter(rule, list, std::as_writable_bytes(std::span(packed_)));
    }

    /// What the partition replaces: an argsort by destination, and a gather a column. Each thread sorts its share;
    /// the shares are then merged in order, as the number of threads asks for.
    void sort_and_gather(Index world) {
        auto const rule = owner(world);
        destinations_.resize(size());
        detail::run_parts(threads_, threads_, [&, this](int thread) {
            auto const [begin, end] = share(thread);
            for (std::size_t i = begin; i != end; ++i) {
                Index const to = rule(static_cast<Index>(i));
                destinations_[i] = to < 0 ? world : to;
                order_[i] = static_cast<Index>(i);
            }
            std::stable_sort(order_.begin() + static_cast<Index>(begin), order_.begin() + static_cast<Index>(end),
                             by_destination());
        });
        for (int thread = 1; thread < threads_; ++thread) {
            std::inplace_merge(order_.begin(), order_.begin() + static_cast<Index>(share(thread).first),
                               order_.begin() + static_cast<Index>(share(thread).second), by_destination());
        }
        std::size_t const live =
            static_cast<std::size_t>(std::lower_bound(order_.begin(), order_.end(), world,
                                                      [&](Index entry, Index to) { return destination(entry) < to; }) -
                                     order_.begin());
        detail::run_parts(threads_, threads_, [&, this](int thread) {
            auto const [begin, end] = share(thread);
            for (std::size_t c = 0; c != columns; ++c) {
                for (std::size_t i = begin; i < std::min(end, live); ++i) {
                    copied_[c * live + i] = columns_[c][static_cast<std::size_t>(order_[i])];
                }
            }
        });
    }

    /// Whether what partition() left is what a walk over all entries makes, one destination after the other.
    [[nodiscard]] bool is_partitioned(Index world) {
        auto const rule = owner(world);
        std::vector<std::vector<std::size_t>> rows(static_cast<std::size_t>(world));
        for (Index i = 0; i < entries_; ++i) {
            Index const to = rule(i);
            if (to >= 0) rows[static_cast<std::size_t>(to)].push_back(static_cast<std::size_t>(i));
        }
        Index const* at = packed_.data();
        for (auto const& block : rows) {
            for (auto const& column : columns_) {
                for (std::size_t row : block)
                    if (*at++ != column[row]) return false;
            }
        }
        return true;
    }

private:
    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(entries_); }
    [[nodiscard]] static std::byte const* bytes(std::vector<Index> const& column) noexcept {
        return reinterpret_cast<std::byte const*>(column.data());
    }
    [[nodiscard]] SlotOwner owner(Index world) const noexcept {
        return {columns_[0].data(), columns_[1].data(), entries_, world};
    }
    [[nodiscard]] std::pair<std::size_t, std::size_t> share(int thread) const noexcept {
        auto const part = static_cast<std::size_t>(thread);
        auto const parts = static_cast<std::size_t>(threads_);
        return {size() * part / parts, size() * (part + 1) / parts};
    }
    [[nodiscard]] Index destination(Index entry) const noexcept {
        return destinations_[static_cast<std::size_t>(entry)];
    }
    struct ByDestination {
        Index const* destinations;
        bool operator()(Index a, Index b) const noexcept { return destinations[a] < destinations[b]; }
    };
    [[nodiscard]] ByDestination by_destination() const noexcept { return {destinations_.data()}; }

    Index entries_;
    int threads_;
    std::vector<Index> columns_[columns];
    std::vector<Index> packed_;
    std::vector<Index> copied_;
    std::vector<Index> order_;
    std::vector<Index> destinations_;
};

}  // namespace reshard::bench
