// SPDX-License-Identifier: Apache-2.0
// A kernel of somebody else's that touches memory it must not: from then on CUDA refuses every call of the process.
// Ranks are told so, in CUDA's words, and none waits for one that cannot go on. Each case is a process of its own.
#include "cuda/device/device_test.cuh"

#include <reshard/comm/device_threads.cuh>
#include <reshard/comm/staged_on_host.cuh>
#include <reshard/exec/redistribute.hpp>
#include <reshard/mch/redistribute.cuh>

#if __has_include(<nccl.h>) && !defined(RESHARD_TEST_WITHOUT_NCCL)
#include <reshard/comm/nccl.cuh>
#endif

#include <sys/wait.h>

#include <functional>
#include <iterator>
#include <mutex>

using namespace reshard;
using namespace reshard::test;

namespace {

constexpr int ranks = 3;
constexpr Index size = 60;

__global__ void write_nowhere(int* nowhere) { *nowhere = 1; }

/// Rank 1's stream fails before body(host, stream) is called. Status 0: every rank was told, with CUDA's reason or that
/// of another rank.
template <class Body>
int told_of_a_fault(Body const& body, int count = ranks) {
    std::mutex mutex;
    int told = 0;
    bool reason = false;
    ThreadOptions waits;
    waits.deadline = std::chrono::seconds(20);
    auto const note = [&](std::string const& text) {
        std::lock_guard const lock(mutex);
        std::printf("%s\n", text.c_str());
        ++told;
        reason = reason || text.find("illegal memory access") != std::string::npos;
    };
    try {
        run_on_threads(count, waits, [&](ThreadCommunicator& host) {
            detail::cuda_check(cudaSetDevice(0), "cudaSetDevice");
            Stream stream;
            int const rank = host.rank();
            try {
                body(host, stream, [&] {
                    if (rank == count - 1) write_nowhere<<<1, 1, 0, stream>>>(nullptr);
                });
                detail::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            } catch (Error const& error) {
                note(errors::concat("rank ", rank, ": ", error.what()));
                throw;
            }
        });
    } catch (Error const&) {  // each has been noted
    }
    std::printf("%d of %d ranks were told\n", told, count);
    return told == count && reason ? 0 : 1;
}

template <class C>
int plans_fail(C& comm, std::function<void()> const& fault) {
    auto const rows = distribution(Mesh{comm.size()}, Shape{size, size}, "S0");
    auto const columns = distribution(Mesh{comm.size()}, Shape{size, size}, "S1");
    Index const part = size / comm.size();
    DeviceArray<float> const from(static_cast<std::size_t>(size * part));
    DeviceArray<float> const to(static_cast<std::size_t>(size * part));
    auto job = prepare(plan(rows, columns), comm, ConstDynamicView(from.data(), DType::f32, Shape{part, size}),
                       DynamicView(to.data(), DType::f32, Shape{size, part}));
    job.run();
    detail::cuda_check(cudaStreamSynchronize(comm.stream()), "cudaStreamSynchronize");
    static_cast<void>(comm.agree({}));
    fault();
    for (int i = 0; i < 3; ++i) job.run();
    return 0;
}

struct Case {
    char const* name;
    int (*run)();
};
constexpr Case cases[] = {
    {"threads with devices, kernels",
     [] {
         return told_of_a_fault([](ThreadCommunicator& host, Stream& stream, auto const& fault) {
             DeviceThreadKernelCommunicator comm(std::move(host), stream);
             plans_fail(comm, fault);
         });
     }},
    {"threads with devices, copies",
     [] {
         return told_of_a_fault([](ThreadCommunicator& host, Stream& stream, auto const& fault) {
             DeviceThreadCommunicator comm(std::move(host), stream);
             plans_fail(comm, fault);
         });
     }},
    {"a transport of the host",
     [] {
         return told_of_a_fault([](ThreadCommunicator& host, Stream& stream, auto const& fault) {
             auto comm = compose<StagedOnHostWithKernels>(std::move(host), StagedOnHostOptions(stream));
             plans_fail(comm, fault);
         });
     }},
    {"tables of managed collisions",
     [] {
         return told_of_a_fault([](ThreadCommunicator& host, Stream& stream, auto const& fault) {
             DeviceThreadCommunicator comm(std::move(host), stream);
             DeviceArray<Index> const ids(std::vector<Index>(20, INT64_MAX));
             DeviceArray<Index> const slots(20);
             DeviceArray<Index> const iteration(std::vector<Index>(1));
             DeviceArray<Index> const segments(8);
             MchTransition one;
             one.saved = mch_table("table", Mesh{ranks}, ranks * 20, MchEviction::none);
             one.current = one.saved;
             one.state.ids = DynamicView(ids.data(), DType::i64, Shape{20});
             one.state.slots = DynamicView(slots.data(), DType::i64, Shape{20});
             one.state.segments = DynamicView(segments.data(), DType::i64, Shape{8});
             one.state.iteration = DynamicView(iteration.data(), DType::i64, Shape{1});
             static_cast<void>(comm.agree({}));
             fault();
             static_cast<void>(redistribute_on_device(std::span(&one, 1), comm));
         });
     }},
#if __has_include(<nccl.h>) && !defined(RESHARD_TEST_WITHOUT_NCCL)
    {"a rank of NCCL",
     [] {
         return told_of_a_fault(
             [](ThreadCommunicator& host, Stream& stream, auto const& fault) {
                 auto comm = nccl_from<NcclKernelCommunicator>(host, stream);
                 plans_fail(comm, fault);
             },
             1);
     }},
#endif
};

}  // namespace

DEVICE_TEST("a kernel that fails is an error on every rank, and nobody waits for ever") {
    for (std::size_t i = 0; i != std::size(cases); ++i) {
        std::string const call = errors::concat("timeout 60 /proc/", static_cast<long>(getpid()), "/exe ", i, " 2>&1");
        device_case() = cases[i].name;
        std::printf("%s:\n", cases[i].name);
        std::fflush(stdout);
        int const status = std::system(call.c_str());  // NOLINT(cert-env33-c): this program
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(int argc, char** argv) {
    if (argc == 2) return cases[std::strtoul(argv[1], nullptr, 10)].run();
    return run_device_tests();
}
