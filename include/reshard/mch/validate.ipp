// SPDX-License-Identifier: Apache-2.0
// How mch/validate.hpp is done.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/detail/refusals.hpp>
#include <reshard/mch/detail/scan.hpp>
#include <reshard/mch/validate.hpp>

#include <algorithm>  // sort

namespace reshard::inline v0_1 {

namespace detail {

/// What every rank tells the others about its shard, before anything is looked up on other ranks.
struct MchHeader {
    Index has_iteration = 0;
    Index iteration = 0;
    Index faults = 0;
};

/// An id and who claims to hold it.
struct MchClaim {
    Index id = 0;
    Index rank = 0;
    Index position = 0;

    [[nodiscard]] friend auto operator<=>(MchClaim const&, MchClaim const&) noexcept = default;
};

/// One rank's report in as many bytes on every rank, so that all know what to receive.
struct MchReportBlock {
    Index totals[mch_fault_count]{};
    Index count = 0;
    MchViolation listed[mch_fault_count * MchReport::listed]{};
};

template <class T>
[[nodiscard]] std::span<std::byte> bytes_of(std::vector<T>& list) noexcept {
    return std::as_writable_bytes(std::span(list));
}

/// The part of validate() that needs other ranks. Strays go to the rank that looks their ids up: two ranks that hold
/// one id cannot both be that rank, so every id on two ranks is among the strays.
class MchJointScan {
public:
    MchJointScan(MchTable const& table, MchState const& state, CommunicatorRef comm)
        : table_(table), state_(state), comm_(comm) {}

    [[nodiscard]] MchReport run() {
        agree_on_table();
        all_gather(comm_, std::as_bytes(std::span(&header_, 1)), bytes_of(headers_), lists_);
        Index faults = 0;
        for (MchHeader const& header : headers_) faults += header.faults;
        if (faults != 0) collect();
        compare_iterations();
        result_.sort();
        return std::move(result_);
    }

private:
    void agree_on_table() {
        agree_on_words(comm_, "validate", [&] {
            check_table(table_);
            check_ranks(table_, comm_.size());
            strays_.resize(as_size(table_.parts()));
            if (table_.slots.mesh().contains(comm_.rank())) {
                shard_ = MchBuffers(table_, comm_.rank(), comm_.memory()).shard(state_);
                report_ = MchScan(table_, shard_, comm_.rank()).run(&strays_);
                header_.has_iteration = shard_.iteration != nullptr ? 1 : 0;
                header_.iteration = shard_.iteration != nullptr ? *shard_.iteration : 0;
                header_.faults = report_.total();
            }
            make_room();
            return concat("validates the table ", to_string(table_));
        });
    }
    /// For what comes before ranks agree again, and for iterations that differ.
    void make_room() {
        auto const ranks = as_size(comm_.size());
        lists_.make_room(comm_.size());
        headers_.resize(ranks);
        leaving_.resize(ranks);
        arriving_.resize(ranks);
        result_.reserve(ranks);
    }

    void collect() {
        for (std::size_t part = 0; part < strays_.size(); ++part) {
            leaving_[rank_of(part)] = as_index(strays_[part].size());
        }
        list_all_to_all(std::as_bytes(std::span(std::as_const(leaving_))), bytes_of(arriving_), comm_.size(), lists_);
        lists_.deliver(comm_);
        std::size_t const ranks = arriving_.size();
        std::vector<std::vector<MchStray>> received;
        std::vector<MchClaim> claims;
        MchReportBlock mine;
        std::vector<MchReportBlock> all;
        agree_on_errors(
            comm_,
            [&] {
                Index total = 0;
                received.resize(ranks);
                for (std::size_t r = 0; r < ranks; ++r) {
                    received[r].resize(as_size(arriving_[r]));
                    total += arriving_[r];
                }
                claims.reserve(as_size(total + (total != 0 ? shard_.entries : 0)));
                all.resize(ranks);
                report_.reserve(as_size(MchReport::listed));
                result_.reserve(ranks * as_size(mch_fault_count * MchReport::listed));
                for (std::size_t part = 0; part < strays_.size(); ++part) {
                    lists_.send(static_cast<int>(rank_of(part)), std::span(strays_[part]));
                }
                for (std::size_t r = 0; r < ranks; ++r) lists_.receive(static_cast<int>(r), std::span(received[r]));
            },
            "validate");
        lists_.deliver(comm_);
        for (std::size_t r = 0; r < ranks; ++r) {
            for (MchStray const& stray : received[r]) claims.push_back({stray.id, as_index(r), stray.position});
        }
        find_shared(claims);
        for (int i = 0; i < mch_fault_count; ++i) mine.totals[i] = report_.total(static_cast<MchFault>(i));
        for (MchViolation const& violation : report_.violations()) mine.listed[mine.count++] = violation;
        all_gather(comm_, std::as_bytes(std::span(&mine, 1)), bytes_of(all), lists_);
        for (MchReportBlock const& one : all) {
            for (int i = 0; i < mch_fault_count; ++i) result_.add_total(static_cast<MchFault>(i), one.totals[i]);
            for (Index k = 0; k < one.count; ++k) result_.add_listed(one.listed[k]);
        }
    }

    /// `claims` are of other ranks, all of ids that this one looks up.
    void find_shared(std::vector<MchClaim>& claims) {
        if (claims.empty()) return;
        Index const here = comm_.rank();
        bool const loaded = report_.total(MchFault::never_loaded) == 0;  // else its zeros are no ids
        for (Index i = 0; loaded && i < shard_.entries; ++i) {
            if (shard_.ids[i] != empty_id(table_.layout)) claims.push_back({shard_.ids[i], here, i});
        }
        std::sort(claims.begin(), claims.end());
        for (std::size_t begin = 0, end = 0; begin < claims.size(); begin = end) {
            Index holder = claims[begin].rank;  // the rank that looks the id up if it has it, else the lowest
            for (end = begin; end < claims.size() && claims[end].id == claims[begin].id; ++end) {
                if (claims[end].rank == here) holder = here;
            }
            for (std::size_t i = begin; i < end; ++i) {
                if (claims[i].rank == holder) continue;
                report_.add({MchFault::id_on_two_ranks, claims[i].rank, claims[i].position, claims[i].id, holder});
            }
        }
    }

    void compare_iterations() {
        MchHeader const* first = nullptr;
        for (std::size_t r = 0; r < headers_.size(); ++r) {
            if (headers_[r].has_iteration == 0) continue;
            if (first == nullptr) first = &headers_[r];
            if (headers_[r].iteration == first->iteration) continue;
            result_.add_total(MchFault::iteration, 1);
            result_.add_listed({MchFault::iteration, as_index(r), 0, headers_[r].iteration, first->iteration});
        }
    }
    [[nodiscard]] std::size_t rank_of(std::size_t part) const noexcept {
        return as_size(table_.slots.mesh().rank_at(as_index(part)));
    }

    MchTable const& table_;
    MchState const& state_;
    CommunicatorRef comm_;
    MchShard shard_;
    MchReport report_;
    MchHeader header_;
    std::vector<std::vector<MchStray>> strays_;
    TransferLists lists_;
    std::vector<MchHeader> headers_;  ///< of all ranks
    std::vector<Index> leaving_;      ///< strays to each rank
    std::vector<Index> arriving_;     ///< and from each
    MchReport result_;
};

}  // namespace detail

RESHARD_INLINE MchReport validate(MchTable const& table, MchState const& state, Index rank) {
    return detail::MchScan(table, detail::MchBuffers(table, rank).shard(state), rank).run();
}

RESHARD_INLINE MchReport validate(MchTable const& table, MchState const& state, CommunicatorRef comm) {
    if (comm.size() == 1 && !(table.slots.mesh().last_rank() > 0)) {
        return detail::MchScan(table, detail::MchBuffers(table, 0, comm.memory()).shard(state), 0).run();
    }
    return detail::MchJointScan(table, state, comm).run();
}

}  // namespace reshard::inline v0_1
