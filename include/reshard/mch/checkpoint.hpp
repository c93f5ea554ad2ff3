// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/checkpoint.hpp
/// \brief  Managed-collision tables in files: saved by all ranks, read by any number of them, or by one.
/// \depends mch/checkpoint_save, mch/detail/{checkpoint_load,checkpoint_route}. Opt-in: package
/// reshard::mch_checkpoint.
///
///     save_mch(folder, tables, comm);                                 // MchSaving{table, state, rows}: collective
///
///     MchCheckpoint saved = MchCheckpoint::open(folder);              // local, on any number of ranks
///     MchLoaded loaded = saved.load("user", current, rank, state, rows);
///     MchChange change = redistribute(loaded.saved, current, state, comm);
///     for (MchRows const& one : rows) apply_row_moves(change.moves, current, one.view, comm);
///
/// or, the same without a communicator, each rank reading what it needs:
///
///     MchChange change = saved.load_redistributed("user", current, rank, state, rows).change;
#pragma once

#include <reshard/mch/checkpoint_save.hpp>
#include <reshard/mch/detail/checkpoint_load.hpp>
#include <reshard/mch/detail/checkpoint_route.hpp>
#include <reshard/mch/reach.hpp>

namespace reshard::inline v0 {

/// What a load did.
struct MchLoaded {
    MchTable saved;  ///< the saved table with the columns and the policy of the current one: what redistribute() takes
    Index iteration = 0;
    Index live = 0;        ///< ids among the entries that were read
    Index bytes_read = 0;  ///< of tensors
    Index files_read = 0;  ///< saved shards that something was read from
};

/// What a load that redistributes did.
struct MchLoadedChange {
    MchLoaded loaded;
    MchChange change;  ///< of entries found for this rank, `received` of them; nothing is sent
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
    /// rows and columns of another kind; FormatError for damaged files, bytes that are not those that were saved, ids
    /// that do not ascend or are not as the index says; IoError. What is wrong with ids, and with bytes while they are
    /// read, leaves the buffers unspecified.
    MchLoaded load(std::string_view name, MchTable const& current, Index rank, MchState const& state,
                   std::span<MchRows const> rows = {}, MchLoadOptions const& options = {}) {
        detail::MchSavedTable const& saved = find(name);
        detail::MchReader reader(files_, saved, current, rank, state, rows, options);
        MchShard const& shard = reader.shard();
        MchLoaded loaded{reader.adapted(), saved.iteration};
        std::vector<Overlap> const overlaps = overlaps_of(saved.table, shard);
        for (Overlap const& one : overlaps) reader.check_part(one.part);
        for (Overlap const& one : overlaps) {
            std::vector<std::byte*> metadata = shard.metadata;
            for (std::size_t c = 0; c < metadata.size(); ++c) metadata[c] += one.to * current.metadata[c].bytes;
            MchIdBounds const found =
                reader.read_entries(one.part, one.begin, one.end, shard.ids + one.to,
                                    shard.slots == nullptr ? nullptr : shard.slots + one.to, metadata);
            reader.check_bounds(one.part, found, one.end - one.begin == saved.table.part_range(one.part).size());
            loaded.live += found.live;
            read_rows(reader, rows, one);
        }
        reader.write_constants();
        loaded.bytes_read = reader.bytes_read();
        loaded.files_read = static_cast<Index>(overlaps.size());
        return loaded;
    }

    /// What load(), redistribute() and apply_row_moves() do together, by this rank alone: it reads the saved shards
    /// that plan_reads() names for the bounds of their ids, whole but piece by piece, keeps the entries that are its
    /// own, and reads the rows that go with them. Ids, slots, metadata, iteration, segments, rows, and the lists of
    /// moves, evicted and left out ids are bit for bit those of the three calls (the left out ones by the rank that
    /// would have had them). Bucketed tables are loaded by position, which is the same.
    ///
    /// All rows that were saved have to be given, or be named in MchLoadOptions::leave_rows: MismatchError.
    ///
    /// Ranks do not agree on anything: one may throw while others go on. Throws what load() and redistribute() throw;
    /// FormatError also for slots outside their shard. Which shards it need not read the index says, whose checksum was
    /// compared; one of version 1 has none: the ids of all shards are read and compared with it. The state of a
    /// sorted table is as it was when this throws; rows, and bucketed tables, are unspecified after a read that fails.
    [[nodiscard]] MchLoadedChange load_redistributed(std::string_view name, MchTable const& current, Index rank,
                                                     MchState const& state, std::span<MchRows const> rows = {},
                                                     MchOptions const& mode = {}, MchLoadOptions const& options = {}) {
        MchLoadedChange result;
        MchChange& change = result.change;
        if (current.layout == MchLayout::buckets) {
            result.loaded = load(name, current, rank, state, rows, options);
            Reach const here = reach(current, state, rank);
            change.live_before = change.live_after = here.live;
            change.unreachable = here.unreachable;
            return result;
        }
        detail::MchSavedTable const& saved = find(name);
        detail::MchReader reader(files_, saved, current, rank, state, rows, options);
        reader.check_rows_given(rows);
        MchShard const& shard = reader.shard();
        result.loaded = {reader.adapted(), saved.iteration};
        auto const reads = plan_reads(reader.adapted(), current, rank, mode.mode, saved.ids);
        std::vector<Overlap> const overlaps = rows.empty() ? std::vector<Overlap>() : overlaps_of(saved.table, shard);
        std::vector<char> touched(static_cast<std::size_t>(saved.table.parts()));
        for (MchRead const& read : reads) touched[static_cast<std::size_t>(read.part)] = 1;
        for (Overlap const& one : overlaps) touched[static_cast<std::size_t>(one.part)] = 1;
        for (std::size_t part = 0; part < touched.size(); ++part) {
            if (touched[part] == 0) continue;
            reader.check_part(static_cast<Index>(part));
            ++result.loaded.files_read;
        }

        detail::MchPicker picker(saved, current, rank, mode);
        for (MchRead const& read : reads) {
            result.loaded.live += saved.ids[static_cast<std::size_t>(read.part)].live;
            picker.pick(reader, read, files_.of(saved.table, read.part).path());
        }
        // What bounds of version 1, which have no checksum, say of other shards may be wrong unnoticed.
        for (Index part = 0; files_.index().version == 1 && part < saved.table.parts(); ++part) {
            bool const picked =
                std::any_of(reads.begin(), reads.end(), [&](auto const& one) { return one.part == part; });
            if (!picked) picker.check(reader, part);
        }
        change.live_before = change.received = picker.entries();
        change.left_out = std::move(picker.left_out());
        std::vector<std::byte> block = picker.packed();
        detail::MchIncoming incoming(current, shard, 1);
        incoming.expect(static_cast<int>(rank), change.received, saved.iteration, block.data());
        incoming.arrange(mode.mode, change, InOrder{});
        for (Overlap const& one : overlaps) read_rows(reader, rows, one);
        for (MchRows const& one : rows) {
            detail::read_moved_rows(reader, saved.table, one, shard.offset, change.moves);
        }
        incoming.commit(InOrder{});
        change.live_after = incoming.live();
        change.unreachable = count_unreachable(current, state, rank);
        result.loaded.bytes_read = reader.bytes_read();
        return result;
    }

private:
    /// Entries of a saved part, counted from its first, and where they go in this rank's shard.
    struct Overlap {
        Index part = 0;
        Index begin = 0;
        Index end = 0;
        Index to = 0;
    };

    MchCheckpoint() = default;

    [[nodiscard]] static std::vector<Overlap> overlaps_of(MchTable const& saved, MchShard const& shard) {
        std::vector<Overlap> list;
        for (Index part = 0; part < saved.parts(); ++part) {
            Interval const range = saved.part_range(part);
            Index const begin = larger(range.begin, shard.range().begin);
            Index const end = smaller(range.end, shard.range().end);
            if (begin < end) list.push_back({part, begin - range.begin, end - range.begin, begin - shard.offset});
        }
        return list;
    }
    static void read_rows(detail::MchReader& reader, std::span<MchRows const> rows, Overlap const& one) {
        for (MchRows const& each : rows) {
            reader.read_rows(each, one.part, one.begin, one.end,
                             each.view.data() + one.to * detail::info_of(each).row_bytes());
        }
    }

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
