// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/columns.hpp
/// \brief  The columns of entries that a device partition moves: words, elements of any width, or iterators.
/// \depends core, cuda/detail/block.hpp. Compiles without CUDA.
///
/// A set of columns is passed to kernels by value. It has `count()`, `width(c)` in bytes, and `for_each(f)`, which
/// calls f(c, offset, last, load) for every piece of every column: load(entry) is the piece of an entry that lies
/// `offset` bytes into its element, and `last` is true for the last piece of a column.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/cuda/detail/block.hpp>

#include <iterator>  // iterator_traits

namespace reshard::inline v0_1 {

/// At most this many columns in one partition: they are arguments of kernels.
inline constexpr int max_device_columns = 16;

/// Bytes of a column of `rows` entries in a packed block, as mch/packed.hpp describes it: words are dense, other widths
/// are padded to 16 bytes. \pre they fit 64 bits.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Index device_column_bytes(Index rows, Index width) noexcept {
    return width == 8 ? rows * 8 : (rows * width + 15) / 16 * 16;
}

namespace detail {
/// Bytes of an element of each column.
using ColumnWidths = InlineList<Index, max_device_columns>;
template <class Columns>
[[nodiscard]] ColumnWidths column_widths(Columns const& columns) {
    ColumnWidths widths;
    for (int c = 0; c < columns.count(); ++c) widths.push_back(columns.width(c));
    return widths;
}
}  // namespace detail

/// Columns of 8-byte elements, each aligned to 8: the tables of MCH.
struct WordColumns {
    InlineList<Index const*, max_device_columns> data;

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int count() const noexcept { return data.size(); }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index width(int) const noexcept { return 8; }
    [[nodiscard]] constexpr void const* address(int c) const noexcept { return data[c]; }
    [[nodiscard]] static constexpr Index alignment(int) noexcept { return 8; }
    [[nodiscard]] static constexpr bool opaque(int) noexcept { return false; }

    template <class F>
    RESHARD_HOST_DEVICE void for_each(F&& f) const {
        for (int c = 0; c < data.size(); ++c) {
            Index const* const from = data[c];
            f(c, Index{0}, true, [from](Index entry) { return from[entry]; });
        }
    }
};

/// Columns of elements of any number of bytes, known at run time. Elements of other sizes than 1, 2, 4 and 8 travel in
/// pieces.
struct ByteColumns {
    struct Column {
        std::byte const* data = nullptr;
        Index width = 8;
        Index piece = 8;  ///< bytes: 1, 2, 4 or 8
    };
    InlineList<Column, max_device_columns> list;

    /// The largest piece that divides elements and keeps accesses aligned.
    [[nodiscard]] static constexpr Index piece_of(std::uintptr_t address, Index width) noexcept {
        auto const bits = detail::as_index(address & 7U) | width | 8;
        return bits & -bits;
    }
    /// Throws ShapeError for more than max_device_columns.
    void add(std::byte const* data, Index width) {
        if (list.size() == max_device_columns) {
            errors::raise(ErrorCode::shape, "reshard::ByteColumns: more than ", max_device_columns,
                          " columns. Fix: several partitions, or one column of wider elements.");
        }
        list.push_back({data, width, piece_of(reinterpret_cast<std::uintptr_t>(data), width)});
    }

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int count() const noexcept { return list.size(); }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index width(int c) const noexcept { return list[c].width; }
    [[nodiscard]] constexpr void const* address(int c) const noexcept { return list[c].data; }
    [[nodiscard]] static constexpr Index alignment(int) noexcept { return 1; }
    [[nodiscard]] static constexpr bool opaque(int) noexcept { return false; }

    template <class F>
    RESHARD_HOST_DEVICE void for_each(F&& f) const {
        for (int c = 0; c < list.size(); ++c) {
            Column const& column = list[c];
            for (Index offset = 0; offset < column.width; offset += column.piece) {
                bool const last = offset + column.piece == column.width;
                std::byte const* const from = column.data + offset;
                Index const width = column.width;
                detail::with_word(static_cast<int>(column.piece), [&]<class U>() {
                    f(c, offset, last, Piece<U>{from, width});
                });
            }
        }
    }

private:
    template <class T>
    struct Piece {
        std::byte const* from;
        Index width;
        [[nodiscard]] RESHARD_HOST_DEVICE T operator()(Index entry) const {
            return detail::load_as<T>(from + entry * width);
        }
    };
};

/// Columns read through random-access iterators that device code may use: pointers, Thrust's fancy iterators. Values
/// are trivially copyable, of 1, 2, 4 or 8 bytes. Made by iterator_columns().
template <class... Iterators>
struct IteratorColumns {
    [[nodiscard]] RESHARD_HOST_DEVICE static constexpr int count() noexcept { return 0; }
    [[nodiscard]] RESHARD_HOST_DEVICE static constexpr Index width(int) noexcept { return 0; }
    [[nodiscard]] static constexpr void const* address(int) noexcept { return nullptr; }
    [[nodiscard]] static constexpr bool opaque(int) noexcept { return true; }
    template <class F>
    RESHARD_HOST_DEVICE void for_each(F&&, int = 0) const {}
};

template <class First, class... Rest>
struct IteratorColumns<First, Rest...> {
    using Value = std::remove_cv_t<typename std::iterator_traits<First>::value_type>;
    static_assert(std::is_trivially_copyable_v<Value> &&
                      (sizeof(Value) == 1 || sizeof(Value) == 2 || sizeof(Value) == 4 || sizeof(Value) == 8),
                  "reshard: a column has elements of 1, 2, 4 or 8 bytes. Fix: give ByteColumns for others, or several "
                  "columns.");
    static_assert(1 + sizeof...(Rest) <= max_device_columns, "reshard: too many columns. Fix: at most 16.");

    First first;
    IteratorColumns<Rest...> rest;

    [[nodiscard]] RESHARD_HOST_DEVICE static constexpr int count() noexcept { return 1 + sizeof...(Rest); }
    [[nodiscard]] RESHARD_HOST_DEVICE static constexpr Index width(int c) noexcept {
        return c == 0 ? Index{sizeof(Value)} : IteratorColumns<Rest...>::width(c - 1);
    }
    /// Of raw pointers, for checks; other iterators answer for themselves.
    [[nodiscard]] constexpr void const* address(int c) const noexcept {
        if constexpr (std::is_pointer_v<First>) {
            if (c == 0) return first;
        }
        return c == 0 ? nullptr : rest.address(c - 1);
    }
    [[nodiscard]] static constexpr Index alignment(int c) noexcept { return width(c); }
    /// Whether a column is no raw pointer.
    [[nodiscard]] static constexpr bool opaque(int c) noexcept {
        return c == 0 ? !std::is_pointer_v<First> : IteratorColumns<Rest...>::opaque(c - 1);
    }

    template <class F>
    RESHARD_HOST_DEVICE void for_each(F&& f, int c = 0) const {
        First const from = first;
        f(c, Index{0}, true, [from](Index entry) { return static_cast<Value>(from[entry]); });
        rest.for_each(f, c + 1);
    }
};

[[nodiscard]] constexpr IteratorColumns<> iterator_columns() { return {}; }
template <class First, class... Rest>
[[nodiscard]] constexpr IteratorColumns<First, Rest...> iterator_columns(First first, Rest... rest) {
    return {first, iterator_columns(rest...)};
}

}  // namespace reshard::inline v0_1
