// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/folder_lock.hpp
/// \brief  FolderLock: one save into a folder at a time, also into one that is new.
/// \depends checkpoint/file.hpp, checkpoint/detail/temporary_file.hpp, flock(2).
#pragma once

#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/file.hpp>
#include <reshard/core/detail/watched.hpp>

#include <sys/file.h>  // flock
#include <unistd.h>    // usleep

namespace reshard::inline v0_1::detail {

/// What a lock says whose holder notes nothing: a note that is void, and who that is.
inline constexpr std::string_view holder_head = "- process ";
[[nodiscard]] inline std::string holder_text() {
    char host[256] = "?";
    static_cast<void>(::gethostname(host, sizeof host - 1));
    return concat(holder_head, ::getpid(), " on ", static_cast<char const*>(host), "\n");
}
/// Who holds a lock, in brackets, if it says so.
[[nodiscard]] inline std::string held_by(FileDescriptor const& lock) {
    char text[300];
    auto const got = uninterrupted([&] { return ::pread(lock.get(), text, sizeof text, 0); });
    std::string_view words(text, got > 0 ? as_size(got) : 0);
    words = words.substr(0, words.find('\n'));
    return words.starts_with(holder_head) ? concat(" (", words.substr(2), ")") : std::string();
}

/// Holds a file in the folder under flock(2): the kernel lets go of it when the process dies, however it dies. The file
/// goes with the lock; one that a dead process left is taken over.
///
/// Where the file system has no such locks (Lustre without -o flock) is_held() is false, and the caller goes on
/// without.
class FolderLock {
public:
    FolderLock() = default;
    /// Throws IoError, naming the folder, when another save holds the lock or the file cannot be made.
    FolderLock(std::string const& folder, std::string_view leaf) : path_(join_path(folder, leaf)) {
        int refusals = 0;
        for (int attempt = 0; attempt < most_attempts; ++attempt) {
            FileDescriptor opened = open_file(path_, O_RDWR | O_CREAT | O_NOFOLLOW);
            if (!opened.is_open()) {
                int const error = errno;
                refuse_of_others(folder, leaf, error);
                raise_io(folder, concat("cannot create ", leaf), error, fix_of_create(error));
            }
            file_ = std::move(opened);
            if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) {
                if (!is_at_path()) continue;  // its holder removed it before we had it: it locks nothing any more
                tell_holder();
                return;
            }
            int const error = errno;
            if (error == EINTR) continue;
            std::string const holder = error == EWOULDBLOCK ? held_by(file_) : std::string();
            file_.close();
            if (error == EWOULDBLOCK && ++refusals < most_refusals) {  // readers hold it for a moment, to ask who does
                ::usleep(2000);
                continue;
            }
            if (error == EWOULDBLOCK) {
                raise(ErrorCode::io, "IoError: ", folder, ": another save into this folder is under way: it holds ",
                      leaf, holder,
                      ". Fix: wait for it, or save to another folder; if its job is over, end that process (`fuser ",
                      path_,
                      "` or `lslocks` on its host name it; what a process forked before it died holds it, too).");
            }
            if (error == ENOLCK) return;  // of the server, for now: the file may be locked by somebody else
            if (error == ENOSYS || error == EOPNOTSUPP || error == EINVAL) {
                static_cast<void>(::unlink(path_.c_str()));
                return;
            }
            raise_io(folder, concat("cannot lock ", leaf), error, "check the file system.");
        }
        raise(ErrorCode::io, "IoError: ", folder, ": ", leaf, " was locked ", most_attempts,
              " times, and each time it was not, or ",
              "could not be seen to be, the file of that name. Fix: check the file system, and let one job at a "
              "time save into a folder.");
    }
    FolderLock(FolderLock&&) noexcept = default;
    FolderLock& operator=(FolderLock other) noexcept {  // which lets go of what this had
        path_.swap(other.path_);
        std::swap(file_, other.file_);
        std::swap(inherited_, other.inherited_);
        std::swap(noted_, other.noted_);
        return *this;
    }
    /// What a dead holder has said stays for the next one, unless it was dealt with.
    ~FolderLock() { has_inherited() ? unlock() : release(); }

    [[nodiscard]] bool is_held() const noexcept { return file_.is_open(); }
    /// Says in the file what this holder is about: who takes the lock over from the dead reads it there. No holder, no
    /// note. Where there is none, the file says who holds it.
    void note(std::string_view text, bool durable) {
        if (!is_held()) return;
        if (::ftruncate(file_.get(), 0) != 0) raise_io(path_, "cannot empty it", errno, "check the file system.");
        inherited_ = false;
        if (text.empty()) tell_holder();
        write_fully(file_, path_, 0, std::as_bytes(std::span<char const>(text.data(), text.size())));
        if (durable) sync_file(file_, path_);
        noted_ = !text.empty();
    }
    /// What note() has said is void, before the file goes: a power cut may bring the file back, but not what it said.
    /// In place: that takes no room. Throws IoError.
    void take_note_back(bool durable) {
        if (!is_held() || !noted_) return;
        if (uninterrupted([&] { return ::pwrite(file_.get(), "-", 1, 0); }) != 1) {
            raise_io(path_, "what it names is complete, but the note cannot be taken back", errno, "remove this file.");
        }
        if (durable) sync_file(file_, path_, "remove this file: what it names is complete.");
        noted_ = false;
    }
    /// Whether a dead holder has said something, and this one nothing yet.
    [[nodiscard]] bool has_inherited() const noexcept { return is_held() && inherited_; }
    /// What a dead holder has said, or this one.
    [[nodiscard]] std::string read_note() const {
        if (!is_held()) return {};
        std::string text(as_size(stamp_of(file_, path_).bytes), '\0');
        read_fully(file_, path_, 0, std::as_writable_bytes(std::span(text)));
        return text;
    }
    /// Removes the file while it is locked: who opens it now makes a new one. What cannot be removed says nothing.
    void release() noexcept {
        if (!is_held()) return;
        if (::unlink(path_.c_str()) != 0) static_cast<void>(::ftruncate(file_.get(), 0));
        unlock();
    }

private:
    static constexpr int most_attempts = 1000;
    static constexpr int most_refusals = 50;

    /// A file that another user has left, or holds, cannot be taken over. (In a folder with the sticky bit, nor by whom
    /// its mode would let.)
    void refuse_of_others(std::string const& folder, std::string_view leaf, int error) const {
        struct stat there {};
        if ((error != EACCES && error != EPERM) || ::lstat(path_.c_str(), &there) != 0) return;
        raise_io(folder, concat("cannot open ", leaf, ", which belongs to user ", there.st_uid, " (uid)"), error,
                 "see that this user saves nothing here any more and remove the file, or save to another folder.");
    }
    /// Instead of a note. It helps who is refused, and is left out where it cannot be written.
    void tell_holder() const noexcept {
        if (has_inherited()) return;
        quietly([&, this] {
            std::string const text = holder_text();
            static_cast<void>(!::ftruncate(file_.get(), 0));
            static_cast<void>(!::pwrite(file_.get(), text.data(), text.size(), 0));
        });
    }
    void unlock() noexcept {
        static_cast<void>(::flock(file_.get(), LOCK_UN));  // children that were forked meanwhile share the descriptor
        file_.close();
    }
    [[nodiscard]] bool is_at_path() noexcept {
        struct stat mine {};
        struct stat there {};
        bool const known = ::fstat(file_.get(), &mine) == 0;
        char first = 0;
        inherited_ = mine.st_size != 0 && (::pread(file_.get(), &first, 1, 0) != 1 || first != holder_head[0]);
        return known && ::stat(path_.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
               mine.st_ino == there.st_ino;
    }

    std::string path_;
    FileDescriptor file_;
    bool inherited_ = false;
    bool noted_ = false;
};

/// Makes a folder where there is none, for as long as `made` is there, and calls lock(). Another writer that has made
/// it and fails takes it away while nothing is in it: then it is made again.
template <class Lock>
void make_and_lock(std::string const& folder, bool durable, PassingPath& made, Lock&& lock) {
    constexpr int most_turns = 100;  // each rank of a save that fails takes it away
    for (int turn = 1;; ++turn) {
        made = make_folder(folder, durable);
        try {
            return lock();
        } catch (Error const&) {
            if (turn == most_turns || path_kind(folder) != PathKind::missing) throw;
            made.keep();  // it has gone
        }
    }
}

}  // namespace reshard::inline v0_1::detail
