// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/detail/device_or_host_memory.cuh, by the communicators that state it: plans between
// tensors of which each lies on the rank's device or somewhere on the host equal those between tensors of the host, bit
// for bit, and are done when run() returns where memory of the host takes part.
#include "../../device/devices.hpp"
#include "moves.cuh"

#include <reshard/comm/device_threads.cuh>
#include <reshard/comm/staged_on_host.cuh>
#include <reshard/comm/traced.hpp>
#include <reshard/exec/batch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

using namespace reshard;
using test::Buffer;
using test::bytes_of;
using test::floats_of;
using test::OnHost;
using test::Where;
namespace runtime = test::fake_runtime;

namespace {

constexpr int sharing = 5;

/// Runs body(host, comm) on ranks that share two devices; returns what each threw.
template <class Body>
std::vector<test::Ended> on_threads(int ranks, Index window, Body const& body) {
    return test::on_devices(ranks, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
        DeviceThreadOptions options;
        options.window_bytes = window;
        DeviceThreadKernelCommunicator comm(host.split(0, 0), stream, options);
        body(host, comm);
    });
}

/// The same over the host's transport.
using OverHost = StagedOnHostWithKernels<ThreadCommunicator>;
static_assert(Communicator<OverHost>);
static_assert(std::same_as<Composed<ThreadCommunicator, Traced, StagedOnHostWithKernels>, Traced<OverHost>>);
template <class Body>
std::vector<test::Ended> on_staged(int ranks, StagedOnHostOptions const& options, Body const& body) {
    return test::on_devices(ranks, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
        StagedOnHostOptions mine = options;
        mine.stream = stream;
        OverHost comm(host.split(0, 0), mine);
        body(host, comm);
    });
}

template <class T>
TensorView<T> view_of(Buffer const& buffer, Index size) {
    return {reinterpret_cast<T*>(buffer.data()), Shape{size}};
}
/// Plans of a vector of 8 floats that two ranks owe each other.
auto const owed = distribution<Partial<>>(Mesh{2}, Shape{8});
auto const halves = distribution<Shard<0>>(Mesh{2}, Shape{8});

}  // namespace

TEST_SUITE("comm/device_or_host_memory") {
    TEST_CASE("DeviceThreadKernelCommunicator: plans run wherever the tensors of each rank lie, with the host's bits") {
        std::atomic<int> compared{0};
        for (Index const window : {Index{700}, Index{16} << 20}) {
            OnHost const kernels;
            runtime::set_elsewhere(runtime::Elsewhere::pageable);
            test::check_none(on_threads(sharing, window, [&](ThreadCommunicator& host, auto& comm) {
                test::check_moves(host, comm, test::seeds(150), static_cast<std::uint64_t>(window), true, compared);
            }));
        }
        CHECK(compared > 600);
        CHECK(test::launches(detail::fold_cast_kernel<float, detail::FoldCastBox>) > 0);
    }

    TEST_CASE("StagedOnHostWithKernels: the same over a transport of the host; what it folds and casts lies anywhere") {
        std::atomic<int> compared{0};
        for (Index const window : {Index{4096}, Index{16} << 20}) {
            OnHost const kernels;
            runtime::set_elsewhere(runtime::Elsewhere::pageable);
            StagedOnHostOptions options(nullptr);
            options.window_bytes = window;
            int const before = test::launches(detail::copy_boxes_kernel<detail::CopyBox>);
            test::check_none(on_staged(sharing, options, [&](ThreadCommunicator& host, OverHost& comm) {
                test::check_moves(host, comm, test::seeds(80), static_cast<std::uint64_t>(window), true, compared);
                OverHost part = comm.split(comm.rank() % 2, 0);
                test::check_moves(host, comm, test::seeds(2), 7, true, compared);
                CHECK(part.stream() == comm.stream());
                CHECK(comm.staging_bytes() <= 2 * window + 256 * sharing);
            }));
            CHECK(test::launches(detail::copy_boxes_kernel<detail::CopyBox>) > before);
        }
        CHECK(compared > 300);
    }

    TEST_CASE("tensors of the host pass through the window in pieces, whatever its size, a half at a time") {
        for (Index const window : {Index{256}, Index{5000}, Index{1} << 20}) {
            CAPTURE(window);
            OnHost const kernels;
            runtime::Stream const stream;
            StagingOptions pinned = pinned_staging();
            pinned.release = [](std::byte* memory, Index bytes) noexcept {
                std::fill(memory, memory + bytes, std::byte{0x55});  // somebody else gets it
                static_cast<void>(cudaFreeHost(memory));
            };
            constexpr Index count = 1000;
            std::vector<float> numbers(count);
            std::vector<float> expected(count, -1.0F);
            for (std::size_t i = 0; i != count; ++i) numbers[i] = static_cast<float>(i);
            // Boxes of all sizes, with gaps, in another order on the other side; an empty one that lies nowhere.
            std::vector<std::pair<Index, Index>> boxes{{0, 0}, {0, 1}, {1, 300}, {301, 2}, {303, 97}};
            for (bool const outwards : {true, false}) {
                Buffer const there(bytes_of(numbers), stream);
                Buffer const here(bytes_of(numbers), stream, Where::pageable);
                Buffer const result_here(bytes_of(expected), stream, Where::pageable);
                Buffer const result_there(bytes_of(expected), stream);
                Buffer const& source = outwards ? there : here;
                Buffer const& target = outwards ? result_here : result_there;
                std::optional<detail::HostStaging> host_staging;
                host_staging.emplace("test", stream, 0, pinned, window);
                detail::DeviceOrHostMemory const memory(*host_staging, {});
                memory.check("target", target.data(), 4);
                memory.check("source", source.data(), 4);
                std::vector<transport::Send> sends;
                std::vector<transport::Receive> receives;
                auto wanted = expected;
                for (auto const& [first, extent] : boxes) {
                    transport::StridedBox const from{{transport::StridedDim{extent, 8}}, 4};
                    transport::StridedBox const to{{transport::StridedDim{extent, -4}}, 4};
                    bool const empty = extent == 0;
                    sends.push_back({0, empty ? nullptr : source.data() + 8 * first, from});
                    receives.push_back({0, empty ? nullptr : target.data() + 4 * (first + extent - 1), to});
                    for (Index i = 0; i != extent; ++i)
                        wanted[static_cast<std::size_t>(first + extent - 1 - i)] =
                            numbers[static_cast<std::size_t>(2 * (first + i))];
                }
                memory.deliver(sends, receives);
                source.overwrite();
                CHECK(host_staging->memory.size() == window);
                host_staging.reset();
                CHECK(floats_of(target) == wanted);
            }
        }
        runtime::Stream const stream;
        detail::HostStaging host_staging("test", stream, 0, pinned_staging(), 100);
        detail::DeviceOrHostMemory const memory(host_staging, {});
        Buffer const there(bytes_of({1.0F}), stream);
        Buffer const here(bytes_of({1.0F}), stream, Where::pageable);
        transport::Send const send{0, here.data(), {{}, 4}};
        transport::Receive const receive{0, there.data(), {{}, 4}};
        memory.check("source", here.data(), 4);
        CHECK_THROWS_WITH_AS(memory.deliver({&send, 1}, {&receive, 1}),
                             doctest::Contains("too little for two elements of 4. Fix: a larger window_bytes"),
                             OutOfMemory);
    }

    TEST_CASE("what is done to tensors of the host comes after what was in the stream, and is done on return") {
        OnHost const kernels;
        runtime::Stream const stream;
        detail::HostStaging host_staging("test", stream, 0, pinned_staging(), 4096);
        detail::DeviceOrHostMemory const memory(host_staging, {});
        std::vector<float> const numbers{1, 2, 3, 4};
        std::vector<float> const zeros(4);
        transport::StridedBox const box{{transport::StridedDim{4, 4}}, 4};
        Buffer const news(bytes_of(numbers), stream);
        auto const later = [&](Buffer const& from, Buffer const& to) {
            static_cast<void>(cudaMemcpyAsync(to.data(), from.data(), 16, cudaMemcpyDefault, stream));
        };
        for (Where const place : {Where::device, Where::managed, Where::pageable, Where::pinned}) {
            Buffer const source(bytes_of(zeros), stream, Where::pageable);
            Buffer const target(bytes_of(zeros), stream, place);
            memory.check("source", source.data(), 4);
            later(news, source);
            transport::Send const send{0, source.data(), box};
            transport::Receive const receive{0, target.data(), box};
            memory.deliver({&send, 1}, {&receive, 1});
            CHECK(floats_of(target) == numbers);
            memory.fold({Reduce::sum, DType::f32, 1, 1, 4, {0, news.data(), box}, {}, {0, target.data(), box}});
            CHECK(floats_of(target) == numbers);
            transport::Conversion const doubles{DType::f32, DType::f32, 2.0, host_memory().convert};
            memory.fold(
                {Reduce::sum, DType::f32, 1, 1, 4, {0, news.data(), box}, {}, {0, target.data(), box, doubles}});
            CHECK(floats_of(target) == std::vector<float>{2, 4, 6, 8});
        }
        for (bool const fills : {true, false}) {
            Buffer const target(bytes_of(numbers), stream, Where::pinned);
            Buffer const copy(bytes_of(zeros), stream);
            later(target, copy);
            if (fills) memory.fill_identity(Reduce::product, DType::f32, target.data(), box);
            if (!fills) memory.scale(DType::f32, target.data(), box, 3, 1);
            CHECK(floats_of(target).back() == (fills ? 1.0F : 12.0F));
            CHECK(floats_of(copy) == numbers);
        }
    }

    TEST_CASE("batches of tensors anywhere: rounds share one workspace of the device") {
        OnHost const kernels;
        runtime::set_elsewhere(runtime::Elsewhere::pageable);
        test::check_none(on_threads(2, Index{1} << 16, [&](ThreadCommunicator& host, auto& comm) {
            Where const places[] = {Where::pageable, Where::device, Where::pinned};
            std::vector<float> const numbers(8, static_cast<float>(comm.rank() + 1));
            std::vector<std::unique_ptr<Buffer>> kept;
            auto const buffer = [&](std::size_t bytes, int where) -> Buffer const& {
                auto content = bytes_of(numbers);
                content.resize(bytes);
                kept.push_back(std::make_unique<Buffer>(content, comm.stream(), places[(where + comm.rank()) % 3]));
                return *kept.back();
            };
            Batch batch;
            std::vector<Buffer const*> sums;
            std::vector<Buffer const*> shorts;
            for (int i = 0; i != 6; ++i) {
                Buffer const& source = buffer(32, i);
                sums.push_back(&buffer(16, i / 2));
                shorts.push_back(&buffer(8, i / 3));
                batch.add(plan(owed, halves), view_of<float>(source, 8), view_of<float>(*sums.back(), 4), "sum");
                batch.add(plan(owed, halves), view_of<float>(source, 8), view_of<BFloat16>(*shorts.back(), 4), "short",
                          Casting{0.5});
            }
            auto job = prepare(batch, comm);
            for (int i = 0; i != 2; ++i) job.run();
            for (Buffer const* each : sums) CHECK(floats_of(*each) == std::vector<float>(4, 3.0F));
            for (Buffer const* each : shorts) {
                auto const bytes = each->content();
                BFloat16 first;
                std::memcpy(&first, bytes.data(), sizeof(first));
                CHECK(static_cast<float>(first) == 1.5F);
            }
            barrier(host);
        }));
    }

    TEST_CASE("what a rank cannot work on is refused on every rank, and nothing is poisoned") {
        OnHost const kernels;
        runtime::set_elsewhere(runtime::Elsewhere::pageable);
        auto const move = plan(owed, halves);
        auto const check = [&](ThreadCommunicator& host, auto& comm) {
            bool const culprit = comm.rank() == 1;
            std::vector<float> const numbers(9, 1.0F);
            Buffer const source(bytes_of(numbers), comm.stream());
            Buffer const target(bytes_of(std::vector<float>(4)), comm.stream(), Where::pageable);
            auto const from = view_of<float>(source, 8);
            auto const to = view_of<float>(target, 4);
            std::vector<std::byte> scratch(static_cast<std::size_t>(workspace_bytes(move, comm.rank(), DType::f32)));
            Buffer const there(scratch, comm.stream());
            auto const refused = [&](TensorView<float> const& view, PrepareOptions const& options, char const* text) {
                CHECK_THROWS_WITH_AS(static_cast<void>(prepare(move, comm, view, to, options)), doctest::Contains(text),
                                     BufferError);
            };
            if (culprit) runtime::claim(target.data(), 16, 3);
            refused(from, {}, "this is memory of device 3");
            if (culprit) runtime::claim(target.data(), 16, runtime::pageable_host);
            TensorView<float> const crooked(reinterpret_cast<float*>(source.data() + 2), Shape{8});
            refused(culprit ? crooked : from, {}, "rank 1 of 2: reshard::prepare: source is not aligned");
            TensorView<float> const nothing(nullptr, Shape{8});
            refused(culprit ? nothing : from, {}, "rank 1 of 2: reshard::prepare: the source of rank 1 is null");
            PrepareOptions given;
            given.workspace = {culprit ? scratch.data() : there.data(), scratch.size()};
            refused(from, given, "rank 1 of 2: reshard::prepare: the workspace is memory of the host");
            given.workspace = {there.data(), scratch.size()};
            prepare(move, comm, from, to, given).run();
            CHECK(floats_of(target) == std::vector<float>(4, 2.0F));
            barrier(host);
        };
        test::check_none(on_threads(2, 4096, check));
        test::check_none(on_staged(2, StagedOnHostOptions(nullptr), check));

        auto const without = on_staged(2, StagedOnHostOptions(nullptr), [&](ThreadCommunicator&, OverHost& comm) {
            Buffer const source(bytes_of(std::vector<float>(8)), comm.stream(), Where::pageable);
            Buffer const target(bytes_of(std::vector<float>(4)), comm.stream());
            if (comm.rank() == 1) runtime::fail("cudaMallocHost", cudaErrorMemoryAllocation);
            static_cast<void>(prepare(move, comm, view_of<float>(source, 8), view_of<float>(target, 4)));
        });
        for (auto const& each : without) {
            CHECK(each.code == ErrorCode::out_of_memory);
            CHECK(each.says("rank 1 of 2: reshard: the transport 'threads' has no pinned memory for a window of"));
        }
    }

    TEST_CASE("a device that is never done, or fails, ends the plan on all ranks") {
        OnHost const kernels;
        runtime::set_elsewhere(runtime::Elsewhere::pageable);
        static std::atomic<bool> freed;
        freed = false;
        auto const run = [&](ThreadCommunicator& host, auto& comm, auto&& fault) {
            auto const mean = distribution<Partial<Reduce::avg>>(Mesh{2}, Shape{8});
            Buffer const source(bytes_of(std::vector<float>(8, 3.0F)), comm.stream());
            Buffer const target(bytes_of(std::vector<float>(8)), comm.stream(), Where::pageable);
            auto job = prepare(plan(owed, mean), comm, view_of<float>(source, 8), view_of<float>(target, 8));
            job.run();
            CHECK(floats_of(target) == std::vector<float>(8, 6.0F));
            barrier(host);
            if (comm.rank() == 1) fault(comm);
            job.run();
            static_cast<void>(comm.agree({}));
        };
        StagedOnHostOptions patience(nullptr);
        patience.deadline = std::chrono::milliseconds(200);
        auto const never = on_staged(2, patience, [&](ThreadCommunicator& host, OverHost& comm) {
            run(host, comm, [](OverHost& mine) { runtime::hold(mine.stream(), freed); });
        });
        CAPTURE(never[0].text);
        CAPTURE(never[1].text);
        CHECK(never[1].code == ErrorCode::deadline);
        CHECK(never[1].says("the transport 'threads' waited 200 ms for its device to be done"));
        CHECK(never[0].code == ErrorCode::peer_failed);
        freed = true;
        ++OnHost::kept;  // the window that the device may still use
        auto const failing = [&](ThreadCommunicator& host, auto& comm) {
            run(host, comm, [](auto&) { runtime::fail("cudaStreamQuery", cudaErrorIllegalAddress); });
        };
        for (auto const& ended : {on_threads(2, 4096, failing), on_staged(2, StagedOnHostOptions(nullptr), failing)}) {
            CHECK(ended[1].code == ErrorCode::transport);
            CHECK(ended[1].says("cudaStreamQuery failed"));
            CHECK(ended[0].code == ErrorCode::peer_failed);
        }
    }

    TEST_CASE("a device that is never done holds up no plan that is destroyed: its scratch memory is kept") {
        OnHost const kernels;
        runtime::set_elsewhere(runtime::Elsewhere::pageable);
        static std::atomic<bool> never;
        never = false;
        StagedOnHostOptions patience(nullptr);
        patience.deadline = std::chrono::milliseconds(100);
        auto const ended = on_staged(2, patience, [&](ThreadCommunicator& host, OverHost& comm) {
            Buffer const source(bytes_of(std::vector<float>(8, 3.0F)), comm.stream());
            Buffer const target(bytes_of(std::vector<float>(4)), comm.stream());
            auto const move = plan(owed, halves);
            auto job = prepare(move, comm, view_of<float>(source, 8), view_of<float>(target, 4));
            [[maybe_unused]] auto const other =
                prepare(move, comm, view_of<float>(source, 8), view_of<float>(target, 4));
            barrier(host);
            if (comm.rank() == 1) runtime::hold(comm.stream(), never);
            job.run();
        });
        CAPTURE(ended[0].text);
        CAPTURE(ended[1].text);
        CHECK(ended[1].code == ErrorCode::deadline);
        CHECK(ended[0].code == ErrorCode::peer_failed);
        int const kept = runtime::live_allocations() - OnHost::kept;
        CHECK(kept >= 3);  // both of rank 1, that of the job of rank 0; and windows
        OnHost::kept += kept;
    }

    TEST_CASE("a device that is never done: what its rank split off keeps what it has there as well") {
        OnHost const kernels;
        runtime::set_elsewhere(runtime::Elsewhere::pageable);
        static std::atomic<bool> never;
        never = false;
        ThreadOptions patience;
        patience.deadline = std::chrono::milliseconds(200);
        auto const ended = test::on_devices(2, 2, patience, [&](ThreadCommunicator& host, cudaStream_t stream) {
            DeviceThreadKernelCommunicator comm(host.split(0, 0), stream, {});
            DeviceThreadKernelCommunicator child = comm.split(0, 0);
            void* memory = nullptr;
            static_cast<void>(cudaMalloc(&memory, 64));  // never freed
            auto* const bytes = static_cast<std::byte*>(memory);
            transport::StridedBox const box{{transport::StridedDim{4, 8}}, 4};
            transport::Send const send{1 - comm.rank(), bytes, box};
            transport::Receive const receive{1 - comm.rank(), bytes + 32, box};
            child.exchange({&send, 1}, {&receive, 1}).wait();
            if (comm.rank() == 0) runtime::hold(stream, never);
            comm.exchange({&send, 1}, {&receive, 1}).wait();
        });
        CAPTURE(ended[0].text);
        CAPTURE(ended[1].text);
        CHECK((ended[0].code == ErrorCode::deadline || ended[1].code == ErrorCode::deadline));
        CHECK(runtime::counts().freed_while_held == 0);
        int const kept = runtime::live_allocations() - OnHost::kept;
        CHECK(kept >= 7);  // of rank 0: the window and the lists of both; and both ranks' memory
        OnHost::kept += kept;
    }
}
