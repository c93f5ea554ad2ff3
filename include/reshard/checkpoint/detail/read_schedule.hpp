// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/read_schedule.hpp
/// \brief  Which rank reads which bytes when: every rank computes the same schedule, from the catalogue alone. And what
///         a rank needs of a box that somebody reads, in closed form, and where it lies in the box.
/// \depends checkpoint/catalogue, algebra, core/transfer, exec/local_tensor, plan/message. No I/O, no communication.
///
/// Readers take contiguous spans of the wanted bytes in (file, offset) order, so that files are opened at most
/// (files + readers - 1) times and nobody reads more than its share plus one row. A reader goes through its span in
/// windows that fit its staging memory: pieces, each one box of one tensor and one run of its file.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/algebra/distribution.hpp>
#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/byte_line.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/core/tensor_view.hpp>
#include <reshard/core/transfer.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/plan/message.hpp>

#include <algorithm>  // unique
#include <span>
#include <vector>

namespace reshard::inline v0_1::detail {

/// The outermost dimension with more than one index; the rank of the box where there is none.
[[nodiscard]] inline int row_dim(Box const& box) noexcept {
    int dim = 0;
    while (dim < box.rank() && box.extent(dim) == 1) ++dim;
    return dim;
}

/// An extent of a tensor that is wanted, as it is stored: elements smaller than a byte are bytes. Who else wants some
/// of the same rows follows in the list.
struct WantedExtent {
    static constexpr std::size_t nobody = SIZE_MAX;
    std::size_t target = 0;  ///< the tensor's place in the caller's list; nobody: it is read to be compared
    std::size_t extent = 0;  ///< its place in the catalogue
    int file = 0;
    Index begin = 0;  ///< first byte, in the file's data section
    DType dtype = DType::u8;
    Box box;                      ///< of the tensor; packed and row-major in one run of the file
    int replica = 0;              ///< of which copy it is ...
    int replicas = 1;             ///< ... of so many, from which ranks choose; 1: all who need the box read it
    unsigned replica_axes = 0;    ///< ... by their place along these axes of the mesh: a bit each
    Interval rows{0, INT64_MAX};  ///< indices along row_dim() that are read: none where it is read for one before it

    /// What is read of it: one run of the file.
    [[nodiscard]] Box read() const noexcept {
        Box part = box;
        int const dim = row_dim(box);
        if (dim < box.rank()) part.set(dim, intersect(box[dim], rows));
        return part;
    }
    [[nodiscard]] Index bytes() const noexcept { return rows.empty() ? 0 : read().size() * enums::bytes(dtype); }
    /// Whether this copy is that of a rank of the mesh.
    [[nodiscard]] bool is_for(DynamicMesh const& mesh, Index rank) const {
        return replicas == 1 || AxisSubset(mesh, replica_axes).index(mesh.ordinal(rank)) % replicas == replica;
    }
    /// Whether it is that of any rank of the mesh: ranks that differ along other axes read the same.
    [[nodiscard]] bool is_for_any(DynamicMesh const& mesh) const {
        return replicas == 1 || replica < AxisSubset(mesh, replica_axes).size();
    }
};

/// All extents of a checkpoint, as bytes that are read for their own sake.
[[nodiscard]] inline std::vector<WantedExtent> all_extents(Catalogue const& catalogue) {
    std::vector<WantedExtent> wanted;
    wanted.reserve(catalogue.extents().size());
    for (std::size_t i = 0; i < catalogue.extents().size(); ++i) {
        Extent const& extent = catalogue.extents()[i];
        Box const run(Shape{catalogue.extent_bytes(extent)});
        wanted.push_back({0, i, extent.file, extent.begin, DType::u8, run});
    }
    return wanted;
}

/// What a reader reads at once of one extent.
struct Piece {
    std::size_t wanted = 0;  ///< place in the list of wanted extents, of the first that wants it
    int reader = 0;
    Index window = 0;
    Index place = 0;  ///< first byte in the reader's staging memory
    Index begin = 0;  ///< first byte in the file's data section
    Index bytes = 0;
    Box box;
};

/// visit(extent) for all that a piece is read for, where somebody wants it.
template <class Visit>
void for_each_wanting(std::span<WantedExtent const> wanted, Piece const& piece, Visit&& visit) {
    std::size_t i = piece.wanted;
    if (wanted[i].target == WantedExtent::nobody) return;
    do {
        visit(wanted[i++]);
    } while (i < wanted.size() && wanted[i].rows.empty() && wanted[i].extent == wanted[piece.wanted].extent);
}

struct ReadSchedule {
    std::vector<Piece> pieces;  ///< by window, then by reader, then by place
    Index windows = 0;
    Index staging_bytes = 0;  ///< of the reader that needs most
};

/// Pieces that share a window: so many that messages and agreements cost little beside them, and so few that the lists
/// of their transfers, some 500 bytes for each rank, stay small and in the cache.
inline constexpr std::size_t most_window_pieces = 512;

/// In the order in which they are read. \pre each reader's pieces are in their order.
inline void sort_by_window(ReadSchedule& schedule) {
    sort_list(schedule.pieces, [](Piece const& a, Piece const& b) {
        return a.window != b.window ? a.window < b.window : a.reader < b.reader;
    });
}

/// Where the bytes of `wanted`, one after the other, are cut into spans: byte 0, the first byte of reader 1, and so on
/// up to their number. Equal spans, but that a file which ends within a 50th of a span of a cut ends there: then nobody
/// opens it for a few rows. No span is longer than 1.04 of the mean and a row.
/// \pre `wanted` is sorted by (file, begin)
[[nodiscard]] inline std::vector<Index> span_cuts(std::span<WantedExtent const> wanted, int readers) {
    std::vector<Index> file_ends;
    Index total = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        total += wanted[i].bytes();
        if (i + 1 == wanted.size() || wanted[i + 1].file != wanted[i].file) file_ends.push_back(total);
    }
    std::vector<Index> cuts;
    for (Index r = 0; r <= readers; ++r) cuts.push_back(share_begin(total, r, readers));
    Index const near = total / readers / 50;
    auto end = file_ends.begin();
    for (int r = 1; r < readers; ++r) {
        Index& cut = cuts[as_size(r)];
        while (end != file_ends.end() && *end < cut) ++end;
        Index const after = end == file_ends.end() ? total : *end;
        Index const before = end == file_ends.begin() ? 0 : *(end - 1);
        Index const nearest = after - cut < cut - before ? after : before;
        if (cut - nearest <= near && nearest - cut <= near) cut = nearest;
    }
    return cuts;
}

/// What is read of extents, as tensors on a line: of millions no second list is made.
struct WantedTensors {
    std::span<WantedExtent const> wanted;
    [[nodiscard]] std::size_t size() const noexcept { return wanted.size(); }
    [[nodiscard]] LineTensor operator[](std::size_t i) const noexcept {
        WantedExtent const& one = wanted[i];
        return {one.rows.empty() ? DynamicShape(Shape{0}) : one.read().shape(), one.dtype, one.dtype};
    }
};

/// So many readers, from rank `first` on, take the spans, cut between rows of the outermost dimension of an extent that
/// has more than one index, in windows of so many bytes. 0 bytes: a window per extent. \pre as above
[[nodiscard]] inline ReadSchedule spans_read(std::span<WantedExtent const> wanted, int readers, Index window_bytes,
                                             int first = 0) {
    ByteLineOf const line(WantedTensors{wanted});
    std::vector<Index> const cuts = span_cuts(wanted, readers);
    Index const most_bytes = window_bytes == 0 ? INT64_MAX : window_bytes;
    std::size_t const most_runs = window_bytes == 0 ? 1 : most_window_pieces;
    ReadSchedule schedule;
    Index begin = 0;
    for (int r = 0; r < readers; ++r) {
        Index window = 0;
        auto const add = [&](std::vector<ElementRun> const& runs) {
            Index used = 0;
            for (ElementRun const& run : runs) {
                std::size_t const number = line.items()[run.of].tensor;
                WantedExtent const& one = wanted[number];
                for_each_box_in(one.read(), run.begin, run.end, [&](Box const& box) {
                    Index const width = enums::bytes(one.dtype);
                    Index const at = one.begin + place_in(one.box, box) * width;
                    schedule.pieces.push_back({number, first + r, window, used, at, box.size() * width, box});
                    used += box.size() * width;
                });
            }
            schedule.staging_bytes = larger(schedule.staging_bytes, used);
            schedule.windows = larger(schedule.windows, ++window);
        };
        Index const end = line.row_at(cuts[as_size(r) + 1]);
        line.for_each_piece(std::exchange(begin, end), end, most_bytes, add, most_runs);
    }
    sort_by_window(schedule);
    return schedule;
}

/// Files that are opened for reading, once per reader.
[[nodiscard]] inline Index opens(ReadSchedule const& schedule, std::span<WantedExtent const> wanted) {
    std::vector<std::pair<int, int>> pairs;
    for (Piece const& piece : schedule.pieces) pairs.emplace_back(piece.reader, wanted[piece.wanted].file);
    sort_list(pairs);
    return std::unique(pairs.begin(), pairs.end()) - pairs.begin();
}

/// A message as a strided box of memory, or of a file.
struct MessagePart {
    Index offset = 0;  ///< bytes from the first element of what it is a part of
    StridedBox box;
};

/// What ranks need of boxes, one after the other: one message, as it nearly always is, or several, the same in the same
/// order for whoever asks. Keeps the memory that this takes.
class Needs {
public:
    /// What a rank of the mesh needs of a box, which may reach beyond the tensor; false when that is nothing.
    bool find(Box const& box, DynamicDistribution const& to, Index rank) {
        coordinates_ = to.mesh().coordinates(rank);
        dense_ = box;
        if (!partial_part(to, coordinates_).has_values) return false;
        messages_.assign(1, {});
        for (int dim = 0; dim < to.shape().rank(); ++dim) {
            Interval part = intersect(box[dim], {0, to.shape().extent(dim)});
            if (!to.cuts(dim).empty()) {
                IndexSet const set = to.index_set(coordinates_, dim);
                if (!set.is_interval()) return find_messages(intersect(box, Box(to.shape())), to);
                part = intersect(part, set.span());
            }
            if (part.empty()) return false;
            messages_.front().box.push_back(part);
        }
        return true;
    }
    /// Of what was found.
    [[nodiscard]] Index elements() const noexcept {
        Index sum = 0;
        for (Message const& message : messages_) sum += message.elements();
        return sum;
    }
    /// visit(MessagePart) for each part of what was found: where it lies in the box, packed row-major.
    template <class Visit>
    void for_each_in(DType dtype, Visit&& visit) const {
        Binding const packed = in_box(dtype);
        for (Message const& message : messages_) visit(part_of(packed, message));
    }
    /// The same, in the same order, for the rank itself: where each part lies in its local tensor.
    template <class Visit>
    void for_each_in(LocalTensor const& local, Visit&& visit) const {
        Binding const own = in_memory(local);
        for (Message const& message : messages_) visit(part_of(own, message));
    }
    /// visit(where it lies in the box, where in the local tensor) for each part.
    template <class Visit>
    void for_each(LocalTensor const& local, Visit&& visit) const {
        Binding const packed = in_box(local.view.dtype());
        Binding const own = in_memory(local);
        for (Message const& message : messages_) visit(part_of(packed, message), part_of(own, message));
    }

private:
    [[nodiscard]] static IndexSets sets_of(Box const& box) {
        IndexSets sets;
        for (int dim = 0; dim < box.rank(); ++dim) sets.push_back(IndexSet(box[dim]));
        return sets;
    }
    [[nodiscard]] Binding in_box(DType dtype) const {
        return {dtype, row_major_strides(dense_.shape()), sets_of(dense_)};
    }
    [[nodiscard]] Binding in_memory(LocalTensor const& local) const {
        return {local.view.dtype(), local.view.strides(), index_sets(local.distribution, coordinates_)};
    }
    [[nodiscard]] static MessagePart part_of(Binding const& binding, Message const& message) {
        MessagePart part;
        part.offset = binding.place(message, part.box);
        return part;
    }
    bool find_messages(Box const& box, DynamicDistribution const& to) {
        messages_.clear();
        IndexSets const sets = index_sets(to, coordinates_);
        IndexSets const asked = sets_of(box);
        for_each_common(asked, sets, forms_of(asked, sets),
                        [&](Message const& message) { messages_.push_back(message); });
        return !messages_.empty();
    }

    Indices coordinates_;
    Box dense_;
    std::vector<Message> messages_;
};

}  // namespace reshard::inline v0_1::detail
