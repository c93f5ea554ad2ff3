// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_piece.hpp
/// \brief  A piece of the output: which runs of which files it is read from, and which runs it is written to.
/// \depends checkpoint/detail/{consolidate_line,file_box}. No I/O.
#pragma once

#include <reshard/checkpoint/detail/consolidate_line.hpp>
#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/checkpoint/detail/file_box.hpp>
#include <reshard/core/sorting.hpp>

namespace reshard::inline v0::detail {

/// Elements [begin, end) of an extent that is written, packed in memory first, still of the type that is read.
struct PieceWrite {
    std::size_t extent = 0;  ///< place in the catalogue that is written
    Index begin = 0;
    Index end = 0;
    Index at = 0;  ///< bytes from the start of the buffer
};

/// A run that lies in one run of a file that is read, byte for byte: no buffer has to hold all of it.
struct PieceCopy {
    std::size_t from = 0;  ///< the extent that is read
    Index from_begin = 0;  ///< bytes from its first
    std::size_t to = 0;    ///< the extent that is written
    Index to_begin = 0;
    Index bytes = 0;
};

struct PieceWork {
    std::vector<PieceCopy> copies;
    std::vector<ReadBox> reads;      ///< into the buffer
    std::vector<PieceWrite> writes;  ///< out of it, by file and place in it
    Index buffer_bytes = 0;
    Index bytes_read = 0;     ///< that are needed, copies among them
    Index bytes_written = 0;  ///< copies among them

    void clear() {
        copies.clear();
        reads.clear();
        writes.clear();
        buffer_bytes = bytes_read = bytes_written = 0;
    }
};

/// `inner` among the packed elements of `frame`.
[[nodiscard]] inline StridedBox strided_in(Box const& frame, Box const& inner, Index width) noexcept {
    StridedBox result;
    result.element_bytes = width;
    for (int d = 0; d < frame.rank(); ++d) result.dims.push_back({inner.extent(d), 0});
    Index stride = width;
    for (int d = frame.rank() - 1; d >= 0; --d) {
        result.dims[d].stride = stride;
        stride *= frame.extent(d);
    }
    return result;
}

/// Appends reads of elements [begin, end) of `frame`, a box of a tensor, in row-major order, to `to`, packed: what the
/// boxes of copy `replica` have of them.
inline void append_reads(std::vector<ReadBox>& reads, Catalogue const& from, std::size_t place,
                         LineTensor const& tensor, int replica, Box const& frame, Index begin, Index end,
                         std::byte* to) {
    Index const width = tensor.from_bytes();
    for_each_box(frame.shape(), begin, end, [&](Box slab) {
        for (int d = 0; d < slab.rank(); ++d)
            slab.set(d, {slab.begin(d) + frame.begin(d), slab.end(d) + frame.begin(d)});
        for (std::size_t const i : from.extents_of(place)) {
            Extent const& extent = from.extents()[i];
            if (extent.replica != replica) continue;
            Box const source = tensor.box(extent.box);
            Box const part = intersect(slab, source);
            if (part.empty()) continue;
            reads.push_back({extent.file, extent.begin + place_in(source, part) * width,
                             strided_in(source, part, width), to + (place_in(frame, part) - begin) * width,
                             strided_in(frame, part, width)});
        }
    });
}

/// Finds reads and writes of pieces. \pre the catalogues and the line outlive it
class PieceMaker {
public:
    /// From here a run that is the same in both files is copied by itself.
    static constexpr Index copy_bytes = Index{64} << 10;

    PieceMaker(Catalogue const& from, Catalogue const& to, OutputLine const& line, int replica)
        : from_(&from), to_(&to), line_(&line), replica_(replica) {}

    /// `buffer` takes the runs that are put together; it may be null when nothing will be read. It has room for the
    /// bytes that a piece reads.
    void make(std::span<LineRun const> piece, std::byte* buffer, PieceWork& work) const {
        work.clear();
        for (LineRun const& run : piece) {
            LineItem const& item = line_->items()[run.item];
            LineTensor const& tensor = line_->tensor_of(item);
            for_each_box(tensor.shape, run.begin, run.end,
                         [&, this](Box const& slab) { add(item, tensor, slab, work); });
        }
        place(work);
        for (PieceWrite const& write : work.writes) fill(write, buffer, work);
    }

private:
    /// Which copy is read for a copy that is written: those that are asked for go round.
    [[nodiscard]] int read_from(std::size_t tensor, int written) const noexcept {
        return (replica_ < 0 ? written : replica_) % larger(from_->tensors()[tensor].replicas, 1);
    }

    /// What a slab writes: a run of each extent that it meets.
    void add(LineItem const& item, LineTensor const& tensor, Box const& slab, PieceWork& work) const {
        for (std::size_t const place : to_->extents_of(item.tensor)) {
            Extent const& extent = to_->extents()[place];
            if (extent.replica != item.replica) continue;
            Box const frame = tensor.box(extent.box);
            Box const part = intersect(slab, frame);
            if (part.empty()) continue;
            Index const begin = place_in(frame, part);
            Index const elements = part.size();
            work.bytes_read += elements * tensor.from_bytes();
            work.bytes_written += elements * tensor.to_bytes();
            if (!copies(item, tensor, place, part, begin, work))
                work.writes.push_back({place, begin, begin + elements, 0});
        }
    }
    /// Whether one extent has all of it, as one run like here, and it is long.
    bool copies(LineItem const& item, LineTensor const& tensor, std::size_t to, Box const& part, Index begin,
                PieceWork& work) const {
        Index const width = tensor.from_bytes();
        if (tensor.casts() || part.size() * width < copy_bytes) return false;
        int const replica = read_from(item.tensor, item.replica);
        for (std::size_t const place : from_->extents_of(item.tensor)) {
            Extent const& extent = from_->extents()[place];
            Box const frame = tensor.box(extent.box);
            if (extent.replica != replica || frame.empty() || !contains(frame, part)) continue;
            if (!is_run(frame, part)) return false;
            work.copies.push_back({place, place_in(frame, part) * width, to, begin * width, part.size() * width});
            return true;
        }
        return false;
    }

    /// Packs what is written in the order of the files; runs that touch become one.
    void place(PieceWork& work) const {
        sort_list(work.writes, [&](PieceWrite const& a, PieceWrite const& b) {
            return a.extent != b.extent ? a.extent < b.extent : a.begin < b.begin;  // extents are in file order
        });
        std::size_t kept = 0;
        for (std::size_t i = 0; i < work.writes.size(); ++i) {
            PieceWrite& write = work.writes[i];
            PieceWrite* const before = kept == 0 ? nullptr : &work.writes[kept - 1];
            if (before != nullptr && before->extent == write.extent && before->end == write.begin) {
                before->end = write.end;
            } else {
                work.writes[kept++] = write;
            }
        }
        work.writes.resize(kept);
        for (PieceWrite& write : work.writes) {
            write.at = work.buffer_bytes;
            work.buffer_bytes += (write.end - write.begin) * width_of(write);
        }
    }
    [[nodiscard]] Index width_of(PieceWrite const& write) const noexcept {
        StoredTensor const& from = from_->tensors()[to_->extents()[write.extent].tensor];
        return is_byte_sized(from.dtype) ? bytes(from.dtype) : 1;
    }

    /// Where a run is read from: what the boxes of the copy that is read have of it.
    void fill(PieceWrite const& write, std::byte* buffer, PieceWork& work) const {
        Extent const& to = to_->extents()[write.extent];
        StoredTensor const& stored = from_->tensors()[to.tensor];
        LineTensor const tensor = line_tensor(stored, to_->tensors()[to.tensor].dtype);
        append_reads(work.reads, *from_, to.tensor, tensor, read_from(to.tensor, to.replica), tensor.box(to.box),
                     write.begin, write.end, buffer + write.at);
    }

    Catalogue const* from_;
    Catalogue const* to_;
    OutputLine const* line_;
    int replica_;
};

}  // namespace reshard::inline v0::detail
