// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/sums.hpp
/// \brief  Matrix products and sums in two arithmetics: floats, and fixed point, whose sums have no order.
/// \depends reshard/core, reshard/algebra/permute.hpp; a BLAS where CMake found one.
///
/// A sum of floats depends on the order of its addends, and so on how many ranks form it. A sum of integers does not:
/// with `Fixed`, each product of two floats, which a double holds exactly, is rounded to a multiple of 2^-36, and these
/// are added as 64-bit integers. So losses are the same to the last bit on any number of ranks and for all placements.
/// It costs twice the bytes on the wire, and the BLAS.
#pragma once

#include <reshard/algebra/permute.hpp>
#include <reshard/core/tensor.hpp>

#ifdef RESHARD_TRAINER_BLAS
#include <cblas.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace trainer {
using reshard::Index;
using Fixed = Index;  ///< an element type that reshard moves and folds as any other
using Matrix = reshard::TensorView<float const>;

inline constexpr double fixed_one = 0x1p36;
/// Below it an addend is a multiple of 2^-36 that a double holds exactly.
inline constexpr double largest_addend = 0x1p14;

/// What one rank's sums have met. A number too large for fixed point, or NaN, is counted and left out: the count goes
/// with the loss to all ranks, which then stop together.
struct Faults {
    Index count = 0;
};

template <class Sum>
Sum to_sum(double value, Faults& faults) {
    if constexpr (std::is_same_v<Sum, Fixed>) {
        if (!(std::fabs(value) < largest_addend)) return ++faults.count, 0;
        return static_cast<Fixed>(std::nearbyint(value * fixed_one));
    } else {
        return static_cast<Sum>(value);
    }
}
inline float to_float(float sum) noexcept { return sum; }
inline float to_float(Fixed sum) noexcept { return static_cast<float>(static_cast<double>(sum) / fixed_one); }

/// Rows and columns change places: a view, nothing is copied.
template <class T>
reshard::TensorView<T> transposed(reshard::TensorView<T> const& view) {
    return reshard::permute(view, {1, 0});
}

namespace detail {

inline void add_scaled(float const* row, float factor, std::span<float> to) noexcept {
    for (std::size_t n = 0; n < to.size(); ++n) to[n] += factor * row[n];
}
/// Adding 1.5 * 2^52 leaves the rounded value in a double's lowest bits: one addition where a conversion would keep the
/// compiler from vector instructions.
inline void add_scaled(float const* row, float factor, std::span<Fixed> to) noexcept {
    constexpr double magic = 0x1.8p52;
    double const scaled = static_cast<double>(factor) * fixed_one;
    for (std::size_t n = 0; n < to.size(); ++n) {
        to[n] += std::bit_cast<Fixed>(static_cast<double>(row[n]) * scaled + magic) - std::bit_cast<Fixed>(magic);
    }
}

/// The largest magnitude; infinity where there is a NaN.
inline double largest(Matrix const& matrix) {
    double result = 0;
    for (Index i = 0; i < matrix.extent(0); ++i)
        for (Index j = 0; j < matrix.extent(1); ++j) {
            double const value = std::fabs(static_cast<double>(matrix(i, j)));
            result = value <= result ? result : std::isnan(value) ? HUGE_VAL : value;
        }
    return result;
}

/// out = a b, row by row, terms in ascending order.
template <class Sum>
void multiply_by_loops(Matrix const& a, Matrix const& b, reshard::TensorView<Sum> const& out) {
    auto const columns = static_cast<std::size_t>(b.extent(1));
    std::vector<float> rows;  // of b, one behind the other
    for (Index k = 0; k < b.extent(0); ++k)
        for (Index n = 0; n < b.extent(1); ++n) rows.push_back(b(k, n));
    for (Index m = 0; m < a.extent(0); ++m) {
        std::span<Sum> const sums(out.data() + m * out.stride(0), columns);
        std::fill(sums.begin(), sums.end(), Sum{0});
        for (Index k = 0; k < a.extent(1); ++k) {
            add_scaled(rows.data() + static_cast<std::size_t>(k) * columns, a(m, k), sums);
        }
    }
}

#ifdef RESHARD_TRAINER_BLAS
inline void multiply_by_blas(Matrix const& a, Matrix const& b, reshard::TensorView<float> const& out) {
    auto const kind = [](Matrix const& one) { return one.stride(1) == 1 ? CblasNoTrans : CblasTrans; };
    auto const lead = [](Matrix const& one) {
        bool const plain = one.stride(1) == 1;  // of one row or column the stride says nothing
        return static_cast<int>(std::max({one.stride(plain ? 0 : 1), one.extent(plain ? 1 : 0), Index{1}}));
    };
    cblas_sgemm(CblasRowMajor, kind(a), kind(b), static_cast<int>(out.extent(0)), static_cast<int>(out.extent(1)),
                static_cast<int>(a.extent(1)), 1.0F, a.data(), lead(a), b.data(), lead(b), 0.0F, out.data(),
                static_cast<int>(std::max<Index>(out.extent(1), 1)));
}
#endif

}  // namespace detail

/// out = a b. \pre out is dense.
template <class Sum>
void multiply(Matrix const& a, Matrix const& b, reshard::TensorView<Sum> const& out, Faults& faults) {
    if constexpr (std::is_same_v<Sum, Fixed>) {
        double const addend = detail::largest(a) * detail::largest(b);
        if (!(addend < largest_addend && addend * static_cast<double>(a.extent(1)) < 64 * largest_addend)) {
            ++faults.count;
            std::fill_n(out.data(), out.size(), Sum{0});
            return;
        }
    }
#ifdef RESHARD_TRAINER_BLAS
    if constexpr (std::is_same_v<Sum, float>) {
        if (a.extent(1) > 0 && out.size() > 0) return detail::multiply_by_blas(a, b, out);
    }
#endif
    detail::multiply_by_loops(a, b, out);
}

/// out[j] = the sum over i of matrix[i, j].
template <class Sum>
void sum_rows(Matrix const& matrix, reshard::TensorView<Sum> const& out, Faults& faults) {
    for (Index j = 0; j < matrix.extent(1); ++j) {
        Sum sum{0};
        for (Index i = 0; i < matrix.extent(0); ++i) {
            sum = static_cast<Sum>(sum + to_sum<Sum>(static_cast<double>(matrix(i, j)), faults));
        }
        out(j) = sum;
    }
}

inline constexpr std::string_view products_by =
#ifdef RESHARD_TRAINER_BLAS
    "BLAS";
#else
    "loops";
#endif

}  // namespace trainer
