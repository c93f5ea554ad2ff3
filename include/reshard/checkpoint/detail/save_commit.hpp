// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_commit.hpp
/// \brief  The protocol that makes the files of many ranks one save: all of it or nothing, whoever fails at any step.
/// \depends checkpoint/{old_tables,detail/{folder_lock,folder_note,save_names,temporary_file}},
/// comm/{agree,any_communicator}. POSIX.
///
/// Data files have names of their own in every save. They are written under temporary names, made durable, renamed; an
/// index that names them is renamed into place last and switches from the save before to this one. Between steps all
/// ranks agree. Until the index has its name the folder holds the save that it held before; afterwards the files of
/// that one go.
#pragma once

#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/checkpoint/detail/folder_note.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/old_tables.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // binary_search, find
#include <optional>   // optional
#include <random>     // random_device

namespace reshard::inline v0_1::detail {

/// What saves of one kind are called in a folder.
struct SaveNames {
    std::string_view index;  ///< the file that names all others: manifest_name or index_name
    /// The files that an index names. Throws when it cannot be read.
    std::vector<std::string> (*named_by)(std::string const& path);
    /// Whether a file of that name is a data file or a temporary file of such a save and of nothing else: no other file
    /// is ever removed, whatever an index says.
    bool (*is_data)(std::string_view leaf);
    bool (*is_temporary)(std::string_view leaf);
};

/// New to any folder with all but certainty, and never 0.
[[nodiscard]] inline std::uint64_t random_save_id() {
    std::random_device random;
    for (;;) {
        if (std::uint64_t const id = (std::uint64_t{random()} << 32U) | random(); id != 0) return id;
    }
}

/// One save, on one rank. Every step is collective but those that say otherwise.
///
///     commit.agree([&] { commit.claim(); });                        // rank 0 makes the folder, and locks it
///     commit.agree([&] { ... write and sync a temporary file ... });
///     commit.agree([&] { commit.publish(file); }, true);
///     commit.expect_index();
///     commit.agree([&] { commit.write_index_in_pieces(write); }, true);
///     commit.agree([&] { commit.rename_index(); });                 // the save is there
///     commit.agree([&] { commit.tidy(files); });
class SaveCommit {
public:
    SaveCommit(std::string folder, CommunicatorRef comm, SaveNames const& names, bool durable = true)
        : folder_(std::move(folder)), comm_(comm), names_(names), durable_(durable) {}

    [[nodiscard]] std::string const& folder() const noexcept { return folder_; }
    [[nodiscard]] std::string path(std::string_view leaf) const { return join_path(folder_, leaf); }
    [[nodiscard]] CommunicatorRef comm() const noexcept { return comm_; }
    [[nodiscard]] bool is_first() const noexcept { return comm_.rank() == 0; }
    [[nodiscard]] Index agreements() const noexcept { return agreements_; }

    /// What all ranks must have in hand alike in the next agreement, how this one says what it has, and in which call
    /// it is. Within its work, where that takes memory.
    void set_terms(std::uint64_t digest, std::string summary, std::string_view call = {}) {
        digest_ = digest;
        call_ = call;
        summary_ = std::move(summary);
    }

    /// As agree_or_raise(), and an error of the agreement itself says what the folder may hold by then; a world of one
    /// rank calls nobody. With `take_back` the file that this rank has published goes again when a rank says that it
    /// failed, but not when the agreement itself breaks down: rank 0 may know more, and the index may name the file
    /// already.
    template <class Work>
    void agree(Work&& work, bool take_back = false) {
        Verdict verdict = verdict_of(work);
        if (comm_.size() > 1) {
            ++agreements_;
            if (verdict.ok()) verdict.reason = std::exchange(summary_, {});
            verdict.digest = digest_;
            verdict.call = std::exchange(call_, {});
            try {
                verdict = agreed(comm_, std::move(verdict));
            } catch (Error const& error) {
                raise_with(error, outcome_);
            }
        }
        if (verdict.ok()) return;
        if (take_back && !published_.empty()) static_cast<void>(::unlink(published_.c_str()));
        raise_agreed(verdict.code, comm_.size() > 1 ? words_of(verdict, comm_.size()) : std::string(words_of(verdict)));
    }

    /// Local, on all ranks, ahead of the agreement on the written index: rank 0 may know how that ends and go on, where
    /// others do not.
    void expect_index() noexcept {
        if (!is_first()) outcome_ = may_be_there;
    }

    void keep_folder() noexcept { made_folder_.keep(); }
    [[nodiscard]] bool has_made_folder() const noexcept { return !made_folder_.get().empty(); }
    /// Local, on the other ranks, whose files may be the last in it: as if this had made it. `name`: folder().
    void share_folder(std::string name) noexcept { made_folder_ = PassingPath(std::move(name)); }

    /// Local: lock_folder(), then make_room().
    void claim() {
        lock_folder();
        make_room();
    }
    /// Local: rank 0 makes the folder, and those that it lies in, and locks it, until this dies; others do nothing. A
    /// new one goes with this, if nothing stays in it, unless it is kept. The lock of manifests comes first and is
    /// everybody's: who writes shards and who writes whole files would take each other's temporary files for left over.
    /// That of indexes is taken by who writes one, and where somebody has died with it.
    void lock_folder() {
        if (!is_first()) return;
        make_and_lock(folder_, durable_, made_folder_, [this] {
            for (std::string_view const index : {manifest_name, index_name}) {
                bool const own = index == names_.index;
                std::string const leaf = lock_name(index);
                if (!own && index == index_name && path_kind(path(leaf)) == PathKind::missing) continue;
                (own ? lock_ : beside_) = FolderLock(folder_, leaf);
            }
        });
    }
    /// Local, on rank 0: of both locks, held or not.
    template <class F>
    void for_each_lock(F&& f) {
        f(lock_);
        f(beside_);
    }
    /// Local, on rank 0: whether make_room() takes a file of that name for one of a writer that died.
    [[nodiscard]] bool is_temporary(std::string_view leaf) const {
        return lock_.is_held() && names_.is_temporary(leaf);
    }
    /// Local: rank 0, which has the lock, looks at what is there; others do nothing. What saves that died have left
    /// makes room: temporary files, and data files that an index does not name.
    void make_room() {
        if (!is_first()) return;
        index_ = stamp_at(path(names_.index));
        if (!lock_.is_held()) return;
        auto const noted = files_of_note(beside_.read_note());
        std::vector<std::string> named;
        std::vector<std::string> const leaves = leaves_of(folder_);
        bool const known = index_ ? verdict_of([&] { named = names_.named_by(path(names_.index)); }).ok()
                                  : std::find(leaves.begin(), leaves.end(), names_.index) == leaves.end();
        sort_list(named);
        for (std::string const& leaf : leaves) {
            bool const stale = known && names_.is_data(leaf) && !std::binary_search(named.begin(), named.end(), leaf);
            if (stale || is_temporary(leaf) || is_noted_temporary(noted, folder_, leaf))
                static_cast<void>(::unlink(path(leaf).c_str()));
        }
    }

    /// Local, on rank 0: the lock of its own index.
    [[nodiscard]] FolderLock& lock() noexcept { return lock_; }

    /// Local: this rank's file gets its name.
    void publish(TemporaryFile& file) {
        published_ = file.path();  // a rename that failed may have been done
        file.publish();
        if (durable_) sync_folder(folder_, files_go_again);
    }

    /// Local, on rank 0. `bytes`: the size that the rank that wrote it told.
    void check_visible(std::string_view leaf, Index bytes) const {
        std::string const file = path(leaf);
        auto const there = stamp_at(file);
        if (!there) {
            raise_io(file, "rank 0 does not see what another rank has written", ENOENT,
                     "give every rank the same folder, one that all of them share.");
        }
        if (there->bytes == bytes) return;
        raise(
            ErrorCode::io, "IoError: ", file, ": rank 0 sees ", there->bytes, " of the ", bytes,
            " bytes that another rank has written. Fix: give every rank the same folder, one that all of them share.");
    }

    /// Local: rank 0 writes the index that will take the place of the one that is there, a text that write(take) makes
    /// piece by piece, each of which it has taken; others do nothing.
    template <class Write>
    void write_index_in_pieces(Write&& write) {
        if (!is_first()) return;
        std::string const index = path(names_.index);
        if (path_kind(index) == PathKind::folder)
            raise_io(index, "cannot rename the new one to it", EISDIR, "move that folder away.");
        new_index_.emplace(index);
        write([&, this](std::string_view piece) { new_index_->append(std::as_bytes(std::span(piece))); });
        new_index_->finish(durable_);
        // None when there is none, or it cannot be read: the files are not ours to remove then.
        static_cast<void>(verdict_of([&] { previous_ = names_.named_by(index); }));
        refuse_replaced(names_.index);
    }
    /// Local: rank 0 puts that index in place; others do nothing. In an agreement of its own, without `take_back`: a
    /// rename that says that it failed may have been done (over a network, by a server that died before it answered),
    /// and then an index that readers see names these files.
    void rename_index() {
        if (!is_first()) return keep_folder();
        refuse_replaced(names_.index);
        for_each_lock([&, this](FolderLock& lock) {
            if (lock.has_inherited()) lock.note({}, durable_);  // the folder is of this save from here on
        });
        outcome_ = may_be_there;
        new_index_->publish(
            "see which save the folder opens as, the new one or the one before: each is whole. The next save "
            "removes the files of the other.");
        outcome_ = is_there;
        keep_folder();
        sync_index();
    }
    /// Local, on rank 0: it is durable, too.
    void sync_index() const {
        if (durable_)
            sync_folder(folder_, "the new save is complete and is what loads read, but a power cut may undo that");
    }
    /// Local. Throws IoError where an index of that name is not the one that was there when the folder was claimed.
    void refuse_replaced(std::string_view index) const {
        if (stamp_at(path(index)) == index_) return;
        raise(ErrorCode::io, "IoError: ", path(index), ": another save has replaced it while this one was ",
              "under way. Fix: let one job at a time save into a folder.");
    }

    /// Local: rank 0 removes what the new index does not name: files of the save before, and what saves that died have
    /// left; others do nothing. `files`: those of this save; `tables`: those of older releases go, too, the index
    /// first. The save is complete: what there is no memory to remove goes with the next one.
    void tidy(std::vector<std::string> files, bool tables = false) {
        outcome_ = is_there;
        if (!is_first()) return;
        sort_list(files);
        auto const remove = [&](std::string const& leaf) {
            std::string const old = path(leaf);
            if (::unlink(old.c_str()) == 0 || errno == ENOENT) return;
            raise_io(old, "the new save is complete, but this file of the one before it cannot be removed", errno,
                     "remove it.");
        };
        auto const is_stale = [&](std::string const& leaf) {
            return names_.is_data(leaf) && !std::binary_search(files.begin(), files.end(), leaf);
        };
        Verdict removed = verdict_of([&, this] {
            std::string const index(mch_old_index);
            if (tables && path_kind(path(index)) != PathKind::missing) remove(index);
            for (std::string const& leaf : previous_)
                if (is_stale(leaf)) remove(leaf);
            if (!lock_.is_held()) return;
            for (std::string const& leaf :
                 leaves_of(folder_, "the new save is complete, but what others left cannot be listed")) {
                if (is_stale(leaf) || (tables && is_of_old_tables(leaf))) remove(leaf);
            }
        });
        if (!removed.ok() && removed.code != ErrorCode::out_of_memory) raise(removed.code, std::move(removed.reason));
        beside_.release();  // first: the lock with the note is the mark of a run that is not over
        lock_.take_note_back(durable_);
        lock_.release();
    }

private:
    static constexpr std::string_view may_be_there = "(The folder holds this save, or what it held before.)";
    static constexpr std::string_view is_there = "(The save is complete: the folder holds it.)";

    std::string folder_;
    CommunicatorRef comm_;
    SaveNames names_;
    bool durable_;
    std::uint64_t digest_ = 0;
    std::string summary_;
    std::string_view call_;
    std::string_view outcome_;  ///< what an error says where an agreement breaks down
    Index agreements_ = 0;
    PassingPath made_folder_;  // goes last
    FolderLock beside_;        ///< of files of the other kind
    FolderLock lock_;
    std::optional<FileStamp> index_;  ///< what was there when the folder was claimed
    std::string published_;
    std::optional<TemporaryFile> new_index_;
    std::vector<std::string> previous_;
};

}  // namespace reshard::inline v0_1::detail
