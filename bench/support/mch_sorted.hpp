// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/mch_sorted.hpp
/// \brief  redistribute() of one managed-collision table as one writes it with std::stable_sort: the same columns.
///
/// An argsort by destination and a gather a column, one exchange of counts, one of columns, an argsort by id and a
/// gather a column. Nothing is checked and nothing agreed on, which is all in its favour.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/mch/redistribute.hpp>

#include <algorithm>  // stable_sort, copy, fill
#include <vector>     // vector

namespace reshard::bench {

template <Communicator C>
class MchBySorting {
public:
    MchBySorting(MchTable const& current, MchState const& state, C& comm)
        : table_(current), shard_(shard_of(current, state, comm.rank())), router_(current), comm_(comm) {
        columns_ = {shard_.ids, shard_.slots};
        for (std::byte* column : shard_.metadata) columns_.push_back(reinterpret_cast<Index*>(column));
    }

    /// \pre no shard is too full, and every part of the table is the rank of its number.
    void operator()(MchMode mode) {
        std::vector<Index> const destinations = destinations_of(mode);
        std::vector<Index> const order = argsort(destinations);
        std::vector<Index> const counts = counts_of(destinations);
        Index live = 0;
        for (Index count : counts) live += count;
        std::vector<std::vector<Index>> leaving;
        for (Index const* column : columns_) leaving.push_back(gathered(column, order, live));
        std::vector<std::vector<Index>> const arrived = exchange(counts, leaving);
        std::vector<Index> const by_id = argsort(arrived[0]);
        commit(arrived, by_id);
    }

private:
    [[nodiscard]] std::vector<Index> destinations_of(MchMode mode) const {
        std::vector<Index> destinations(static_cast<std::size_t>(shard_.entries));
        for (Index i = 0; i < shard_.entries; ++i) {
            Index to =
                mode == MchMode::route ? router_.part_of_id(shard_.ids[i]) : router_.part_of_slot(shard_.slots[i]);
            if (shard_.ids[i] == INT64_MAX) to = table_.parts();
            destinations[static_cast<std::size_t>(i)] = to;
        }
        return destinations;
    }
    [[nodiscard]] static std::vector<Index> argsort(std::vector<Index> const& keys) {
        std::vector<Index> order(keys.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
        std::stable_sort(order.begin(), order.end(), [&keys](Index a, Index b) {
            return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
        });
        return order;
    }
    [[nodiscard]] std::vector<Index> counts_of(std::vector<Index> const& destinations) const {
        std::vector<Index> counts(static_cast<std::size_t>(table_.parts()) + 1);
        for (Index to : destinations) ++counts[static_cast<std::size_t>(to)];
        counts.pop_back();
        return counts;
    }
    [[nodiscard]] static std::vector<Index> gathered(Index const* column, std::vector<Index> const& order,
                                                     Index count) {
        std::vector<Index> result(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < result.size(); ++i) result[i] = column[order[i]];
        return result;
    }
    [[nodiscard]] std::vector<std::vector<Index>> exchange(std::vector<Index> const& to,
                                                           std::vector<std::vector<Index>> const& leaving) {
        std::vector<Index> from(to.size());
        all_to_all(comm_, std::as_bytes(std::span(to)), std::as_writable_bytes(std::span(from)));
        Index total = 0;
        for (Index count : from) total += count;
        std::vector<std::vector<Index>> arrived(columns_.size());
        std::vector<transport::Send> sends;
        std::vector<transport::Receive> receives;
        for (std::vector<Index>& column : arrived) column.resize(static_cast<std::size_t>(total));
        Index sent = 0;
        Index received = 0;
        for (std::size_t r = 0; r < to.size(); ++r) {  // transfers are listed by peer
            for (std::size_t c = 0; c < columns_.size(); ++c) {
                auto const* const out = reinterpret_cast<std::byte const*>(leaving[c].data() + sent);
                auto* const in = reinterpret_cast<std::byte*>(arrived[c].data() + received);
                if (to[r] != 0) sends.push_back({static_cast<int>(r), out, detail::byte_box(8 * to[r])});
                if (from[r] != 0) receives.push_back({static_cast<int>(r), in, detail::byte_box(8 * from[r])});
            }
            sent += to[r];
            received += from[r];
        }
        comm_.exchange(sends, receives).wait();
        return arrived;
    }
    void commit(std::vector<std::vector<Index>> const& arrived, std::vector<Index> const& by_id) {
        std::vector<Index> slots = gathered(arrived[1].data(), by_id, static_cast<Index>(by_id.size()));
        Interval const range = shard_.range();
        Index const reserved = range.end - 1;
        std::vector<char> taken(static_cast<std::size_t>(shard_.entries));
        for (Index slot : slots)
            if (range.contains(slot)) taken[static_cast<std::size_t>(slot - range.begin)] = 1;
        taken.back() = 1;
        Index next = range.begin;
        auto const next_free = [&] {
            while (taken[static_cast<std::size_t>(next - range.begin)] != 0) ++next;
            return next++;
        };
        for (Index& slot : slots)
            if (!range.contains(slot) || slot == reserved) slot = next_free();
        std::copy(slots.begin(), slots.end(), shard_.slots);
        auto const kept = static_cast<Index>(slots.size());
        for (Index i = kept; i < shard_.entries - 1; ++i) shard_.slots[i] = next_free();
        shard_.slots[shard_.entries - 1] = reserved;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            if (c == 1) continue;
            for (std::size_t i = 0; i < by_id.size(); ++i) {
                columns_[c][i] = arrived[c][static_cast<std::size_t>(by_id[i])];
            }
            std::fill(columns_[c] + kept, columns_[c] + shard_.entries, c == 0 ? INT64_MAX : 0);
        }
        std::vector<Index> const offsets = table_.offsets();
        std::fill(shard_.segments, shard_.segments + shard_.segment_count, -1);
        std::copy(offsets.begin(), offsets.end(), shard_.segments);
    }

    MchTable const& table_;
    MchShard shard_;
    Router router_;
    C& comm_;
    std::vector<Index*> columns_;
};

}  // namespace reshard::bench
