// SPDX-License-Identifier: Apache-2.0
/// \file   bench/cuda/ranks_of_gpu.hpp
/// \brief  Ranks that are threads of one GPU, timed together; and what is wrong with results.
#pragma once

#include <reshard/comm/threads.hpp>
#include <reshard/memory/cuda_call.hpp>

#include <algorithm>  // nth_element
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace reshard::bench {

inline void check(cudaError_t error, char const* call) { reshard::detail::cuda_check(error, call); }
inline void wait(cudaStream_t stream) { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

inline std::atomic<int> wrong = 0;
inline void expect(bool right, std::string const& what) {
    if (right) return;
    std::printf("WRONG: %s\n", what.c_str());
    ++wrong;
}

/// body(host, stream) on each rank, all on the first device.
template <class Body>
void on_ranks(int ranks, Body const& body) {
    ThreadOptions waits;
    waits.deadline = std::chrono::seconds(120);
    run_on_threads(ranks, waits, [&](ThreadCommunicator& host) {
        check(cudaSetDevice(0), "cudaSetDevice");
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        body(host, stream);
        check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    });
}

/// The median of milliseconds of task(), which all ranks do together: as rank 0 sees them. `before` is not timed.
template <class C, class Before, class Task>
double milliseconds(C& comm, cudaStream_t stream, int rounds, int warm_ups, Before const& before, Task const& task) {
    std::vector<double> times;
    for (int round = -warm_ups; round < rounds; ++round) {
        before();
        wait(stream);
        static_cast<void>(comm.agree({}));
        auto const begin = std::chrono::steady_clock::now();
        task();
        wait(stream);
        static_cast<void>(comm.agree({}));
        std::chrono::duration<double, std::milli> const took = std::chrono::steady_clock::now() - begin;
        if (round >= 0) times.push_back(took.count());
    }
    std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
    return times[static_cast<std::size_t>(rounds / 2)];
}

}  // namespace reshard::bench
