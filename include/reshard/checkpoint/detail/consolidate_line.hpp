// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_line.hpp
/// \brief  All bytes that are to be written, as one line: cut into a share for each rank, and shares into pieces.
/// \depends checkpoint/catalogue. No I/O; every rank computes the same line.
///
/// The line follows the tensors in the order of the files that are written, and each tensor in row-major order,
/// whatever boxes it is cut into on either side. A slab of a tensor is a box that is one index wide before some
/// dimension and whole behind it. What a slab has in common with a box of the tensor is one run of that box, packed:
/// so reads and writes are runs over all dimensions, on both sides, however tensors are cut.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>

#include <algorithm>  // lower_bound, upper_bound

namespace reshard::inline v0::detail {

/// A tensor as its bytes are moved: elements smaller than a byte are bytes here, in one dimension.
struct LineTensor {
    DynamicShape shape;
    DType from = DType::u8;
    DType to = DType::u8;

    [[nodiscard]] Index from_bytes() const noexcept { return bytes(from); }
    [[nodiscard]] Index to_bytes() const noexcept { return bytes(to); }
    [[nodiscard]] bool casts() const noexcept { return from != to; }
    /// A box of the tensor; those of elements smaller than a byte are whole.
    [[nodiscard]] Box box(Box const& of_tensor) const { return is_raw ? Box(shape) : of_tensor; }
    bool is_raw = false;
};
[[nodiscard]] inline LineTensor line_tensor(StoredTensor const& from, DType to) {
    if (is_byte_sized(from.dtype)) return {from.shape, from.dtype, to};
    return {DynamicShape(Indices{stored_bytes_of(from.dtype, Box(from.shape))}), DType::u8, DType::u8, true};
}

/// Elements behind one step of each dimension.
[[nodiscard]] inline Indices inner_sizes(DynamicShape const& shape) {
    Indices inner;
    for (int d = 0; d < shape.rank(); ++d) {
        Index size = 1;
        for (int e = d + 1; e < shape.rank(); ++e) size *= shape.extent(e);
        inner.push_back(size);
    }
    return inner;
}

/// The place of an element of a frame among those of the frame, packed row-major.
[[nodiscard]] inline Index place_in(Box const& frame, Box const& at) noexcept {
    Index place = 0;
    for (int d = 0; d < frame.rank(); ++d) place = place * frame.extent(d) + at.begin(d) - frame.begin(d);
    return place;
}

/// Whether `inner` is one run of the packed elements of `frame`: one index wide before some dimension, whole behind it.
[[nodiscard]] inline bool is_run(Box const& frame, Box const& inner) noexcept {
    int d = frame.rank();
    while (d > 0 && inner.extent(d - 1) == frame.extent(d - 1)) --d;
    for (--d; d > 0; --d)
        if (inner.extent(d - 1) != 1) return false;
    return true;
}

/// The largest place in (begin, end] that has the most slabs behind it whole, if that leaves at least half.
[[nodiscard]] inline Index row_before(Indices const& inner, Index begin, Index end) noexcept {
    for (Index const row : inner) {
        Index const at = end / row * row;
        if (at - begin >= (end - begin + 1) / 2) return at;
    }
    return end;
}

/// A copy of a tensor on the line.
struct LineItem {
    std::size_t tensor = 0;
    int replica = 0;      ///< of those that are written
    Index begin = 0;      ///< in bytes of the line
    Index elements = 0;   ///< more than 0
    Index file_page = 0;  ///< where its first byte lies in its file, modulo a page; -1: in several places
};

/// A place on the line. \post 0 <= element < elements of the item, or (number of items, 0)
struct LinePoint {
    std::size_t item = 0;
    Index element = 0;
    friend bool operator==(LinePoint const&, LinePoint const&) = default;
};

/// Elements [begin, end) of an item.
struct LineRun {
    std::size_t item = 0;
    Index begin = 0;
    Index end = 0;
    friend bool operator==(LineRun const&, LineRun const&) = default;
};

class OutputLine {
public:
    static constexpr Index page_bytes = 4096;

    /// `to` has the tensors of `from`, by the same names, of the same shapes. `starts`: bytes in front of the data of
    /// each file that is written.
    OutputLine(Catalogue const& from, Catalogue const& to, std::span<Index const> starts) {
        for (std::size_t t = 0; t < to.tensors().size(); ++t) {
            tensors_.push_back(line_tensor(from.tensors()[t], to.tensors()[t].dtype));
        }
        std::vector<std::vector<char>> seen(to.tensors().size());
        for (Extent const& extent : to.extents()) {
            auto const t = extent.tensor;
            auto const replica = static_cast<std::size_t>(extent.replica);
            Index const elements = tensors_[t].shape.size();
            if (seen[t].size() <= replica) seen[t].resize(replica + 1, 0);
            if (elements == 0 || seen[t][replica] != 0) continue;
            seen[t][replica] = 1;
            bool const whole = extent.box == Box(to.tensors()[t].shape);
            Index const page = (starts[static_cast<std::size_t>(extent.file)] + extent.begin) % page_bytes;
            items_.push_back({t, extent.replica, bytes_, elements, whole ? page : -1});
            bytes_ += elements * tensors_[t].to_bytes();
        }
    }

    [[nodiscard]] Index bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::span<LineItem const> items() const noexcept { return items_; }
    [[nodiscard]] LineTensor const& tensor_of(LineItem const& item) const noexcept { return tensors_[item.tensor]; }
    [[nodiscard]] Index position(LinePoint point) const noexcept {
        if (point.item == items_.size()) return bytes_;
        LineItem const& item = items_[point.item];
        return item.begin + point.element * tensor_of(item).to_bytes();
    }

    /// Where share `rank` of `ranks` begins; share `ranks` begins at the end. Shares differ by at most 1 % of one, or
    /// by an element: a cut is moved by half a percent of a share to the next end of a tensor, of a row, of a page.
    [[nodiscard]] LinePoint cut(Index rank, Index ranks) const {
        if (rank <= 0) return {};
        if (rank >= ranks || bytes_ == 0) return {items_.size(), 0};
        Index const share = bytes_ / ranks;
        Index const wanted = share * rank + bytes_ % ranks * rank / ranks;
        return near(wanted, share / 200);
    }

    /// Calls f(span of LineRun) for pieces that follow each other from `first` to `last`: runs of one or more items,
    /// of at most `most_bytes` each, as they are read and as they are written.
    template <class F>
    void for_each_piece(LinePoint first, LinePoint last, Index most_bytes, F&& f) const {
        static constexpr std::size_t most_runs = 1024;
        std::vector<LineRun> piece;
        Index filled = 0;
        auto const flush = [&] {
            if (!piece.empty()) f(std::span<LineRun const>(piece));
            piece.clear();
            filled = 0;
        };
        for (std::size_t i = first.item; i < items_.size() && i <= last.item; ++i) {
            LineTensor const& tensor = tensor_of(items_[i]);
            Index begin = i == first.item ? first.element : 0;
            Index const end = i == last.item ? last.element : items_[i].elements;
            if (begin >= end) continue;
            Index const width = larger(tensor.from_bytes(), tensor.to_bytes());
            Index const most = larger<Index>(most_bytes / width, 1);
            bool const fits = (end - begin) * width <= most_bytes - filled;
            if (!fits || piece.size() == most_runs) flush();
            Indices const inner = inner_sizes(tensor.shape);
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
    [[nodiscard]] LinePoint near(Index wanted, Index tolerance) const {
        auto const after = std::upper_bound(items_.begin(), items_.end(), wanted,
                                            [](Index at, LineItem const& item) { return at < item.begin; });
        auto const place = static_cast<std::size_t>(after - items_.begin()) - 1;
        LineItem const& item = items_[place];
        LineTensor const& tensor = tensor_of(item);
        Index const width = tensor.to_bytes();
        Index const offset = wanted - item.begin;
        Index const last = item.elements * width;
        if (offset <= tolerance) return {place, 0};
        if (last - offset <= tolerance) return {place + 1, 0};
        for (Index const inner : inner_sizes(tensor.shape)) {
            Index const row = inner * width;
            Index const at = (offset + row / 2) / row * row;
            if (at - offset <= tolerance && offset - at <= tolerance)
                return at < last ? at_byte(place, at) : LinePoint{place + 1, 0};
        }
        if (item.file_page >= 0) {
            Index const at = offset - (item.file_page + offset) % page_bytes;
            if (offset - at <= tolerance && at > 0 && at % width == 0) return at_byte(place, at);
        }
        return at_byte(place, offset / width * width);
    }
    [[nodiscard]] LinePoint at_byte(std::size_t place, Index at) const noexcept {
        return {place, at / tensor_of(items_[place]).to_bytes()};
    }

    std::vector<LineTensor> tensors_;
    std::vector<LineItem> items_;
    Index bytes_ = 0;
};

}  // namespace reshard::inline v0::detail
