// SPDX-License-Identifier: Apache-2.0
// What a temporary has may be kept by reference: everything here is a constant, and constant expressions do not read
// memory that is gone.
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include <reshard/core/tensor.hpp>
#include <reshard/plan/topology.hpp>

namespace {
using namespace reshard;

constexpr auto rows() { return distribution<Shard<0>>(Mesh{2}, Shape{4, 6}); }
constexpr auto whole() { return distribution<Replicate>(Mesh{2}, Shape{4, 6}); }

constexpr Index of_faces() {
    DynamicShape const& shape = Shape{2, 3};
    DynamicMesh const& mesh = Mesh{5}.on(first_rank(1));
    DynamicDistribution const& distribution = rows();
    Index const base = shape.size() + mesh.size() + distribution.shape().size();  // 6 + 5 + 24
    DynamicShape const& of_type = Shape<4>{};
    DynamicMesh const& mesh_of_type = Mesh<3>{};
    DynamicDistribution const& as_it_is = rows();
    return base + of_type.size() + mesh_of_type.size() + as_it_is.mesh().size();  // 4 + 3 + 2
}
static_assert(of_faces() == 44);

constexpr Index of_parts() {
    Index sum = 0;
    for (Index extent : Shape{2, 3}.extents()) sum += extent;                // 5
    for (Index extent : Mesh{2, 4}.extents()) sum += extent;                 // 6
    for (Index rank : Mesh{2}.on(first_rank(7)).ranks().ranks) sum += rank;  // consecutive: no list
    for (Index extent : rows().shape().extents()) sum += extent;             // 10
    for (Index extent : rows().mesh().extents()) sum += extent;              // 2
    for (std::int8_t axis : rows().cuts(0)) sum += axis;                     // 0
    for (PlacementForm const& placement : rows().signature().placements) sum += placement.dim();
    SplitRule const& rule = rows().placement(0).rule();
    auto const& from = plan(rows(), whole()).from();
    auto const& to = plan(rows(), whole()).to();
    return sum + rule.block + from.mesh().size() + to.mesh().size();  // 2 + 2
}
static_assert(of_parts() == 27);

constexpr int memory[6] = {};
constexpr Index of_views() {
    Index sum = 0;
    for (Index extent : TensorView<int const>(memory, Shape{2, 3}).shape().extents()) sum += extent;
    for (Index stride : TensorView<int const>(memory, Shape{2, 3}).strides()) sum += stride;
    return sum;
}
static_assert(of_views() == 9);

// Faces are what they stand for, not objects that hold it.
static_assert(std::is_base_of_v<DynamicShape, Shape<2, 3>> && sizeof(Shape<2, 3>) == sizeof(DynamicShape));
static_assert(std::is_base_of_v<DynamicMesh, Mesh<2>> && sizeof(Mesh<2>) == sizeof(DynamicMesh));
static_assert(std::is_base_of_v<DynamicDistribution, decltype(rows())>);
template <class S>
concept Narrows = requires(S shape) {
    shape.narrow(0, 1);
};
static_assert(Narrows<DynamicShape> && !Narrows<Shape<2, 3>>);

}  // namespace

TEST_SUITE("plan/rvalues") {
    TEST_CASE("what a temporary holds on the heap, and views by value") {
        Index sum = 0;
        for (Index extent : Tensor<float>(Shape{2, 3}).shape().extents()) sum += extent;
        for (Index extent : DynamicView(nullptr, DType::u8, Shape{2, 3}).shape().extents()) sum += extent;
        for (Index stride : DynamicView(nullptr, DType::u8, Shape{2, 3}).strides()) sum += stride;
        CHECK(sum == 14);
        auto const topology = [] { return Topology({{"a name that is too long for a small string", 0, 0, 1, 0}}); };
        for (Tier const& tier : topology().tiers()) sum += static_cast<Index>(tier.name.size());
        Tier const& tier = topology().tier(0);
        CHECK(tier.name.size() == 42);
        CHECK(sum == 56);
    }
}
