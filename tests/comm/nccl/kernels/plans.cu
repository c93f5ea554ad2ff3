// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/on_device.cuh: plans between tensors of devices, over NcclKernelCommunicator and
// without a communicator, equal those between tensors of the host, bit for bit. The double's device memory is out of
// the host's reach here: code that touched it outside a kernel or copy would not survive.
#include "moves.cuh"

#include <reshard/comm/traced.hpp>
#include <reshard/exec/batch.hpp>

#include <atomic>
#include <chrono>
#include <cstring>

using namespace reshard;
using test::Buffer;
using test::bytes_of;
using test::floats_of;
using test::OnHost;
namespace fake = test::fake_nccl;

namespace {

using Device = NcclKernelCommunicator;

constexpr int world = 6;

}  // namespace

TEST_SUITE("memory/on_device") {
    TEST_CASE("plans between tensors of devices leave the host's bits: any placements, any op, casts and factors") {
        std::atomic<int> compared{0};
        for (auto const window : {Index{2000}, Index{256} << 20}) {
            OnHost const kernels;
            NcclOptions options;
            options.window_bytes = window;
            options.compare = window > 2000;
            test::check_none(test::on_devices(world, [&](ThreadCommunicator& host, cudaStream_t stream) {
                auto device = nccl_from<Device>(host, stream, options);
                test::check_moves(host, device, test::seeds(120), static_cast<std::uint64_t>(window), false, compared);
            }));
        }
        CHECK(compared > 600);
        CHECK(test::launches(detail::fill_box_kernel<detail::FillBox>) > 0);
        CHECK(test::launches(detail::scale_box_kernel<detail::ScaleBox>) > 0);
        CHECK(test::launches(detail::fold_box_kernel<float, detail::FoldBox>) > 0);
        CHECK(test::launches(detail::fold_box_kernel<double, detail::FoldBox>) > 0);
        CHECK(test::launches(detail::fold_box_kernel<std::int64_t, detail::FoldBox>) > 0);
        CHECK(test::launches(detail::fold_box_kernel<std::uint64_t, detail::FoldBox>) > 0);
        CHECK(test::launches(detail::fold_cast_kernel<float, detail::FoldCastBox>) > 0);
        CHECK(test::launches(detail::fold_cast_kernel<std::int64_t, detail::FoldCastBox>) > 0);
        CHECK(test::launches(detail::fold_cast_kernel<std::uint64_t, detail::FoldCastBox>) > 0);
        CHECK(test::launches(detail::copy_pack_kernel<detail::CastPack>) > 0);
        CHECK(test::launches(detail::copy_pack_kernel<detail::CopyPack>) > 0);
        CHECK(test::launches(detail::copy_boxes_kernel<detail::CastBox>) > 0);
    }

    TEST_CASE("plans without a communicator run on a stream; views of tensors of a device are windows into them") {
        OnHost const kernels;
        fake::Stream const stream;
        // Rank 1 of 4 has every fourth number; the other three quarters of its addends are identities.
        auto const dealt = distribution(Mesh{4}, Shape{400}, Shard<0, BlockCyclic>{{1}});
        auto const owed = distribution<Partial<>>(Mesh{4}, Shape{400});
        std::vector<float> numbers(100);
        for (std::size_t i = 0; i != 100; ++i) numbers[i] = static_cast<float>(i);
        std::vector<float> expected(400, 7.0F);
        Buffer const source(bytes_of(numbers), stream);
        Buffer const target(bytes_of(expected), stream);
        auto const view = [](Buffer const& buffer, Index size) {
            return TensorView<float>(reinterpret_cast<float*>(buffer.data()), Shape{size});
        };
        auto const spread = plan(dealt, owed);
        redistribute(spread, TensorView<float>(numbers.data(), Shape{100}),
                     TensorView<float>(expected.data(), Shape{400}), 1);
        redistribute(spread, view(source, 100), view(target, 400), 1, DeviceMemory{stream});
        CHECK(bytes_of(expected) == target.content());
        redistribute(spread, TensorView<float>(numbers.data(), Shape{100}),
                     TensorView<float>(expected.data(), Shape{400}), 1, PrepareOptions{.factor = 0.1});
        redistribute(spread, view(source, 100), view(target, 400), 1, DeviceMemory{stream},
                     PrepareOptions{.factor = 0.1});
        CHECK(bytes_of(expected) == target.content());

        auto const mean = distribution<Partial<Reduce::avg>>(Mesh{4}, Shape{400});
        Buffer const averages(std::vector<std::byte>(1600), stream);
        std::vector<float> expected_averages(400);
        redistribute(plan(owed, mean), TensorView<float>(expected.data(), Shape{400}),
                     TensorView<float>(expected_averages.data(), Shape{400}), 1);
        redistribute(plan(owed, mean), view(target, 400), view(averages, 400), 1, DeviceMemory{stream});
        CHECK(bytes_of(expected_averages) == averages.content());

        auto const whole = distribution<Replicate>(Mesh{4}, Shape{400});
        auto const part = distribution<Shard<0>>(Mesh{4}, Shape{400});
        TensorView<float> const window = plan(whole, part).view(view(target, 400), 2);
        CHECK(window.data() == reinterpret_cast<float*>(target.data()) + 200);
        CHECK(window.extent(0) == 100);

        CHECK_THROWS_WITH_AS(redistribute(spread, TensorView<float>(numbers.data(), Shape{100}), view(target, 400), 1,
                                          DeviceMemory{stream, 3}),
                             doctest::Contains("destination is memory of another device"), BufferError);
        fake::claim(numbers.data(), 400, -1);
        CHECK_THROWS_WITH_AS(redistribute(spread, TensorView<float>(numbers.data(), Shape{100}), view(target, 400), 1,
                                          DeviceMemory{stream}),
                             doctest::Contains("source is memory of the host"), BufferError);
        fake::claim(numbers.data(), 0, 0);
        CHECK_THROWS_WITH_AS(redistribute(Plan<>(spread), ConstDynamicView(source.data() + 2, DType::f32, Shape{99}),
                                          DynamicView(view(target, 400)), 1, DeviceMemory{stream}),
                             doctest::Contains("shape"), BufferError);
        int device = -1;
        CHECK(cudaGetDevice(&device) == cudaSuccess);
        CHECK(device == 0);
    }

    TEST_CASE("local copies of more boxes than a launch takes are several launches") {
        OnHost const kernels;
        fake::Stream const stream;
        DeviceMemory const memory{stream};
        auto const launches_of = [&](Index boxes) {
            CAPTURE(boxes);
            auto const count = static_cast<std::size_t>(4 * boxes);
            std::vector<float> numbers(count);
            for (std::size_t i = 0; i != count; ++i) numbers[i] = static_cast<float>(i);
            Buffer const source(bytes_of(numbers), stream);
            Buffer const target(bytes_of(std::vector<float>(count)), stream);
            std::vector<transport::Send> sends;
            std::vector<transport::Receive> receives;
            for (Index i = 0; i != boxes; ++i) {
                transport::StridedBox const box{{transport::StridedDim{4, 4}}, 4};
                sends.push_back({0, source.data() + 16 * i, box});
                receives.push_back({0, target.data() + 16 * (boxes - 1 - i), box});
            }
            int const before = test::launches();
            memory.deliver(sends, receives);
            memory.deliver({}, {});
            auto const moved = floats_of(target);
            for (std::size_t i = 0; i != count; ++i) CHECK(moved[i] == numbers[count - 4 - i / 4 * 4 + i % 4]);
            return test::launches() - before;
        };
        CHECK(launches_of(10) == 1);
        CHECK(launches_of(78) == 1);
        CHECK(launches_of(160) == 3);
    }

    TEST_CASE("batches of tensors of devices: rounds share one workspace of the device") {
        OnHost const kernels;
        test::check_none(test::on_devices(3, [&](ThreadCommunicator& host, cudaStream_t stream) {
            Trace trace;
            auto comm = compose<Traced>(nccl_from<Device>(host, stream), trace);
            CHECK(CommunicatorRef(comm).memory() == comm.inner().memory());
            auto const owed = distribution<Partial<>>(Mesh{3}, Shape{30});
            auto const mean = distribution<Partial<Reduce::avg>>(Mesh{3}, Shape{30});
            auto const parts = distribution<Shard<0>>(Mesh{3}, Shape{30});
            std::vector<float> numbers(30, static_cast<float>(comm.rank() + 1));
            std::vector<Buffer> kept;
            Buffer const source(bytes_of(numbers), stream);
            Buffer const sums(bytes_of(std::vector<float>(10)), stream);
            Buffer const means(bytes_of(std::vector<float>(10)), stream);
            Buffer const halves(std::vector<std::byte>(20), stream);
            auto const view = [](Buffer const& buffer, Index size) {
                return TensorView<float>(reinterpret_cast<float*>(buffer.data()), Shape{size});
            };
            Batch batch;
            batch.add(plan(owed, parts), view(source, 30), view(sums, 10), "sums");
            batch.add(plan(mean, parts), view(source, 30), view(means, 10), "means");
            batch.add(plan(owed, parts), view(source, 30),
                      TensorView<BFloat16>(reinterpret_cast<BFloat16*>(halves.data()), Shape{10}), "halves",
                      Casting{0.5});
            auto job = prepare(batch, comm);
            job.run();
            auto const taken = fake::counts().device_allocations;
            job.run();
            barrier(host);
            CHECK(fake::counts().device_allocations == taken);
            barrier(host);
            CHECK(floats_of(sums) == std::vector<float>(10, 6.0F));
            CHECK(floats_of(means) == std::vector<float>(10, 2.0F));
            std::vector<BFloat16> result(10);
            auto const bytes = halves.content();
            std::memcpy(result.data(), bytes.data(), bytes.size());
            CHECK(result == std::vector<BFloat16>(10, BFloat16(3.0F)));
        }));
    }

    TEST_CASE("ranks whose batches differ are told where, though no memory of the host can be sent") {
        OnHost const kernels;
        auto const ended = test::on_devices(2, [&](ThreadCommunicator& host, cudaStream_t stream) {
            auto comm = nccl_from<Device>(host, stream);
            auto const parts = distribution<Shard<0>>(Mesh{2}, Shape{8});
            Buffer const memory(bytes_of(std::vector<float>(8)), stream);
            Batch batch;
            batch.add(plan(parts, parts), ConstDynamicView(memory.data(), DType::f32, Shape{4}),
                      DynamicView(memory.data() + 16, DType::f32, Shape{4}), comm.rank() == 1 ? "gamma" : "beta");
            prepare(batch, comm).run();
        });
        for (auto const& each : ended) {
            CHECK(each.code == ErrorCode::mismatch);
            CHECK(each.says("rank 1 of 2: prepared tensor 0 'gamma'"));
            CHECK(each.says("but rank 0 prepared tensor 0 'beta'"));
        }
    }

    TEST_CASE("scratch memory is released when the stream is through with it, though the plan is gone before") {
        OnHost const kernels;
        static thread_local int released;
        test::check_none(test::on_devices(2, [&](ThreadCommunicator& host, cudaStream_t stream) {
            NcclOptions options;
            options.staging.release = [](std::byte* memory, Index bytes) noexcept {
                std::vector<std::byte> const others(static_cast<std::size_t>(bytes), std::byte{0x55});
                {
                    fake::Stream const at_once;  // somebody else gets it
                    static_cast<void>(
                        cudaMemcpyAsync(memory, others.data(), others.size(), cudaMemcpyHostToDevice, at_once));
                    static_cast<void>(cudaStreamSynchronize(at_once));
                }
                static_cast<void>(cudaFree(memory));
                ++released;
            };
            auto comm = nccl_from<Device>(host, stream, options);
            Buffer const source(bytes_of(std::vector<float>(8, 1.0F)), stream);
            Buffer const target(bytes_of(std::vector<float>(4)), stream);
            auto const move =
                plan(distribution<Partial<>>(Mesh{2}, Shape{8}), distribution<Shard<0>>(Mesh{2}, Shape{8}));
            int const before = released;
            redistribute(Plan<>(move), comm, ConstDynamicView(source.data(), DType::f32, Shape{8}),
                         DynamicView(target.data(), DType::f32, Shape{4}));
            CHECK(released > before);
            CHECK(floats_of(target) == std::vector<float>(4, 2.0F));
        }));
    }

    TEST_CASE("the example of docs/cuda.md") {
        OnHost const kernels;
        test::check_none(test::on_devices(2, [&](ThreadCommunicator& host, cudaStream_t stream) {
            int const rank = host.rank();
            Mesh const mesh{2};
            Shape const shape{4, 2};
            Buffer const addends(bytes_of(std::vector<float>(8, 1.5F)), stream);
            Buffer const half(bytes_of(std::vector<float>(4)), stream);
            TensorView<float> const gradient(reinterpret_cast<float*>(addends.data()), shape);
            TensorView<float> const mine(reinterpret_cast<float*>(half.data()), Shape{2, 2});

            auto const owed = distribution<Partial<>>(mesh, shape);
            auto const whole = distribution<Replicate>(mesh, shape);
            auto const rows = distribution<Shard<0>>(mesh, shape);
            auto comm = nccl_from<NcclKernelCommunicator>(host, stream);  // <reshard/comm/nccl.cuh>
            auto job = prepare(plan(owed, rows), comm, gradient, mine);   // checks, agrees, takes its scratch memory
            job.run();                                                    // an exchange, then a fold on `stream`

            TensorView<float> window = plan(whole, rows).view(gradient, rank);           // no copy, no kernel
            redistribute(plan(rows, owed), mine, gradient, rank, DeviceMemory{stream});  // one rank's own work

            CHECK(window.data() == gradient.data() + 4 * rank);
            CHECK(floats_of(half) == std::vector<float>(4, 3.0F));
            CHECK(floats_of(addends)[rank == 0 ? 0U : 4U] == 3.0F);
        }));
    }

    TEST_CASE("memory of the wrong kind is refused on every rank, and so is a device without memory") {
        OnHost const kernels;
        test::check_none(test::on_devices(2, [&](ThreadCommunicator& host, cudaStream_t stream) {
            auto comm = nccl_from<Device>(host, stream);
            auto const owed = distribution<Partial<>>(Mesh{2}, Shape{8});
            auto const parts = distribution<Shard<0>>(Mesh{2}, Shape{8});
            auto const move = plan(owed, parts);
            Buffer const source(bytes_of(std::vector<float>(9, 1.0F)), stream);
            Buffer const target(bytes_of(std::vector<float>(4)), stream);
            std::vector<std::byte> here(static_cast<std::size_t>(workspace_bytes(move, comm.rank(), DType::f32)));
            Buffer const there(here, stream);
            ConstDynamicView const from(source.data(), DType::f32, Shape{8});
            DynamicView const to(target.data(), DType::f32, Shape{4});
            bool const culprit = comm.rank() == 1;
            auto const refused = [&](ConstDynamicView const& view, PrepareOptions const& options, char const* text) {
                CHECK_THROWS_WITH_AS(static_cast<void>(prepare(Plan<>(move), comm, view, to, options)),
                                     doctest::Contains(text), BufferError);
            };
            auto const claimed = here;  // an address of the host, known as one
            if (culprit) fake::claim(claimed.data(), claimed.size(), -1);
            barrier(host);
            ConstDynamicView const host_view(claimed.data(), DType::f32, Shape{8});
            refused(culprit ? host_view : from, {},
                    "rank 1 of 2: reshard: the transport 'nccl' moves memory of a CUDA device");
            ConstDynamicView const crooked(source.data() + 2, DType::f32, Shape{8});
            refused(culprit ? crooked : from, {}, "rank 1 of 2: reshard::prepare: source is not aligned");
            ConstDynamicView const nothing(static_cast<std::byte const*>(nullptr), DType::f32, Shape{8});
            refused(culprit ? nothing : from, {}, "rank 1 of 2: reshard::prepare: the source of rank 1 is null");
            PrepareOptions given;
            given.workspace = {culprit ? const_cast<std::byte*>(claimed.data()) : there.data(), claimed.size()};
            refused(from, given, "device and host memory mixed");
            barrier(host);
            if (culprit) fake::claim(claimed.data(), 0, 0);
            if (culprit) fake::fail("cudaMalloc", cudaErrorMemoryAllocation);
            CHECK_THROWS_WITH_AS(static_cast<void>(prepare(Plan<>(move), comm, from, to)),
                                 doctest::Contains("rank 1 of 2: reshard: no memory for a workspace"), OutOfMemory);
            given.workspace = {there.data(), here.size()};
            // And nothing is poisoned. What CUDA manages is the device's.
            Buffer const managed(bytes_of(std::vector<float>(8, 3.0F)), stream, test::Where::managed);
            ConstDynamicView const shared(managed.data(), DType::f32, Shape{8});
            prepare(Plan<>(move), comm, culprit ? shared : from, to, given).run();
            CHECK(floats_of(target) == std::vector<float>(4, 4.0F));
        }));
    }

    TEST_CASE("a kernel that one rank cannot launch ends the plan on all ranks") {
        OnHost const kernels;
        NcclOptions options;
        options.deadline = std::chrono::seconds(20);
        auto const ended = test::on_devices(3, [&](ThreadCommunicator& host, cudaStream_t stream) {
            auto comm = nccl_from<Device>(host, stream, options);
            // Two phases: the second one never comes for the others.
            auto const owed = distribution<Partial<>>(Mesh{3}, Shape{9});
            auto const whole = distribution<Replicate>(Mesh{3}, Shape{9});
            Buffer const source(bytes_of(std::vector<float>(9, 1.0F)), stream);
            Buffer const target(bytes_of(std::vector<float>(9)), stream);
            auto job = prepare(Plan<>(plan(owed, whole)), comm, ConstDynamicView(source.data(), DType::f32, Shape{9}),
                               DynamicView(target.data(), DType::f32, Shape{9}));
            job.run();
            CHECK(floats_of(target) == std::vector<float>(9, 3.0F));
            // The first launch copies what the rank keeps, the next one folds.
            if (comm.rank() == 2) test::fail_launch(cudaErrorInvalidConfiguration, 1);
            job.run();
        });
        CHECK(ended[2].code == ErrorCode::transport);
        CHECK(ended[2].says("the launch of reshard's kernel 'plans' failed"));
        CHECK(ended[0].code == ErrorCode::peer_failed);
        CHECK(ended[1].code == ErrorCode::peer_failed);
        OnHost::kept += 3;  // the workspaces: peers may still write to them
    }
}
