// SPDX-License-Identifier: Apache-2.0
// What Python programs call by ctypes: tensors of all ranks, handed over by DLPack, are redistributed by threads of
// this process. docs/interop.md shows it.
#include <reshard/comm/threads.hpp>
#include <reshard/interop/dlpack.hpp>
#include <reshard/reshard.hpp>

#include <support/dlpack_types.hpp>

#include <chrono>
#include <cstdio>

using namespace reshard;

/// The seconds it took, or -1 with the error in `message`. Null: a rank that has no such tensor.
extern "C" double reshard_redistribute(char const* from, char const* to, std::int64_t const* shape, int rank, int ranks,
                                       DLManagedTensor* const* sources, DLManagedTensor* const* destinations,
                                       char* message, std::size_t message_size) try {
    auto const move = plan_across(parse(from, DynamicShape(shape, rank)), parse(to, DynamicShape(shape, rank)));
    double seconds = 0;
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        auto const* source = sources[comm.rank()];
        auto const* destination = destinations[comm.rank()];
        auto job = prepare(move, comm, source != nullptr ? dlpack::const_view(*source) : ConstDynamicView(),
                           destination != nullptr ? dlpack::view(*destination) : DynamicView());
        auto const begin = std::chrono::steady_clock::now();
        job.run();
        std::chrono::duration<double> const took = std::chrono::steady_clock::now() - begin;
        if (comm.rank() == 0) seconds = took.count();
    });
    return seconds;
} catch (std::exception const& error) {
    std::snprintf(message, message_size, "%s", error.what());
    return -1;
}

/// A tensor of our own, 0, 1, 2, ... in float32, for a capsule named "dltensor".
extern "C" DLManagedTensor* reshard_count(std::int64_t rows, std::int64_t columns) {
    Tensor<float> numbers(Shape{rows, columns});
    for (Index i = 0; i < numbers.size(); ++i) numbers.data()[i] = static_cast<float>(i);
    return dlpack::share<DLManagedTensor>(numbers.view(), std::move(numbers)).release();
}
