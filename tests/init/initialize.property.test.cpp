// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/init/initialize.hpp: every placement holds parts of one and the same tensor.
#include <reshard/init/initialize.hpp>

#include <doctest/doctest.h>

#include <reshard/exec/redistribute.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// The whole tensor, one value at a time.
template <class T, class Law>
std::vector<T> whole_tensor(Law const& initializer, Index count, std::uint64_t seed, std::string const& name) {
    constexpr Index each = sizeof(detail::Computed<T>) == 8 ? 2 : 4;
    constexpr std::size_t words = sizeof(detail::Computed<T>) / 4;
    detail::RandomValues<T, Law> const values(initializer);
    std::vector<T> result;
    for (Index i = 0; i < count; ++i) {
        PhiloxBlock const block = philox4x32(static_cast<std::uint64_t>(i / each), name_stream(name), seed);
        detail::Computed<T> value{};
        values(block.words + words * static_cast<std::size_t>(i % each), 1, &value);
        result.push_back(static_cast<T>(value));
    }
    return result;
}

/// Memory for a local tensor: its dimensions in any order, with gaps, sometimes backwards.
template <class T>
struct StridedMemory {
    std::vector<T> memory;
    TensorView<T> view;

    StridedMemory(test::Random& random, DynamicShape const& shape, T filling) {
        std::vector<int> order;
        for (int dim = 0; dim < shape.rank(); ++dim) order.push_back(dim);
        bool const dense = random.chance(40);
        if (!dense) std::shuffle(order.begin(), order.end(), random.engine());
        Indices strides = shape.extents();
        Index reach = 1;
        Index begin = 0;
        for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
            Index const gap = dense ? 0 : random.between(0, 2);
            strides[*dim] = reach + gap;
            reach += (std::max<Index>(shape.extent(*dim), 1) - 1) * strides[*dim] + gap;
            if (dense) reach = std::max<Index>(shape.extent(*dim), 1) * strides[*dim];
            if (!dense && random.chance(20)) {
                begin += (std::max<Index>(shape.extent(*dim), 1) - 1) * strides[*dim];
                strides[*dim] = -strides[*dim];
            }
        }
        memory.assign(static_cast<std::size_t>(reach + 1), filling);
        view = TensorView<T>(memory.data() + begin, shape, strides);
    }
    /// The elements in local order.
    [[nodiscard]] std::vector<T*> elements() const {
        std::vector<T*> result{view.data()};
        for (int dim = 0; dim < view.rank(); ++dim) {
            std::vector<T*> longer;
            for (T* base : result)
                for (Index i = 0; i < view.extent(dim); ++i) longer.push_back(base + i * view.stride(dim));
            result.swap(longer);
        }
        return result;
    }
};

template <class T>
bool same_bits(T a, T b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T, class I>
void check_parts(std::uint64_t seed, I const& initializer) {
    test::Limits limits;
    limits.max_elements = 3000;
    if (seed % 9 == 0) limits.max_extent = 4 * detail::value_block + 3;  // runs of several blocks of values
    limits.ops = {Reduce::sum, Reduce::min, Reduce::max, Reduce::product};
    test::Random random(seed, limits);
    DynamicDistribution const d = random.distribution();
    INFO(test::reproduction(seed, d));
    std::string const name = errors::concat("layer.", seed % 7, ".weight");
    std::uint64_t const key = random.engine()();
    std::vector<T> const whole = whole_tensor<T>(initializer, d.shape().size(), key, name);
    T const filling = static_cast<T>(77.0F);
    oracle::Owed const debt = oracle::owed(d);
    for (Index rank : oracle::ranks(d)) {
        CAPTURE(rank);
        StridedMemory<T> local(random, d.local_shape(rank), filling);
        initialize(name, d, local.view, static_cast<int>(rank), key, initializer);
        oracle::Elements const held = oracle::elements(d, rank);
        std::vector<T*> const elements = local.elements();
        REQUIRE(held.size() == elements.size());
        bool const has_values = oracle::addend_of(d, rank) == 0 || debt.op == Reduce::min || debt.op == Reduce::max;
        T const identity = static_cast<T>(debt.op == Reduce::product ? 1.0F : -0.0F);
        bool right = true;
        for (std::size_t i = 0; i < held.size(); ++i) {
            right = right && same_bits(*elements[i], has_values ? whole[oracle::at(held[i])] : identity);
            *elements[i] = filling;
        }
        REQUIRE(right);
        bool const untouched = std::all_of(local.memory.begin(), local.memory.end(),
                                           [&](T const& value) { return same_bits(value, filling); });
        REQUIRE(untouched);
    }
}

template <class I>
void check_types(std::uint64_t seed, I const& initializer) {
    switch (seed % 4) {
        case 0: return check_parts<float>(seed, initializer);
        case 1: return check_parts<double>(seed, initializer);
        case 2: return check_parts<BFloat16>(seed, initializer);
        default: return check_parts<Float16>(seed, initializer);
    }
}

}  // namespace

TEST_SUITE("init/initialize") {
    TEST_CASE("law: every rank's part is that of one tensor, whatever mesh, placement, rule, order, stride and type") {
        for (std::uint64_t seed : test::seeds(400)) {
            check_types(seed, Uniform{-0.3, 0.7});
            check_types(seed + 1, Normal{0.1, 2.0});
            check_types(seed + 2, TruncatedNormal{0.0, 1.0, -1.5, 3.0});
        }
    }

    TEST_CASE("law: a Partial is what plan(R, P) makes of the whole tensor") {
        test::Limits limits;
        limits.max_elements = 500;
        limits.ops = {Reduce::sum, Reduce::min, Reduce::max, Reduce::product};
        for (std::uint64_t seed : test::seeds(300)) {
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            DynamicDistribution const d = random.distribution(mesh, shape);
            INFO(test::reproduction(seed, d));
            Placements copies;
            for (int axis = 0; axis < mesh.axes(); ++axis) copies.push_back(Placement::replicate());
            DynamicDistribution const whole(mesh, shape, copies);
            auto const move = plan(whole, d);
            if (!move.is_local()) continue;
            for (Index rank : oracle::ranks(d)) {
                Tensor<float> full(shape);
                Tensor<float> part(d.local_shape(rank));
                Tensor<float> direct(d.local_shape(rank));
                initialize("w", whole, full.view(), static_cast<int>(rank), seed, Normal{});
                redistribute(move, ConstDynamicView(full.view()), DynamicView(part.view()), static_cast<int>(rank));
                initialize("w", d, direct.view(), static_cast<int>(rank), seed, Normal{});
                bool const same =
                    std::memcmp(part.data(), direct.data(), static_cast<std::size_t>(part.size()) * sizeof(float)) == 0;
                REQUIRE(same);
            }
        }
    }

    TEST_CASE("law: a constant is everywhere, and nowhere else") {
        for (std::uint64_t seed : test::seeds(200)) {
            test::Limits limits;
            limits.partial = false;
            test::Random random(seed, limits);
            DynamicDistribution const d = random.distribution();
            INFO(test::reproduction(seed, d));
            for (Index rank : oracle::ranks(d)) {
                StridedMemory<std::int32_t> local(random, d.local_shape(rank), 77);
                initialize("w", d, local.view, static_cast<int>(rank), seed, Constant{-5.0});
                bool right = true;
                for (std::int32_t* element : local.elements()) {
                    right = right && *element == -5;
                    *element = 77;
                }
                right = right && std::count(local.memory.begin(), local.memory.end(), 77) ==
                                     static_cast<std::ptrdiff_t>(local.memory.size());
                REQUIRE(right);
            }
        }
    }
}
