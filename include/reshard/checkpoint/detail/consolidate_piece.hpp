// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_piece.hpp
/// \brief  Which runs of which files a piece of all bytes that are to be written, or compared, is read from, and which
///         runs it is written to.
/// \depends checkpoint/catalogue, checkpoint/detail/{byte_line,file_box}. No I/O; every rank computes the same.
///
/// The line follows the tensors in the order of the files that are written, and each tensor in row-major order,
/// whatever boxes it is cut into on either side. A slab of a tensor is a box that is one index wide before some
/// dimension and whole behind it. What a slab has in common with a box of the tensor is one run of that box, packed:
/// so reads and writes are runs over all dimensions, on both sides, however tensors are cut.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/byte_line.hpp>
#include <reshard/checkpoint/detail/file_box.hpp>
#include <reshard/core/sorting.hpp>

namespace reshard::inline v0_1::detail {

struct PieceWork {
    std::vector<ReadBox> reads;  ///< into the buffer
    /// Out of it, of extents that are written, by file and place in it. In the buffer they lie one after the other,
    /// still of the type that is read.
    std::vector<ElementRun> writes;
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
    for_each_box_in(frame, begin, end, [&](Box const& slab) {
        for_each_part(from, place, tensor, replica, slab, [&](std::size_t i, Box const& source, Box const& part) {
            Extent const& extent = from.extents()[i];
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
        for (ElementRun const& run : piece) {
            LineItem const& item = line.items()[run.of];
            LineTensor const& tensor = line.tensor_of(item);
            // A run of each extent that a slab meets.
            auto const write = [&](std::size_t place, Box const& frame, Box const& part) {
                Index const begin = place_in(frame, part);
                work.writes.push_back({place, begin, begin + part.size()});
            };
            for_each_box(tensor.shape, run.begin, run.end, [&, this](Box const& slab) {
                for_each_part(to, item.tensor, tensor, item.replica, slab, write);
            });
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
