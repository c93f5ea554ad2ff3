// SPDX-License-Identifier: Apache-2.0
// Question: what does hashing a rank's tensors cost, which is all that verify_replicas does where replicas are equal?
// Floor: memcpy of the same bytes, measured in turn; `memcpy_ratio` is its time over the hash's. GB/s are those hashed.
#include <benchmark/benchmark.h>
#include <reshard/checkpoint/detail/replica_hash.hpp>

#include <cstring>
#include <vector>

#include "support/paired.hpp"

namespace {

using namespace reshard;

enum class Layout { dense, window, turned };

/// A square matrix; a window is half of the rows' elements, turned is one whose columns are contiguous.
void hash_matrix(benchmark::State& state, DType dtype, Layout layout, bool canonical) {
    Index const element = bytes(dtype);
    Index const payload = state.range(0);
    Index const columns = 4096 / element;
    Index const rows = payload / 4096;
    Index const pitch = layout == Layout::window ? 2 * columns : columns;
    std::vector<std::byte> source(static_cast<std::size_t>(rows * pitch * element), std::byte{1});
    std::vector<std::byte> target(static_cast<std::size_t>(payload), std::byte{2});
    Indices const strides = layout == Layout::turned ? Indices{1, rows} : Indices{pitch, 1};
    ConstDynamicView const view(source.data(), dtype, Shape{rows, columns}, strides);
    detail::ReplicaHasher hasher(canonical);
    bench::Paired pair;
    for (auto _ : state) {
        pair = bench::paired(
            [&] { return bench::thread_seconds_of([&] { std::memcpy(target.data(), source.data(), target.size()); }); },
            [&] { return bench::thread_seconds_of([&] { benchmark::DoNotOptimize(hasher.hash(view)); }); });
        state.SetIterationTime(pair.second);
    }
    state.SetBytesProcessed(state.iterations() * payload);
    state.counters["memcpy_ratio"] = pair.ratio;
}

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"bytes"})->Unit(benchmark::kMicrosecond)->UseManualTime()->Iterations(1);
    for (std::int64_t bytes : {256 << 10, 64 << 20}) benchmark->Arg(bytes);
}

BENCHMARK_CAPTURE(hash_matrix, dense, DType::f32, Layout::dense, false)->Apply(sizes);
BENCHMARK_CAPTURE(hash_matrix, window, DType::f32, Layout::window, false)->Apply(sizes);
BENCHMARK_CAPTURE(hash_matrix, turned, DType::f32, Layout::turned, false)->Apply(sizes);
BENCHMARK_CAPTURE(hash_matrix, canonical_f32, DType::f32, Layout::dense, true)->Apply(sizes);
BENCHMARK_CAPTURE(hash_matrix, canonical_bf16, DType::bf16, Layout::dense, true)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
