// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/checkpoint.hpp
/// \brief  Managed-collision tables in files: saved by all ranks, read by any number of them, or by one.
/// \depends mch/checkpoint_save, mch/detail/checkpoint_load. Opt-in: package reshard::mch_checkpoint.
///
///     save_mch(folder, tables, comm);                                 // MchSaving{table, state, rows}: collective
///
///     MchCheckpoint saved = MchCheckpoint::open(folder);              // local, on any number of ranks
///     MchLoaded loaded = saved.load("user", current, rank, state, rows);
///     MchChange change = redistribute(loaded.saved, current, state, comm);
///     for (MchRows const& one : rows) apply_row_moves(change.moves, current, one.view, comm);
#pragma once

#include <reshard/mch/checkpoint_save.hpp>
#include <reshard/mch/detail/checkpoint_load.hpp>

namespace reshard::inline v0 {

/// What a load did.
struct MchLoaded {
    MchTable saved;  ///< the saved table with the columns and the policy of the current one: what redistribute() takes
    Index iteration = 0;
    Index live = 0;        ///< ids among the entries that were read
    Index bytes_read = 0;  ///< of tensors
    Index files_read = 0;
};

/// A folder that save_mch() wrote. Move-only; used by one thread at a time. Files are opened when something is read
/// from them, and stay open.
class MchCheckpoint {
public:
    /// Reads the index and sees that the files it names are there; other files in the folder mean nothing. Throws
    /// IoError when there is no index or files are missing, naming them, FormatError for an index that is damaged or
    /// has a gap in its ranks.
    [[nodiscard]] static MchCheckpoint open(std::string folder) {
        std::string const path = detail::join_path(folder, detail::mch_index_name);
        if (detail::path_kind(path) == detail::PathKind::missing) {
            detail::raise_io(path, "there are no saved tables", ENOENT,
                             "check the folder; a save that was cut short leaves no index.");
        }
        detail::MchIndex index = detail::index_from(detail::read_text_file(path), path);
        std::string missing;
        for (std::string const& file : index.files) {
            if (detail::path_kind(detail::join_path(folder, file)) == detail::PathKind::file) continue;
            missing += concat(missing.empty() ? "" : ", ", file);
        }
        if (!missing.empty()) {
            detail::raise_io(path, concat("it names files that are missing: ", missing), ENOENT,
                             "restore them: each holds the ids of one rank.");
        }
        MchCheckpoint result;
        result.files_ = {std::move(folder), std::move(index)};
        return result;
    }

    [[nodiscard]] std::string const& folder() const noexcept { return files_.folder(); }
    /// The id of the save: sixteen digits.
    [[nodiscard]] std::string const& save() const noexcept { return files_.index().save; }
    /// Ranks that saved.
    [[nodiscard]] Index ranks() const noexcept { return static_cast<Index>(files_.index().files.size()); }
    /// Of the tables, as they were saved.
    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> list;
        for (detail::MchSavedTable const& one : files_.index().tables) list.push_back(one.table.name);
        return list;
    }
    /// As it was saved. This and what follows throw MismatchError for a table that is not there, listing those that
    /// are.
    [[nodiscard]] MchTable const& table(std::string_view name) const { return find(name).table; }
    /// 0 for bucketed tables, which have none.
    [[nodiscard]] Index iteration(std::string_view name) const { return find(name).iteration; }
    /// What rows were saved with a table.
    [[nodiscard]] std::vector<MchRowsInfo> const& rows(std::string_view name) const { return find(name).rows; }
    /// How small and how large the ids of each saved shard are.
    [[nodiscard]] std::vector<MchIdBounds> const& ids(std::string_view name) const { return find(name).ids; }

    /// The saved table `name` by position: entries [o, o + z) of all saved shards, one behind the other, into this
    /// rank's shard of the `current` table, in place, and the same rows of `rows`. The iteration is the saved one on
    /// every rank; the segments are the saved offsets, as TorchRec loads them, and redistribute() takes over from
    /// there. No communicator: with a table on one rank this exports all of it.
    ///
    /// Tables, buffers and the headers of all files that will be read are checked before anything is written to
    /// buffers. Throws what check_same_content() and shard_of() throw; MismatchError for a table or rows that were not
    /// saved, for fills and drops that do not apply, and for entries that are all zeros; BufferError and DTypeError for
    /// rows and columns of another kind; FormatError for damaged files and ids that do not ascend; IoError. After ids
    /// that do not ascend, zeros, and reads that fail, the buffers are unspecified.
    MchLoaded load(std::string_view name, MchTable const& current, Index rank, MchState const& state,
                   std::span<MchRows const> rows = {}, MchLoadOptions const& options = {}) {
        detail::MchSavedTable const& saved = find(name);
        detail::MchReader reader(files_, saved, current, rank, state, rows, options);
        MchShard const& shard = reader.shard();
        MchLoaded loaded{reader.adapted(), saved.iteration};
        // f(part, what is in both shards, counted from either's first slot)
        auto const for_each_part = [&](auto const& f) {
            for (Index part = 0; part < saved.table.parts(); ++part) {
                Interval const range = saved.table.part_range(part);
                Index const begin = larger(range.begin, shard.range().begin);
                Index const end = smaller(range.end, shard.range().end);
                if (begin < end) f(part, Interval{begin - range.begin, end - range.begin}, begin - shard.offset);
            }
        };
        for_each_part([&](Index part, Interval, Index) {
            reader.check_part(part);
            ++loaded.files_read;
        });
        for_each_part([&](Index part, Interval entries, Index to) {
            std::vector<std::byte*> metadata = shard.metadata;
            for (std::size_t c = 0; c < metadata.size(); ++c) metadata[c] += to * current.metadata[c].bytes;
            loaded.live += reader.read_entries(part, entries.begin, entries.end, shard.ids + to,
                                               shard.slots == nullptr ? nullptr : shard.slots + to, metadata);
            for (MchRows const& one : rows) {
                reader.read_rows(one, part, entries.begin, entries.end,
                                 one.view.data() + to * detail::info_of(one).row_bytes());
            }
        });
        reader.write_constants();
        loaded.bytes_read = reader.bytes_read();
        return loaded;
    }

private:
    MchCheckpoint() = default;

    [[nodiscard]] detail::MchSavedTable const& find(std::string_view name) const {
        for (detail::MchSavedTable const& one : files_.index().tables)
            if (one.table.name == name) return one;
        raise(ErrorCode::mismatch,
              concat("reshard::mch: ", folder(), " holds no table '", name, "'; it holds: ", detail::list_of(names()),
                     ". Fix: correct the name, or map it with match_tables()."));
    }

    detail::MchShardFiles files_;
};

}  // namespace reshard::inline v0
