// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/read_schedule.hpp
/// \brief  Which rank reads which bytes when: every rank computes the same schedule, from the catalogue alone.
/// \depends checkpoint/catalogue.hpp, algebra. No I/O, no communication.
///
/// Readers take contiguous spans of the wanted bytes in (file, offset) order, so that files are opened at most
/// (files + readers - 1) times and nobody reads more than its share plus one row. A reader goes through its span in
/// windows that fit its staging memory: pieces, each one box of one tensor and one run of its file.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/checkpoint/catalogue.hpp>

#include <span>
#include <vector>

namespace reshard::inline v0::detail {

/// A tensor that is wanted, as it is stored: elements smaller than a byte are bytes.
struct WantedTensor {
    std::size_t target = 0;  ///< its place in the caller's list
    int file = 0;
    Index begin = 0;  ///< first byte, in the file's data section
    DType dtype = DType::u8;
    DynamicShape shape;

    [[nodiscard]] Index bytes() const noexcept { return shape.size() * reshard::bytes(dtype); }
};

/// What a reader reads at once of one tensor.
struct Piece {
    std::size_t wanted = 0;  ///< place in the list of wanted tensors
    int reader = 0;
    Index window = 0;
    Index place = 0;  ///< first byte in the reader's staging memory
    Index begin = 0;  ///< first byte in the file's data section
    Index bytes = 0;
    Box box;
};

struct ReadSchedule {
    std::vector<Piece> pieces;  ///< by window, then by reader, then by place
    Index windows = 0;
    Index staging_bytes = 0;  ///< of the reader that needs most
};

/// Cuts boxes of tensors, each one run of its file, into the windows of one reader. 0 bytes: a window per box.
class WindowCutter {
public:
    WindowCutter(ReadSchedule& schedule, int reader, Index window_bytes) noexcept
        : schedule_(&schedule), reader_(reader), window_bytes_(window_bytes) {}

    /// \pre the box is one run of the file: single indices, one interval, then whole dimensions.
    void add(std::size_t number, WantedTensor const& tensor, Box const& box) {
        Index const bytes = box.size() * reshard::bytes(tensor.dtype);
        if (bytes == 0) return;
        if (window_bytes_ != 0 && bytes > window_bytes_) {
            int dim = 0;
            while (dim < box.rank() && box.extent(dim) == 1) ++dim;
            if (dim < box.rank()) return cut(number, tensor, box, dim, bytes / box.extent(dim));
        }
        if (used_ > 0 && bytes > window_bytes_ - used_) next_window();
        Index offset = 0;  // of the box in its tensor, in elements
        for (int dim = 0; dim < box.rank(); ++dim) offset = offset * tensor.shape.extent(dim) + box.begin(dim);
        schedule_->pieces.push_back(
            {number, reader_, window_, used_, tensor.begin + offset * reshard::bytes(tensor.dtype), bytes, box});
        used_ += bytes;
        schedule_->windows = larger(schedule_->windows, window_ + 1);
        schedule_->staging_bytes = larger(schedule_->staging_bytes, used_);
    }

private:
    void cut(std::size_t number, WantedTensor const& tensor, Box box, int dim, Index slice) {
        Interval const whole = box[dim];
        Index const step = larger<Index>(window_bytes_ / slice, 1);
        for (Index begin = whole.begin; begin < whole.end; begin += step) {
            box.set(dim, {begin, smaller(begin + step, whole.end)});
            add(number, tensor, box);
        }
    }
    void next_window() noexcept {
        ++window_;
        used_ = 0;
    }

    ReadSchedule* schedule_;
    int reader_;
    Index window_bytes_;
    Index window_ = 0;
    Index used_ = 0;
};

/// In the order in which they are read. \pre each reader's pieces are in their order.
inline void sort_by_window(ReadSchedule& schedule) {
    std::stable_sort(schedule.pieces.begin(), schedule.pieces.end(), [](Piece const& a, Piece const& b) {
        return a.window != b.window ? a.window < b.window : a.reader < b.reader;
    });
}

/// One rank reads everything.
/// \pre `wanted` is sorted by (file, begin)
[[nodiscard]] inline ReadSchedule one_reads(std::span<WantedTensor const> wanted, int reader, Index window_bytes) {
    ReadSchedule schedule;
    WindowCutter cutter(schedule, reader, window_bytes);
    for (std::size_t i = 0; i < wanted.size(); ++i) cutter.add(i, wanted[i], Box(wanted[i].shape));
    return schedule;
}

/// Readers 0 to readers - 1 take equal spans, cut between rows of the outermost dimension that has more than one index.
/// \pre as above
[[nodiscard]] inline ReadSchedule spans_read(std::span<WantedTensor const> wanted, int readers, Index window_bytes) {
    ReadSchedule schedule;
    Index total = 0;
    for (WantedTensor const& tensor : wanted) total += tensor.bytes();
    int reader = 0;
    Index before = 0;                   // bytes of the tensors before this one
    auto const end_of = [&](Index r) {  // of the span of reader r: total * (r + 1) / readers, which may not fit
        return total / readers * (r + 1) + total % readers * (r + 1) / readers;
    };
    WindowCutter cutter(schedule, 0, window_bytes);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        WantedTensor const& tensor = wanted[i];
        Index const bytes = tensor.bytes();
        if (bytes == 0) continue;
        Box rest(tensor.shape);
        int dim = 0;
        while (dim < rest.rank() && rest.extent(dim) == 1) ++dim;
        Index const row = dim < rest.rank() ? bytes / rest.extent(dim) : bytes;
        while (true) {
            Index const room = end_of(reader) - before;  // bytes of this tensor that lie in the span
            Index const rows = dim < rest.rank() ? room / row : room >= bytes ? 1 : 0;
            Interval const left = dim < rest.rank() ? rest[dim] : Interval{0, 1};
            // The nearest cut: a row belongs to the span that holds its first half.
            Index const last = reader + 1 == readers ? left.end : rows + (room - rows * row > row / 2 ? 1 : 0);
            if (last >= left.end) {
                cutter.add(i, tensor, rest);
                break;
            }
            if (last > left.begin) {
                Box part = rest;
                part.set(dim, {left.begin, last});
                cutter.add(i, tensor, part);
                rest.set(dim, {last, left.end});
            }
            cutter = WindowCutter(schedule, ++reader, window_bytes);
        }
        before += bytes;
    }
    sort_by_window(schedule);
    return schedule;
}

/// Files that are opened for reading, once per reader.
[[nodiscard]] inline Index opens(ReadSchedule const& schedule, std::span<WantedTensor const> wanted) {
    std::vector<std::pair<int, int>> pairs;
    for (Piece const& piece : schedule.pieces) pairs.emplace_back(piece.reader, wanted[piece.wanted].file);
    std::sort(pairs.begin(), pairs.end());
    return std::unique(pairs.begin(), pairs.end()) - pairs.begin();
}

}  // namespace reshard::inline v0::detail
