// SPDX-License-Identifier: Apache-2.0
//
// Entries of a table on the device, sorted into one block per rank that will look them up: what a rank does before it
// sends them. Rows are thrust::device_vectors; the destination is a lambda of yours.
#include <reshard/cuda/partition_by_rank.cuh>

#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/sequence.h>

#include <cstdio>
#include <cstring>

/// The rank that owns an id: yours to define. Marked for the device, trivially copyable.
struct OwnerOfId {
    std::int64_t const* ids;
    int ranks;
    __host__ __device__ std::int64_t operator()(std::int64_t entry) const {
        return ids[entry] < 0 ? reshard::not_sent : ids[entry] % ranks;
    }
};

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("No GPU here: nothing to partition.\n");
        return 77;
    }
    constexpr int ranks = 4;
    thrust::device_vector<std::int64_t> ids(10);
    thrust::device_vector<float> weights(ids.size());
    thrust::sequence(ids.begin(), ids.end(), 100);
    thrust::sequence(weights.begin(), weights.end());
    ids[3] = -1;  // an empty place

    cudaStream_t stream = nullptr;
    reshard::detail::cuda_check(cudaStreamCreate(&stream), "cudaStreamCreate");
    auto const columns = reshard::iterator_columns(ids.begin(), weights.begin());
    OwnerOfId const rule{thrust::raw_pointer_cast(ids.data()), ranks};

    reshard::DevicePartition partition(static_cast<reshard::Index>(ids.size()), ranks);
    thrust::device_vector<std::byte> workspace(static_cast<std::size_t>(partition.workspace_bytes()));
    thrust::device_vector<std::byte> packed(static_cast<std::size_t>(partition.most_packed_bytes(columns)));
    thrust::host_vector<reshard::Index> words(static_cast<std::size_t>(reshard::PartitionReport::words(ranks)));

    partition.count(rule, columns, {thrust::raw_pointer_cast(workspace.data()), workspace.size()}, stream);
    partition.copy_report({words.data(), words.size()}, stream);
    partition.scatter(columns, {thrust::raw_pointer_cast(packed.data()), packed.size()}, stream);
    reshard::detail::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    reshard::detail::cuda_check(cudaStreamDestroy(stream), "cudaStreamDestroy");

    reshard::PartitionReport const report({words.data(), words.size()}, ranks);
    report.check();
    thrust::host_vector<std::byte> const sent = packed;
    for (int rank = 0; rank < ranks; ++rank) {
        auto const r = static_cast<std::size_t>(rank);
        std::printf("rank %d receives", rank);
        for (reshard::Index row = 0; row < report.counts()[r]; ++row) {
            std::int64_t id = 0;
            std::memcpy(&id, sent.data() + report.blocks()[r] + 8 * row, 8);
            std::printf(" %lld", static_cast<long long>(id));
        }
        std::printf("\n");
    }
    return 0;
}
