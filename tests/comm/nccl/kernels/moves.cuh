// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/nccl/kernels/moves.cuh
/// \brief  The same move between tensors of the host and between tensors anywhere, whose kernels run on the host.
#pragma once

#include "../gpus.hpp"
#include "support/box_kernels_on_host.cuh"
#include "support/random.hpp"

#include <reshard/exec/redistribute.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <tuple>

namespace reshard::test {

/// All kernels on the host, and memory of devices guarded, while this lives.
struct OnHost {
    OnHost() {
        run_box_kernels_on_host();
        fake_runtime::guard_device_memory(true);
        fake_nccl::reset();
    }
    OnHost(OnHost const&) = delete;
    OnHost& operator=(OnHost const&) = delete;
    ~OnHost() {
        fake_runtime::guard_device_memory(false);
        CHECK(unknown_kernels().empty());
        CHECK(fake_runtime::counts().default_stream == 0);
        CHECK(fake_runtime::live_allocations() == kept);
    }

    static inline int kept = 0;  ///< what is not freed on purpose
};

/// What the double calls the memory of a tensor.
enum class Where : std::uint8_t { device, managed, pinned, unmapped, pageable };
/// Worked on by kernels, and complete in the order of the stream.
[[nodiscard]] inline bool of_stream(Where where) { return where == Where::device || where == Where::managed; }

/// Bytes of the device, or of the host.
class Buffer {
public:
    Buffer(std::vector<std::byte> const& content, cudaStream_t stream, Where where = Where::device)
        : bytes_(content.size()), stream_(stream), where_(where) {
        void* memory = nullptr;
        if (!of_stream(where_)) {
            static_cast<void>(cudaMallocHost(&memory, bytes_));
            memory_ = static_cast<std::byte*>(memory);
            if (where_ == Where::pageable) fake_runtime::claim(memory, bytes_, fake_runtime::pageable_host);
            if (where_ == Where::unmapped) fake_runtime::claim(memory, bytes_, fake_runtime::unmapped_host);
            std::copy(content.begin(), content.end(), memory_);
            return;
        }
        static_cast<void>(where_ == Where::device ? cudaMalloc(&memory, bytes_)
                                                  : cudaMallocManaged(&memory, bytes_, cudaMemAttachGlobal));
        memory_ = static_cast<std::byte*>(memory);
        static_cast<void>(cudaMemcpyAsync(memory_, content.data(), bytes_, cudaMemcpyHostToDevice, stream_));
        static_cast<void>(cudaStreamSynchronize(stream_));
    }
    Buffer(Buffer const&) = delete;
    Buffer& operator=(Buffer const&) = delete;
    ~Buffer() { static_cast<void>(of_stream(where_) ? cudaFree(memory_) : cudaFreeHost(memory_)); }

    [[nodiscard]] std::byte* data() const { return memory_; }
    /// What is there now: of the device, in the order of the stream.
    [[nodiscard]] std::vector<std::byte> content() const {
        if (!of_stream(where_)) return {memory_, memory_ + bytes_};
        std::vector<std::byte> result(bytes_);
        static_cast<void>(cudaMemcpyAsync(result.data(), memory_, bytes_, cudaMemcpyDeviceToHost, stream_));
        static_cast<void>(cudaStreamSynchronize(stream_));
        return result;
    }
    /// As a caller may when run() has returned; not on the device, whose memory is the stream's.
    void overwrite(std::byte with = std::byte{0x33}) const {
        if (!of_stream(where_)) std::fill(memory_, memory_ + bytes_, with);
    }

private:
    std::size_t bytes_;
    cudaStream_t stream_;
    Where where_;
    std::byte* memory_ = nullptr;
};

/// How a local tensor lies in memory: dimensions in any order, with gaps.
struct Layout {
    DType dtype = DType::f32;
    DynamicShape shape{Shape<0>{}};
    Indices strides;
    std::size_t bytes_ = 16;

    explicit Layout(DType type) : dtype(type) { strides.push_back(1); }  // of a rank without the tensor
    Layout(DType type, DynamicShape const& local, Random& random) : dtype(type), shape(local) {
        std::vector<int> order;
        for (int dim = 0; dim < shape.rank(); ++dim) order.push_back(dim);
        std::shuffle(order.begin(), order.end(), random.engine());
        strides = shape.extents();
        Index step = 1;
        for (int dim : order) {
            step *= random.between(1, 2);
            strides[dim] = step;
            step *= std::max<Index>(shape.extent(dim), 1);
        }
        bytes_ = static_cast<std::size_t>((step + 2) * bytes(dtype));
    }
    [[nodiscard]] DynamicView over(std::byte* memory) const { return {memory + bytes(dtype), dtype, shape, strides}; }
};

/// Whole numbers of the type, now and then infinite.
inline std::vector<std::byte> values(Layout const& layout, Random& random) {
    std::vector<std::byte> memory(layout.bytes_);
    detail::with_number(layout.dtype, [&]<class T>() {
        for (std::size_t i = 0; i + sizeof(T) <= memory.size(); i += sizeof(T)) {
            auto value = static_cast<detail::Accumulator<T>>(random.between(0, 100));
            if constexpr (std::is_floating_point_v<detail::Accumulator<T>>) {
                value = random.chance(2) ? std::numeric_limits<detail::Accumulator<T>>::infinity() : value / 3 - 11;
            }
            detail::store_element<T>(memory.data() + i, value);
        }
    });
    return memory;
}

/// Where the two tensors of a rank lie.
struct Sides {
    Where source = Where::device;
    Where target = Where::device;
};

/// The same move on the host and over `device`, twice by one prepared plan, which allocates nothing after the first.
template <class C>
void check_move(Plan<> const& plan, ThreadCommunicator& host, C& device, DType from, DType to,
                PrepareOptions const& options, Random& random, std::atomic<int>& compared, Sides const& sides = {}) {
    int const rank = host.rank();
    Random mine(static_cast<std::uint64_t>(random.between(0, 1 << 30) + rank));
    Layout const source_layout =
        plan.from().contains(rank) ? Layout(from, plan.from().local_shape(rank), mine) : Layout(from);
    Layout const target_layout = plan.to().contains(rank) ? Layout(to, plan.to().local_shape(rank), mine) : Layout(to);
    auto source = values(source_layout, mine);
    std::vector<std::byte> target(target_layout.bytes_, std::byte{0x77});
    Buffer const source_there(source, device.stream(), sides.source);
    Buffer const target_there(target, device.stream(), sides.target);
    ErrorCode refused = ErrorCode::none;
    ConstDynamicView const source_here = source_layout.over(source.data());
    DynamicView const target_here = target_layout.over(target.data());
    try {
        prepare(plan, host, source_here, target_here, options).run();
    } catch (Error const& error) {
        refused = error.code();
    }
    try {
        auto job = prepare(plan, device, ConstDynamicView(source_layout.over(source_there.data())),
                           target_layout.over(target_there.data()), options);
        job.run();
        auto const held = [&] {  // by all ranks
            barrier(host);
            auto const counts = fake_runtime::counts();
            auto const now =
                std::tuple(fake_runtime::live_allocations(), counts.device_allocations, counts.pinned_allocations);
            barrier(host);
            return now;
        };
        auto const before = held();
        target_there.overwrite(std::byte{0x77});
        job.run();
        CHECK((held() == before));
    } catch (Error const& error) {
        if (error.code() != refused) FAIL_CHECK(error.message());
        return;
    }
    CHECK(refused == ErrorCode::none);
    // What lies on the host is there without a wait, and what was sent from there is not read any more.
    std::vector<std::byte> found;
    if (!of_stream(sides.target)) found = target_there.content();
    bool const untouched = source_there.content() == source;
    source_there.overwrite();
    if (of_stream(sides.target)) found = target_there.content();
    bool const same = found == target;
    CHECK(same);
    CHECK(untouched);
    ++compared;
}

/// Random moves of all kinds, of tensors of devices or, each of its own, anywhere. `salt` makes other ones of a seed.
template <class C>
void check_moves(ThreadCommunicator& host, C& device, std::vector<std::uint64_t> const& seed_list, std::uint64_t salt,
                 bool anywhere, std::atomic<int>& compared) {
    for (std::uint64_t seed : seed_list) {
        Limits limits;
        limits.max_elements = 600;
        limits.max_ranks = host.size();
        limits.plain_ranks = true;
        limits.mostly_cyclic = seed % 4 == 0;
        bool const across = seed % 5 == 0;
        if (seed % 3 == 0) limits.ops = {Reduce::sum, Reduce::avg};
        if (across) limits.ops = {Reduce::sum, Reduce::max};
        Random random(seed + salt, limits);
        DynamicMesh const mesh = random.mesh();
        DynamicShape const shape = random.shape();
        auto const from = random.distribution(mesh, shape);
        auto const to = random.distribution(across ? random.mesh() : mesh, shape);
        if (!across && fills_average(from.signature(), to.signature())) continue;
        INFO(reproduction(seed, from, to));
        // Ops that a type does not have are refused alike on both.
        std::vector<DType> const types{DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::u8};
        DType const a = random.pick(types);
        DType const b = random.chance(40) ? random.pick(types) : a;
        double const factor = random.chance(30) ? 0.3 : 1.0;
        Sides sides;
        if (anywhere) {  // each rank for itself
            Random own(seed * 64 + static_cast<std::uint64_t>(host.rank()) + salt);
            std::vector<Where> const places{Where::device,   Where::device, Where::managed,
                                            Where::pageable, Where::pinned, Where::unmapped};
            sides = {own.pick(places), own.pick(places)};
        }
        Plan<> const move = across ? plan_across(from, to) : plan(from, to);
        if (a != b) {
            check_move(move, host, device, a, b, Casting{factor}, random, compared, sides);
        } else {
            check_move(move, host, device, a, b, PrepareOptions{.factor = factor}, random, compared, sides);
        }
    }
}

inline std::vector<std::byte> bytes_of(std::vector<float> const& numbers) {
    std::vector<std::byte> memory(numbers.size() * sizeof(float));
    std::memcpy(memory.data(), numbers.data(), memory.size());
    return memory;
}
inline std::vector<float> floats_of(Buffer const& buffer) {
    auto const memory = buffer.content();
    std::vector<float> numbers(memory.size() / sizeof(float));
    std::memcpy(numbers.data(), memory.data(), memory.size());
    return numbers;
}

}  // namespace reshard::test
