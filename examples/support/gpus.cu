// SPDX-License-Identifier: Apache-2.0
// Ranks that are GPUs, for a program whose processor looks at the same memory.
#define RESHARD_EXAMPLES_GPUS
#include "launcher.hpp"
#include "transport.hpp"

#include <reshard/comm/agree.hpp>
#include <reshard/comm/nccl.cuh>

#include <optional>

namespace {

void check(cudaError_t code, char const* call) {
    if (code == cudaSuccess) return;
    reshard::errors::raise(
        reshard::ErrorCode::transport,
        reshard::errors::concat("--gpus: ", call, " failed: ", cudaGetErrorString(code),
                                ". Fix: nvidia-smi says what the GPU does; leave --gpus out to go on without."));
}

/// Rank r of a node has its GPU r.
void take_gpu(int rank, int in_node) {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
    if (in_node >= gpus) {
        reshard::errors::raise(
            reshard::ErrorCode::mesh,
            reshard::errors::concat("--gpus: rank ", rank, " is number ", in_node, " of its node, which has ", gpus,
                                    " GPUs. Fix: as many ranks as GPUs, or leave --gpus out."));
    }
    check(cudaSetDevice(in_node), "cudaSetDevice");
}

class GpuTransport final : public demo::Transport {
public:
    explicit GpuTransport(reshard::CommunicatorRef host) : Transport(host) {
        reshard::agree_on_errors(host, [&] {
            take_gpu(host.rank(), demo::started_by_launcher() ? demo::rank_in_node(host.rank()) : host.rank());
            check(cudaStreamCreateWithFlags(&stream_.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        });
        comm_.emplace(reshard::nccl_from<reshard::NcclKernelCommunicator>(host, stream_.stream));
    }

    [[nodiscard]] reshard::CommunicatorRef comm() override { return *comm_; }
    void finish() override { check(cudaStreamSynchronize(stream_.stream), "cudaStreamSynchronize"); }

private:
    struct Stream {
        Stream() = default;
        Stream(Stream const&) = delete;
        Stream& operator=(Stream const&) = delete;
        ~Stream() {
            if (stream != nullptr) static_cast<void>(cudaStreamDestroy(stream));
        }
        cudaStream_t stream = nullptr;
    };

    [[nodiscard]] Memory allocate(std::size_t bytes) override {
        Memory memory{nullptr, [](void* data) noexcept { static_cast<void>(cudaFree(data)); }};
        check(cudaMallocManaged(&memory.data, std::max<std::size_t>(bytes, 1)), "cudaMallocManaged");
        return memory;
    }

    Stream stream_;
    std::optional<reshard::NcclKernelCommunicator> comm_;
};

}  // namespace

std::unique_ptr<demo::Transport> demo::gpu_transport(reshard::CommunicatorRef host) {
    return std::make_unique<GpuTransport>(host);
}
