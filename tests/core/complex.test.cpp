// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/core/complex.hpp: complex numbers, through plans.
#include <reshard/core/complex.hpp>
#include <reshard/exec/redistribute.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/memory/fold.hpp>

#include <cmath>
#include <complex>
#include <vector>

namespace {
using namespace reshard;
using Complex = std::complex<float>;

static_assert(Element<Complex> && dtype_of<Complex const> == DType::c64);

/// A box of every other one of `count` numbers, backwards.
transport::StridedBox backwards(Index count) {
    transport::StridedBox box;
    box.element_bytes = 8;
    box.dims.push_back({count, -16});
    return box;
}
transport::StridedBox dense(Index count) {
    transport::StridedBox box;
    box.element_bytes = 8;
    box.dims.push_back({count, 8});
    return box;
}
std::byte* bytes_at(Complex& number) { return reinterpret_cast<std::byte*>(&number); }

}  // namespace

TEST_CASE("complex numbers are summed and averaged as two floats each, wherever they lie") {
    for (Reduce const op : {Reduce::sum, Reduce::avg}) {
        Index const divisor = op == Reduce::avg ? 4 : 1;
        std::vector<Complex> addends;
        for (int i = 0; i < 12; ++i) addends.emplace_back(static_cast<float>(i), static_cast<float>(-2 * i));
        std::vector<Complex> result(6, Complex{9, 9});
        transport::fold(op, DType::c64, bytes_at(addends[0]), 3 * 8, 4, dense(3), bytes_at(result[5]), backwards(3),
                        divisor);
        for (int i = 0; i < 3; ++i) {
            float const sum = static_cast<float>(4 * i + 3 + 6 + 9) / static_cast<float>(divisor);
            CHECK(result[static_cast<std::size_t>(5 - 2 * i)] == Complex{sum, -2 * sum});
            CHECK(result[static_cast<std::size_t>(4 - 2 * i)] == Complex{9, 9});
        }
    }
}

TEST_CASE("what changes no complex sum is -0.0 twice; factors are for both parts") {
    std::vector<Complex> numbers(6, Complex{9, 9});
    transport::fill_identity(Reduce::sum, DType::c64, bytes_at(numbers[5]), backwards(3));
    CHECK(numbers[4] == Complex{9, 9});
    for (std::size_t const i : {1U, 3U, 5U}) {
        CHECK(numbers[i] == Complex{});
        CHECK(std::signbit(numbers[i].real()));
        CHECK(std::signbit(numbers[i].imag()));
    }
    transport::scale(DType::c64, bytes_at(numbers[0]), dense(6), 1, 4);
    CHECK(numbers[2] == Complex{2.25F, 2.25F});
}

TEST_CASE("plans of complex numbers: sums, averages, identities and factors") {
    SelfCommunicator comm;
    Shape const shape{2, 2};
    std::vector<Complex> const source{{1, 2}, {3, 4}, {5, 6}, {7, 8}};
    for (char const* from : {"(1):(P+)", "(1):(Pavg)", "(1):(R)", "(1):(S0)"}) {
        for (char const* to : {"(1):(P+)", "(1):(Pavg)", "(1):(R)", "(1):(S1)"}) {
            DynamicDistribution const a = parse(from, shape);
            DynamicDistribution const b = parse(to, shape);
            if (fills_average(a.signature(), b.signature())) continue;
            CAPTURE(from);
            CAPTURE(to);
            std::vector<Complex> result(4);
            redistribute(plan(a, b), comm, TensorView<Complex const>(source.data(), shape),
                         TensorView<Complex>(result.data(), shape));
            CHECK(result == source);
        }
    }
}
