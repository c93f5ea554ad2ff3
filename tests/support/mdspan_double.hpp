// SPDX-License-Identifier: Apache-2.0
// As much of mdspan as tests of interop need where no library brings one. Source: the C++23 standard, [views.multidim].
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

namespace mdspan_double {

template <class I, std::size_t... E>
struct extents {
    using index_type = I;
    static constexpr std::size_t rank() { return sizeof...(E); }
    static constexpr std::size_t static_extent(std::size_t dim) {
        std::size_t const fixed[sizeof...(E) + 1] = {E..., 0};
        return fixed[dim];
    }
    template <class... Numbers>
        requires(sizeof...(Numbers) == sizeof...(E))
    constexpr explicit extents(Numbers... numbers) : value{static_cast<I>(numbers)...} {}
    constexpr I extent(std::size_t dim) const { return value[dim]; }
    std::array<I, sizeof...(E)> value;
};

template <bool RowMajor>
struct layout_dense {
    template <class E>
    struct mapping {
        using extents_type = E;
        constexpr explicit mapping(E const& given) : size(given) {}
        constexpr typename E::index_type stride(std::size_t dim) const {
            typename E::index_type step = 1;
            for (std::size_t other = 0; other < E::rank(); ++other) {
                if (RowMajor ? other > dim : other < dim)
                    step = static_cast<typename E::index_type>(step * size.extent(other));
            }
            return step;
        }
        E size;
    };
};
using layout_right = layout_dense<true>;
using layout_left = layout_dense<false>;

struct layout_stride {
    template <class E>
    struct mapping {
        using extents_type = E;
        using Strides = std::array<typename E::index_type, E::rank()>;
        constexpr mapping(E const& given, Strides const& steps) : size(given), step(steps) {}
        constexpr Strides strides() const { return step; }
        constexpr typename E::index_type stride(std::size_t dim) const { return step[dim]; }
        E size;
        Strides step;
    };
};

template <class T, class E, class L = layout_right>
class mdspan {
public:
    using element_type = T;
    using extents_type = E;
    using mapping_type = typename L::template mapping<E>;
    using reference = T&;
    constexpr mdspan(T* data, E const& size) : data_(data), mapping_(size) {}
    constexpr mdspan(T* data, mapping_type const& mapping) : data_(data), mapping_(mapping) {}
    static constexpr std::size_t rank() { return E::rank(); }
    static constexpr bool is_always_strided() { return true; }
    constexpr T* data_handle() const { return data_; }
    constexpr typename E::index_type extent(std::size_t dim) const { return mapping_.size.extent(dim); }
    constexpr typename E::index_type stride(std::size_t dim) const { return mapping_.stride(dim); }

private:
    T* data_;
    mapping_type mapping_;
};

}  // namespace mdspan_double
