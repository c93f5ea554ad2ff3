// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/shape.hpp
/// \brief  The extents of a tensor: `DynamicShape` as a value, `Shape<E...>` with the rank (and any extent) in the
///         type.
/// \depends core only. constexpr, no allocation.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

namespace reshard::inline v0_1 {

/// Extents outer to inner, at most max_dims of them; rank 0 is a scalar; an extent of zero is legal.
/// Throws ShapeError when an extent is negative, there are too many, or the size does not fit 64 bits.
class DynamicShape {
public:
    constexpr DynamicShape() = default;
    constexpr explicit DynamicShape(Indices const& extents) : extents_(extents) { check(); }
    template <IntegerList List>
    constexpr explicit DynamicShape(List const& extents) : DynamicShape(detail::indices_of(extents)) {}
    template <std::integral Extent>
        requires(!std::same_as<Extent, char>)  // ({n}), which could be a copy of a shape of n, too
    constexpr explicit DynamicShape(Extent const (&extents)[1]) : DynamicShape(Indices{extents[0]}) {}
    /// The type is deduced, so that the 0 of {0, 4} is no null pointer here: write Shape{0, 4}.
    template <std::same_as<Index> Extent>
    constexpr DynamicShape(Extent const* extents, int rank) {
        if (rank < 0 || rank > max_dims) {
            errors::raise(ErrorCode::shape, "reshard::Shape: ", rank, " dimensions given, at most ", max_dims,
                          " are supported. Fix: merge dimensions that are never cut.");
        }
        for (int d = 0; d < rank; ++d) extents_.push_back(extents[d]);
        check();
    }

    [[nodiscard]] constexpr int rank() const noexcept { return extents_.size(); }
    [[nodiscard]] constexpr Index extent(int dim) const noexcept { return extents_[dim]; }
    [[nodiscard]] constexpr Index operator[](int dim) const noexcept { return extents_[dim]; }
    [[nodiscard]] constexpr Indices const& extents() const& noexcept { return extents_; }
    [[nodiscard]] constexpr Indices extents() && noexcept { return extents_; }

    /// Number of elements; 1 for a scalar.
    [[nodiscard]] constexpr Index size() const noexcept {
        Index product = 1;
        for (Index extent : extents_) product *= extent;
        return product;
    }
    /// Shortens one dimension. \pre 0 <= extent <= extent(dim).
    constexpr void narrow(int dim, Index extent) noexcept { extents_[dim] = extent; }

    [[nodiscard]] friend constexpr bool operator==(DynamicShape const&, DynamicShape const&) = default;

private:
    constexpr void check() const {
        Index product = 1;
        for (int d = 0; d < rank(); ++d) {
            if (extents_[d] < 0) {
                errors::raise(ErrorCode::shape, "reshard::Shape: dimension ", d, " has extent ", extents_[d],
                              ". Fix: extents are zero or more.");
            }
            // An empty tensor is legal whatever its other extents, as long as those alone do not overflow.
            if (extents_[d] != 0 && !detail::multiply_fits(product, extents_[d], product)) {
                errors::raise(ErrorCode::shape,
                              "reshard::Shape: the number of elements does not fit 64 bits. "
                              "Fix: check the extents for a wrong unit or a bad conversion.");
            }
        }
    }

    Indices extents_;
};

/// A shape whose rank, and every extent that is not `dynamic`, is part of the type.
/// `Shape{8192, 1024}` has run-time extents; `Shape<8192, 1024>{}` makes boxes, bytes and bounds constants.
/// It is a DynamicShape: whatever takes or keeps a reference to one takes this.
template <Index... Extents>
class Shape : public DynamicShape {
    static_assert(sizeof...(Extents) <= max_dims,
                  "reshard::Shape: too many dimensions. Fix: merge dimensions that are never cut.");
    static_assert(((Extents >= 0 || Extents == dynamic) && ...),
                  "reshard::Shape: an extent is negative. Fix: extents are zero or more, or reshard::dynamic.");

public:
    static constexpr bool is_static = ((Extents != dynamic) && ...);

    constexpr Shape() requires is_static : DynamicShape(Indices{Extents...}) {}
    template <std::integral... Integers>
        requires(sizeof...(Integers) == sizeof...(Extents) && sizeof...(Integers) > 0)
    constexpr Shape(Integers... extents) : DynamicShape(Indices{detail::as_index(extents)...}) {
        if (((Extents != dynamic && Extents != detail::as_index(extents)) || ...)) {
            errors::raise(ErrorCode::shape,
                          "reshard::Shape: an extent given at run time differs from the one in the type. "
                          "Fix: pass the same number, or write reshard::dynamic in the type.");
        }
    }

    /// Refuses, in words, what does not tell the compiler how many there are.
    template <IntegerList List>
    explicit Shape(List const&) {
        constexpr bool is_counted = std::is_same_v<List, void>;
        static_assert(
            is_counted,
            "reshard::Shape: the type says how many dimensions there are, and a list says so at run time only. "
            "Fix: write DynamicShape(list).");
    }

    [[nodiscard]] static constexpr int rank() noexcept { return static_cast<int>(sizeof...(Extents)); }
    /// The extent if the type knows it, `dynamic` otherwise.
    [[nodiscard]] static constexpr Index static_extent(int dim) noexcept {
        Index const extents[sizeof...(Extents) + 1] = {Extents..., 0};
        return extents[dim];
    }
    void narrow(int dim, Index extent) = delete;  ///< the type says the extents
};

template <std::integral... Integers>
Shape(Integers...) -> Shape<(static_cast<void>(sizeof(Integers)), dynamic)...>;
template <IntegerList List>
Shape(List const&) -> Shape<>;  // to say what to write

/// Text of a list of integers, `[8192,1024]`: used in every message about shapes, offsets and strides.
[[nodiscard]] inline std::string to_string(Indices const& list) {
    std::string text = "[";
    for (int i = 0; i < list.size(); ++i) detail::append(text, {i == 0 ? "" : ",", list[i]});
    detail::append(text, {"]"});
    return text;
}
[[nodiscard]] inline std::string to_string(DynamicShape const& shape) { return to_string(shape.extents()); }

}  // namespace reshard::inline v0_1
