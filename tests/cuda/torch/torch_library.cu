// SPDX-License-Identifier: Apache-2.0
// What tests/interop/dlpack_library.cpp is, for tensors that lie on a GPU: ranks are threads that share device 0, each
// with a stream of its own. Built as a shared library; torch_test.py loads it into a process that has PyTorch.
#include "cuda/device/device_test.cuh"

#include <reshard/comm/device_threads.cuh>
#include <reshard/interop/dlpack.hpp>
#include <reshard/reshard.hpp>

#include <support/dlpack_types.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

using namespace reshard;

// All else stays hidden: the process has other copies of CUDA's runtime and of CUB.
#define RESHARD_CALLED_BY_PYTHON extern "C" __attribute__((visibility("default")))

namespace {

constexpr dlpack::Device gpu = dlpack::cuda(0);

/// Element types count on every rank, also where it has no tensor.
DType type_of(DLManagedTensor* const* tensors, int ranks) {
    auto const* const first = std::find_if(tensors, tensors + ranks, [](auto const* one) { return one != nullptr; });
    return first == tensors + ranks ? DType::f32 : dlpack::dtype_of((*first)->dl_tensor);
}

}  // namespace

/// The seconds that a second run took, or -1 with the error in `message`. Null: a rank that has no such tensor. Where
/// element types differ, values are cast.
RESHARD_CALLED_BY_PYTHON double reshard_redistribute(char const* from, char const* to, std::int64_t const* shape,
                                                     int rank, int ranks, DLManagedTensor* const* sources,
                                                     DLManagedTensor* const* destinations, char* message,
                                                     std::size_t message_size) try {
    auto const move = plan_across(parse(from, DynamicShape(shape, rank)), parse(to, DynamicShape(shape, rank)));
    ConstDynamicView const no_source(nullptr, type_of(sources, ranks), Shape{0});
    DynamicView const no_destination(nullptr, type_of(destinations, ranks), Shape{0});
    PrepareOptions options;
    options.cast = no_source.dtype() != no_destination.dtype();
    ThreadOptions waits;
    waits.deadline = std::chrono::seconds(30);
    double seconds = 0;
    run_on_threads(ranks, waits, [&](ThreadCommunicator& host) {
        reshard::detail::cuda_check(cudaSetDevice(gpu.id), "cudaSetDevice");
        test::Stream const stream;
        DeviceThreadOptions passage;
        passage.window_bytes = Index{64} << 10;  // nothing passes through: all tensors lie on the device
        DeviceThreadKernelCommunicator comm(std::move(host), stream, passage);
        auto const* source = sources[comm.rank()];
        auto const* destination = destinations[comm.rank()];
        auto job = prepare(move, comm, source != nullptr ? dlpack::const_view(*source, gpu) : no_source,
                           destination != nullptr ? dlpack::view(*destination, gpu) : no_destination, options);
        job.run();  // takes memory for lists of boxes
        stream.wait();
        static_cast<void>(comm.agree({}));
        auto const begin = std::chrono::steady_clock::now();
        job.run();
        stream.wait();
        std::chrono::duration<double> const took = std::chrono::steady_clock::now() - begin;
        if (comm.rank() == 0) seconds = took.count();
        static_cast<void>(comm.agree({}));  // nobody's stream has work left that reads this rank's tensors
    });
    return seconds;
} catch (std::exception const& error) {
    std::snprintf(message, message_size, "%s", error.what());
    return -1;
}

/// A tensor of our own on the device, 0, 1, 2, ... in float32, for a capsule named "dltensor".
RESHARD_CALLED_BY_PYTHON DLManagedTensor* reshard_count(std::int64_t rows, std::int64_t columns) try {
    std::vector<float> numbers(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    auto const memory = std::make_shared<test::DeviceArray<float>>(numbers);
    return dlpack::share<DLManagedTensor>(TensorView<float>(memory->data(), Shape{rows, columns}), memory, gpu)
        .release();
} catch (std::exception const& error) {
    std::fprintf(stderr, "reshard_count: %s\n", error.what());
    return nullptr;
}
