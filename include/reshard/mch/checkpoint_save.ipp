// SPDX-License-Identifier: Apache-2.0
// How mch/checkpoint_save.hpp is done.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/mch/checkpoint_save.hpp>
#include <reshard/mch/detail/checkpoint_text.hpp>
#include <reshard/mch/detail/refusals.hpp>
#include <reshard/mch/detail/scan.hpp>

#include <algorithm>  // find

namespace reshard::inline v0_1 {

namespace detail {

/// Throws MismatchError for a sorted shard that loads or redistribute() would refuse.
inline void check_readable(MchTable const& table, MchShard const& shard, Index rank) {
    if (table.layout != MchLayout::sorted) return;
    constexpr MchFault refused[] = {MchFault::id_order,      MchFault::id_repeated,    MchFault::slot_range,
                                    MchFault::slot_repeated, MchFault::count_negative, MchFault::access_late};
    MchReport const found = MchScan(table, shard, rank).run();
    for (MchViolation const& one : found.violations()) {
        if (std::ranges::find(refused, one.fault) == std::end(refused)) continue;
        refuse_table(ErrorCode::mismatch, table, "on rank ", rank, ": no load would take it: ", name(one.fault), ": ",
                     found.total(one.fault), ", the first at ", to_string(one),
                     ". Fix: what was loaded by position goes through redistribute() before it is saved; validate() "
                     "lists all that is wrong.");
    }
}

/// What a rank tells the others of a table before they save it, as numbers.
struct MchSaveHeader {
    Index iteration = -1;  ///< -1: this rank has none
    MchIdBounds ids{};
};
/// And of each of its columns: what an entry is.
struct MchColumnForm {
    Index dtype = -1;  ///< -1: this rank has none
    Indices entry;     ///< its shape
    friend bool operator==(MchColumnForm const&, MchColumnForm const&) = default;
};
static_assert(std::is_trivially_copyable_v<MchColumnForm>);

/// Tables as tensors and texts, which is all that save() knows. Collective when it is made.
class MchTensors {
public:
    MchTensors(std::span<LocalTensor const> tensors, std::span<MchTableToSave const> tables, CommunicatorRef comm,
               SaveOptions const& options)
        : tables_(tables), comm_(comm) {
        std::vector<std::byte> mine;
        std::vector<std::byte> all;
        TransferLists lists;
        agree_on_words(comm_, "save", [&] {
            lists.make_room(comm_.size());
            std::string words = summarize();
            mine = describe();
            all.resize(mine.size() * as_size(comm_.size()));
            return words;
        });
        all_gather(comm_, mine, all, lists);
        attempt_before_agreement(comm_, [&] {
            tensors_.assign(tensors.begin(), tensors.end());
            options_ = options;
            for (std::size_t t = 0; t < tables_.size(); ++t) {
                std::string const key = concat(mch_table_key, tables_[t].table.name);
                for (auto const& item : options.metadata) {
                    if (item.first != key) continue;
                    raise(ErrorCode::buffer, "reshard::SaveOptions: metadata has ", quote_name(key),
                          ", as that table is saved under. Fix: leave it out.");
                }
                add(t, all, mine.size());
            }
        });
    }
    [[nodiscard]] std::span<LocalTensor const> tensors() const noexcept { return tensors_; }
    [[nodiscard]] SaveOptions const& options() const noexcept { return options_; }

private:
    /// What all ranks have alike, in words.
    [[nodiscard]] std::string summarize() {
        std::string words = concat("saves ", tables_.size(), tables_.empty() ? " tables" : " tables:");
        for (std::size_t t = 0; t < tables_.size(); ++t) {
            MchTableToSave const& one = tables_[t];
            words += concat(transport::next_option, to_string(one.table));
            MchSavedTable saved;
            saved.table = one.table;
            for (MchRows const& rows : one.rows) {
                MchRowsInfo const info = info_of(rows);
                words += concat(" with ", name(info.dtype), " rows '", info.name, "' ",
                                to_string(DynamicShape(info.row_shape)));
                saved.rows.push_back(info);
            }
            saved_.push_back(std::move(saved));
        }
        return words;
    }
    /// Checks what this rank has, and says it in a block of the same size on all ranks.
    [[nodiscard]] std::vector<std::byte> describe() {
        std::vector<std::byte> block;
        auto const say = [&](auto const& numbers) {
            auto const* const at = reinterpret_cast<std::byte const*>(&numbers);
            block.insert(block.end(), at, at + sizeof(numbers));
        };
        for (std::size_t t = 0; t < tables_.size(); ++t) {
            check(t);
            MchShard const& shard = shards_.back();
            MchSaveHeader header;
            if (shard.iteration != nullptr) header.iteration = *shard.iteration;
            header.ids = id_bounds(tables_[t].table, shard);
            say(header);
            for (MchColumn const& column : tables_[t].table.metadata) {
                MchColumnView const* const view = find_named(tables_[t].state.metadata, column.name);
                bool const here = view != nullptr && view->view.rank() != 0;
                say(here ? MchColumnForm{static_cast<Index>(view->view.dtype()), entry_shape(view->view)}
                         : MchColumnForm{});
            }
        }
        return block;
    }
    void check(std::size_t t) {
        MchTableToSave const& one = tables_[t];
        int const rank = comm_.rank();
        check_names(t);
        shards_.push_back(MchBuffers(one.table, rank, comm_.memory()).shard(one.state));
        MchShard const& shard = shards_.back();
        for (MchRows const& rows : one.rows) {  // two may lie over each other: they are read
            MchBuffers buffers(one.table, rank, comm_.memory());
            check_rows(rows, shard.entries, buffers);
        }
        check_ranks(one.table, comm_.size());
        if (never_loaded(shard.ids, shard.slots, shard.entries)) {
            refuse_table(ErrorCode::mismatch, one.table, "on rank ", rank, ": the state was ",
                         name(MchFault::never_loaded), ". Fix: load or initialise it before it is saved.");
        }
        if (shard.iteration != nullptr) check_iteration(one.table, rank, *shard.iteration);
        check_readable(one.table, shard, rank);
    }
    void check_names(std::size_t t) const {
        MchTable const& table = tables_[t].table;
        for (std::size_t other = 0; other < t; ++other) check_names_differ(tables_[other].table, table);
        for (MchRows const& rows : tables_[t].rows) {
            if (find_named(tables_[t].rows, rows.name) == &rows) continue;
            refuse_table(ErrorCode::mismatch, table, "two lists of rows are called '", rows.name,
                         "'. Fix: give each its own name.");
        }
    }

    /// What all ranks said of table t, put together: its text, and this rank's part of its tensors.
    void add(std::size_t t, std::span<std::byte const> all, std::size_t block) {
        MchSavedTable& saved = saved_[t];
        MchTable const& table = saved.table;
        std::size_t const columns = table.metadata.size();
        auto const said = [&](int rank, std::size_t offset, auto& to) {
            std::memcpy(&to, all.data() + as_size(rank) * block + at_ + offset, sizeof(to));
        };
        std::vector<MchColumnForm> forms(columns);
        int first = -1;
        for (int rank = 0; rank < comm_.size(); ++rank) {
            MchSaveHeader header;
            said(rank, 0, header);
            if (header.iteration >= 0) {
                if (first >= 0 && header.iteration != saved.iteration) {
                    refuse_table(ErrorCode::mismatch, table, "rank ", rank, " is at iteration ", header.iteration,
                                 ", rank ", first, " at ", saved.iteration,
                                 ". Fix: save when all ranks have made the same steps.");
                }
                if (first < 0) first = rank;
                saved.iteration = header.iteration;
            }
            for (std::size_t c = 0; c < columns; ++c) {
                MchColumnForm form;
                said(rank, sizeof(header) + c * sizeof(form), form);
                if (form.dtype < 0 || form == forms[c]) continue;
                if (forms[c].dtype >= 0) {
                    refuse_table(
                        ErrorCode::mismatch, table, "on rank ", rank, " column '", table.metadata[c].name,
                        "' has another type or shape than on ranks before it. Fix: give it the same on all ranks.");
                }
                forms[c] = form;
            }
        }
        for (Index part = 0; part < table.parts(); ++part) {
            MchSaveHeader header;
            said(static_cast<int>(table.slots.mesh().rank_at(part)), 0, header);
            saved.ids.push_back(header.ids);
        }
        at_ += sizeof(MchSaveHeader) + columns * sizeof(MchColumnForm);

        MchShard const& shard = shards_[t];
        std::size_t integers = 0;
        for_each_tensor(saved, [&, this](std::string const& name, MchColumn const* column, MchRowsInfo const* rows) {
            if (rows != nullptr) {
                auto const& given = tables_[t].rows[as_size(rows - saved.rows.data())];
                return add_tensor(t, name, rows->dtype, rows->row_shape, given.view.data());
            }
            if (column == nullptr) return add_tensor(t, name, DType::i64, {}, shard.column(integers++));
            auto const c = as_size(column - table.metadata.data());
            bool const known = forms[c].dtype >= 0;  // else no rank has entries
            add_tensor(t, name, known ? static_cast<DType>(forms[c].dtype) : DType::u8,
                       known ? forms[c].entry : Indices{column->bytes}, shard.metadata[c]);
        });
        options_.metadata.emplace_back(concat(mch_table_key, table.name), table_text(saved));
    }
    void add_tensor(std::size_t t, std::string name, DType dtype, Indices const& entry, std::byte* data) {
        DynamicDistribution const& slots = saved_[t].table.slots;
        Indices whole{saved_[t].table.size()};
        Indices local{shards_[t].entries};
        for (Index extent : entry) {
            whole.push_back(extent);
            local.push_back(extent);
        }
        tensors_.push_back({std::move(name), DynamicDistribution(slots.mesh(), DynamicShape(whole), slots.placements()),
                            DynamicView(data, dtype, DynamicShape(local))});
    }

    std::span<MchTableToSave const> tables_;
    CommunicatorRef comm_;
    std::vector<MchSavedTable> saved_;
    std::vector<MchShard> shards_;
    std::size_t at_ = 0;  ///< in a rank's block: what it says of the next table
    std::vector<LocalTensor> tensors_;
    SaveOptions options_;
};

}  // namespace detail

RESHARD_INLINE SaveReport save(std::string folder, std::span<LocalTensor const> tensors,
                               std::span<MchTableToSave const> tables, CommunicatorRef comm,
                               SaveOptions const& options) {
    detail::MchTensors const all(tensors, tables, comm, options);
    return save(std::move(folder), all.tensors(), comm, all.options());
}
RESHARD_INLINE SaveReport save(std::string folder, std::span<MchTableToSave const> tables, CommunicatorRef comm,
                               SaveOptions const& options) {
    return save(std::move(folder), std::span<LocalTensor const>(), tables, comm, options);
}
RESHARD_INLINE SaveReport save(std::string folder, MchTableToSave const& table, CommunicatorRef comm,
                               SaveOptions const& options) {
    return save(std::move(folder), std::span<MchTableToSave const>(&table, 1), comm, options);
}

RESHARD_INLINE SaveRequest start_save(std::string folder, std::span<LocalTensor const> tensors,
                                      std::span<MchTableToSave const> tables, CommunicatorRef comm,
                                      SaveOptions const& options) {
    detail::MchTensors const all(tensors, tables, comm, options);
    return start_save(std::move(folder), all.tensors(), comm, all.options());
}

}  // namespace reshard::inline v0_1
