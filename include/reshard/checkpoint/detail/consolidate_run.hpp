// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_run.hpp
/// \brief  Runs pieces: read, rearrange, cast, sum, write, several at once in bounded memory. What they come to, and
///         the files that they need, before a byte is read. The files that several ranks write together: made by one
///         under temporary names, opened by all, renamed by one.
/// \depends checkpoint/detail/{cached_file,consolidate_piece,load_files,save_stream,temporary_file},
/// memory/{convert,scratch}. POSIX.
#pragma once

#include <reshard/checkpoint/consolidate_options.hpp>
#include <reshard/checkpoint/detail/cached_file.hpp>
#include <reshard/checkpoint/detail/consolidate_piece.hpp>
#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/checkpoint/detail/save_stream.hpp>
#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/ranged_read.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // count_if
#include <iterator>   // ssize
#include <set>        // set

#include <sys/statvfs.h>

namespace reshard::inline v0_1::detail {

/// Throws IoError, naming both numbers, where a file system has less room for this user than that.
inline void check_space(std::string const& folder, Index bytes) {
    struct statvfs status {};
    if (::statvfs(folder.c_str(), &status) != 0)
        raise_io(folder, "cannot ask for free space", errno, "check the path.");
    auto const room = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
    if (static_cast<double>(bytes) <= room) return;
    raise(ErrorCode::io, "IoError: ", folder, ": ", bytes, " bytes will be written, there is room for ",
          static_cast<Index>(room), ". Fix: free space, or write elsewhere.");
}

/// On the rank that makes it: a file of its final size, with its first bytes. Durable: others may never write to it.
[[nodiscard]] inline TemporaryFile make_file(std::string path, std::string_view start, Index bytes, bool durable) {
    TemporaryFile file(std::move(path));
    file.append(std::as_bytes(std::span<char const>(start.data(), start.size())));
    if (::truncate(file.temporary_path().c_str(), bytes) != 0) {
        raise_io(file.path(), concat("cannot make it ", bytes, " bytes long"), errno,
                 "write smaller files, or elsewhere.");
    }
    file.finish(durable);
    return file;
}

/// On every rank: those that it writes to.
class SharedFiles {
public:
    /// One more: its temporary path, and how many bytes stand in front of its data.
    void add(std::string path, std::size_t start) {
        files_.push_back(std::make_unique<File>(std::move(path), as_index(start)));
    }
    [[nodiscard]] std::size_t size() const noexcept { return files_.size(); }

    void open(std::size_t file) { static_cast<void>(files_[file]->cached.use()); }
    /// Those that were opened.
    [[nodiscard]] Index count() const noexcept {
        return std::count_if(files_.begin(), files_.end(), [](auto const& file) { return file->cached.is_used(); });
    }
    /// Bytes of the data section; from several threads at once.
    void write(int number, Index begin, std::span<std::byte const> bytes) const {
        File& file = *files_[as_size(number)];
        write_fully(*file.cached.use(), file.path, file.start + begin, bytes);
    }
    /// What this rank has written so far is durable.
    void sync() const {
        for (auto const& file : files_)
            if (file->cached.is_used()) sync_file(*file->cached.use(), file->path);
    }
    void close() {
        for (auto const& file : files_) file->cached.close_written(file->path);
    }

private:
    [[nodiscard]] static FileDescriptor open_for_writing(std::string const& path) {
        FileDescriptor file = open_file(path, O_WRONLY | O_NOFOLLOW);
        if (file.is_open()) return file;
        raise_io(path, "cannot open for writing", errno,
                 errno == EMFILE ? fix_of_open(errno) : "write to a folder that all ranks share, and may write to.");
    }

    struct File {
        std::string path;
        Index start;
        CachedFile cached{[this] { return open_for_writing(path); }};
        File(std::string name, Index bytes) : path(std::move(name)), start(bytes) {}
    };
    std::vector<std::unique_ptr<File>> files_;
};

/// A rank's share of the line in pieces, and which of them come before which vote.
struct PieceList {
    std::vector<std::vector<ElementRun>> pieces;
    std::vector<std::size_t> windows{0};  ///< per window, its first piece; then the number of pieces
    Index begin = 0;                      ///< in bytes of the line
    Index end = 0;
};

/// Bytes of a piece: two buffers for each that is in flight. Not more than stays in the cache from the read to the sum
/// and the write.
[[nodiscard]] inline Index piece_bytes_of(RewriteOptions const& options) noexcept {
    Index const most = Index{1} << 20;
    return smaller(options.window_bytes / options.in_flight / 2, most) / 4096 * 4096;
}
/// Votes until all is written: as many on every rank.
[[nodiscard]] inline Index votes_of(Index bytes, Index ranks, Index vote_bytes) noexcept {
    return larger<Index>(ceil_div(ceil_div(bytes, ranks), vote_bytes), 1);
}

[[nodiscard]] inline PieceList list_pieces(ByteLine const& line, Index rank, Index ranks,
                                           RewriteOptions const& options) {
    PieceList list;
    list.begin = line.cut(rank, ranks);
    list.end = line.cut(rank + 1, ranks);
    auto const votes = as_size(votes_of(line.bytes(), ranks, options.vote_bytes));
    Index const per_vote = ceil_div(list.end - list.begin, as_index(votes));
    line.for_each_piece(list.begin, list.end, piece_bytes_of(options), [&](std::vector<ElementRun> piece) {
        Index const at = line.position(piece.front().of, piece.front().begin) - list.begin;
        while (at >= as_index(list.windows.size()) * per_vote) list.windows.push_back(list.pieces.size());
        list.pieces.push_back(std::move(piece));
    });
    while (list.windows.size() <= votes) list.windows.push_back(list.pieces.size());
    return list;
}

class PieceRunner {
public:
    /// Allocates. \pre all that is given outlives this; files are open
    PieceRunner(PieceMaker const& maker, LoadFiles& in, SharedFiles const& out, PieceList const& pieces,
                RewriteOptions const& options, RewriteReport& report)
        : maker_(&maker), in_(&in), out_(&out), pieces_(&pieces), options_(&options), report_(&report) {
        piece_bytes_ = piece_bytes_of(options);
        work_.resize(smaller(as_size(options.in_flight), pieces.pieces.size()));
        memory_ = Scratch(2 * piece_bytes_ * as_index(work_.size()));
        report.extra_bytes = memory_.size();
        in.count_sums(options.verify_checksums ? whole_runs(in.catalogue()) : std::vector<ExtentRun>());
        std::vector<Index> written;
        for (Extent const& extent : maker.to.extents()) written.push_back(maker.to.extent_bytes(extent));
        written_ = BlockSums(std::move(written), maker.to.manifest().block_bytes);
    }

    /// All pieces of a window. Throws what the first failure threw, when all that run have ended.
    void run(std::size_t window) {
        std::size_t const first = pieces_->windows[window];
        std::size_t const count = pieces_->windows[window + 1] - first;
        run_on_workers(count, options_->in_flight,
                       [&](std::size_t i, int worker) { run_piece(pieces_->pieces[first + i], worker); });
    }

    /// Sums of what was written, by extent. \pre no window is under way
    [[nodiscard]] BlockSums& written() noexcept { return written_; }

private:
    /// What goes to a file next: grows while it goes on in the file and in memory.
    struct Pending {
        int file = -1;
        Index begin = 0;
        std::byte const* from = nullptr;
        Index bytes = 0;
    };

    void run_piece(std::span<ElementRun const> piece, int worker) {
        PieceWork& work = work_[as_size(worker)];
        std::byte* const buffer = memory_.data() + 2 * piece_bytes_ * Index{worker};
        std::byte* const scratch = buffer + piece_bytes_;
        maker_->make(piece, buffer, work);
        ReadTotals const totals = read(work, scratch);
        Index const writes = write(work, buffer, scratch);
        tell(totals, writes, maker_->line.bytes_of(piece));
    }

    ReadTotals read(PieceWork const& work, std::byte* scratch) {
        if (work.reads.empty()) return {};
        ReadOptions options;
        options.in_flight = 1;
        options.chunk_bytes = piece_bytes_;
        return in_->read(ReadPlan(work.reads, options), scratch);
    }

    /// Returns how many writes it took.
    Index write(PieceWork const& work, std::byte const* buffer, std::byte* scratch) {
        Index writes = 0;
        Pending pending;
        std::byte const* next = buffer;
        std::byte* values = scratch;  // those that are cast next
        auto const flush = [&] {
            if (pending.bytes == 0) return;
            out_->write(pending.file, pending.begin, {pending.from, as_size(pending.bytes)});
            ++writes;
        };
        for (ElementRun const& run : work.writes) {
            Extent const& to = maker_->to.extents()[run.of];
            LineTensor const& tensor = maker_->tensor_of(run);
            Index const begin = run.begin * tensor.to_bytes();
            Index const bytes = run.end * tensor.to_bytes() - begin;
            std::byte const* from = std::exchange(next, next + (run.end - run.begin) * tensor.from_bytes());
            if (tensor.casts()) {
                cast(from, tensor, run.end - run.begin, values);
                from = std::exchange(values, values + bytes);
            }
            if (options_->checksums) written_.add(run.of, begin, {from, as_size(bytes)});
            bool const goes_on = pending.file == to.file && pending.begin + pending.bytes == to.begin + begin &&
                                 pending.from + pending.bytes == from;
            if (!goes_on) {
                flush();
                pending = {to.file, to.begin + begin, from, 0};
            }
            pending.bytes += bytes;
        }
        flush();
        return writes;
    }
    static void cast(std::byte const* from, LineTensor const& tensor, Index count, std::byte* to) {
        StridedBox const in{{StridedDim{count, tensor.from_bytes()}}, tensor.from_bytes()};
        StridedBox const out{{StridedDim{count, tensor.to_bytes()}}, tensor.to_bytes()};
        convert(from, in, tensor.from, to, out, tensor.to);
    }

    void tell(ReadTotals const& totals, Index writes, Index bytes) {
        std::lock_guard<std::mutex> const lock(mutex_);
        report_->reads += totals.reads;
        report_->bytes_read += totals.bytes_read;
        report_->writes += writes;
        report_->bytes_written += bytes;
        if (options_->progress) options_->progress(report_->bytes_written, pieces_->end - pieces_->begin);
    }

    PieceMaker const* maker_;
    LoadFiles* in_;
    SharedFiles const* out_;
    PieceList const* pieces_;
    RewriteOptions const* options_;
    RewriteReport* report_;  ///< what is read and written is counted here
    Index piece_bytes_ = 0;
    std::vector<PieceWork> work_;  ///< of each worker, filled anew for each piece
    Scratch memory_;
    std::mutex mutex_;
    BlockSums written_;
};

/// What a rank's pieces need: the numbers, and the files.
struct PieceSurvey {
    RewriteShare share;
    std::set<int> read;     ///< the files, by their numbers
    std::set<int> written;  ///< of those that are written
};
[[nodiscard]] inline PieceSurvey survey(PieceMaker const& maker, PieceList const& pieces,
                                        RewriteOptions const& options) {
    PieceSurvey result;
    RewriteShare& share = result.share;
    share.begin = pieces.begin;
    share.end = pieces.end;
    ReadOptions reads;
    reads.chunk_bytes = piece_bytes_of(options);
    Scratch const nowhere(pieces.pieces.empty() ? 0 : piece_bytes_of(options));  // places to count with: never touched
    PieceWork work;
    for (std::vector<ElementRun> const& piece : pieces.pieces) {
        maker.make(piece, nowhere.data(), work);
        ReadTotals const totals = count_reads(work.reads, reads);
        share.reads += totals.reads;
        share.bytes_read += totals.bytes_read;
        share.runs += as_index(work.writes.size());
        for (ReadBox const& box : work.reads) result.read.insert(box.file);
        for (ElementRun const& write : work.writes) result.written.insert(maker.to.extents()[write.of].file);
    }
    share.files_read = std::ssize(result.read);
    share.files_written = std::ssize(result.written);
    return result;
}

}  // namespace reshard::inline v0_1::detail
