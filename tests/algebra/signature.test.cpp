// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/signature.hpp>

#include <doctest/doctest.h>

using namespace reshard;

namespace {

constexpr Placement R = Placement::replicate();
constexpr Placement S0 = Placement::shard(0);
constexpr Placement S1 = Placement::shard(1);
constexpr Placement cyclic = Placement::shard(0, {SplitKind::cyclic, 2, {}});
constexpr Placement owed_sum = Placement::partial(Reduce::sum);
constexpr Placement owed_max = Placement::partial(Reduce::max);

constexpr detail::SignatureFault fault(std::initializer_list<Placement> placements, int rank,
                                       AxisList const& order = {}) {
    detail::Signature arranged(placements);
    return detail::arrange(arranged, rank, order);
}
constexpr AxisList cuts(std::initializer_list<Placement> placements, AxisList const& order, int dim) {
    detail::Signature arranged(placements);
    static_cast<void>(detail::arrange(arranged, 2, order));
    return arranged.cuts(dim);
}

// Axes cut in ascending order unless told otherwise; the order of other dimensions does not matter.
static_assert(cuts({S0, S1, S0}, {}, 0) == AxisOrder<0, 2>::list());
static_assert(cuts({S0, S1, S0}, {}, 1) == AxisOrder<1>::list());
static_assert(cuts({S0, S1, S0}, AxisOrder<2, 0>::list(), 0) == AxisOrder<2, 0>::list());
static_assert(cuts({S0, S1, S0}, AxisOrder<2, 1, 0>::list(), 0) == AxisOrder<2, 0>::list());
static_assert(cuts({S0, S1, S0}, AxisOrder<1>::list(), 0) == AxisOrder<0, 2>::list(), "all or none of a dimension");
static_assert(cuts({R, S0, owed_sum}, AxisOrder<2, 0, 1>::list(), 0) == AxisOrder<1>::list());

static_assert(fault({S0, S1}, 2) == detail::SignatureFault::none);
static_assert(fault({S0, S1}, 1) == detail::SignatureFault::dimension);
static_assert(fault({S0}, 0) == detail::SignatureFault::dimension, "a scalar has no dimension to shard");
static_assert(fault({Placement::shard(-1)}, 2) == detail::SignatureFault::dimension);
static_assert(fault({Placement::shard(256)}, 1) == detail::SignatureFault::dimension);
static_assert(fault({owed_sum, R, owed_sum}, 2) == detail::SignatureFault::none);
static_assert(fault({owed_sum, R, owed_max}, 2) == detail::SignatureFault::two_ops);
static_assert(fault({S0, S0, S0}, 1, AxisOrder<2, 0>::list()) == detail::SignatureFault::order,
              "some axes of a dimension only");
static_assert(fault({S0, S0}, 1, AxisOrder<1, 1>::list()) == detail::SignatureFault::order);
static_assert(fault({S0, S0}, 1, AxisOrder<1, 2>::list()) == detail::SignatureFault::order);
static_assert(fault({S0, S0}, 1, AxisOrder<-1, 0>::list()) == detail::SignatureFault::order);
static_assert(fault({S0, S0}, 1, AxisOrder<256, 1>::list()) == detail::SignatureFault::order,
              "a number that is out of range must not come round as a legal one");
static_assert(fault({cyclic, S0}, 1) == detail::SignatureFault::cyclic_inside);
static_assert(fault({S0, cyclic}, 1) == detail::SignatureFault::none);
static_assert(fault({cyclic, S0}, 1, AxisOrder<1, 0>::list()) == detail::SignatureFault::none);
static_assert(fault({cyclic, cyclic}, 1) == detail::SignatureFault::cyclic_twice, "at most one per dimension");
static_assert(fault({cyclic, Placement::shard(1, {SplitKind::cyclic, 3, {}})}, 2) == detail::SignatureFault::none);

}  // namespace

TEST_CASE("one of eight axes per position: the largest signature fits") {
    detail::Signature full(Placements{S0, S0, S0, S0, S0, S0, S0, S0});
    CHECK(detail::arrange(full, 1, AxisOrder<7, 6, 5, 4, 3, 2, 1, 0>::list()) == detail::SignatureFault::none);
    CHECK(full.cuts(0) == AxisOrder<7, 6, 5, 4, 3, 2, 1, 0>::list());
}
