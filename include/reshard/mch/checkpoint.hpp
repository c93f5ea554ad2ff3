// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/checkpoint.hpp
/// \brief  Managed-collision tables in checkpoints, read by any number of ranks, or by one. Saved: checkpoint_save.hpp.
/// \depends mch/{checkpoint_types,names,reach}, comm/any_communicator, <memory>. Opt-in: package
///          reshard::mch_checkpoint.
///
///     MchCheckpoint saved = MchCheckpoint::open(folder, comm);        // any number of ranks: all have the same save
///     MchLoadResult loaded = saved.load("user", current, rank, state, rows);
///     MchChange change = redistribute(loaded.saved, current, state, comm);
///     for (MchRows const& one : rows) apply_row_moves(change.moves, current, one.view, comm);
///
/// or, the same without a communicator, each rank reading what it needs:
///
///     MchCheckpoint saved = MchCheckpoint::open(folder, save);        // local: the id says which save
///     MchChange change = saved.load_redistributed("user", current, rank, state, rows).change;
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/mch/checkpoint_types.hpp>
#include <reshard/mch/names.hpp>
#include <reshard/mch/reach.hpp>

#include <memory>  // shared_ptr

namespace reshard::inline v0_1 {

namespace detail {
class MchFiles;        // mch/detail/checkpoint_files.hpp
struct MchSavedTable;  // mch/detail/checkpoint_text.hpp
}  // namespace detail

/// What a load did.
struct MchLoadResult {
    MchTable saved;  ///< the saved table with the columns and the policy of the current one: what redistribute() takes
    Index iteration = 0;
    Index live = 0;         ///< ids among the entries that were read
    Index bytes_read = 0;   ///< of tensors
    Index shards_read = 0;  ///< saved shards that something was read from
};

/// What a load that redistributes did.
struct MchLoadedChange {
    MchLoadResult loaded;
    MchChange change;  ///< of entries found for this rank, `received` of them; nothing is sent
};

/// The tables of a checkpoint. Move-only, and what was moved from can only be assigned or end; used by one thread at a
/// time. Files are opened when something is read from them, and stay open.
class MchCheckpoint {
public:
    /// Reads the manifest, and sees that the files it names are there. Also the folders of tables alone that older
    /// releases made (`mch.index.json`), and files that consolidate() made: of these every file is opened. Throws
    /// IoError when there is no save or files are missing, naming them, FormatError for one that is damaged, and for
    /// tables of both kinds of which nothing says which are newer. A save that replaces it meanwhile is opened in its
    /// place; one that does so later removes files, and loads that have yet to open them throw IoError: open the folder
    /// again.
    ///
    /// Local: ranks that each do this while somebody saves may have two saves, which nothing notices before
    /// redistribute() (MchTable::save). `save` is the id of the one that is meant, of a SaveReport or LoadReport;
    /// another one in its place is a MismatchError. Empty: whichever is there.
    [[nodiscard]] static MchCheckpoint open(std::string folder, std::string const& save = {});
    /// Collective over `comm`: the same, and all ranks have the same save. Where one was committed while they looked,
    /// all look again, a few times; then, and where their folders differ, that is a MismatchError. Throws the same
    /// error on every rank. Ranks of one job that load something else of the folder give its `save`:
    ///
    ///     LoadReport const dense = load(folder, tensors, comm);
    ///     MchCheckpoint saved = MchCheckpoint::open(folder, comm, dense.save_id);
    [[nodiscard]] static MchCheckpoint open(std::string const& folder, CommunicatorRef comm,
                                            std::string const& save = {});
    MchCheckpoint(MchCheckpoint&& other) noexcept = default;
    MchCheckpoint& operator=(MchCheckpoint&& other) noexcept = default;

    // What refers into this object is returned by value where the object is about to go.
    [[nodiscard]] std::string const& folder() const& noexcept;
    [[nodiscard]] std::string folder() && { return std::as_const(*this).folder(); }
    /// The id of the save: sixteen digits; empty where it is not known, of consolidated files.
    [[nodiscard]] std::string const& save_id() const& noexcept;
    [[nodiscard]] std::string save_id() && { return std::as_const(*this).save_id(); }
    /// Ranks that saved; 0 where it is not known, of consolidated files.
    [[nodiscard]] Index ranks() const noexcept;
    /// Of the tables, sorted; none in a checkpoint without tables.
    [[nodiscard]] std::vector<std::string> names() const;
    /// As it was saved. This and what follows throw MismatchError for a table that is not there, listing those that
    /// are.
    [[nodiscard]] MchTable const& table(std::string_view name) const&;
    [[nodiscard]] MchTable table(std::string_view name) && { return std::as_const(*this).table(name); }
    /// 0 for bucketed tables, which have none.
    [[nodiscard]] Index iteration(std::string_view name) const;
    /// What rows were saved with a table.
    [[nodiscard]] std::vector<MchRowsInfo> const& rows(std::string_view name) const&;
    [[nodiscard]] std::vector<MchRowsInfo> rows(std::string_view name) && { return std::as_const(*this).rows(name); }
    /// How small and how large the ids of each saved shard are.
    [[nodiscard]] std::vector<MchIdBounds> const& ids(std::string_view name) const&;
    [[nodiscard]] std::vector<MchIdBounds> ids(std::string_view name) && { return std::as_const(*this).ids(name); }

    /// The saved table `name` by position: entries [o, o + z) of all saved shards, one behind the other, into this
    /// rank's shard of the `current` table, in place, and the same rows of `rows`. The iteration is the saved one on
    /// every rank; the segments are the saved offsets, as TorchRec loads them, and redistribute() takes over from
    /// there. No communicator: with a table on one rank this exports all of it, and of buffers that the host cannot
    /// reach only CUDA's are known, and refused.
    ///
    /// Tables, buffers and the headers of all files that will be read are checked before anything is written to
    /// buffers. Throws what check_same_content() and shard_of() throw; MismatchError for a table or rows that were not
    /// saved, for fills and drops that do not apply, for entries that are all zeros, and for files of another save;
    /// BufferError and DTypeError for rows and columns of another kind; FormatError for damaged files, bytes that are
    /// not those that were saved, ids that do not ascend, share a slot or are not as the table's text says, as far as
    /// this rank reads them (two ids with one slot that two ranks read only load_redistributed() finds, which reads
    /// shards whole); IoError, also for files that change meanwhile. What is wrong with ids, and with bytes while they
    /// are read, leaves the buffers unspecified.
    MchLoadResult load(std::string_view name, MchTable const& current, Index rank, MchState const& state,
                       std::span<MchRows const> rows = {}, MchLoadOptions const& options = {});

    /// What load(), redistribute() and apply_row_moves() do together, by this rank alone: it reads the saved shards
    /// that plan_reads() names for the bounds of their ids, whole but piece by piece, keeps the entries that are its
    /// own, and reads the rows that go with them. Ids, slots, metadata, iteration, segments, rows, and the lists of
    /// moves, freed slots, evicted and left out ids are bit for bit those of the three calls (the left out ones by the
    /// rank that would have had them). Bucketed tables are loaded by position, which is the same.
    ///
    /// With MchLoadOptions::resize the table may have another size: see there.
    ///
    /// All rows that were saved have to be given, or be named in MchLoadOptions::leave_rows, and no others:
    /// MismatchError.
    ///
    /// Ranks do not agree on anything: one may throw while others go on. Throws what load() and redistribute() throw;
    /// FormatError also for slots outside their shard. Which shards it need not read the manifest says, whose checksum
    /// was compared; where nothing like it is known the ids of all shards are read. The state of a sorted table is as
    /// it was when this throws; rows, and bucketed tables, are unspecified after a read that fails.
    [[nodiscard]] MchLoadedChange load_redistributed(std::string_view name, MchTable const& current, Index rank,
                                                     MchState const& state, std::span<MchRows const> rows = {},
                                                     MchOptions const& mode = {}, MchLoadOptions const& options = {});

private:
    explicit MchCheckpoint(std::shared_ptr<detail::MchFiles> files) noexcept : files_(std::move(files)) {}
    [[nodiscard]] detail::MchSavedTable const& find(std::string_view name) const;

    std::shared_ptr<detail::MchFiles> files_;  // never shared: it ends a class that is incomplete here
};

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/checkpoint.ipp>
#endif
