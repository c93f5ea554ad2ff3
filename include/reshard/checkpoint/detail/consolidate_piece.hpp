// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_piece.hpp
/// \brief  All bytes that are to be written, or compared, as one line: cut into a share for each rank, and shares into
///         pieces; which runs of which files a piece is read from, and which runs it is written to.
/// \depends checkpoint/catalogue, checkpoint/detail/{element_range,file_box}. No I/O; every rank computes the same
/// line.
///
/// The line follows the tensors in the order of the files that are written, and each tensor in row-major order,
/// whatever boxes it is cut into on either side. A slab of a tensor is a box that is one index wide before some
/// dimension and whole behind it. What a slab has in common with a box of the tensor is one run of that box, packed:
/// so reads and writes are runs over all dimensions, on both sides, however tensors are cut.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/checkpoint/detail/file_box.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // upper_bound

namespace reshard::inline v0_1::detail {

/// The largest place in (begin, end] that has the most slabs behind it whole, if that leaves at least half. `inner`:
/// elements behind one step of each dimension.
[[nodiscard]] inline Index row_before(Indices const& inner, Index begin, Index end) noexcept {
    for (Index const row : inner) {
        Index const at = end / row * row;
        if (at - begin >= (end - begin + 1) / 2) return at;
    }
    return end;
}

/// A tensor on the line, or a copy of one.
struct LineItem {
    std::size_t tensor = 0;
    int replica = 0;     ///< of those that are written
    Index begin = 0;     ///< in bytes of the line
    Index elements = 0;  ///< more than 0
};

/// Elements [begin, end) of an item of the line, or of an extent of a catalogue, by its place in the list of these.
struct ElementRun {
    std::size_t of = 0;
    Index begin = 0;
    Index end = 0;
};

class ByteLine {
public:
    explicit ByteLine(std::vector<LineTensor> tensors) : tensors_(std::move(tensors)) {
        for (std::size_t t = 0; t < tensors_.size(); ++t) add(t, 0);
    }
    /// The copies that are written: `to` has the tensors of `from`, by the same names, of the same shapes.
    ByteLine(Catalogue const& from, Catalogue const& to) {
        for (std::size_t t = 0; t < to.tensors().size(); ++t) {
            tensors_.push_back(line_tensor(from.tensors()[t], to.tensors()[t].dtype));
        }
        std::vector<std::vector<char>> seen(to.tensors().size());
        for (Extent const& extent : to.extents()) {
            auto const t = extent.tensor;
            auto const replica = as_size(extent.replica);
            if (seen[t].size() <= replica) seen[t].resize(replica + 1, 0);
            if (std::exchange(seen[t][replica], 1) == 0) add(t, extent.replica);
        }
    }

    [[nodiscard]] Index bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::span<LineItem const> items() const noexcept { return items_; }
    [[nodiscard]] LineTensor const& tensor(std::size_t number) const noexcept { return tensors_[number]; }
    [[nodiscard]] LineTensor const& tensor_of(LineItem const& item) const noexcept { return tensors_[item.tensor]; }
    /// In bytes of the line, where an element of an item begins.
    [[nodiscard]] Index position(std::size_t item, Index element) const noexcept {
        return items_[item].begin + element * tensor_of(items_[item]).to_bytes();
    }

    /// Where share `rank` of `ranks` begins, in bytes; share `ranks` begins at the end. Shares differ by an element or
    /// two.
    [[nodiscard]] Index cut(Index rank, Index ranks) const noexcept {
        Index const wanted = share_begin(bytes_, rank, ranks);
        if (wanted == bytes_) return bytes_;
        std::size_t const item = item_at(wanted);
        return position(item, (wanted - items_[item].begin) / tensor_of(items_[item]).to_bytes());
    }

    /// Calls f(vector of ElementRun) for pieces that follow each other from one cut to another: runs of one or more
    /// items, of at most `most_bytes` each, as they are read and as they are written.
    template <class F>
    void for_each_piece(Index first, Index last, Index most_bytes, F&& f) const {
        static constexpr std::size_t most_runs = 1024;
        std::vector<ElementRun> piece;
        Index filled = 0;
        auto const flush = [&] {
            if (!piece.empty()) f(std::exchange(piece, {}));
            filled = 0;
        };
        for (std::size_t i = item_at(first); i < items_.size() && items_[i].begin < last; ++i) {
            LineTensor const& tensor = tensor_of(items_[i]);
            Index begin = larger<Index>(first - items_[i].begin, 0) / tensor.to_bytes();
            Index const end = smaller((last - items_[i].begin) / tensor.to_bytes(), items_[i].elements);
            if (begin >= end) continue;
            Index const width = larger(tensor.from_bytes(), tensor.to_bytes());
            // ("No limit" is one, too.)
            Index const most = smaller(larger<Index>(most_bytes / width, 1), INT64_MAX - end);
            bool const fits = (end - begin) * width <= most_bytes - filled;
            if (!fits || piece.size() == most_runs) flush();
            Indices const inner = row_major_strides(tensor.shape);
            while (end - begin > most) {
                Index const cut = row_before(inner, begin, begin + most);
                piece.push_back({i, begin, cut});
                flush();
                begin = cut;
            }
            piece.push_back({i, begin, end});
            filled += (end - begin) * width;
        }
        flush();
    }

private:
    /// The item that has a byte of the line. \pre it is not empty
    [[nodiscard]] std::size_t item_at(Index byte) const noexcept {
        auto const after = std::ranges::upper_bound(items_, byte, {}, &LineItem::begin);
        return as_size(larger<Index>(after - items_.begin(), 1) - 1);
    }
    void add(std::size_t tensor, int replica) {
        Index const elements = tensors_[tensor].shape.size();
        if (elements == 0) return;
        items_.push_back({tensor, replica, bytes_, elements});
        bytes_ += elements * tensors_[tensor].to_bytes();
    }

    std::vector<LineTensor> tensors_;
    std::vector<LineItem> items_;
    Index bytes_ = 0;
};

struct PieceWork {
    std::vector<ReadBox> reads;  ///< into the buffer
    /// Out of it, of extents that are written, by file and place in it. In the buffer they lie one after the other,
    /// still of the type that is read.
    std::vector<ElementRun> writes;
    Index bytes_written = 0;
};

/// `inner` among the packed elements of `frame`.
[[nodiscard]] inline StridedBox strided_in(Box const& frame, Box const& inner, Index width) noexcept {
    Indices const strides = row_major_strides(frame.shape());
    StridedBox result;
    result.element_bytes = width;
    for (int d = 0; d < frame.rank(); ++d) result.dims.push_back({inner.extent(d), strides[d] * width});
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
        Box const wanted = tensor.is_raw ? Box(from.tensors()[place].shape) : slab;
        from.for_each_near(place, wanted, [&](std::size_t i) {
            Extent const& extent = from.extents()[i];
            if (extent.replica != replica) return;
            Box const source = tensor.box(extent.box);
            Box const part = intersect(slab, source);
            if (part.empty()) return;
            reads.push_back({extent.file, extent.begin + place_in(source, part) * width,
                             strided_in(source, part, width), to + (place_in(frame, part) - begin) * width,
                             strided_in(frame, part, width)});
        });
    });
}

/// Finds reads and writes of pieces. \pre the catalogues outlive it
struct PieceMaker {
    Catalogue const& from;
    Catalogue const& to;
    int replica = -1;  ///< the copy that is read, as in RewriteOptions
    ByteLine line{from, to};

    [[nodiscard]] LineTensor const& tensor_of(ElementRun const& write) const noexcept {
        return line.tensor(to.extents()[write.of].tensor);
    }
    /// `buffer` takes the runs that are put together; it may be null when nothing will be read. It has room for the
    /// bytes that a piece reads.
    void make(std::span<ElementRun const> piece, std::byte* buffer, PieceWork& work) const {
        work.reads.clear();
        work.writes.clear();
        work.bytes_written = 0;
        for (ElementRun const& run : piece) {
            LineItem const& item = line.items()[run.of];
            LineTensor const& tensor = line.tensor_of(item);
            for_each_box(tensor.shape, run.begin, run.end,
                         [&, this](Box const& slab) { add(item, tensor, slab, work); });
        }
        join(work.writes);
        for (ElementRun const& write : work.writes) {  // what the boxes of the copy that is read have of it
            Extent const& extent = to.extents()[write.of];
            LineTensor const& tensor = tensor_of(write);
            // Copies that are asked for go round.
            int const copy =
                (replica < 0 ? extent.replica : replica) % larger(from.tensors()[extent.tensor].replicas, 1);
            append_reads(work.reads, from, extent.tensor, tensor, copy, tensor.box(extent.box), write.begin, write.end,
                         buffer);
            buffer += (write.end - write.begin) * tensor.from_bytes();
        }
    }

private:
    /// What a slab writes: a run of each extent that it meets.
    void add(LineItem const& item, LineTensor const& tensor, Box const& slab, PieceWork& work) const {
        Box const wanted = tensor.is_raw ? Box(to.tensors()[item.tensor].shape) : slab;
        to.for_each_near(item.tensor, wanted, [&, this](std::size_t place) {
            Extent const& extent = to.extents()[place];
            if (extent.replica != item.replica) return;
            Box const frame = tensor.box(extent.box);
            Box const part = intersect(slab, frame);
            if (part.empty()) return;
            Index const begin = place_in(frame, part);
            Index const elements = part.size();
            work.bytes_written += elements * tensor.to_bytes();
            work.writes.push_back({place, begin, begin + elements});
        });
    }
    /// In the order of the files, as extents are; runs that touch become one.
    static void join(std::vector<ElementRun>& writes) {
        sort_list(writes, [](ElementRun const& a, ElementRun const& b) {
            return a.of != b.of ? a.of < b.of : a.begin < b.begin;
        });
        std::size_t kept = 0;
        for (ElementRun const& write : writes) {
            bool const goes_on = kept != 0 && writes[kept - 1].of == write.of && writes[kept - 1].end == write.begin;
            if (goes_on) {
                writes[kept - 1].end = write.end;
            } else {
                writes[kept++] = write;
            }
        }
        writes.resize(kept);
    }
};

}  // namespace reshard::inline v0_1::detail
