// SPDX-License-Identifier: Apache-2.0
#include <reshard/reshard.hpp>
#ifdef CONSUMER_HAS_THREADS
#include <reshard/comm/threads.hpp>
#endif
#ifdef CONSUMER_HAS_CHECKPOINT
#include <reshard/checkpoint/checksum.hpp>

#include <nlohmann/json.hpp>
#endif
#ifdef CONSUMER_HAS_VERIFY
#include <reshard/checkpoint/verify_replicas.hpp>
#include <reshard/comm/self.hpp>
#endif
#ifdef CONSUMER_HAS_SAVE
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/checkpoint/save_plan.hpp>
#endif
#ifdef CONSUMER_HAS_MPI
#include <reshard/comm/mpi.hpp>
#endif
#ifdef CONSUMER_HAS_CUDA
#include <cuda_runtime_api.h>
#include <reshard/cuda/split_counts.hpp>
#endif
#ifdef CONSUMER_HAS_DEVICE
#include <reshard/comm/device_threads.hpp>
#endif
#ifdef CONSUMER_HAS_NCCL
#include <reshard/comm/nccl.hpp>
#endif
#ifdef CONSUMER_HAS_TRACE
#include <reshard/comm/trace_json.hpp>
#endif
#ifdef CONSUMER_HAS_MCH
#include <reshard/mch/validate.hpp>
#endif
#ifdef CONSUMER_HAS_MCH_CHECKPOINT
#include <reshard/mch/checkpoint.hpp>
#include <reshard/mch/checkpoint_save.hpp>
#endif

#ifdef CONSUMER_HAS_SECOND
int second_unit();
#else
int second_unit() { return 0; }
#endif

int main() {
#ifdef CONSUMER_HAS_CHECKPOINT  // its library is linked, not only found
    std::byte const zero{};
    if (reshard::crc32c({&zero, 1}) != 0x527d5351U) return 1;
#endif
#ifdef CONSUMER_HAS_VERIFY
    reshard::SelfCommunicator self;
    if (!reshard::verify_replicas(std::span<reshard::LocalTensor const>(), self).equal()) return 1;
#endif
#ifdef CONSUMER_HAS_SAVE
    if (!reshard::plan_save({}, 1).manifest.files.empty()) return 1;
#endif
#ifdef CONSUMER_HAS_DEVICE  // the runtime is linked; no GPU is asked for
    int runtime = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess || runtime < 12000) return 1;
#endif
#ifdef CONSUMER_HAS_NCCL  // its library is linked; no GPU is asked for
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess || version < 21800) return 1;
#endif
    reshard::Mesh mesh{2, 4};
    auto rows = reshard::distribution<reshard::Replicate, reshard::Shard<0>>(mesh, reshard::Shape{8, 4});
    return rows.box(1).begin(0) == 2 ? second_unit() : 1;
}
