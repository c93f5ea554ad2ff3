// SPDX-License-Identifier: Apache-2.0
// Plans between tensors of devices, among ranks: threads that share the GPUs there are, and NCCL's ranks, one per GPU
// (where NCCL is). The same moves between tensors of the host say what should come out.
#include "cuda/device/device_test.cuh"
#include "support/random.hpp"

#include <reshard/comm/device_threads.cuh>
#include <reshard/comm/staged_on_host.cuh>
#include <reshard/exec/redistribute.hpp>

#if __has_include(<nccl.h>) && !defined(RESHARD_TEST_WITHOUT_NCCL)
#include <reshard/comm/nccl.cuh>
#endif

#include <cstring>
#include <optional>

using namespace reshard;
using namespace reshard::test;

namespace {

int gpus() {
    int count = 0;
    detail::cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return count;
}

/// Small whole numbers, so that no sum depends on its order in any type.
std::vector<std::byte> values(Random& random, DType type, Index count) {
    std::vector<std::byte> memory(static_cast<std::size_t>(detail::larger<Index>(count, 1) * bytes(type)));
    detail::with_number(type, [&]<class T>() {
        for (std::size_t i = 0; i + sizeof(T) <= memory.size(); i += sizeof(T)) {
            detail::store_element<T>(memory.data() + i, static_cast<detail::Accumulator<T>>(random.between(0, 7)));
        }
    });
    return memory;
}

struct Move {
    Plan<> plan;
    DType from;
    DType to;
    std::uint64_t seed;
    std::string text;
};

std::vector<Move> moves(int ranks, int count) {
    std::vector<Move> list;
    for (std::uint64_t seed : device_seeds(count)) {
        Limits limits;
        limits.max_elements = seed % 7 == 0 ? 200'000 : 3000;
        limits.max_extent = seed % 7 == 0 ? 700 : 40;
        limits.max_ranks = ranks;
        limits.plain_ranks = true;
        limits.ops = {Reduce::sum, Reduce::max};
        Random random(seed, limits);
        DynamicMesh const mesh = random.mesh();
        DynamicShape const shape = random.shape();
        auto const from = random.distribution(mesh, shape);
        auto const to = random.distribution(mesh, shape);
        DType const a = random.pick(std::vector<DType>{DType::f32, DType::bf16, DType::i32});
        DType const b = a != DType::i32 && random.chance(40) ? DType::f16 : a;
        list.push_back({plan(from, to), a, b, seed, reproduction(seed, from, to)});
    }
    return list;
}

/// What the host makes of each rank's values, or nothing where it refuses.
using Results = std::vector<std::vector<std::byte>>;
Results on_host(Move const& move, int ranks) {
    Results results(static_cast<std::size_t>(ranks));
    try {
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            int const r = comm.rank();
            Random random(move.seed * 100 + static_cast<std::uint64_t>(r));
            DynamicShape const mine = move.plan.from().contains(r) ? move.plan.from().local_shape(r) : DynamicShape{};
            DynamicShape const wanted = move.plan.to().contains(r) ? move.plan.to().local_shape(r) : DynamicShape{};
            auto const source = values(random, move.from, mine.size());
            auto target = values(random, move.to, wanted.size());
            redistribute(move.plan, comm, ConstDynamicView(source.data(), move.from, mine),
                         DynamicView(target.data(), move.to, wanted), Casting{});
            results[static_cast<std::size_t>(r)] = std::move(target);
        });
    } catch (DTypeError const&) {
        results.clear();
    }
    return results;
}

enum class Where { device, managed, pinned, pageable };

/// All of these, but what is managed only where the host may touch it while kernels run.
std::vector<Where> everywhere() {
    int shared = 0;
    detail::cuda_check(cudaDeviceGetAttribute(&shared, cudaDevAttrConcurrentManagedAccess, 0),
                       "cudaDeviceGetAttribute");
    std::vector<Where> places{Where::device, Where::pinned, Where::pageable};
    if (shared != 0) places.push_back(Where::managed);
    return places;
}

/// Bytes of the device, or of the host.
class Tensor {
public:
    Tensor(std::vector<std::byte> const& content, Where where) : bytes_(content.size()), where_(where) {
        if (where == Where::device) {
            device_.emplace(content);
        } else if (where == Where::pageable) {
            pageable_ = content;
        } else {
            detail::cuda_check(where == Where::managed ? cudaMallocManaged(&memory_, bytes_, cudaMemAttachGlobal)
                                                       : cudaMallocHost(&memory_, bytes_),
                               "cudaMallocManaged, cudaMallocHost");
            std::memcpy(memory_, content.data(), bytes_);
        }
    }
    Tensor(Tensor const&) = delete;
    Tensor& operator=(Tensor const&) = delete;
    ~Tensor() { where_ == Where::managed ? cudaFree(memory_) : cudaFreeHost(memory_); }

    [[nodiscard]] std::byte* data() {
        if (device_) return device_->data();
        return memory_ != nullptr ? static_cast<std::byte*>(memory_) : pageable_.data();
    }
    /// Of the host: as it is now.
    [[nodiscard]] std::vector<std::byte> content(cudaStream_t stream) {
        if (is_on_stream()) detail::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        if (!device_) return {data(), data() + bytes_};
        CHECK(device_->is_intact(bytes_));
        return device_->host();
    }
    /// Of the host: as the caller may, when a plan has run.
    void overwrite() {
        if (!is_on_stream()) std::memset(data(), 0x33, bytes_);
    }

private:
    [[nodiscard]] bool is_on_stream() const { return where_ == Where::device || where_ == Where::managed; }

    std::size_t bytes_;
    Where where_;
    std::optional<DeviceArray<std::byte>> device_;
    void* memory_ = nullptr;
    std::vector<std::byte> pageable_;
};

/// The same between tensors of the device, or anywhere, twice by one prepared plan.
template <class C>
void check_moves(C& comm, std::vector<Move> const& list, std::vector<Results> const& expected, bool anywhere = false) {
    int const r = comm.rank();
    for (std::size_t i = 0; i != list.size(); ++i) {
        Move const& move = list[i];
        if (expected[i].empty()) continue;
        Random random(move.seed * 100 + static_cast<std::uint64_t>(r));
        DynamicShape const mine = move.plan.from().contains(r) ? move.plan.from().local_shape(r) : DynamicShape{};
        DynamicShape const wanted = move.plan.to().contains(r) ? move.plan.to().local_shape(r) : DynamicShape{};
        auto const numbers = values(random, move.from, mine.size());
        auto const before = values(random, move.to, wanted.size());
        std::vector<Where> const places = everywhere();
        Tensor source(numbers, anywhere ? random.pick(places) : Where::device);
        Tensor target(before, anywhere ? random.pick(places) : Where::device);
        auto job = prepare(move.plan, comm, ConstDynamicView(source.data(), move.from, mine),
                           DynamicView(target.data(), move.to, wanted), Casting{});
        job.run();
        job.run();
        source.overwrite();
        bool const same = target.content(comm.stream()) == expected[i][static_cast<std::size_t>(r)];
        if (!same) std::printf("rank %d, %s\n", r, move.text.c_str());
        static_cast<void>(comm.agree({}));
        CHECK(same);
    }
}

/// Runs body(host, stream) on threads with a device each, and shows what one of them throws.
template <class Body>
void on_gpus(int ranks, Body const& body) {
    int const devices = gpus();
    run_on_threads(ranks, [&](ThreadCommunicator& host) {
        detail::cuda_check(cudaSetDevice(host.rank() % devices), "cudaSetDevice");
        Stream stream;
        body(host, stream);
    });
}

}  // namespace

DEVICE_TEST("plans among threads with devices leave the host's bits") {
    int const ranks = 5;
    auto const list = moves(ranks, 150);
    std::vector<Results> expected;
    for (Move const& move : list) expected.push_back(on_host(move, ranks));
    on_gpus(ranks, [&](ThreadCommunicator& host, Stream& stream) {
        DeviceThreadKernelCommunicator comm(std::move(host), stream);
        check_moves(comm, list, expected);
    });
}

DEVICE_TEST("plans with kernels leave the host's bits wherever on the host or a device each tensor lies") {
    int const ranks = 4;
    auto const list = moves(ranks, 150);
    std::vector<Results> expected;
    for (Move const& move : list) expected.push_back(on_host(move, ranks));
    for (Index window : {Index{16} << 20, Index{5000}}) {
        on_gpus(ranks, [&](ThreadCommunicator& host, Stream& stream) {
            ThreadCommunicator other = host.split(0, 0);
            DeviceThreadOptions options;
            options.window_bytes = window;
            DeviceThreadKernelCommunicator comm(std::move(host), stream, options);
            check_moves(comm, list, expected, true);
            StagedOnHostOptions staging(stream);
            staging.window_bytes = window;
            auto staged = compose<StagedOnHostWithKernels>(std::move(other), staging);
            check_moves(staged, list, expected, true);
        });
    }
}

#if __has_include(<nccl.h>) && !defined(RESHARD_TEST_WITHOUT_NCCL)
DEVICE_TEST("plans among ranks of NCCL, one per GPU, leave the host's bits") {
    int const ranks = gpus();
    auto const list = moves(ranks, 150);
    std::vector<Results> expected;
    for (Move const& move : list) expected.push_back(on_host(move, ranks));
    for (Index window : {Index{256} << 20, Index{4096}}) {
        on_gpus(ranks, [&](ThreadCommunicator& host, Stream& stream) {
            NcclOptions options;
            options.window_bytes = window;
            auto comm = nccl_from<NcclKernelCommunicator>(host, stream, options);
            check_moves(comm, list, expected);
            auto part = comm.split(0, -comm.rank());  // the same ranks the other way round
            CHECK(part.size() == comm.size());
            CHECK(part.rank() == comm.size() - 1 - comm.rank());
            std::vector<float> const here(4);
            CHECK_THROWS(BufferError, comm.check_memory(here.data()));
        });
    }
}
#else
DEVICE_TEST("there is no NCCL here: ranks of NCCL were not tried") {}
#endif

int main() { return run_device_tests(); }
