// SPDX-License-Identifier: Apache-2.0
// copy_on_stream() of include/reshard/comm/detail/device_copies.hpp: against memory/copy.hpp, which is tested against
// loops.
#include "support/fake_cuda_runtime.hpp"

#include <reshard/comm/detail/device_copies.hpp>
#include <reshard/comm/device_staging.hpp>
#include <reshard/memory/copy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <vector>

namespace {
using namespace reshard;
namespace fake = test::fake_runtime;

/// Runs what is in the stream.
void drain(cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
    REQUIRE(cudaEventQuery(event) == cudaSuccess);
    REQUIRE(cudaEventDestroy(event) == cudaSuccess);
}

transport::StridedBox box_of(Index element_bytes, std::initializer_list<transport::StridedDim> dims) {
    transport::StridedBox box;
    box.element_bytes = element_bytes;
    for (auto const& dim : dims) box.dims.push_back(dim);
    return box;
}

std::int64_t copies_of(transport::StridedBox const& from, transport::StridedBox const& to) {
    fake::Stream stream;
    std::vector<std::byte> memory(1 << 17);
    fake::reset();
    detail::copy_on_stream(memory.data() + (1 << 14), from, memory.data() + (1 << 16), to, stream);
    drain(stream);
    return fake::counts().copies;
}

/// Dimensions in any order in memory, with gaps, some backwards, some (of sources) standing still or sliding over what
/// another has shown.
transport::StridedBox random_layout(std::mt19937& rng, transport::StridedBox const& shape, bool is_source, Index& span,
                                    Index& first) {
    auto const pick = [&](int most) { return static_cast<Index>(rng() % static_cast<unsigned>(most + 1)); };
    transport::StridedBox box = shape;
    std::vector<int> order;
    for (int d = 0; d != box.dims.size(); ++d) order.push_back(d);
    if (pick(1) == 0) std::shuffle(order.begin(), order.end(), rng);
    Index step = box.element_bytes;
    Index last = 0;
    first = 0;
    span = box.element_bytes;
    for (int d : order) {
        if (pick(2) == 0) step += pick(3) * box.element_bytes;
        bool const still = is_source && pick(9) == 0;
        bool const back = pick(4) == 0;
        bool const slides = is_source && pick(4) == 0;
        Index const stride = still ? 0 : (slides ? last : step);
        last = stride;
        box.dims[d].stride = back ? -stride : stride;
        if (back) first += stride * (box.dims[d].extent - 1);
        span += stride * (box.dims[d].extent - 1);
        step *= box.dims[d].extent;
    }
    return box;
}
}  // namespace

TEST_SUITE("comm/device") {
    TEST_CASE("strided copies on a stream are what copy() does, for boxes of all kinds") {
        auto const seed = 20261121U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        fake::Stream stream;
        for (int trial = 0; trial != 600; ++trial) {
            CAPTURE(trial);
            transport::StridedBox shape;
            shape.element_bytes = Index{1} << rng() % 5U;
            int const rank = static_cast<int>(rng() % 6U);
            for (int d = 0; d != rank; ++d) shape.dims.push_back({static_cast<Index>(rng() % 5U), 0});
            Index from_span = 0;
            Index from_first = 0;
            Index to_span = 0;
            Index to_first = 0;
            for (int d = 0; d != rank; ++d)
                if (rng() % 8U != 0) shape.dims[d].extent += 1;  // mostly not empty
            transport::StridedBox const from = random_layout(rng, shape, true, from_span, from_first);
            transport::StridedBox const to = random_layout(rng, shape, false, to_span, to_first);
            if (shape.elements() == 0) from_span = to_span = 4096, from_first = to_first = 2048;
            std::vector<std::byte> source(static_cast<std::size_t>(from_span));
            for (auto& each : source) each = static_cast<std::byte>(rng() & 0xffU);
            std::vector<std::byte> got(static_cast<std::size_t>(to_span), std::byte{0xee});
            std::vector<std::byte> expected = got;
            transport::copy(source.data() + from_first, from, expected.data() + to_first, to);
            detail::copy_on_stream(source.data() + from_first, from, got.data() + to_first, to, stream);
            drain(stream);
            CHECK(got == expected);
        }
    }

    TEST_CASE("a copy is as few calls as CUDA allows") {
        CHECK(copies_of(box_of(4, {}), box_of(4, {})) == 1);
        CHECK(copies_of(box_of(4, {{8, 32}, {8, 4}}), box_of(4, {{8, 32}, {8, 4}})) == 1);  // all in a row
        CHECK(copies_of(box_of(4, {{8, 64}, {8, 4}}), box_of(4, {{8, 32}, {8, 4}})) == 1);  // rows
        CHECK(copies_of(box_of(4, {{3, 1024}, {8, 64}, {8, 4}}), box_of(4, {{3, 256}, {8, 32}, {8, 4}})) ==
              1);  // planes
        CHECK(copies_of(box_of(4, {{2, 4096}, {3, 1024}, {8, 64}, {8, 4}}),
                        box_of(4, {{2, 768}, {3, 256}, {8, 32}, {8, 4}})) <= 2);
        CHECK(copies_of(box_of(4, {{8, -64}, {8, 4}}), box_of(4, {{8, -32}, {8, 4}})) == 1);  // both backwards
        CHECK(copies_of(box_of(4, {{8, -64}, {8, 4}}), box_of(4, {{8, 32}, {8, 4}})) == 8);   // CUDA's rows go forwards
        CHECK(copies_of(box_of(4, {{16, 4}, {8, 64}}), box_of(4, {{16, 32}, {8, 4}})) <= 16);  // a transposition
        CHECK(copies_of(box_of(4, {{0, 4}, {8, 64}}), box_of(4, {{0, 32}, {8, 4}})) == 0);
        // Pitches that CUDA cannot take.
        detail::StreamCopyShape const far =
            detail::stream_copy_shape(box_of(4, {{8, Index{1} << 32}, {8, 4}}), box_of(4, {{8, 32}, {8, 4}}));
        CHECK(far.row.extent == 1);
        CHECK(far.rest.dims.size() == 1);
    }
}

TEST_CASE(
    "copies of memory of the host are not asked for before the stream is done, for which CUDA would wait for ever") {
    fake::Stream const stream;
    int const there = 5;
    int here = 0;
    fake::claim(&here, sizeof(here), fake::pageable_host);
    detail::HostStaging host_staging("test", stream, 0, pinned_staging(), 100);
    host_staging.patience.deadline = std::chrono::milliseconds(20);
    detail::CopiedMemory const memory(host_staging, {});
    transport::Send const send{0, reinterpret_cast<std::byte const*>(&there), box_of(4, {})};
    transport::Receive const receive{0, reinterpret_cast<std::byte*>(&here), box_of(4, {})};
    std::atomic<bool> goes_on = false;
    fake::hold(stream, goes_on);
    CHECK_THROWS_WITH_AS(memory.deliver({&send, 1}, {&receive, 1}),
                         doctest::Contains("the transport 'test' waited 20 ms for its device"), DeadlineExceeded);
    goes_on = true;
    fake::finish(stream);
    CHECK(here == 0);
    memory.deliver({&send, 1}, {&receive, 1});
    CHECK(here == 5);
    fake::claim(&here, 0, 0);
}

TEST_CASE("pinned memory that a late device may still use is nobody's until it has caught up, then the next one's") {
    fake::Stream const stream;
    int const before = fake::live_allocations();
    std::atomic<bool> goes_on = false;
    {
        detail::HostStaging host_staging("test", stream, 0, pinned_staging(), 100);
        host_staging.patience.deadline = std::chrono::milliseconds(20);
        std::byte const* given = nullptr;
        {
            Workspace const memory = host_staging.allocate(64);
            given = memory.data();
            REQUIRE(given != nullptr);
            fake::hold(stream, goes_on);
            CHECK_THROWS_AS(host_staging.wait(), DeadlineExceeded);
        }
        CHECK(fake::live_allocations() == before + 1);
        CHECK(host_staging.allocate(32).data() == nullptr);
        goes_on = true;
        fake::finish(stream);
        for (int load = 0; load != 2; ++load) CHECK(host_staging.allocate(64).data() == given);
        CHECK(fake::live_allocations() == before + 1);
    }
    CHECK(fake::live_allocations() == before);
}

TEST_CASE("errors of CUDA: what was told, or got over, is not told again after the next launch") {
    fake::fail("cudaMalloc", cudaErrorMemoryAllocation);
    CHECK(device_staging().allocate(100) == nullptr);
    CHECK(cudaGetLastError() == cudaSuccess);
    fake::fail("cudaMallocHost", cudaErrorMemoryAllocation);
    CHECK(pinned_staging().allocate(100) == nullptr);
    CHECK(cudaGetLastError() == cudaSuccess);
    fake::fail("cudaPointerGetAttributes", cudaErrorInvalidValue);
    int const somewhere = 0;
    CHECK_THROWS_AS(static_cast<void>(detail::memory_kind(0, &somewhere)), TransportError);
    CHECK(cudaGetLastError() == cudaSuccess);
    void* memory = nullptr;
    fake::fail("cudaMalloc", cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&memory, 1) == cudaErrorMemoryAllocation);  // the double does remember
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
}
