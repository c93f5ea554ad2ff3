// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/byte_line.hpp
/// \brief  Tensors, or boxes of them, one after the other as one line of bytes: cut into a share for each rank, and
///         shares into pieces of bounded size.
/// \depends checkpoint/catalogue, checkpoint/detail/element_range. No I/O; every rank computes the same line.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/element_range.hpp>

#include <algorithm>  // find_if, upper_bound
#include <vector>     // vector

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

/// What the extents of a tensor have of a box of it, of one copy or of all (-1): visit(place of an extent, its box,
/// what it has).
template <class Visit>
void for_each_part(Catalogue const& catalogue, std::size_t place, LineTensor const& tensor, int replica, Box const& of,
                   Visit&& visit) {
    catalogue.for_each_near(place, tensor.is_raw ? Box(catalogue.tensors()[place].shape) : of, [&](std::size_t i) {
        Extent const& extent = catalogue.extents()[i];
        if (replica >= 0 && extent.replica != replica) return;
        Box const box = tensor.box(extent.box);
        Box const part = intersect(of, box);
        if (!part.empty()) visit(i, box, part);
    });
}

/// A tensor on the line, or a copy of one.
struct LineItem {
    std::size_t tensor = 0;  ///< place in the list
    int replica = 0;         ///< of those that are written
    Index begin = 0;         ///< in bytes of the line
    Index elements = 0;      ///< more than 0
};

/// Elements [begin, end) of an item of the line, or of an extent of a catalogue, by its place in the list of these.
struct ElementRun {
    std::size_t of = 0;
    Index begin = 0;
    Index end = 0;
};

/// `Tensors` has a LineTensor at each place: a list of them, or what makes them when they are asked for.
template <class Tensors>
class ByteLineOf {
public:
    explicit ByteLineOf(Tensors tensors) : tensors_(std::move(tensors)) {
        items_.reserve(tensors_.size());
        for (std::size_t t = 0; t < tensors_.size(); ++t) add(t, 0);
    }
    /// The copies that are written: `to` has the tensors of `from`, by the same names, of the same shapes.
    ByteLineOf(Catalogue const& from, Catalogue const& to) {
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
    [[nodiscard]] decltype(auto) tensor(std::size_t number) const noexcept { return tensors_[number]; }
    [[nodiscard]] decltype(auto) tensor_of(LineItem const& item) const noexcept { return tensors_[item.tensor]; }
    /// In bytes of the line, where an element of an item begins.
    [[nodiscard]] Index position(std::size_t item, Index element) const noexcept {
        return items_[item].begin + element * tensor_of(items_[item]).to_bytes();
    }
    /// Of runs that follow each other on it. \pre there is one
    [[nodiscard]] Index bytes_of(std::span<ElementRun const> piece) const noexcept {
        return position(piece.back().of, piece.back().end) - position(piece.front().of, piece.front().begin);
    }

    /// Where share `rank` of `ranks` begins, in bytes; share `ranks` begins at the end. Shares differ by an element or
    /// two.
    [[nodiscard]] Index cut(Index rank, Index ranks) const noexcept {
        Index const wanted = share_begin(bytes_, rank, ranks);
        if (wanted == bytes_) return bytes_;
        std::size_t const item = item_at(wanted);
        return position(item, (wanted - items_[item].begin) / tensor_of(items_[item]).to_bytes());
    }

    /// The nearest place between two indices of the outermost dimension with several: what has the first half of such
    /// a row has all of it.
    [[nodiscard]] Index row_at(Index byte) const noexcept {
        if (byte == bytes_) return bytes_;
        LineItem const& item = items_[item_at(byte)];
        LineTensor const& tensor = tensor_of(item);
        Indices const inner = row_major_strides(tensor.shape);
        auto const row = std::ranges::find_if(inner, [&](Index elements) { return elements < item.elements; });
        Index const bytes = (row == inner.end() ? item.elements : *row) * tensor.to_bytes();
        return item.begin + (byte - item.begin + (bytes - 1) / 2) / bytes * bytes;
    }

    /// Calls f(vector of ElementRun) for pieces that follow each other from one cut to another: runs of one or more
    /// items, so many at most, of at most `most_bytes` together, as they are read and as they are written. A larger
    /// item is cut, between rows where that leaves at least half.
    template <class F>
    void for_each_piece(Index first, Index last, Index most_bytes, F&& f, std::size_t most_runs = 1024) const {
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
        LineTensor const& one = tensors_[tensor];
        Index const elements = one.shape.size();
        if (elements == 0) return;
        items_.push_back({tensor, replica, bytes_, elements});
        bytes_ += elements * one.to_bytes();
    }

    Tensors tensors_;
    std::vector<LineItem> items_;
    Index bytes_ = 0;
};
using ByteLine = ByteLineOf<std::vector<LineTensor>>;

}  // namespace reshard::inline v0_1::detail
