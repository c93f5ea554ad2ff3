// SPDX-License-Identifier: Apache-2.0
/// \file   tools/reshard/mch_change.hpp
/// \brief  A checkpoint with managed-collision tables for another number of ranks, or with tables of another size.
#pragma once

#include "spill.hpp"

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/mch/checkpoint.hpp>
#include <reshard/mch/checkpoint_save.hpp>
#include <reshard/mch/detail/checkpoint_text.hpp>
#include <reshard/mch/validate.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace command::mch {

using namespace reshard;

struct Job {
    std::string in;
    std::string out;                     ///< empty: nothing is written
    std::string memory;                  ///< the folder for what does not fit in memory
    Index ranks = 0;                     ///< 0: as many as saved
    std::map<std::string, Index> sizes;  ///< by table; "" for all others
    MchOptions options;
    std::function<void(Index done, Index total, std::string const& what)> progress{};  ///< in shards
};

/// What became of one table.
struct Outcome {
    MchTable before;
    MchTable after;
    Index ids = 0;          ///< before
    Index kept = 0;         ///< of them
    Index unreachable = 0;  ///< kept, but where no look-up finds them: slot_owner, accept_strays
    Index moved = 0;        ///< to other rows
    std::vector<Index> evicted{};
    std::vector<Index> left_out{};
};

namespace detail {

[[noreturn]] inline void refuse(std::string const& what) { errors::raise(ErrorCode::user, what); }

/// The table on ranks 0 to `ranks` - 1: cut as it was saved if nothing else changes, else by TorchRec's rule. Throws
/// for ranks that TorchRec's module would not take it on.
inline MchTable table_on(MchTable const& saved, Index ranks, Index slots) {
    if (ranks == saved.parts() && slots == saved.size()) {
        std::vector<Index> from_0;
        for (Index r = 0; r < ranks; ++r) from_0.push_back(r);
        return saved.on(reshard::detail::mch_slots_of(from_0, saved.offsets()));
    }
    auto const name = errors::concat("table '", saved.name, "'");
    if (saved.layout == MchLayout::buckets) {
        if (slots != saved.size()) {
            refuse(errors::concat(
                name, " is a hash table of ", saved.size(),
                " slots, in which the places of ids follow from the size. Fix: --size TABLE=N for others."));
        }
        if (saved.buckets % ranks != 0) {
            refuse(errors::concat(name, " has ", saved.buckets, " buckets, which ", ranks,
                                  " ranks cannot share evenly. Fix: a number of ranks that divides them."));
        }
    } else {
        Index const most = slots < 1 ? 0 : reshard::detail::ceil_div(slots, reshard::detail::ceil_div(slots, ranks));
        if (most < ranks) {
            refuse(errors::concat(name, " of ", slots, " slots, cut for ", ranks, " ranks, leaves ", ranks - most,
                                  " of them without any, and TorchRec's module does not start there. Fix: at most ",
                                  most, " ranks, or a larger --size."));
        }
        if (slots - reshard::detail::ceil_div(slots, ranks) * (ranks - 1) < 2) {
            refuse(
                errors::concat(name, " of ", slots, " slots, cut for ", ranks, " ranks, leaves rank ", ranks - 1,
                               " one slot, which is reserved for ids that are not in the table. Fix: fewer ranks, or a "
                               "larger --size."));
        }
    }
    MchTable result = saved.on(mch_slots(Mesh{ranks}, slots));
    check_table(result);
    return result;
}

/// What a checkpoint has: tensors that are of no table, each cut along its first dimension, and what columns are.
struct Contents {
    std::vector<PlacedTensor> others;
    Metadata metadata;
    std::map<std::string, StoredTensor> columns;  ///< of tables, by the names of their tensors
    std::optional<Checkpoint> checkpoint;         ///< opened once: a trainer may save into the folder meanwhile

    Contents(std::string const& folder, MchCheckpoint const& tables, Index ranks) {
        auto const exists = [&](std::string_view leaf) {
            return std::filesystem::exists(errors::concat(folder, "/", leaf));
        };
        if (exists("mch.index.json") && !exists(manifest_name)) return;  // such folders had tables alone
        std::vector<std::string> known;
        for (std::string const& name : tables.names()) {
            reshard::detail::MchSavedTable const saved{tables.table(name), 0, tables.rows(name), {}};
            reshard::detail::for_each_tensor(saved,
                                             [&](std::string const& tensor, auto...) { known.push_back(tensor); });
        }
        std::sort(known.begin(), known.end());
        Manifest const& manifest = checkpoint.emplace(Checkpoint::open(folder)).manifest();
        if (!exists("mch.index.json") && manifest.save != tables.save_id()) {
            refuse(errors::concat("'", folder, "' was replaced while it was opened. Fix: run this again."));
        }
        PlacementRule const rule(errors::concat("(", ranks, "):(S0)"));
        for (StoredTensor const& tensor : manifest.tensors) {
            if (tensor.replicas > 1) {
                refuse(errors::concat(
                    "tensor '", tensor.name, "' has ", tensor.replicas,
                    " copies that were saved apart. Fix: make one of them of IN with reshard consolidate, "
                    "whose --replica chooses where they differ."));
            }
            if (std::binary_search(known.begin(), known.end(), tensor.name)) {
                columns.emplace(tensor.name, tensor);
                continue;
            }
            if (!is_byte_sized(tensor.dtype)) {
                refuse(
                    errors::concat("tensor '", tensor.name, "' is ", name(tensor.dtype),
                                   ", which has no whole bytes and cannot be carried along. Fix: save it elsewhere."));
            }
            others.push_back({tensor.name, rule.of(tensor.shape, tensor.dtype), tensor.dtype});
        }
        for (auto const& item : manifest.metadata) {
            if (!item.first.starts_with(reshard::detail::mch_table_key)) metadata.push_back(item);
        }
    }
};

/// One rank's part of a table, and the memory it lies in: one mapping, since a system makes so many and no more.
struct Shard {
    Spill memory;
    MchState state;
    std::vector<MchRows> rows;

    Shard(MchTable const& table, Index saved_parts, std::vector<MchRowsInfo> const& infos, Contents const& contents,
          Index rank, std::string const& folder) {
        Index const z = table.range(rank).size();
        Index used = 0;
        auto const view = [&](DType dtype, Indices const& shape) {
            DynamicShape const extents(shape);
            Index const begin = used;
            used += reshard::detail::ceil_div(extents.size() * bytes(dtype), 64) * 64;
            return DynamicView(memory.data() == nullptr ? nullptr : memory.data() + begin, dtype, extents);
        };
        for (bool const has_memory : {false, true}) {  // once to see how much it is
            if (has_memory) memory = Spill(folder, std::exchange(used, 0));
            state = {};
            rows.clear();
            state.ids = view(DType::i64, {z});
            if (table.layout == MchLayout::sorted) {
                state.slots = view(DType::i64, {z});
                state.segments = view(DType::i64, {reshard::detail::larger(saved_parts, table.parts()) + 1});
                state.iteration = view(DType::i64, {1});
            }
            for (MchColumn const& one : table.metadata) {
                auto const saved = contents.columns.find(reshard::detail::column_tensor(table.name, one.name));
                DType dtype = one.bytes == 8 ? DType::i64 : DType::u8;
                Indices shape = one.bytes == 8 ? Indices{z} : Indices{z, one.bytes};
                if (saved != contents.columns.end()) {
                    dtype = saved->second.dtype;
                    shape = saved->second.shape.extents();
                    shape[0] = z;
                }
                state.metadata.push_back({one.name, view(dtype, shape)});
            }
            for (MchRowsInfo const& info : infos) {
                Indices shape{z};
                for (Index extent : info.row_shape) shape.push_back(extent);
                rows.push_back({info.name, view(info.dtype, shape)});
            }
        }
    }

    /// Rows of slots that lost their id: who loads them on as many ranks is not told of them any more.
    void clear_rows(std::span<Index const> slots, Index first) {
        for (MchRows const& one : rows) {
            Index const row_bytes = one.view.size() / reshard::detail::larger<Index>(one.view.shape().extent(0), 1) *
                                    bytes(one.view.dtype());
            for (Index const slot : slots)
                std::fill_n(one.view.data() + (slot - first) * row_bytes, row_bytes, std::byte{});
        }
    }
};

/// All of it, one shard after the other: what is in memory at a time is one shard's ids, and what has been spilled.
class Work {
public:
    explicit Work(Job const& job) : job_(job), files_(MchCheckpoint::open(job.in)) {
        std::vector<std::string> const names = files_.names();
        if (names.empty()) {
            refuse(errors::concat("'", job.in,
                                  "' has no managed-collision tables. Fix: name a checkpoint that has; "
                                  "reshard shard is for those without."));
        }
        for (auto const& [name, size] : job.sizes) {
            if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) continue;
            std::string list;
            for (std::string const& one : names) list += errors::concat(list.empty() ? "'" : ", '", one, "'");
            refuse(errors::concat("--size ", name, "=", size, ": there is no table '", name, "'; there are: ", list,
                                  ". Fix: correct the name."));
        }
        for (std::string const& name : names) {
            MchTable const& saved = files_.table(name);
            auto at = job.sizes.find(name);
            if (at == job.sizes.end()) at = job.sizes.find("");
            Index const ranks = job.ranks != 0 ? job.ranks : saved.parts();
            ranks_ = reshard::detail::larger(ranks_, ranks);
            outcomes_.push_back({saved, table_on(saved, ranks, at == job.sizes.end() ? saved.size() : at->second)});
            total_ += ranks;
            for (MchIdBounds const& bounds : files_.ids(name)) outcomes_.back().ids += bounds.live;
        }
        contents_.emplace(job.in, files_, ranks_);
    }

    std::vector<Outcome> run() {
        for (Outcome& one : outcomes_) carry(one);
        if (!job_.out.empty()) save_all();
        return std::move(outcomes_);
    }

private:
    void carry(Outcome& one) {
        std::string const& name = one.after.name;
        MchLoadOptions options;
        options.resize = true;
        std::vector<MchRowsInfo> const& saved_rows = files_.rows(name);
        bool const rows = !job_.out.empty();
        for (MchRowsInfo const& info : saved_rows) {
            if (!rows) options.leave_rows.push_back(info.name);
        }
        std::vector<Shard>& shards = shards_.emplace_back();
        for (Index rank = 0; rank < one.after.parts(); ++rank) {
            Shard shard(one.after, one.before.parts(), rows ? saved_rows : std::vector<MchRowsInfo>(), *contents_, rank,
                        job_.memory);
            MchChange const change =
                files_.load_redistributed(name, one.after, rank, shard.state, shard.rows, job_.options, options).change;
            check(one, shard, rank);
            shard.clear_rows(change.freed, one.after.range(rank).begin);
            one.kept += change.live_after;
            one.unreachable += change.unreachable;
            Index const misses = one.after.range(rank).end - 1;  // the row there is no id's
            one.moved += std::count_if(change.moves.begin(), change.moves.end(),
                                       [&](MchRowMove const& move) { return move.to != misses; });
            one.evicted.insert(one.evicted.end(), change.evicted.begin(), change.evicted.end());
            one.left_out.insert(one.left_out.end(), change.left_out.begin(), change.left_out.end());
            if (!job_.out.empty()) shards.push_back(std::move(shard));
            ++done_;
            if (job_.progress) job_.progress(done_, total_, errors::concat("table '", name, "'"));
        }
        auto const lost = static_cast<Index>(one.evicted.size() + one.left_out.size());
        if (one.ids != one.kept + lost) {
            refuse(errors::concat("table '", name, "' had ", one.ids, " ids and has ", one.kept, ", but ", lost,
                                  " were listed as lost. Fix: this is a bug, please report it; nothing was written."));
        }
    }
    void check(Outcome const& one, Shard const& shard, Index rank) const {
        MchTable const& table = one.after;
        MchReport const report = validate(table, shard.state, rank);
        if (report.total() != report.total(MchFault::unreachable)) {
            refuse(errors::concat("table '", table.name, "' is not sound: ", explain(report),
                                  ". Fix: take another save; if that one is sound, this is a bug, please report it."));
        }
        if (report.sound() || table.layout == MchLayout::sorted || job_.options.accept_strays) return;
        refuse(errors::concat("table '", table.name, "': ", table.buckets, " buckets and hash size ", table.hash_size,
                              " are not what its ids were placed by: ", explain(report),
                              ". Fix: give the hash size and the buckets that the table was trained with."));
    }
    void save_all() {
        ThreadOptions waits;
        waits.deadline = std::chrono::hours(1);  // what the slowest disk needs until ranks meet again
        run_on_threads(static_cast<int>(ranks_), waits, [&](ThreadCommunicator& comm) {
            auto const rank = static_cast<std::size_t>(comm.rank());
            std::vector<MchTableToSave> savings;
            for (std::size_t t = 0; t < outcomes_.size(); ++t) {
                MchTableToSave saving{outcomes_[t].after, {}, {}};
                if (rank < shards_[t].size()) {
                    saving.state = shards_[t][rank].state;
                    saving.rows = shards_[t][rank].rows;
                } else {  // of a table on fewer ranks
                    for (MchRows const& one : shards_[t][0].rows) {
                        Indices shape = one.view.shape().extents();
                        shape[0] = 0;
                        saving.rows.push_back({one.name, DynamicView(nullptr, one.view.dtype(), DynamicShape(shape))});
                    }
                }
                savings.push_back(std::move(saving));
            }
            auto const shape_of = [&](PlacedTensor const& one) { return one.distribution.local_shape(comm.rank()); };
            auto const bytes_of = [&](PlacedTensor const& one) {
                return reshard::detail::ceil_div(shape_of(one).size() * bytes(one.dtype), 64) * 64;
            };
            Index size = 0;
            for (PlacedTensor const& one : contents_->others) size += bytes_of(one);
            Spill const memory(job_.memory, size);  // one for all: a system maps so many and no more
            std::byte* at = memory.data();
            std::vector<LocalTensor> tensors;
            for (PlacedTensor const& one : contents_->others) {
                Index const used = bytes_of(one);
                tensors.push_back(
                    {one.name, one.distribution, DynamicView(used == 0 ? nullptr : at, one.dtype, shape_of(one))});
                if (used != 0) at += used;
            }
            if (!tensors.empty()) static_cast<void>(load(*contents_->checkpoint, tensors, comm.rank()));
            SaveOptions options;
            options.metadata = contents_->metadata;
            static_cast<void>(save(job_.out, tensors, savings, comm, options));
        });
    }

    Job const& job_;
    MchCheckpoint files_;
    std::optional<Contents> contents_;
    std::vector<Outcome> outcomes_;
    std::vector<std::vector<Shard>> shards_;  ///< by table, by rank
    Index ranks_ = 1;
    Index done_ = 0;
    Index total_ = 0;  ///< shards
};

}  // namespace detail

/// Writes job.out, whole or not at all, and says what became of each table. Throws Error.
inline std::vector<Outcome> change_tables(Job const& job) { return detail::Work(job).run(); }

}  // namespace command::mch
