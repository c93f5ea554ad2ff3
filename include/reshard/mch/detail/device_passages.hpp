// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/device_passages.hpp
/// \brief  redistribute() for columns that lie on a device, over any Work: mch/detail/passages.hpp, kernel by kernel.
/// \depends mch/redistribute, mch/detail/{agree_after,device_arrivals}, comm/collectives, cuda/report.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/cuda/report.hpp>
#include <reshard/mch/detail/agree_after.hpp>
#include <reshard/mch/detail/device_arrivals.hpp>
#include <reshard/mch/detail/stray_ids.hpp>
#include <reshard/mch/redistribute.hpp>

namespace reshard::inline v0::detail {

/// One table on its way.
template <class Work>
class MchDevicePassage {
    template <class T>
    using List = WorkList<T, Work>;

public:
    /// Counts what leaves. \pre `transition` outlives this. This and what follows throws what redistribute_on_device()
    /// documents.
    MchDevicePassage(Work& work, MchTransition const& transition, MchOptions const& options, int rank,
                     Fetches<Work>& asked)
        : saved_(&transition.saved),
          current_(&transition.current),
          shard_(shard_of(transition.current, transition.state, rank)),
          part_(current_->slots.mesh().ordinal(rank)),
          current_offsets_(work, std::span<Index const>(transition.current.offsets())),
          router_(transition.current, current_offsets_.data()),
          arrivals_(transition.current, shard_) {
        check_columns(work, rank);
        stays() ? find_reach(work, asked) : count_leaving(work, options, asked);
    }
    /// Looks at what was counted.
    void examine(Work& work, Fetches<Work> const& asked) {
        if (stays()) {
            lists_.numbers.live_before = lists_.numbers.live_after = asked[counts_at_];
            lists_.numbers.unreachable = asked[counts_at_ + 1];
        } else {
            examine_leaving(work, asked);
        }
    }

    /// The slots of a bucketed table are places, which a load by position keeps.
    [[nodiscard]] bool stays() const noexcept { return current_->layout == MchLayout::buckets; }
    [[nodiscard]] MchTable const& current() const noexcept { return *current_; }
    [[nodiscard]] Index iteration() const noexcept { return iteration_; }
    /// Those that stay on this rank included.
    [[nodiscard]] Index entries_for(Index part) const { return report().counts()[static_cast<std::size_t>(part)]; }

    /// Packs what leaves and what stays, makes room for what comes. `from(r)`: what rank r said.
    template <class From>
    void pack(Work& work, int rank, int ranks, From const& from) {
        packed_ = List<std::byte>(work, report().packed_bytes());
        with_columns([&](auto const& columns) {
            partition_->scatter(work, rule_, columns, {packed_.data(), static_cast<std::size_t>(packed_.size())},
                                report());
        });
        for (int r = 0; r < ranks; ++r) {
            MchArrival const& said = from(r);
            bool const own = r == rank && part_ >= 0;
            Index const entries = r != rank ? said.entries : own ? entries_for(part_) : 0;
            arrivals_.expect(r, entries, said.iteration, own ? block(part_) : nullptr);
        }
        arrivals_.allocate(work);
        lists_.numbers.live_before = report().kept();
        if (!rule_.drop_unreachable) return;
        lists_.left_out = List<Index>(work, entries_for(rule_.left_out));
        work.copy(lists_.left_out.data(), block(rule_.left_out), lists_.left_out.bytes());
    }
    void list_transfers(int rank, std::vector<Send>& sends, std::vector<Receive>& receives) {
        MchChange& numbers = lists_.numbers;
        for (Index part = 0; part < current_->parts(); ++part) {
            auto const p = static_cast<std::size_t>(part);
            Index const bytes = report().blocks()[p + 1] - report().blocks()[p];
            if (part == part_ || bytes == 0) continue;
            sends.push_back({static_cast<int>(current_->slots.mesh().rank_at(part)), block(part), byte_box(bytes)});
            numbers.sent += entries_for(part);
            numbers.bytes_sent += bytes;
        }
        for (MchBlock const& one : arrivals_.blocks()) {
            if (one.rank == rank) continue;
            receives.push_back({one.rank, arrivals_.memory(one), byte_box(one.bytes)});
            numbers.received += one.entries;
        }
    }
    [[nodiscard]] MchDeviceArrivals<Work>& arrivals() noexcept { return arrivals_; }
    void place(Work& work, Fetches<Work>& asked) {
        arrivals_.place(work, asked, lists_);
        lists_.numbers.live_after = arrivals_.kept();
        if (!counts_strays_) return;
        counted_ = zeros(work, 1);
        count(work, arrivals_.kept(), MchIsStray{arrivals_.ids(), rule_.empty, router_, part_}, counted_.data());
        counts_at_ = asked.add(counted_.data());
    }
    void give(Work& work, MchMode mode, Fetches<Work> const& asked) {
        arrivals_.give(work, mode == MchMode::route, asked, lists_.moves);
        if (counts_strays_) lists_.numbers.unreachable = asked[counts_at_];
    }
    void commit(Work& work) { arrivals_.commit(work); }
    [[nodiscard]] MchDeviceLists<Work> lists() noexcept { return std::move(lists_); }

private:
    void check_columns(Work& work, int rank) const {
        std::string const who = concat("reshard::mch: table '", current_->name, "': on rank ", rank);
        if (static_cast<Index>(current_->metadata.size()) + 2 > max_device_columns) {
            refuse_table(
                ErrorCode::shape, *current_,
                concat(current_->metadata.size(), " columns of metadata are more than kernels take. Fix: at most ",
                       max_device_columns - 2, ", or redistribute() on the host."));
        }
        auto const check = [&](std::string_view what, void const* memory, Index bytes, Index alignment) {
            if (memory != nullptr) work.check(who.c_str(), std::string(what).c_str(), memory, bytes, alignment);
        };
        check("the column of ids", shard_.ids, 8 * shard_.entries, 8);
        check("the column of slots", shard_.slots, 8 * shard_.entries, 8);
        for (std::size_t c = 0; c < shard_.metadata.size(); ++c) {
            MchColumn const& column = current_->metadata[c];
            bool const integers = column.name == mch_counts || column.name == mch_last_access;
            check(concat("column '", column.name, "'"), shard_.metadata[c], column.bytes * shard_.entries,
                  integers ? 8 : 1);
        }
        check("the list of segments", shard_.segments, 8 * shard_.segment_count, 8);
        check("the current iteration", shard_.iteration, 8, 8);
    }
    void count_leaving(Work& work, MchOptions const& options, Fetches<Work>& asked) {
        saved_offsets_ = List<Index>(work, std::span<Index const>(saved_->offsets()));
        bool const by_slot = options.mode == MchMode::slot_owner;
        rule_ = {shard_.ids,
                 shard_.slots,
                 shard_.offset,
                 saved_->size(),
                 empty_id(current_->layout),
                 router_,
                 by_slot,
                 by_slot && options.drop_unreachable,
                 current_->parts(),
                 refuses_strays(options, *saved_),
                 Router(*saved_, saved_offsets_.data())};
        bool const all_reachable = !by_slot || options.drop_unreachable;
        counts_strays_ = !all_reachable;
        partition_.emplace(work.partition(shard_.entries, destinations()));
        with_columns([&](auto const& columns) { partition_->count(work, rule_, columns); });
        report_at_ = asked.add(partition_->report_words(), PartitionReport::words(destinations()));
        if (shard_.iteration != nullptr) iteration_at_ = asked.add(shard_.iteration);
        if (shard_.entries < 2) return;
        ends_at_ = asked.add(shard_.ids);
        for (Index const* at : {shard_.ids + shard_.entries - 1, shard_.slots, shard_.slots + shard_.entries - 1}) {
            asked.add(at);
        }
    }
    void examine_leaving(Work& work, Fetches<Work> const& asked) {
        auto const words = asked.list(report_at_, PartitionReport::words(destinations()));
        words_.assign(words.begin(), words.end());
        if (shard_.iteration != nullptr) iteration_ = asked[iteration_at_];
        if (never_loaded(work, asked)) refuse_never_loaded(*current_, shard_.entries, shard_.offset);
        if (report().out_of_range() == 0) return;
        Index const wrong = report().first_out_of_range();
        std::vector<Index> const saved = saved_->offsets();
        auto const part_of = [&](Index at) { return part_at(saved.data(), saved_->parts(), at); };
        auto const from = static_cast<std::size_t>(part_of(shard_.offset + wrong));
        Index const id = fetch(work, shard_.ids + wrong);
        Index const slot = fetch(work, shard_.slots + wrong);
        Interval const range{saved[from], saved[from + 1]};
        if (!range.contains(slot)) refuse_position(*current_, shard_.offset + wrong, id, slot, range);
        List<Index> copy(work, shard_.entries);
        work.copy(copy.data(), shard_.ids, copy.bytes());
        std::vector<Index> const ids = copy.host(work);
        refuse_stray(*saved_, *current_, shard_.offset + wrong, id, static_cast<Index>(from),
                     rule_.saved_router.part_of_id(id), fitting_hash_sizes(*saved_, ids, shard_.offset, part_of));
    }
    /// Calls f(columns) with those of the shard: words, where all are.
    template <class F>
    void with_columns(F&& f) const {
        bool words = true;
        for (MchColumn const& column : current_->metadata) words = words && column.bytes == 8;
        for (std::byte const* column : shard_.metadata) {
            words = words && reinterpret_cast<std::uintptr_t>(column) % 8 == 0;
        }
        if (words) {
            WordColumns columns{{shard_.ids, shard_.slots}};
            for (std::byte const* column : shard_.metadata) {
                columns.data.push_back(reinterpret_cast<Index const*>(column));
            }
            return f(columns);
        }
        ByteColumns columns;
        columns.add(reinterpret_cast<std::byte const*>(shard_.ids), 8);
        columns.add(reinterpret_cast<std::byte const*>(shard_.slots), 8);
        for (std::size_t c = 0; c < shard_.metadata.size(); ++c) {
            columns.add(shard_.metadata[c], current_->metadata[c].bytes);
        }
        f(columns);
    }
    [[nodiscard]] Index destinations() const noexcept { return current_->parts() + (rule_.drop_unreachable ? 1 : 0); }
    [[nodiscard]] PartitionReport report() const { return PartitionReport(words_, destinations()); }
    [[nodiscard]] std::byte* block(Index part) const {
        return packed_.data() + report().blocks()[static_cast<std::size_t>(part)];
    }
    using Count = unsigned long long;
    [[nodiscard]] static List<Count> zeros(Work& work, Index count) {
        List<Count> list(work, count);
        work.fill(list.data(), 0, list.bytes());
        return list;
    }
    template <class Answer>
    static void count(Work& work, Index entries, Answer const& answer, Count* total) {
        count_indices(work, "count", CountIndices<Answer>{entries, answer, total});
    }
    void find_reach(Work& work, Fetches<Work>& asked) {
        Index const empty = empty_id(current_->layout);
        counted_ = zeros(work, 2);
        count(work, shard_.entries, MchIsLive{shard_.ids, empty}, counted_.data());
        count(work, shard_.entries, MchIsStray{shard_.ids, empty, router_, part_}, counted_.data() + 1);
        counts_at_ = asked.add(counted_.data(), 2);
    }
    /// Looks at all only where the first and the last would be zeros.
    [[nodiscard]] bool never_loaded(Work& work, Fetches<Work> const& asked) const {
        if (shard_.entries < 2) return false;
        for (Index word : asked.list(ends_at_, 4))
            if (word != 0) return false;
        List<Count> const filled = zeros(work, 1);
        count(work, shard_.entries, MchIsFilled{shard_.ids, shard_.slots}, filled.data());
        return fetch(work, filled.data()) == 0;
    }

    MchTable const* saved_;
    MchTable const* current_;
    MchShard shard_;
    Index part_;  ///< of the mesh, -1 outside
    List<Index> current_offsets_;
    Router router_;
    MchDeviceArrivals<Work> arrivals_;
    List<Index> saved_offsets_;
    MchLeavingRule rule_;
    bool counts_strays_ = false;
    std::optional<typename Work::Partition> partition_;
    std::vector<Index> words_;   ///< its report
    List<Count> counted_;        ///< ids, and those of them that are strays; or these alone
    std::size_t report_at_ = 0;  ///< among what is asked, as the others
    std::size_t iteration_at_ = 0;
    std::size_t ends_at_ = 0;
    std::size_t counts_at_ = 0;
    Index iteration_ = 0;
    List<std::byte> packed_;
    MchDeviceLists<Work> lists_;
};

/// The tables of a call, step by step: what a step asks of the device is answered for all tables at once, before the
/// next. Of tables with faults the first is named, as where one is gone through after the other.
template <class Work>
class MchDevicePassages {
public:
    /// Throws, as what follows does, what redistribute_on_device() documents.
    void begin(Work& work, std::span<MchTransition const> tables, MchOptions const& options, int rank, int ranks) {
        list_.reserve(tables.size());
        each(tables.size(), [&](std::size_t t) {
            check_transition(tables, t, ranks);
            list_.emplace_back(work, tables[t], options, rank, asked_);
        });
        asked_.run(work);
        each([&](MchDevicePassage<Work>& one) { one.examine(work, asked_); });
        refuse();
    }
    /// What rank r is to hear, a header a table.
    [[nodiscard]] std::vector<MchArrival> headers(std::size_t ranks) const {
        std::vector<MchArrival> result(ranks * list_.size());
        for (std::size_t t = 0; t < list_.size(); ++t) {
            MchDevicePassage<Work> const& one = list_[t];
            for (std::size_t r = 0; r < ranks; ++r) result[r * list_.size() + t].iteration = one.iteration();
            for (Index part = 0; !one.stays() && part < one.current().parts(); ++part) {
                auto const r = static_cast<std::size_t>(one.current().slots.mesh().rank_at(part));
                result[r * list_.size() + t].entries = one.entries_for(part);
            }
        }
        return result;
    }
    /// Packs what leaves, makes room for what comes.
    void pack(Work& work, std::span<MchArrival const> arrivals, int rank, int ranks) {
        for (std::size_t t = 0; t < list_.size(); ++t) {
            if (list_[t].stays()) continue;
            list_[t].pack(work, rank, ranks, [&](int r) -> MchArrival const& {
                return arrivals[static_cast<std::size_t>(r) * list_.size() + t];
            });
        }
    }
    /// All tables in one message per pair of ranks.
    void list_transfers(int rank, std::vector<Send>& sends, std::vector<Receive>& receives) {
        for (MchDevicePassage<Work>& one : list_) {
            if (!one.stays()) one.list_transfers(rank, sends, receives);
        }
        auto const by_peer = [](auto const& a, auto const& b) { return a.peer < b.peer; };
        std::stable_sort(sends.begin(), sends.end(), by_peer);
        std::stable_sort(receives.begin(), receives.end(), by_peer);
    }
    void arrange(Work& work, MchMode mode, ReceiveOrder how) {
        bool const may_move = mode == MchMode::route;
        moving([&](auto& one) { one.arrivals().inspect(work, may_move, asked_); });
        asked_.run(work);
        moving([&](auto& one) { one.arrivals().choose_order(work, how, asked_); });
        asked_.run(work);
        moving([&](auto& one) { one.arrivals().order(work, asked_); });
        asked_.run(work);
        moving([&](auto& one) { one.place(work, asked_); });
        asked_.run(work);
        moving([&](auto& one) { one.give(work, mode, asked_); });
        refuse();
        work.wait();
        result_.reserve(list_.size());
    }
    /// Writes the shards. \pre all ranks have agreed.
    [[nodiscard]] std::vector<BasicMchDeviceChange<Work>> commit(Work& work) {
        for (MchDevicePassage<Work>& one : list_) {
            if (!one.stays()) one.commit(work);
            result_.emplace_back(work, one.lists());
        }
        return std::move(result_);
    }

private:
    /// Calls body(t) for t of [0, count), but for those from the first on that has been found wrong.
    template <class Body>
    void each(std::size_t count, Body&& body) {
        for (std::size_t t = 0; t < smaller(count, good_); ++t) {
            Verdict found = verdict_of([&] { body(t); });
            if (found.ok()) continue;
            good_ = t;
            wrong_ = std::move(found);
        }
    }
    template <class Body>
    void each(Body&& body) {
        each(list_.size(), [&](std::size_t t) { body(list_[t]); });
    }
    template <class Body>
    void moving(Body&& body) {
        each([&](MchDevicePassage<Work>& one) {
            if (!one.stays()) body(one);
        });
    }
    void refuse() {
        if (!wrong_.ok()) raise(wrong_.code, std::move(wrong_.reason));
    }

    std::vector<MchDevicePassage<Work>> list_;
    std::vector<BasicMchDeviceChange<Work>> result_;
    Fetches<Work> asked_;
    std::size_t good_ = SIZE_MAX;  ///< tables
    Verdict wrong_;                ///< of the one behind them
};

/// redistribute_on_device() (mch/redistribute.cuh) over a Work whose memory the communicator moves.
template <class Work>
std::vector<BasicMchDeviceChange<Work>> redistribute_with(Work& work, std::span<MchTransition const> tables,
                                                          CommunicatorRef comm, MchOptions const& options,
                                                          ReceiveOrder order) {
    int const rank = comm.rank();
    int const ranks = comm.size();
    Digest digest;
    digest.add_text("on devices").add(tables.size()).add(static_cast<std::uint64_t>(options.mode));
    digest.add(options.drop_unreachable ? 1 : 0).add(options.accept_strays ? 1 : 0);
    for (MchTransition const& one : tables) {
        reshard::digest(digest, one.saved);
        reshard::digest(digest, one.current);
    }
    MchDevicePassages<Work> passages;
    std::vector<MchArrival> headers;
    WorkList<MchArrival, Work> to;
    WorkList<MchArrival, Work> from;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    agree_after(comm, digest.value(), [&] {
        passages.begin(work, tables, options, rank, ranks);
        headers = passages.headers(static_cast<std::size_t>(ranks));
        if (ranks == 1) return;
        to = WorkList<MchArrival, Work>(work, std::span<MchArrival const>(headers));
        from = WorkList<MchArrival, Work>(work, to.size());
        comm.check_memory(to.data());
        list_all_to_all(std::as_bytes(std::span(to.data(), headers.size())),
                        std::as_writable_bytes(std::span(from.data(), headers.size())), ranks, sends, receives);
    });
    if (ranks != 1) comm.exchange(sends, receives).wait();

    agree_after(comm, digest.value(), [&] {
        sends.clear();
        receives.clear();
        if (ranks != 1) headers = from.host(work);
        passages.pack(work, headers, rank, ranks);
        passages.list_transfers(rank, sends, receives);
    });
    if (ranks != 1) comm.exchange(sends, receives).wait();

    agree_after(comm, digest.value(), [&] { passages.arrange(work, options.mode, order); });
    return passages.commit(work);
}

}  // namespace reshard::inline v0::detail
