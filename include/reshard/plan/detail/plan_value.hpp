// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/plan_value.hpp
/// \brief  A plan of any type, as values: what planner, executor and texts work on.
/// \depends algebra/transition.
#pragma once

#include <reshard/algebra/transition.hpp>

namespace reshard::inline v0::detail {

/// What a plan knows of relays: one rank per node has none.
struct RelayMethods;  // plan/detail/steps.hpp
struct Steps;
struct RelayPlanning;  // plan/relay.hpp
struct Relaying {
    Index ranks_per_node = 0;
    RelayMethods const* methods = nullptr;
};

/// The steps of a transition on one mesh, and of one between meshes.
[[nodiscard]] Steps within_mesh(DynamicDistribution const& from, DynamicDistribution const& to);
[[nodiscard]] Steps between_meshes(DynamicDistribution const& from, DynamicDistribution const& to);

/// A plan of any type, as values. How its steps are made is one of the two functions above: typed plans stay within a
/// mesh, so that header-only programs that have no others compile no planner for two.
struct PlanValue {
    DynamicDistribution const& from;
    DynamicDistribution const& to;
    Steps (*steps)(DynamicDistribution const& from, DynamicDistribution const& to);
    bool across = false;
    Kind kind = Kind::collective;
    Relaying relaying{};
};

}  // namespace reshard::inline v0::detail
