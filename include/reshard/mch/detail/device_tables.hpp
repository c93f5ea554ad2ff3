// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/device_tables.hpp
/// \brief  redistribute() for columns that lie on a device, over any Work: mch/redistribute.ipp, kernel by kernel.
/// \depends mch/redistribute, mch/detail/{buffers,carry,device_arrivals,leaving_rule}, cuda/report.
#pragma once

#include <reshard/cuda/report.hpp>
#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/detail/carry.hpp>
#include <reshard/mch/detail/device_arrivals.hpp>
#include <reshard/mch/redistribute.hpp>

namespace reshard::inline v0_1::detail {

/// One table on its way.
template <class Work>
class MchDeviceTable : public MchMovingTable {
    template <class T>
    using List = WorkList<T, Work>;

public:
    /// \pre `transition` outlives this. This and what follows throws what redistribute_on_device() documents.
    MchDeviceTable(Work& work, MchTransition const& transition, int rank)
        : MchMovingTable{transition.saved, transition.current, device_shard_of(work, transition, rank),
                         transition.current.slots.mesh().ordinal(rank)},
          current_offsets_(work, as_index(current.offsets().size())),
          router_(transition.current, current_offsets_.data()),
          arrivals_(transition.current, shard) {
        if (!stays()) saved_offsets_ = List<Index>(work, as_index(saved.offsets().size()));
    }
    void tell(Work& work, MchOptions const& options, MchDeviceSteps<Work>& steps) {
        steps.told.add(current_offsets_.data(), current.offsets().data(), current_offsets_.size());
        if (stays()) return;
        steps.told.add(saved_offsets_.data(), saved.offsets().data(), saved_offsets_.size());
        rule_ = {saved, current, shard, options, saved_offsets_.data(), current_offsets_.data()};
        ByteColumns columns;
        for (Index const width : widths_of(current)) columns.add(shard.column(as_size(columns.count())), width);
        leaving_ = steps.leaving.add(work, shard.entries, destinations(), rule_, columns, steps.told);
    }
    /// Asks what is known of what leaves, once it has been counted.
    void look(Work& work, Partitions<Work, MchLeavingRule> const& leaving, Fetches<Work>& asked) {
        if (shard.entries >= 2) {
            ends_at_ = asked.add(shard.ids);
            asked.add(shard.ids + shard.entries - 1);
        }
        if (stays()) {
            Index const empty = empty_id(current.layout);
            counted_ = zeros<Count>(work, 2);
            count(work, shard.entries, MchIsLive{shard.ids, empty}, counted_.data());
            count(work, shard.entries, MchIsStray{shard.ids, empty, router_, part, shard.offset}, counted_.data() + 1);
            counts_at_ = asked.add(counted_.data(), 2);
            return;
        }
        report_at_ = asked.add(leaving.report_words(leaving_), PartitionReport::words(destinations()));
        if (shard.iteration != nullptr) iteration_at_ = asked.add(shard.iteration);
    }
    /// Looks at what was counted.
    void examine(Work& work, Fetches<Work> const& asked) {
        check_loaded(work, asked);
        if (stays()) {
            change().live_before = change().live_after = asked[counts_at_];
            change().unreachable = asked[counts_at_ + 1];
            return;
        }
        auto const words = asked.list(report_at_, PartitionReport::words(destinations()));
        words_.assign(words.begin(), words.end());
        if (shard.iteration != nullptr) iteration = asked[iteration_at_];
        if (report().out_of_range() == 0) return;
        Index const wrong = report().first_out_of_range();
        refuse_misplaced(saved, current, shard.offset, wrong, fetch(work, shard.ids + wrong),
                         fetch(work, shard.slots + wrong), [&] { return fetch(work, shard.ids, shard.entries); });
    }

    [[nodiscard]] Index entries_for(Index p) const { return report().counts()[as_size(p)]; }
    [[nodiscard]] std::byte* block(Index p) const { return packed_.data() + report().blocks()[as_size(p)]; }
    [[nodiscard]] Index block_bytes(Index p) const { return block(p + 1) - block(p); }
    [[nodiscard]] MchDeviceArrivals<Work>& arrivals() noexcept { return arrivals_; }
    [[nodiscard]] MchChange& change() noexcept { return lists_.numbers; }

    /// Packs what leaves and what stays, makes room for what comes. `from(r)`: what rank r said.
    template <class From>
    void pack(Work& work, int rank, int ranks, From const& from, MchDeviceSteps<Work>& steps) {
        packed_ = List<std::byte>(work, report().packed_bytes());
        steps.leaving.pack(leaving_, packed_.data());
        for (int r = 0; r < ranks; ++r) {
            MchArrival const& said = from(r);
            bool const own = r == rank && part >= 0;
            Index const entries = r != rank ? said.entries : own ? entries_for(part) : 0;
            arrivals_.expect(r, entries, said.iteration, own ? block(part) : nullptr);
        }
        arrivals_.allocate(work, steps.told);
        change().live_before = report().kept();
        if (rule_.drop_unreachable) lists_.left_out = List<Index>(work, entries_for(rule_.left_out));
    }
    /// Ids that go nowhere, once they have been packed.
    void list_left_out(Work& work) {
        if (rule_.drop_unreachable) {
            work.copy(lists_.left_out.data(), block(rule_.left_out), lists_.left_out.bytes());
        }
    }
    void place(Work& work, MchDeviceSteps<Work>& steps) {
        arrivals_.place(work, steps, lists_);
        change().live_after = arrivals_.kept();
        if (!rule_.leaves_strays()) return;
        counted_ = zeros<Count>(work, 1);
        count(work, arrivals_.kept(), MchIsStray{arrivals_.ids(), rule_.empty, router_, part, shard.offset},
              counted_.data());
        counts_at_ = steps.asked.add(counted_.data());
    }
    void give(Work& work, MchDeviceSteps<Work>& steps) {
        arrivals_.give(work, steps, saved, part, lists_);
        if (rule_.leaves_strays()) change().unreachable = steps.asked[counts_at_];
    }
    [[nodiscard]] MchDeviceLists<Work> lists() noexcept { return std::move(lists_); }

private:
    [[nodiscard]] static MchShard device_shard_of(Work& work, MchTransition const& transition, int rank) {
        MchTable const& table = transition.current;
        if (as_index(table.metadata.size()) + 2 > max_device_columns) {
            refuse_table(ErrorCode::shape, table, table.metadata.size(),
                         " columns of metadata are more than kernels take. Fix: at most ", max_device_columns - 2,
                         ", or redistribute() on the host.");
        }
        MchOnDevice<Work> const on_device(work, table, rank);
        return MchBuffers(table, rank, on_device).shard(transition.state);
    }
    [[nodiscard]] Index destinations() const noexcept { return current.parts() + (rule_.drop_unreachable ? 1 : 0); }
    [[nodiscard]] PartitionReport report() const { return PartitionReport(words_, destinations()); }
    using Count = unsigned long long;
    template <class Answer>
    // NOLINTNEXTLINE(readability-non-const-parameter): the kernel writes there
    static void count(Work& work, Index entries, Answer const& answer, Count* total) {
        count_indices(work, "count", CountIndices<Answer>{entries, answer, total});
    }
    /// Looks at all, on the host, only where the first id and the last are 0, as no two are where something was loaded.
    void check_loaded(Work& work, Fetches<Work> const& asked) const {
        if (shard.entries < 2 || asked[ends_at_] != 0 || asked[ends_at_ + 1] != 0) return;
        std::vector<Index> ids = fetch(work, shard.ids, shard.entries);
        std::vector<Index> slots = fetch(work, stays() ? shard.ids : shard.slots, shard.entries);
        MchShard here = shard;
        here.ids = ids.data();
        here.slots = slots.data();
        refuse_zeros(current, here);
    }

    List<Index> current_offsets_;
    Router router_;
    MchDeviceArrivals<Work> arrivals_;
    List<Index> saved_offsets_;
    MchLeavingRule rule_;
    std::size_t leaving_ = 0;    ///< among the partitions of all tables
    std::vector<Index> words_;   ///< its report
    List<Count> counted_;        ///< ids, and those of them that are strays; or these alone
    std::size_t report_at_ = 0;  ///< among what is asked, as the others
    std::size_t iteration_at_ = 0;
    std::size_t ends_at_ = 0;
    std::size_t counts_at_ = 0;
    List<std::byte> packed_;
    MchDeviceLists<Work> lists_;
};

/// The tables of a call, step by step: what a step asks of the device is answered for all tables at once, before the
/// next. Of tables with faults the first is named, as where one is gone through after the other.
template <class Work>
class MchDeviceTables : public MchTerms {
public:
    MchDeviceTables(Work& work, MchTerms const& terms) : MchTerms(terms), work_(work) {}

    /// Throws, as what follows does, what redistribute_on_device() documents.
    void begin(int rank, int ranks) {
        list_.reserve(tables.size());
        each(tables.size(), [&](std::size_t t) {
            check_transition(tables, t, ranks);
            list_.emplace_back(work_, tables[t], rank);
        });
        each([&](MchDeviceTable<Work>& one) { one.tell(work_, options, steps_); });
        steps_.told.run(work_);
        steps_.leaving.count(work_);
        each([&](MchDeviceTable<Work>& one) { one.look(work_, steps_.leaving, steps_.asked); });
        steps_.asked.run(work_);
        each([&](MchDeviceTable<Work>& one) { one.examine(work_, steps_.asked); });
        refuse();
        check_apart(tables, rank);
    }
    [[nodiscard]] std::vector<MchDeviceTable<Work>>& list() noexcept { return list_; }
    void list_headers(std::span<MchArrival const> told, std::span<MchArrival>, CommunicatorRef comm,
                      TransferLists& lists) {
        to_ = WorkList<MchArrival, Work>(work_, told);
        from_ = WorkList<MchArrival, Work>(work_, to_.size());
        comm.check_memory(to_.data());
        list_all_to_all(std::as_bytes(to_.span()), std::as_writable_bytes(from_.span()), comm.size(), lists);
    }
    void hear(std::vector<MchArrival>& heard) { heard = from_.host(work_); }
    void pack(std::span<MchArrival const> heard, int rank, int ranks) {
        for (std::size_t t = 0; t < list_.size(); ++t) {
            if (list_[t].stays()) continue;
            auto const from = [&](int r) -> MchArrival const& { return heard[as_size(r) * list_.size() + t]; };
            list_[t].pack(work_, rank, ranks, from, steps_);
        }
        steps_.leaving.scatter(work_);
        moving([&](MchDeviceTable<Work>& one) { one.list_left_out(work_); });
    }
    void arrange() {
        bool const may_move = options.mode == MchMode::route;
        moving([&](auto& one) { one.arrivals().inspect(work_, may_move, steps_); });
        run(steps_.told, steps_.inspect, steps_.check_slots, steps_.asked);
        moving([&](auto& one) { one.arrivals().find_runs(work_, steps_.asked); });
        run(steps_.asked);
        moving([&](auto& one) { one.arrivals().order(work_, steps_); });
        run(steps_.arrivals, steps_.merges, steps_.repeats, steps_.asked);
        moving([&](auto& one) { one.place(work_, steps_); });
        steps_.moved.allocate(work_);
        steps_.free.allocate(work_);
        moving([&](auto& one) { one.arrivals().mark(work_, steps_); });
        run(steps_.told, steps_.mark, steps_.moved, steps_.asked);
        moving([&](auto& one) { one.give(work_, steps_); });
        refuse();
        run(steps_.count_free, steps_.free, steps_.list_free);
        moving([&](auto& one) { one.arrivals().tell(steps_.written); });
        steps_.written.prepare(work_);
        work_.wait();
        result_.reserve(list_.size());
    }
    /// Writes the shards. \pre all ranks have agreed.
    [[nodiscard]] std::vector<BasicMchDeviceChange<Work>> commit() {
        run(steps_.write_ids, steps_.write_slots, steps_.write_words, steps_.write_halves, steps_.write_quarters,
            steps_.write_bytes, steps_.written);
        for (MchDeviceTable<Work>& one : list_) result_.emplace_back(work_, one.lists());
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
        each([&](MchDeviceTable<Work>& one) {
            if (!one.stays()) body(one);
        });
    }
    /// What was added to these, one after the other.
    template <class... Steps>
    void run(Steps&... steps) {
        (steps.run(work_), ...);
    }
    void refuse() {
        if (!wrong_.ok()) raise(wrong_.code, std::move(wrong_.reason));
    }

    Work& work_;
    std::vector<MchDeviceTable<Work>> list_;
    WorkList<MchArrival, Work> to_;
    WorkList<MchArrival, Work> from_;
    std::vector<BasicMchDeviceChange<Work>> result_;
    MchDeviceSteps<Work> steps_;
    std::size_t good_ = SIZE_MAX;  ///< tables
    Verdict wrong_;                ///< of the one behind them
};

/// redistribute_on_device() (mch/redistribute.cuh) over a Work whose memory the communicator moves.
template <class Work>
std::vector<BasicMchDeviceChange<Work>> redistribute_with(Work& work, std::span<MchTransition const> tables,
                                                          CommunicatorRef comm, MchOptions const& options) {
    MchDeviceTables<Work> moving(work, {tables, options, "on devices"});
    return carry(moving, comm);
}

}  // namespace reshard::inline v0_1::detail
