// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_load.hpp
/// \brief  Entries and rows of saved shards into memory: what is checked first, and what is read where.
/// \depends mch/detail/{checkpoint_files,taken_slots}, mch/{names,reach,report}.
#pragma once

#include <reshard/mch/detail/checkpoint_files.hpp>
#include <reshard/mch/detail/taken_slots.hpp>
#include <reshard/mch/names.hpp>
#include <reshard/mch/reach.hpp>
#include <reshard/mch/report.hpp>

#include <algorithm>  // find
#include <optional>   // optional

namespace reshard::inline v0_1::detail {

/// The saved table as if it had the columns and the policy of the current one. Throws MismatchError for fills and drops
/// that do not apply.
[[nodiscard]] inline MchTable with_columns_of(MchTable const& saved, MchTable const& current,
                                              MchLoadOptions const& options) {
    auto const refuse = [&](auto const&... parts) { refuse_table(ErrorCode::mismatch, current, parts...); };
    MchTable result = saved;
    for (std::string const& name : options.drop) {
        if (find_column(result, name) == nullptr) {
            refuse("column '", name, "' is to be dropped, but '", saved.name,
                   "' was saved without it. Fix: leave it out.");
        }
        std::erase_if(result.metadata, [&](MchColumn const& column) { return column.name == name; });
    }
    for (MchFill const& fill : options.fill) {
        MchColumn const* const column = find_column(current, fill.column);
        if (column == nullptr) {
            refuse("column '", fill.column,
                   "' is to be filled, but the table has none of that name. Fix: leave it out.");
        }
        if (find_column(result, fill.column) != nullptr) {
            refuse("column '", fill.column,
                   "' is to be filled, but it was saved. Fix: leave the fill out, or drop it.");
        }
        if (column->bytes != 8 && fill.value != 0 && fill.value != -1) {
            refuse("column '", fill.column, "' of ", column->bytes, " bytes an entry cannot be filled with ",
                   fill.value, ". Fix: 0, or -1 for bytes of 0xff.");
        }
        result.metadata.push_back(*column);
    }
    if (!options.drop.empty() || !options.fill.empty()) {
        // The exponent of another policy says nothing.
        if (result.eviction != current.eviction) result.decay_exponent = current.decay_exponent;
        result.eviction = current.eviction;
    }
    return result;
}

/// What one rank reads of one table. Checks everything that can be told from tables, buffers and headers when it is
/// made; reads entries and rows afterwards.
class MchReader {
public:
    MchReader(MchFiles& files, MchSavedTable const& saved, MchTable const& current, Index rank, MchState const& state,
              std::span<MchRows const> rows, MchLoadOptions const& options, bool resize = false)
        : files_(files), saved_(saved), current_(current), buffers_(current, rank), options_(options) {
        check_table(current);
        adapted_ = with_columns_of(saved.table, current, options);
        resize ? check_same_ids(adapted_, current) : check_same_content(adapted_, current);
        shard_ = buffers_.shard(state);
        for (MchColumn const& column : current.metadata) {
            MchColumnView const* const view = find_named(state.metadata, column.name);
            if (view != nullptr && is_filled(column.name) == nullptr) check_type(column.name, view->view.dtype());
        }
        for (MchRows const& one : rows) check_rows_saved(one);
    }

    /// Throws MismatchError for rows that were saved, are not among `rows`, and were not said to be left, and for rows
    /// that are to be left and were not saved.
    void check_rows_given(std::span<MchRows const> rows) const {
        auto const& left = options_.leave_rows;
        for (std::string const& name : left) {
            if (find_named(saved_.rows, name) != nullptr) continue;
            buffers_.refuse(ErrorCode::mismatch, "rows '", name, "' are to be left, but '", saved_.table.name,
                            "' was saved without them. Fix: leave them out of MchLoadOptions::leave_rows.");
        }
        for (MchRowsInfo const& info : saved_.rows) {
            if (std::find(left.begin(), left.end(), info.name) != left.end()) continue;
            if (find_named(rows, info.name) != nullptr) continue;
            buffers_.refuse(
                ErrorCode::mismatch, "rows '", info.name, "' were saved with '", saved_.table.name,
                "' and are not given: ids that change their slots would find rows of others. Fix: give them, or "
                "name them in MchLoadOptions::leave_rows.");
        }
    }

    [[nodiscard]] MchTable const& adapted() const noexcept { return adapted_; }
    [[nodiscard]] MchShard const& shard() const noexcept { return shard_; }
    [[nodiscard]] Index bytes_read() const noexcept { return bytes_read_; }
    /// The file that a part's ids lie in.
    [[nodiscard]] std::string path_of(Index part) const {
        return files_.path_of(ids_tensor(saved_.table.name), saved_.table.part_range(part).begin);
    }

    /// Opens what a part lies in.
    void check_part(Index part) {
        Interval const slots = saved_.table.part_range(part);
        for_each_tensor(saved_, [&, this](std::string const& tensor, auto...) { files_.open(tensor, slots); });
    }

    /// The entries of a part, `room` of them at a time, into columns in the order of the current table, but for those
    /// of `to` that are not there; use(entry, count) is called for each piece. Returns the bounds of the ids. Throws
    /// MismatchError for zeros all over, FormatError for bytes that are not those that were saved, for ids that do not
    /// ascend in a sorted table, for two with one slot, and where the text says something else of the part's ids than
    /// was found.
    template <class Use>
    MchIdBounds read_entries(MchRead const& read, MchShard const& to, Index room, Use&& use) {
        MchIdBounds found;
        Index last = INT64_MIN;
        std::optional<MchTakenSlots> taken;
        if (to.slots != nullptr) taken.emplace(saved_.table.part_range(read.part));
        for (Index begin = read.begin; begin < read.end; begin += room) {
            Index const end = smaller(begin + room, read.end);
            found = found + read_piece(read.part, begin, end, to, last);
            last = to.ids[end - begin - 1];
            for (Index i = 0; taken && i < end - begin; ++i) {
                if (is_live(to, i) && taken->has(to.slots[i]) && !taken->take(to.slots[i]))
                    refuse_slot_twice(read, to, room, begin + i, to.ids[i], to.slots[i]);
            }
            use(begin, end - begin);
        }
        check_bounds(read, found);
        return found;
    }

    /// Rows of these slots.
    void read_rows(MchRows const& rows, Interval slots, std::byte* to) {
        read(rows_tensor(saved_.table.name, rows.name), info_of(rows).row_bytes(), slots, to);
    }

    /// Rows of the slots of this rank's shard.
    void read_rows_in_place(MchRows const& rows) {
        read_rows(rows, intersect(shard_.range(), {0, saved_.table.size()}), rows.view.data());
    }

private:
    [[nodiscard]] bool is_live(MchShard const& entries, Index i) const noexcept {
        return entries.ids[i] != empty_id(current_.layout);
    }
    /// Entries [begin, end) of a part, counted from its first, of that column.
    void read_column(std::string const& tensor, Index width, Index part, Index begin, Index end, void* to) {
        Index const first = saved_.table.part_range(part).begin;
        read(tensor, width, {first + begin, first + end}, static_cast<std::byte*>(to));
    }
    void read_ids_and_slots(Index part, Index begin, Index end, MchShard const& to) {
        read_column(ids_tensor(saved_.table.name), 8, part, begin, end, to.ids);
        if (to.slots != nullptr) read_column(slots_tensor(saved_.table.name), 8, part, begin, end, to.slots);
    }
    /// `entry`, of a part that is read so, has the slot of one before it, which is looked for once more.
    [[noreturn]] void refuse_slot_twice(MchRead const& read, MchShard const& to, Index room, Index entry, Index id,
                                        Index slot) {
        for (Index begin = read.begin; begin < entry; begin += room) {
            Index const end = smaller(begin + room, entry);
            read_ids_and_slots(read.part, begin, end, to);
            for (Index i = 0; i < end - begin; ++i) {
                if (!is_live(to, i) || to.slots[i] != slot) continue;
                refuse_mch_file(path_of(read.part), "ids ", to.ids[i], " and ", id, " of table '", saved_.table.name,
                                "' both have slot ", slot, ". Fix: restore the file, or load another save.");
            }
        }
        refuse_mch_file(path_of(read.part), "it was written to while it was read. Fix: load it again.");
    }
    /// Entries [begin, end) of a part, counted from its first; the id before them is `last`.
    MchIdBounds read_piece(Index part, Index begin, Index end, MchShard const& to, Index last) {
        std::string const& table = saved_.table.name;
        Index const count = end - begin;
        Index const* const ids = to.ids;
        read_ids_and_slots(part, begin, end, to);
        if (never_loaded(ids, to.slots, count)) {
            buffers_.refuse(ErrorCode::mismatch, "entries ", begin, " to ", end, " of ", path_of(part), " were ",
                            name(MchFault::never_loaded), ". Fix: load a save of a state that had been filled in.");
        }
        Index const empty = empty_id(current_.layout);
        for (Index i = 0; i < count; last = ids[i++]) {
            if (current_.layout != MchLayout::sorted || ids[i] >= last) continue;
            refuse_mch_file(path_of(part), "the ids of table '", table, "' do not ascend: entry ", begin + i, " is ",
                            ids[i], ", behind ", last, last == empty ? ", which marks an empty place" : "",
                            ". Fix: restore the file, or sort the state before it is saved.");
        }
        for (std::size_t c = 0; c < to.metadata.size(); ++c) {
            MchColumn const& column = current_.metadata[c];
            if (MchFill const* const fill = is_filled(column.name); fill != nullptr) {
                for (Index i = 0; i < count; ++i)
                    fill_entry(column, *fill, ids[i] != empty, to.metadata[c] + i * column.bytes);
            } else {
                read_column(column_tensor(table, column.name), column.bytes, part, begin, end, to.metadata[c]);
            }
        }
        return id_bounds(current_.layout, {ids, as_size(count)});
    }
    /// Of all of a part, or some of its entries.
    void check_bounds(MchRead const& read, MchIdBounds const& found) const {
        MchIdBounds const& said = saved_.ids[as_size(read.part)];
        bool const all = read.end - read.begin == saved_.table.part_range(read.part).size();
        bool const within = found.live <= said.live && found.negative <= said.negative &&
                            (found.highest < 0 || (said.lowest <= found.lowest && found.highest <= said.highest));
        if (all ? found == said : within) return;
        refuse_mch_file(path_of(read.part), all ? "" : "a part of ", "table '", saved_.table.name, "' has ", found.live,
                        " ids, ", found.negative, " of them below 0 and others from ", found.lowest, " to ",
                        found.highest, "; its text says ", said.live, ", ", said.negative, " and from ", said.lowest,
                        " to ", said.highest, ". Fix: restore the file, or save anew.");
    }
    [[nodiscard]] MchFill const* is_filled(std::string_view column) const noexcept {
        for (MchFill const& fill : options_.fill)
            if (fill.column == column) return &fill;
        return nullptr;
    }
    static void fill_entry(MchColumn const& column, MchFill const& fill, bool live, std::byte* to) noexcept {
        if (live && column.bytes == 8) {
            std::memcpy(to, &fill.value, 8);
        } else {
            int const byte = !live ? column.empty : fill.value == 0 ? 0 : 0xff;
            std::memset(to, byte, as_size(column.bytes));
        }
    }
    void check_rows_saved(MchRows const& rows) {
        bool const absent = rows.view.rank() == 0 && rows.view.data() == nullptr && shard_.entries == 0;
        if (!absent) check_rows(rows, shard_.entries, buffers_);
        MchRowsInfo const* const info = find_named(saved_.rows, rows.name);
        if (info == nullptr) {
            std::vector<std::string> there;
            for (MchRowsInfo const& one : saved_.rows) there.push_back(one.name);
            buffers_.refuse(ErrorCode::mismatch, "no rows '", rows.name, "' were saved with '", saved_.table.name,
                            "'; there are: ", list_of(there), ". Fix: correct the name.");
        }
        MchRowsInfo const wanted = info_of(rows);
        if (absent || *info == wanted) return;
        buffers_.refuse(info->dtype != wanted.dtype ? ErrorCode::dtype : ErrorCode::buffer, "rows '", rows.name,
                        "' are ", name(wanted.dtype), " ", to_string(DynamicShape(wanted.row_shape)),
                        " each, but were saved as ", name(info->dtype), " ", to_string(DynamicShape(info->row_shape)),
                        ". Fix: give both the same.");
    }
    void check_type(std::string const& column, DType type) const {
        if (saved_.table.size() == 0) return;
        std::string const tensor = column_tensor(saved_.table.name, column);
        DType const was = files_.dtype(tensor);
        if (was == type || was == DType::u8 || type == DType::u8) return;
        buffers_.refuse(ErrorCode::dtype, "column '", column, "' is ", name(type), ", but was saved as ", name(was),
                        " (", files_.path_of(tensor, 0), "). Fix: give both the same type.");
    }
    void read(std::string const& tensor, Index width, Interval slots, std::byte* to) {
        if (!slots.empty() && width != 0) bytes_read_ += files_.read(tensor, width, slots, to);
    }

    MchFiles& files_;
    MchSavedTable const& saved_;
    MchTable const& current_;
    MchBuffers buffers_;
    MchLoadOptions const& options_;
    MchTable adapted_;
    MchShard shard_;
    Index bytes_read_ = 0;
};

}  // namespace reshard::inline v0_1::detail
