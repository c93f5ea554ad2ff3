// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/device_test.cuh"
#include "memory/boxes.hpp"
#include "support/random.hpp"

#include <reshard/memory/convert.hpp>
#include <reshard/memory/copy.cuh>
#include <reshard/memory/copy.hpp>
#include <reshard/memory/fold.hpp>

#include <cstring>
#include <memory>

using namespace reshard;
using namespace reshard::test;

namespace {

using Memory = std::vector<std::byte>;

/// A buffer of a case on the device, its first byte as aligned as the host's would be at a multiple of 16.
struct OnDevice {
    DeviceArray<std::byte> memory;
    Index first;
    explicit OnDevice(Placed const& placed) : memory(placed.memory), first(placed.first) {}
    [[nodiscard]] std::byte* base() const { return memory.data() + first; }
};

std::vector<Index> random_extents(std::mt19937& rng) {
    std::vector<Index> extents(rng() % 6);
    for (Index& extent : extents) extent = 1 + static_cast<Index>(rng() % 9);
    if (!extents.empty() && rng() % 10 == 0) extents[0] = 0;
    if (!extents.empty() && rng() % 4 == 0) extents.back() = 700;
    return extents;
}

/// Dense boxes: their elements are aligned.
Placed dense(std::vector<Index> const& extents, Index element) {
    Placed placed;
    placed.box.element_bytes = element;
    Index step = element;
    for (std::size_t d = 0; d != extents.size(); ++d) placed.box.dims.push_back({extents[d], 0});
    for (int d = placed.box.dims.size(); d-- > 0;) {
        placed.box.dims[d].stride = step;
        step *= placed.box.dims[d].extent;
    }
    placed.memory.assign(static_cast<std::size_t>(step + 128), guard);
    placed.first = 64;
    return placed;
}

void same_nans(Placed const& placed, Memory& memory, DType type) {
    detail::with_number(type, [&]<class T>() {
        using A = detail::Accumulator<T>;
        if constexpr (std::is_floating_point_v<A>) {
            for (Index offset : offsets_of(placed.box)) {
                std::byte* const at = memory.data() + placed.first + offset;
                A const value = detail::load_element<T>(at);
                if (value != value) std::memset(at, 0xff, sizeof(T));
            }
        }
    });
}

}  // namespace

DEVICE_TEST("device copies: equal the host's for random boxes, one by one and batched, and touch nothing else") {
    Stream stream;
    DeviceBoxes batch;
    std::vector<std::unique_ptr<OnDevice>> memory;
    std::vector<Memory> wanted;
    for (std::uint64_t seed : device_seeds(150)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        auto const extents = random_extents(rng);
        Index const element = std::vector<Index>{1, 2, 4, 8, 16, 3, 12, 24}[rng() % 8];
        Placed from = place(rng, extents, element, true);
        Placed to = place(rng, extents, element, false);
        scramble(rng, from.memory);
        memory.push_back(std::make_unique<OnDevice>(from));
        OnDevice const& source = *memory.back();
        OnDevice const one(to);
        memory.push_back(std::make_unique<OnDevice>(to));
        Memory expected = to.memory;
        copy(from.base(), from.box, expected.data() + to.first, to.box);
        device_copy(source.base(), from.box, one.base(), to.box, stream);
        batch.copy(source.base(), from.box, memory.back()->base(), to.box);
        stream.wait();
        device_case() = concat("seed ", seed);
        CHECK(one.memory.host() == expected);
        wanted.push_back(std::move(expected));
    }
    device_case().clear();
    CHECK_THROWS(TransitionError, batch.run(stream));
    DeviceArray<std::byte> const workspace(static_cast<std::size_t>(batch.workspace_bytes()));
    batch.upload(workspace.span(), stream);
    batch.run(stream);
    stream.wait();
    for (std::size_t i = 0; i != wanted.size(); ++i) {
        device_case() = concat("box ", i);
        CHECK(memory[2 * i + 1]->memory.host() == wanted[i]);
    }
}

DEVICE_TEST("device folds: equal the host's, batched, for every dtype and operation; casts round once") {
    std::vector<DType> const types{DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8,  DType::u8,
                                   DType::i16, DType::u16,  DType::i32, DType::u32, DType::i64, DType::u64};
    Stream stream;
    DeviceBoxes batch;
    struct Case {
        Placed to;
        std::unique_ptr<OnDevice> source;
        std::unique_ptr<OnDevice> target;
        Memory expected;
        DType type;
    };
    std::vector<Case> cases;
    for (std::uint64_t seed : device_seeds(300)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        DType const type = types[rng() % types.size()];
        auto const op = static_cast<Reduce>(rng() % reduce_count);
        bool const casts = is_floating(type) && rng() % 2 == 0;
        DType const to_type = casts ? DType::f32 : type;
        if (!supports(op, type)) continue;
        auto const extents = random_extents(rng);
        Index const slots = casts ? 1 : 1 + static_cast<Index>(rng() % 5);
        Index const divisor = op == Reduce::avg ? slots : 1;
        std::vector<Index> with_slots = extents;
        with_slots.insert(with_slots.begin(), slots);
        Placed from = dense(with_slots, bytes(type));
        Placed to = dense(extents, bytes(to_type));
        scramble(rng, from.memory);
        StridedBox slot_box;
        slot_box.element_bytes = bytes(type);
        for (int d = 1; d < from.box.dims.size(); ++d) slot_box.dims.push_back(from.box.dims[d]);
        Index const stride = from.box.dims[0].stride;
        Memory expected = to.memory;
        if (casts) {
            convert(from.base(), slot_box, type, expected.data() + to.first, to.box, to_type);
        } else {
            fold(op, type, from.base(), stride, slots, slot_box, expected.data() + to.first, to.box, divisor);
        }
        auto source = std::make_unique<OnDevice>(from);
        auto target = std::make_unique<OnDevice>(to);
        batch.fold(op, type, source->base(), slot_box, stride, slots, to_type, target->base(), to.box, divisor);
        cases.push_back({to, std::move(source), std::move(target), std::move(expected), to_type});
    }
    DeviceArray<std::byte> const workspace(static_cast<std::size_t>(batch.workspace_bytes()));
    batch.upload(workspace.span(), stream);
    batch.run(stream);
    stream.wait();
    for (std::size_t i = 0; i != cases.size(); ++i) {
        device_case() = concat("case ", i, ", ", name(cases[i].type));
        Memory found = cases[i].target->memory.host();
        same_nans(cases[i].to, found, cases[i].type);
        same_nans(cases[i].to, cases[i].expected, cases[i].type);
        CHECK(found == cases[i].expected);
    }
}

DEVICE_TEST("device copies: memory of the host, other extents and misaligned folds are typed errors") {
    Stream stream;
    DeviceArray<std::byte> const device(4096);
    std::vector<std::byte> host(4096);
    StridedBox const box{{StridedDim{8, 4}}, 4};
    StridedBox const longer{{StridedDim{9, 4}}, 4};
    StridedBox const wider{{StridedDim{8, 8}}, 8};
    CHECK_THROWS(BufferError, device_copy(host.data(), box, device.data(), box, stream));
    CHECK_THROWS(BufferError, device_copy(device.data(), box, host.data(), box, stream));
    CHECK_THROWS(ShapeError, device_copy(device.data(), box, device.data() + 512, longer, stream));
    CHECK_THROWS(DTypeError, device_copy(device.data(), box, device.data() + 512, wider, stream));
    DeviceBoxes batch;
    auto const fold = [&](Reduce op, DType from, std::byte* at, Index slots, DType to) {
        batch.fold(op, from, at, box, 64, slots, to, device.data() + 512, box);
    };
    CHECK_THROWS(DTypeError, fold(Reduce::bor, DType::f32, device.data(), 1, DType::f32));
    CHECK_THROWS(DTypeError, fold(Reduce::sum, DType::i32, device.data(), 1, DType::f32));
    CHECK_THROWS(ShapeError, fold(Reduce::sum, DType::f32, device.data(), 0, DType::f32));
    CHECK_THROWS(BufferError, fold(Reduce::sum, DType::f32, device.data() + 2, 1, DType::f32));
    CHECK(batch.workspace_bytes() == 0);
    batch.run(stream);  // nothing to do
}

int main() { return run_device_tests(); }
