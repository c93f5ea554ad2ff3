// SPDX-License-Identifier: Apache-2.0
// How mch/checkpoint_save.hpp is done.
#pragma once

#include <reshard/checkpoint/commit.hpp>
#include <reshard/checkpoint/file.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/mch/checkpoint_save.hpp>
#include <reshard/mch/detail/checkpoint_shard.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0 {

namespace detail {

/// What ranks tell each other of a table before they write.
struct MchSaveHeader {
    Index has_iteration = 0;
    Index iteration = 0;
    MchIdBounds ids{};
};

/// The files of a folder that a save may remove: those that saves make, by their names, and nothing else.
[[nodiscard]] inline SaveNames mch_save_names() {
    return {mch_index_name, [](std::string const& path) { return index_from(read_text_file(path), path).files; },
            [](std::string_view leaf) { return is_mch_file(leaf); },
            [](std::string_view leaf) {
                return is_temporary_of(
                    leaf, [](std::string_view name) { return name == mch_index_name || is_mch_file(name); });
            }};
}

/// Throws MismatchError for a sorted shard that loads or redistribute() would refuse.
inline void check_readable(MchTable const& table, MchShard const& shard, Index rank) {
    if (table.layout != MchLayout::sorted) return;
    MchReport const found = MchScan(table, shard, rank).run();
    for (MchViolation const& one : found.violations()) {
        switch (one.fault) {
            case MchFault::id_order:
            case MchFault::id_repeated:
            case MchFault::slot_range:
            case MchFault::slot_repeated:
            case MchFault::count_negative:
            case MchFault::access_late: break;
            default: continue;
        }
        refuse_table(ErrorCode::mismatch, table,
                     concat("on rank ", rank, ": no load would take it: ", name(one.fault), ": ",
                            found.total(one.fault), ", the first at ", to_string(one),
                            ". Fix: what was loaded by position goes through redistribute() before it is saved; "
                            "validate() lists all that is wrong."));
    }
}

/// Throws FormatError for an index that MchCheckpoint::open() would refuse.
inline void check_index(std::string_view text, std::string const& path) {
    if (text.size() > static_cast<std::size_t>(max_safetensors_header_bytes)) {
        refuse_mch_file(path,
                        concat("it would have ", text.size(), " bytes, readers take ", max_safetensors_header_bytes),
                        "save fewer tables into one folder.");
    }
    static_cast<void>(index_from(text, path));
}

class MchSaver {
public:
    MchSaver(std::string folder, std::span<MchSaving const> tables, CommunicatorRef comm)
        : commit_(std::move(folder), comm, mch_save_names()), tables_(tables), comm_(comm) {}

    std::string run(MchSaveOptions const& options) {
        std::vector<std::byte> mine;
        std::vector<std::byte> all;
        TransferLists lists;
        commit_.agree([&] {
            lists.make_room(comm_.size());
            mine = describe(options);
            commit_.set_terms(digest_.value(), summary_);
            all.resize(mine.size() * static_cast<std::size_t>(comm_.size()));
            commit_.make_folder();
            commit_.claim();
        });
        if (comm_.size() == 1) {
            all = std::move(mine);
        } else {
            all_gather(comm_, mine, all, lists);
        }
        commit_.agree([&] {
            read_headers(all, all.size() / static_cast<std::size_t>(comm_.size()));
            if (comm_.rank() == 0) check_index(to_json(index_), commit_.path(mch_index_name));
            write();
        });
        commit_.agree([&] { commit_.publish(writer_[0]); }, true);
        commit_.agree([&] { write_index(); }, true);
        commit_.agree([&] { commit_.rename_index(); });
        commit_.agree([&] { commit_.tidy(index_.files); });
        return std::move(index_.save);
    }

private:
    [[nodiscard]] std::string path() const {
        return commit_.path(index_.files[static_cast<std::size_t>(comm_.rank())]);
    }

    /// Checks what this rank has, and says it in a block of the same size on all ranks: the id of rank 0, and a header
    /// per table.
    std::vector<std::byte> describe(MchSaveOptions const& options) {
        int const rank = comm_.rank();
        std::vector<MchSaveHeader> headers(tables_.size());
        summary_ = concat("saves ", tables_.size(), " tables");
        digest_.add(tables_.size()).add(options.id);
        for (std::size_t t = 0; t < tables_.size(); ++t) {
            MchSaving const& one = tables_[t];
            summary_ += concat(t == 0 ? ": " : ", ", to_string(one.table));
            reshard::digest(digest_, one.table);
            MchSavedTable saved;
            saved.table = one.table;
            for (MchRows const& rows : one.rows) {
                saved.rows.push_back(info_of(rows));
                describe_rows(saved.rows.back());
            }
            index_.tables.push_back(std::move(saved));
        }
        for (std::size_t t = 0; t < tables_.size(); ++t) {
            MchSaving const& one = tables_[t];
            check_names(t);
            shards_.push_back(host_shard_of(one.table, one.state, rank));
            MchShard const& shard = shards_.back();
            for (MchRows const& rows : one.rows) check_rows(one.table, rank, rows);
            DynamicMesh const& mesh = one.table.slots.mesh();
            if (mesh.last_rank() >= comm_.size()) {
                refuse_table(
                    ErrorCode::mesh, one.table,
                    concat("the mesh ", to_string(mesh), " has rank ", mesh.last_rank(), ", the communicator only ",
                           comm_.size(), " ranks. Fix: use a mesh of ranks that exist."));
            }
            if (never_loaded(shard.ids, shard.slots, shard.entries)) {
                refuse_table(ErrorCode::mismatch, one.table,
                             concat("on rank ", rank, ": the state was ", name(MchFault::never_loaded),
                                    ". Fix: load or initialise it before it is saved."));
            }
            check_readable(one.table, shard, rank);
            if (shard.iteration != nullptr) {
                headers[t].has_iteration = 1;
                headers[t].iteration = *shard.iteration;
            }
            headers[t].ids = id_bounds(one.table, shard);
        }
        std::uint64_t const id = options.id != 0 ? options.id : random_save_id();
        std::vector<std::byte> block(8 + headers.size() * sizeof(MchSaveHeader));
        std::memcpy(block.data(), &id, 8);
        if (!headers.empty()) std::memcpy(block.data() + 8, headers.data(), block.size() - 8);
        return block;
    }
    void describe_rows(MchRowsInfo const& rows) {
        summary_ +=
            concat(" with ", name(rows.dtype), " rows '", rows.name, "' ", to_string(DynamicShape(rows.row_shape)));
        digest_.add_text(rows.name);
        digest_.add(static_cast<std::uint64_t>(rows.dtype)).add_signed(rows.row_shape.size());
        for (Index extent : rows.row_shape) digest_.add_signed(extent);
    }
    void check_names(std::size_t t) const {
        MchTable const& table = tables_[t].table;
        for (std::size_t other = 0; other < t; ++other) {
            if (tables_[other].table.name != table.name) continue;
            refuse_table(ErrorCode::mismatch, table, "two tables have this name. Fix: give each table its own.");
        }
        auto const& rows = tables_[t].rows;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            for (std::size_t k = 0; k < i; ++k) {
                if (rows[k].name != rows[i].name) continue;
                refuse_table(ErrorCode::mismatch, table,
                             concat("two lists of rows are called '", rows[i].name, "'. Fix: give each its own name."));
            }
        }
    }

    /// The id of rank 0, the iteration, which is one, and the ids of every part.
    void read_headers(std::vector<std::byte> const& all, std::size_t block) {
        std::uint64_t id = 0;
        std::memcpy(&id, all.data(), 8);
        index_.save = save_id_text(id);
        for (Index rank = 0; rank < comm_.size(); ++rank) {
            index_.files.push_back(mch_file_name(index_.save, rank, comm_.size()));
        }
        for (std::size_t t = 0; t < tables_.size(); ++t) {
            MchSavedTable& saved = index_.tables[t];
            saved.has_iteration = saved.table.layout == MchLayout::sorted;
            int first = -1;
            for (int rank = 0; rank < comm_.size(); ++rank) {
                MchSaveHeader const header = header_of(all, block, rank, t);
                if (header.has_iteration == 0) continue;
                if (header.iteration < 0 || (first >= 0 && header.iteration != saved.iteration)) {
                    refuse_table(
                        ErrorCode::mismatch, saved.table,
                        concat("rank ", rank, " is at iteration ", header.iteration, ", rank ", larger(first, 0),
                               " at ", saved.iteration, ". Fix: save when all ranks have made the same steps."));
                }
                if (first < 0) first = rank;
                saved.iteration = header.iteration;
            }
            for (Index part = 0; part < saved.table.parts(); ++part) {
                auto const rank = static_cast<int>(saved.table.slots.mesh().rank_at(part));
                saved.ids.push_back(header_of(all, block, rank, t).ids);
            }
        }
    }
    [[nodiscard]] static MchSaveHeader header_of(std::vector<std::byte> const& all, std::size_t block, int rank,
                                                 std::size_t table) noexcept {
        MchSaveHeader header;
        std::memcpy(&header, all.data() + static_cast<std::size_t>(rank) * block + 8 + table * sizeof header,
                    sizeof header);
        return header;
    }

    void write() {
        std::vector<MchTensor> tensors;
        for (std::size_t t = 0; t < tables_.size(); ++t) {
            add_tensors(tensors, tables_[t].table, tables_[t].state, shards_[t], tables_[t].rows);
        }
        if (path_kind(path()) != PathKind::missing) {
            raise_io(path(), "a save of this id is there", EEXIST, "give every save of a folder an id of its own.");
        }
        writer_.push_back(
            write_shard(path(), tensors, shard_metadata(index_.save, comm_.rank(), comm_.size(), index_.tables)));
    }
    void write_index() {
        if (!commit_.is_first()) return;
        for (std::string const& file : index_.files) commit_.check_visible(file);
        commit_.write_index(to_json(index_));
    }

    SaveCommit commit_;
    std::span<MchSaving const> tables_;
    CommunicatorRef comm_;
    Digest digest_;
    std::string summary_;
    MchIndex index_;
    std::vector<MchShard> shards_;
    std::vector<SafetensorsWriter> writer_;  ///< one
};

}  // namespace detail

RESHARD_INLINE std::string save_mch(std::string folder, std::span<MchSaving const> tables, CommunicatorRef comm,
                                    MchSaveOptions const& options) {
    return detail::MchSaver(std::move(folder), tables, comm).run(options);
}

RESHARD_INLINE std::string save_mch(std::string folder, MchSaving const& table, CommunicatorRef comm,
                                    MchSaveOptions const& options) {
    return save_mch(std::move(folder), std::span<MchSaving const>(&table, 1), comm, options);
}

}  // namespace reshard::inline v0
