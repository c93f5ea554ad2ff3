// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/interop/span.hpp
/// \brief  Views of std::span and of mdspan, and back: no element is copied.
/// \depends core, <span>. No mdspan is included: std::, cuda::std:: and Kokkos:: ones are known by what they offer.
#pragma once

#include <reshard/core/view_box.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// An mdspan whose elements lie at `data_handle() + sum(index[r] * stride(r))`: any layout that is always strided, and
/// an accessor that gives elements themselves (one that scales or conjugates them gives values: there is no view).
// clang-format off
template <class M>
concept StridedMdspan = requires(M const& span, std::size_t dim) {
    typename M::element_type;
    typename M::extents_type;
    typename M::mapping_type;
    requires std::is_same_v<decltype(span.data_handle()), typename M::element_type*>
                 || std::is_same_v<decltype(span.data_handle()), typename M::element_type* const&>;
    requires std::is_same_v<typename M::reference, typename M::element_type&>;
    requires M::is_always_strided();
    requires Element<typename M::element_type>;
    span.extent(dim);
};
// clang-format on

template <Element T, std::size_t Extent>
[[nodiscard]] constexpr TensorView<T> view_of(std::span<T, Extent> elements) {
    Indices extents;
    extents.push_back(static_cast<Index>(elements.size()));
    return {elements.data(), DynamicShape(extents)};
}

template <StridedMdspan M>
[[nodiscard]] constexpr TensorView<typename M::element_type> view_of(M const& span) {
    static_assert(M::rank() <= max_dims,
                  "reshard::view_of: the mdspan has too many dimensions. Fix: merge dimensions that are never cut.");
    Indices extents;
    Indices strides;
    if constexpr (M::rank() > 0) {
        for (std::size_t dim = 0; dim < M::rank(); ++dim) {
            extents.push_back(static_cast<Index>(span.extent(dim)));
            strides.push_back(static_cast<Index>(span.stride(dim)));
        }
    }
    return {span.data_handle(), DynamicShape(extents), strides};
}

/// The elements of a view without gaps in row-major order, whatever its rank. BufferError for any other view.
template <Element T>
[[nodiscard]] constexpr std::span<T> as_span(TensorView<T> const& view) {
    if (!detail::is_dense(view)) {
        errors::raise(ErrorCode::buffer, "reshard::as_span: a view of shape ", to_string(view.shape()),
                      " with strides ", to_string(view.strides()),
                      " has gaps or is not row-major. Fix: as_mdspan with a strided layout, or "
                      "copy it into a Tensor first.");
    }
    return {view.data(), static_cast<std::size_t>(view.size())};
}

namespace detail {
/// Mappings that take strides: layout_stride, whichever library's.
// clang-format off
template <class Mapping>
concept TakesStrides = requires(Mapping const& mapping) { mapping.strides(); }
    && std::is_constructible_v<Mapping, typename Mapping::extents_type const&,
                               std::remove_cvref_t<decltype(std::declval<Mapping const&>().strides())> const&>;
// clang-format on

/// What keeps a view from being an mdspan with strides, empty if nothing does: layout_stride wants strides of one or
/// more, and each, in ascending order, at or behind the end of the one before. `span` is the elements from first to
/// last.
[[nodiscard]] constexpr std::string_view why_no_mdspan(DynamicShape const& shape, Indices const& strides,
                                                       Index& span) noexcept {
    Indices order;  // of the dimensions that have a step, ascending
    for (int dim = 0; dim < shape.rank(); ++dim) {
        if (shape.extent(dim) < 2) continue;
        if (strides[dim] < 1) return "steps backwards or not at all. Fix: copy it into a Tensor first.";
        order.push_back(dim);
        for (int i = order.size() - 1;
             i > 0 && strides[static_cast<int>(order[i])] < strides[static_cast<int>(order[i - 1])]; --i) {
            std::swap(order[i], order[i - 1]);
        }
    }
    span = 1;
    Index end = 1;
    for (Index place : order) {
        int const dim = static_cast<int>(place);
        if (strides[dim] < end) return "names elements more than once. Fix: copy it into a Tensor first.";
        if (!add_fits(span, strides[dim], shape.extent(dim) - 1) ||
            !multiply_fits(strides[dim], shape.extent(dim), end)) {
            return "reaches beyond 64 bits. Fix: check its strides.";
        }
    }
    return {};
}

[[noreturn]] inline void raise_extents(DynamicShape const& shape, std::string const& theirs) {
    raise(ErrorCode::shape, "reshard::as_mdspan: a view of shape ", to_string(shape),
          " does not fit the extents of the mdspan: ", theirs);
}

template <class M, std::size_t... Dim>
constexpr auto extents_for(DynamicShape const& shape, std::index_sequence<Dim...>) {
    using Extents = typename M::extents_type;
    using Number = typename Extents::index_type;
    if (shape.rank() != static_cast<int>(sizeof...(Dim))) {
        raise_extents(shape, concat("rank ", sizeof...(Dim), ". Fix: name an mdspan type of rank ", shape.rank(), "."));
    }
    for (int dim = 0; dim < shape.rank(); ++dim) {
        std::size_t const fixed = Extents::static_extent(static_cast<std::size_t>(dim));
        if (fixed != static_cast<std::size_t>(-1) && !std::cmp_equal(fixed, shape.extent(dim))) {
            raise_extents(shape, concat("dimension ", dim, " has ", fixed, " in the type. Fix: a dynamic extent."));
        }
        if (!std::in_range<Number>(shape.extent(dim))) {
            raise_extents(shape, concat("dimension ", dim, " is beyond its index_type. Fix: a 64-bit index_type."));
        }
    }
    return Extents(static_cast<Number>(shape.extent(static_cast<int>(Dim)))...);
}
}  // namespace detail

/// A view as the mdspan type the caller names, `as_mdspan<std::mdspan<float, std::dextents<int, 2>>>(view)`. ShapeError
/// when rank, static extents or index_type do not fit; BufferError when the layout cannot have the view's strides
/// (strides of zero or below are no mdspan's).
template <StridedMdspan M, Element T>
    requires std::is_convertible_v<T (*)[], typename M::element_type (*)[]>
[[nodiscard]] constexpr M as_mdspan(TensorView<T> const& view) {
    using Mapping = typename M::mapping_type;
    using Number = typename M::extents_type::index_type;
    auto const extents = detail::extents_for<M>(view.shape(), std::make_index_sequence<M::rank()>{});
    [[maybe_unused]] auto const refuse = [&](std::string_view why) {
        errors::raise(ErrorCode::buffer, "reshard::as_mdspan: a view of shape ", to_string(view.shape()),
                      " with strides ", to_string(view.strides()), " ", why);
    };
    if constexpr (M::rank() == 0) {
        return M(view.data(), Mapping(extents));
    } else {
        bool const some = view.size() > 0;
        Indices strides = some ? view.strides() : row_major_strides(view.shape());
        for (int dim = 0; dim < view.rank(); ++dim) {
            if (some && view.extent(dim) == 1) strides[dim] = 1;  // the only index moves nothing
        }
        Index span = 0;
        if (auto const why = some ? detail::why_no_mdspan(view.shape(), strides, span) : std::string_view();
            !why.empty())
            refuse(why);
        if (!std::in_range<Number>(span)) refuse("reaches beyond the mdspan's index_type. Fix: a 64-bit index_type.");
        if constexpr (detail::TakesStrides<Mapping>) {
            std::remove_cvref_t<decltype(std::declval<Mapping const&>().strides())> theirs{};
            for (int dim = 0; dim < view.rank(); ++dim) {
                theirs[static_cast<std::size_t>(dim)] = static_cast<Number>(strides[dim]);
            }
            return M(view.data(), Mapping(extents, theirs));
        } else {
            Mapping const mapping(extents);
            for (int dim = 0; dim < view.rank() && some; ++dim) {
                if (view.extent(dim) > 1 &&
                    !std::cmp_equal(mapping.stride(static_cast<std::size_t>(dim)), strides[dim])) {
                    refuse("is not in the order of the mdspan's layout. Fix: name an mdspan with a strided layout.");
                }
            }
            return M(view.data(), mapping);
        }
    }
}

}  // namespace reshard::inline v0_1
