// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_run.hpp
/// \brief  Runs pieces: read, rearrange, cast, sum, write, several at once in bounded memory. What they come to, and
///         the files that they need, before a byte is read.
/// \depends checkpoint/detail/{consolidate_files,consolidate_piece,load_files,save_stream},
/// memory/{convert,scratch}.
#pragma once

#include <reshard/checkpoint/consolidate_options.hpp>
#include <reshard/checkpoint/detail/consolidate_files.hpp>
#include <reshard/checkpoint/detail/consolidate_piece.hpp>
#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/checkpoint/detail/save_stream.hpp>
#include <reshard/checkpoint/ranged_read.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // count

namespace reshard::inline v0::detail {

/// A rank's share of the line in pieces, and which of them come before which vote.
struct PieceList {
    std::vector<LineRun> runs;
    std::vector<std::size_t> first{0};    ///< per piece, its first run; then the number of runs
    std::vector<std::size_t> windows{0};  ///< per window, its first piece; then the number of pieces
    Index bytes = 0;

    [[nodiscard]] std::size_t size() const noexcept { return first.size() - 1; }
    [[nodiscard]] std::span<LineRun const> operator[](std::size_t piece) const noexcept {
        return std::span(runs).subspan(first[piece], first[piece + 1] - first[piece]);
    }
};

/// Bytes of a piece: two buffers for each that is in flight.
[[nodiscard]] inline Index piece_bytes_of(RewriteOptions const& options) noexcept {
    Index const most = Index{8} << 20;
    return smaller(options.window_bytes / options.in_flight / 2, most) / 4096 * 4096;
}
/// Votes until all is written: as many on every rank.
[[nodiscard]] inline Index votes_of(Index bytes, Index ranks, Index vote_bytes) noexcept {
    return larger<Index>(ceil_div(ceil_div(bytes, ranks), vote_bytes), 1);
}

[[nodiscard]] inline PieceList list_pieces(OutputLine const& line, Index rank, Index ranks,
                                           RewriteOptions const& options) {
    PieceList list;
    LinePoint const begin = line.cut(rank, ranks);
    LinePoint const end = line.cut(rank + 1, ranks);
    Index const from = line.position(begin);
    list.bytes = line.position(end) - from;
    auto const votes = static_cast<std::size_t>(votes_of(line.bytes(), ranks, options.vote_bytes));
    line.for_each_piece(begin, end, piece_bytes_of(options), [&](std::span<LineRun const> piece) {
        Index const at = line.position({piece.front().item, piece.front().begin}) - from;
        Index const per_vote = ceil_div(list.bytes, static_cast<Index>(votes));
        while (at >= static_cast<Index>(list.windows.size()) * per_vote) list.windows.push_back(list.size());
        list.runs.insert(list.runs.end(), piece.begin(), piece.end());
        list.first.push_back(list.runs.size());
    });
    while (list.windows.size() <= votes) list.windows.push_back(list.size());
    return list;
}

class PieceRunner {
public:
    /// What is summed and then written at once, so that the write finds it in the cache.
    static constexpr Index step_bytes = Index{256} << 10;

    /// Allocates. \pre all that is given outlives this; files are open
    PieceRunner(PieceMaker const& maker, Catalogue const& from, LoadFiles& in, Catalogue const& to,
                SharedFiles const& out, PieceList const& pieces, RewriteOptions const& options)
        : maker_(&maker), from_(&from), in_(&in), to_(&to), out_(&out), pieces_(&pieces), options_(&options) {
        piece_bytes_ = piece_bytes_of(options);
        work_.resize(smaller(static_cast<std::size_t>(options.in_flight), pieces.size()));
        memory_ = Scratch(2 * piece_bytes_ * static_cast<Index>(work_.size()));
        std::vector<std::size_t> summed;
        if (options.verify_checksums)
            for (std::size_t i = 0; i < from.extents().size(); ++i) summed.push_back(i);
        sums_.emplace(from, std::move(summed));
        in.sum_up(*sums_);
        std::vector<Index> written;
        for (Extent const& extent : to.extents()) written.push_back(to.extent_bytes(extent));
        written_ = BlockSums(std::move(written), to.manifest().block_bytes);
    }

    /// All pieces of a window. Throws what the first failure threw, when all that run have ended.
    void run(std::size_t window) {
        std::size_t const first = pieces_->windows[window];
        std::size_t const count = pieces_->windows[window + 1] - first;
        run_on_workers(count, options_->in_flight,
                       [&](std::size_t i, int worker) { run_piece((*pieces_)[first + i], worker); });
    }

    [[nodiscard]] Index extra_bytes() const noexcept { return memory_.size(); }
    [[nodiscard]] Index reads() const noexcept { return reads_.load(); }
    [[nodiscard]] Index bytes_read() const noexcept { return bytes_read_.load(); }
    [[nodiscard]] Index writes() const noexcept { return writes_.load(); }
    [[nodiscard]] Index bytes_written() const noexcept { return bytes_written_; }
    /// Sums of what was written, by extent. \pre no window is under way
    [[nodiscard]] BlockSums& written() noexcept { return written_; }
    /// Sums of what was read of extents that have one.
    [[nodiscard]] std::vector<ExtentRun> read() const {
        std::vector<ExtentRun> all = sums_->runs();
        all.insert(all.end(), copied_.begin(), copied_.end());
        return all;
    }

private:
    /// What goes to a file next: grows while it goes on in the file and in memory.
    struct Pending {
        int file = -1;
        Index begin = 0;
        std::byte const* from = nullptr;
        Index bytes = 0;
    };

    void run_piece(std::span<LineRun const> piece, int worker) {
        PieceWork& work = work_[static_cast<std::size_t>(worker)];
        std::byte* const buffer = memory_.data() + 2 * piece_bytes_ * Index{worker};
        std::byte* const scratch = buffer + piece_bytes_;
        maker_->make(piece, buffer, work);
        for (PieceCopy const& copy : work.copies) run_copy(copy, buffer);
        read(work, scratch);
        write(work, buffer, scratch);
        tell(work.bytes_written);
    }

    void run_copy(PieceCopy const& copy, std::byte* buffer) {
        Extent const& from = from_->extents()[copy.from];
        Extent const& to = to_->extents()[copy.to];
        bool const verify = options_->verify_checksums && from.has_checksum;
        SafetensorsFile const& file = in_->at(from.file);
        Index done = 0;
        if (!verify && !options_->checksums) {
            done = file.copy_data(from.begin + copy.from_begin, copy.bytes, *out_->at(to.file).use(),
                                  out_->start(to.file) + to.begin + copy.to_begin);
            count(1, done, 1);
        }
        std::uint32_t sum = 0;
        while (done < copy.bytes) {
            auto const step = std::span(buffer, static_cast<std::size_t>(smaller(step_bytes, copy.bytes - done)));
            file.read_data(from.begin + copy.from_begin + done, step);
            if (options_->checksums) {  // of the same bytes as the sum that is compared
                std::uint32_t const more = written_.add(copy.to, copy.to_begin + done, step);
                sum = crc32c_combine(sum, more, static_cast<Index>(step.size()));
            } else if (verify) {
                sum = crc32c(step, sum);
            }
            out_->write(to.file, to.begin + copy.to_begin + done, step);
            count(1, static_cast<Index>(step.size()), 1);
            done += static_cast<Index>(step.size());
        }
        if (!verify) return;
        std::lock_guard<std::mutex> const lock(mutex_);
        copied_.push_back({static_cast<Index>(copy.from), copy.from_begin, copy.from_begin + copy.bytes, Index{sum}});
    }

    void read(PieceWork const& work, std::byte* scratch) {
        if (work.reads.empty()) return;
        ReadOptions options;
        options.in_flight = 1;
        options.chunk_bytes = piece_bytes_;
        ReadTotals const totals = in_->read(work.reads, options, scratch);
        count(totals.reads, totals.bytes_read, 0);
    }

    void write(PieceWork const& work, std::byte* buffer, std::byte* scratch) {
        Pending pending;
        std::byte* values = scratch;  // those that are cast next
        auto const flush = [&] {
            if (pending.bytes == 0) return;
            out_->write(pending.file, pending.begin, {pending.from, static_cast<std::size_t>(pending.bytes)});
            count(0, 0, 1);
        };
        for (PieceWrite const& run : work.writes) {
            Extent const& to = to_->extents()[run.extent];
            LineTensor const tensor = line_tensor(from_->tensors()[to.tensor], to_->tensors()[to.tensor].dtype);
            Index const begin = run.begin * tensor.to_bytes();
            Index const bytes = run.end * tensor.to_bytes() - begin;
            std::byte const* from = buffer + run.at;
            if (tensor.casts()) {
                cast(from, tensor, run.end - run.begin, values);
                from = std::exchange(values, values + bytes);
            }
            if (options_->checksums) written_.add(run.extent, begin, {from, static_cast<std::size_t>(bytes)});
            bool const goes_on = pending.file == to.file && pending.begin + pending.bytes == to.begin + begin &&
                                 pending.from + pending.bytes == from;
            if (!goes_on) {
                flush();
                pending = {to.file, to.begin + begin, from, 0};
            }
            pending.bytes += bytes;
        }
        flush();
    }
    static void cast(std::byte const* from, LineTensor const& tensor, Index count, std::byte* to) {
        StridedBox in{{}, tensor.from_bytes()};
        StridedBox out{{}, tensor.to_bytes()};
        in.dims.push_back({count, tensor.from_bytes()});
        out.dims.push_back({count, tensor.to_bytes()});
        convert(from, in, tensor.from, to, out, tensor.to);
    }

    void count(Index reads, Index bytes_read, Index writes) noexcept {
        reads_.fetch_add(reads, std::memory_order_relaxed);
        bytes_read_.fetch_add(bytes_read, std::memory_order_relaxed);
        writes_.fetch_add(writes, std::memory_order_relaxed);
    }
    void tell(Index bytes) {
        std::lock_guard<std::mutex> const lock(mutex_);
        bytes_written_ += bytes;
        if (options_->progress) options_->progress(bytes_written_, pieces_->bytes);
    }

    PieceMaker const* maker_;
    Catalogue const* from_;
    LoadFiles const* in_;
    Catalogue const* to_;
    SharedFiles const* out_;
    PieceList const* pieces_;
    RewriteOptions const* options_;
    Index piece_bytes_ = 0;
    std::vector<PieceWork> work_;  ///< of each worker, filled anew for each piece
    Scratch memory_;
    std::optional<ExtentSums> sums_;
    std::mutex mutex_;
    std::vector<ExtentRun> copied_;
    BlockSums written_;
    Index bytes_written_ = 0;
    std::atomic<Index> reads_{0};
    std::atomic<Index> bytes_read_{0};
    std::atomic<Index> writes_{0};
};

/// What a rank's pieces need: the numbers, and the files.
struct PieceSurvey {
    RewriteShare share;
    std::vector<char> reads_file;
    std::vector<char> writes_file;
};
[[nodiscard]] inline PieceSurvey survey(PieceMaker const& maker, Catalogue const& from, Catalogue const& to,
                                        PieceList const& pieces, RewriteOptions const& options) {
    PieceSurvey result;
    result.reads_file.resize(from.files().size(), 0);
    result.writes_file.resize(to.files().size(), 0);
    RewriteShare& share = result.share;
    ReadOptions reads;
    reads.chunk_bytes = piece_bytes_of(options);
    Scratch const nowhere(pieces.size() == 0 ? 0 : piece_bytes_of(options));  // places to count with: never touched
    PieceWork work;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        maker.make(pieces[i], nowhere.data(), work);
        ++share.pieces;
        for (PieceCopy const& copy : work.copies) {
            share.reads += ceil_div(copy.bytes, PieceRunner::step_bytes);
            share.bytes_read += copy.bytes;
            result.reads_file[static_cast<std::size_t>(from.extents()[copy.from].file)] = 1;
            result.writes_file[static_cast<std::size_t>(to.extents()[copy.to].file)] = 1;
        }
        ReadTotals const totals = count_reads(work.reads, reads);
        share.reads += totals.reads;
        share.bytes_read += totals.bytes_read;
        share.runs += static_cast<Index>(work.copies.size() + work.writes.size());
        for (ReadBox const& box : work.reads) result.reads_file[static_cast<std::size_t>(box.file)] = 1;
        for (PieceWrite const& write : work.writes)
            result.writes_file[static_cast<std::size_t>(to.extents()[write.extent].file)] = 1;
    }
    share.files_read = std::count(result.reads_file.begin(), result.reads_file.end(), 1);
    share.files_written = std::count(result.writes_file.begin(), result.writes_file.end(), 1);
    return result;
}

}  // namespace reshard::inline v0::detail
