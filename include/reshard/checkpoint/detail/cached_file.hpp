// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/cached_file.hpp
/// \brief  Files that stay open while the process has descriptors to spare: thousands of shards, under any ulimit -n.
/// \depends checkpoint/file.hpp, POSIX, threads.
#pragma once

#include <reshard/checkpoint/file.hpp>

#include <sys/resource.h>

#include <atomic>      // atomic
#include <functional>  // function
#include <list>        // list
#include <mutex>       // mutex

namespace reshard::inline v0_1::detail {

/// A file that is opened when it is used. All of a process together keep half of the descriptors that it may have:
/// beyond that the one that was used longest ago is closed, and opened again at its next use. Any thread may use it.
class CachedFile {
public:
    /// Whoever has used it says so in order: what is closed next was read before.
    struct Done {
        std::atomic<int>* users;
        void operator()(FileDescriptor const*) const noexcept { users->fetch_sub(1, std::memory_order_release); }
    };
    /// While somebody has it the file stays open.
    using Use = std::unique_ptr<FileDescriptor const, Done>;

    /// `open` opens the file for use, or throws.
    explicit CachedFile(std::function<FileDescriptor()> open) : open_(std::move(open)) {}
    CachedFile& operator=(CachedFile&&) = delete;
    ~CachedFile() {
        Cache& all = cache();
        std::lock_guard<std::mutex> const lock(all.mutex);
        if (file_.is_open()) all.by_use.erase(place_);
    }

    [[nodiscard]] Use use() {
        Cache& all = cache();
        std::unique_lock<std::mutex> lock(all.mutex);
        if (!file_.is_open()) {
            lock.unlock();  // other files need not wait for a slow open
            FileDescriptor opened = open_();
            lock.lock();
            if (!file_.is_open()) {
                all.by_use.push_front(this);
                place_ = all.by_use.begin();
                file_ = std::move(opened);
                is_used_ = true;
                Use mine = in_use();  // from here on: where all others are, this one is not closed for it
                close_oldest(all);
                return mine;
            }
        }
        all.by_use.splice(all.by_use.begin(), all.by_use, place_);
        return in_use();
    }
    [[nodiscard]] bool is_used() const noexcept { return is_used_; }

    /// For who has written to it: closes it; throws IoError where bytes may be lost. \pre nobody uses it
    void close_written(std::string_view path) {
        Cache& all = cache();
        std::lock_guard<std::mutex> const lock(all.mutex);
        if (file_.is_open()) close(all);
        refuse_lost(error_, path);
    }

private:
    struct Cache {
        std::mutex mutex;
        std::list<CachedFile*> by_use;  ///< those that are open, the last used first
    };
    [[nodiscard]] static Cache& cache() {
        static Cache& one = *new Cache;  // files of static duration may outlive whatever is made after them
        return one;
    }
    [[nodiscard]] static std::size_t most_open() noexcept {
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
        return as_size(limit.rlim_cur / 2);
    }
    /// Under the lock, as whoever closes it asks under the lock.
    [[nodiscard]] Use in_use() noexcept {
        users_.fetch_add(1, std::memory_order_relaxed);
        return {&file_, Done{&users_}};
    }
    void close(Cache& all) noexcept {
        if (int const error = file_.close(); error != 0) error_ = error;
        all.by_use.erase(place_);
    }
    static void close_oldest(Cache& all) noexcept {
        std::size_t const most = most_open();
        for (auto at = all.by_use.end(); all.by_use.size() > most && at != all.by_use.begin();) {
            CachedFile& one = **--at;
            if (one.users_.load(std::memory_order_acquire) > 0) continue;
            ++at;
            one.close(all);
        }
    }

    std::function<FileDescriptor()> open_;
    FileDescriptor file_;
    std::atomic<int> users_{0};
    std::list<CachedFile*>::iterator place_;  ///< while it is open
    int error_ = 0;                           ///< of closing it
    bool is_used_ = false;
};

}  // namespace reshard::inline v0_1::detail
