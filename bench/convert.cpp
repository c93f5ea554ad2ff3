// SPDX-License-Identifier: Apache-2.0
// Question: what do a cast, a factor and a transposition add to a copy on the host?
// Floor: memcpy of the source's bytes; for transpositions, a plain loop over tiles, 64 rows of the destination by 8
// columns.
#include <benchmark/benchmark.h>
#include <reshard/memory/convert.hpp>

#include <cstring>
#include <vector>

namespace {

using namespace reshard;

transport::StridedBox matrix(Index element, Index n, bool transposed) {
    transport::StridedBox box;
    box.element_bytes = element;
    box.dims.push_back({n, transposed ? element : n * element});
    box.dims.push_back({n, transposed ? n * element : element});
    return box;
}

/// n * n elements, dense on both sides. Bytes are those read and those written.
void convert_matrix(benchmark::State& state, DType from, DType to, double factor, bool transposed) {
    Index const n = state.range(0);
    std::vector<std::byte> source(static_cast<std::size_t>(n * n * bytes(from)));
    std::vector<std::byte> destination(static_cast<std::size_t>(n * n * bytes(to)), std::byte{1});
    transport::StridedBox const read = matrix(bytes(from), n, false);
    transport::StridedBox const write = matrix(bytes(to), n, transposed);
    for (auto _ : state) {
        transport::convert(source.data(), read, from, destination.data(), write, to, factor);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * n * n * (bytes(from) + bytes(to)));
}

void floor_memcpy(benchmark::State& state) {
    std::vector<float> source(static_cast<std::size_t>(state.range(0) * state.range(0)));
    std::vector<float> destination(source.size(), 1.0F);
    for (auto _ : state) {
        std::memcpy(destination.data(), source.data(), source.size() * sizeof(float));
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(source.size()) * 8);
}

template <class T>
void floor_transpose(benchmark::State& state) {
    auto const n = static_cast<std::size_t>(state.range(0));
    constexpr std::size_t columns = 8;  // of the destination, which the compiler unrolls
    constexpr std::size_t rows = 64;
    std::vector<T> source(n * n);
    std::vector<T> destination(n * n, T{1});
    for (auto _ : state) {
        for (std::size_t column = 0; column < n; column += columns)
            for (std::size_t row = 0; row < n; row += rows)
                for (std::size_t j = row; j < row + rows; ++j)
                    for (std::size_t i = column; i < column + columns; ++i) destination[j * n + i] = source[i * n + j];
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(2 * n * n * sizeof(T)));
}

void sides(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgName("n")->Unit(benchmark::kMicrosecond);
    for (std::int64_t n : {1024, 1920, 2048, 4096}) benchmark->Arg(n);
}

BENCHMARK(floor_memcpy)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, f32_bf16, DType::f32, DType::bf16, 1.0, false)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, bf16_f32, DType::bf16, DType::f32, 1.0, false)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, f32_f16, DType::f32, DType::f16, 1.0, false)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, f16_f32, DType::f16, DType::f32, 1.0, false)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, f32_half, DType::f32, DType::f32, 0.5, false)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, f32_third, DType::f32, DType::f32, 1.0 / 3.0, false)->Apply(sides);
BENCHMARK_TEMPLATE(floor_transpose, float)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, transpose_f32, DType::f32, DType::f32, 1.0, true)->Apply(sides);
BENCHMARK_TEMPLATE(floor_transpose, double)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, transpose_f64, DType::f64, DType::f64, 1.0, true)->Apply(sides);
BENCHMARK_CAPTURE(convert_matrix, transpose_f32_bf16, DType::f32, DType::bf16, 1.0, true)->Apply(sides);

}  // namespace

BENCHMARK_MAIN();
