// SPDX-License-Identifier: Apache-2.0
// DeviceMemory against host_memory(): the same calls on the same bytes, and the same moves without a communicator.
#include "cuda/device/device_test.cuh"
#include "support/random.hpp"

#include <reshard/exec/redistribute.hpp>
#include <reshard/memory/on_device.cuh>

#include <cstring>

using namespace reshard;
using namespace reshard::test;

namespace {

using Memory = std::vector<std::byte>;

/// Which NaN a sum or factor hands on is the processor's choice: all become one.
void same_nans(Memory& memory, DType type) {
    detail::with_number(type, [&]<class T>() {
        if constexpr (std::is_floating_point_v<detail::Accumulator<T>>) {
            for (std::size_t i = 0; i + sizeof(T) <= memory.size(); i += sizeof(T)) {
                auto const value = detail::load_element<T>(memory.data() + i);
                if (value != value) std::memset(memory.data() + i, 0xff, sizeof(T));
            }
        }
    });
}

/// Rows with gaps between them, or one dense run: some begin where several elements may be loaded at once.
transport::StridedBox box_of(DType type, Index rows, Index columns, Index gap) {
    return {{transport::StridedDim{rows, (columns + gap) * bytes(type)}, transport::StridedDim{columns, bytes(type)}},
            bytes(type)};
}

Memory random_bytes(Random& random, Index count) {
    Memory memory(static_cast<std::size_t>(count));
    for (std::byte& byte : memory) byte = static_cast<std::byte>(random.engine()() >> 56);
    return memory;
}

}  // namespace

DEVICE_TEST("DeviceMemory: casts, folds, fills and factors leave the host's bits") {
    std::vector<DType> const types{DType::boolean, DType::u8,   DType::i8,  DType::i16, DType::u16,
                                   DType::f16,     DType::bf16, DType::i32, DType::u32, DType::f32,
                                   DType::f64,     DType::i64,  DType::u64};
    Stream stream;
    DeviceMemory const device{stream};
    for (std::uint64_t seed : device_seeds(600)) {
        Random random(seed);
        DType const a = random.pick(types);
        DType const b = random.pick(types);
        double const factor =
            random.chance(50) ? random.pick(std::vector<double>{0.5, 1.0 / 3, -0.1, 1e-40, 1e300}) : 1.0;
        Index const rows = random.between(1, 40);
        Index const columns = random.chance(50) ? 4 * random.between(1, 75) : random.between(1, 300);
        auto const gap = [&] { return random.pick(std::vector<Index>{0, 0, 3, 4}); };
        auto const from_box = box_of(a, rows, columns, gap());
        auto const to_box = box_of(b, rows, columns, gap());
        Index const slots = random.between(1, 9);
        Index const slot_bytes = (columns + 4) * rows * bytes(a);
        Memory const from = random_bytes(random, slots * slot_bytes);
        Memory const to = random_bytes(random, (columns + 4) * rows * 8);
        DeviceArray<std::byte> const from_there(from);
        device_case() = errors::concat("seed ", seed, " ", name(a), " to ", name(b));
        auto const compare = [&](DType type, bool exact, auto&& body) {
            Memory expected = to;
            DeviceArray<std::byte> const found_there(to);
            body(host_memory().policy, from.data(), expected.data());
            body(device, from_there.data(), found_there.data());
            stream.wait();
            Memory found = found_there.host();
            if (!exact) {
                same_nans(found, type);
                same_nans(expected, type);
            }
            CHECK(found == expected);
        };
        auto const convert_box = host_memory().convert;
        if (transport::can_convert(a, b, factor)) {
            compare(b, true, [&](auto const& memory, std::byte const* source, std::byte* target) {
                transport::Send const send{0, source, from_box, {a, a, 1.0, convert_box}};
                transport::Receive const receive{0, target, to_box, {b, a, factor, convert_box}};
                memory.deliver(std::span(&send, 1), std::span(&receive, 1));
            });
        }
        auto const op = static_cast<Reduce>(random.between(0, reduce_count - 1));
        auto const own_box = box_of(a, rows, columns, gap());
        Index const divisor = op == Reduce::avg ? slots : 1;
        Memory folded(static_cast<std::size_t>(rows * columns * bytes(a)));  // of the host, where one follows the other
        auto const dense = box_of(a, rows, columns, 0);
        FoldWork work{op, a, slots, divisor, slot_bytes, {0, nullptr, from_box}, {0, folded.data(), dense}, {}};
        if (supports(op, a)) {
            compare(a, false, [&](auto const& memory, std::byte const* source, std::byte* target) {
                work.slots.base = source;
                work.to = {0, target, own_box};
                memory.fold(work);
            });
        }
        if (supports(op, a) && transport::can_convert(a, b, factor)) {
            compare(b, false, [&](auto const& memory, std::byte const* source, std::byte* target) {
                work.slots.base = source;
                work.to = {0, target, to_box, {b, a, factor, convert_box}};
                memory.fold(work);
            });
        }
        if (supports(op, a) && has_identity(op)) {
            compare(a, true, [&](auto const& memory, std::byte const*, std::byte* target) {
                memory.fill_identity(op, a, target, own_box);
            });
        }
        if (is_floating(a)) {
            compare(a, false, [&](auto const& memory, std::byte const*, std::byte* target) {
                memory.scale(a, target, own_box, static_cast<Index>(1 + seed % 3), slots);
            });
        }
    }
}

DEVICE_TEST("DeviceMemory: lists of many boxes, of any length, leave the host's bytes") {
    Stream stream;
    DeviceMemory const device{stream};
    for (std::uint64_t seed : device_seeds(40)) {
        Random random(seed);
        auto const count = random.pick(std::vector<int>{1, 10, 11, 78, 79, 200});
        Memory const from = random_bytes(random, Index{count} * 4096);
        Memory expected(from.size());
        DeviceArray<std::byte> const from_there(from);
        DeviceArray<std::byte> const to_there(expected);
        std::vector<transport::Send> here_from, there_from;
        std::vector<transport::Receive> here_to, there_to;
        for (int i = 0; i < count; ++i) {
            DType const type = random.pick(std::vector<DType>{DType::u8, DType::f16, DType::f32, DType::f64});
            Index const rows = random.between(1, 16);
            Index const columns = random.between(0, 28);
            transport::StridedBox const source = box_of(type, rows, columns, 4);
            transport::StridedBox const target = box_of(type, rows, columns, random.between(0, 4));
            Index const at = Index{i} * 4096;
            here_from.push_back({0, from.data() + at, source});
            there_from.push_back({0, from_there.data() + at, source});
            here_to.push_back({0, expected.data() + at, target});
            there_to.push_back({0, to_there.data() + at, target});
        }
        host_memory().policy.deliver(here_from, here_to);
        device.deliver(there_from, there_to);
        stream.wait();
        device_case() = errors::concat("seed ", seed, ", ", count, " boxes");
        CHECK(to_there.host() == expected);
    }
}

DEVICE_TEST("plans without a communicator: tensors of the device get what tensors of the host get") {
    Stream stream;
    for (std::uint64_t seed : device_seeds(200)) {
        Limits limits;
        limits.max_elements = 5000;
        limits.plain_ranks = true;
        limits.ops = {Reduce::sum, Reduce::avg};
        Random random(seed, limits);
        DynamicMesh const mesh = random.mesh();
        DynamicShape const shape = random.shape();
        auto const from = random.distribution(mesh, shape);
        auto const to = random.distribution(mesh, shape);
        if (fills_average(from.signature(), to.signature()) || !plan(from, to).is_local()) continue;
        auto const rank = static_cast<int>(random.between(0, mesh.last_rank()));
        DynamicShape const mine = from.local_shape(rank);
        DynamicShape const wanted = to.local_shape(rank);
        Memory const source = random_bytes(random, detail::larger<Index>(mine.size() * 4, 4));
        Memory expected = random_bytes(random, detail::larger<Index>(wanted.size() * 2, 4));
        DeviceArray<std::byte> const source_there(source);
        DeviceArray<std::byte> const target_there(expected);
        Plan<> const move = plan(from, to);
        redistribute(move, ConstDynamicView(source.data(), DType::f32, mine),
                     DynamicView(expected.data(), DType::bf16, wanted), rank, Casting{0.3});
        redistribute(move, ConstDynamicView(source_there.data(), DType::f32, mine),
                     DynamicView(target_there.data(), DType::bf16, wanted), rank, DeviceMemory{stream}, Casting{0.3});
        stream.wait();
        device_case() = reproduction(seed, from, to);
        CHECK(target_there.host() == expected);
    }
}

DEVICE_TEST("DeviceMemory: memory of the host, misaligned, or more than there is, is a typed error") {
    Stream stream;
    DeviceMemory const device{stream};
    DeviceArray<float> const there(16);
    std::vector<float> here(16);
    CHECK_THROWS(BufferError, device.check("source", here.data(), 4));
    CHECK_THROWS(BufferError, device.check("source", reinterpret_cast<std::byte*>(there.data()) + 2, 4));
    CHECK_THROWS(OutOfMemory, static_cast<void>(device.allocate(Index{1} << 50)));
    device.check("source", there.data(), 4);
    CHECK(device.allocate(1000).data() != nullptr);
}

int main() { return run_device_tests(); }
