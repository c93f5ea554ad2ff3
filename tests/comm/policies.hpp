// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/policies.hpp
/// \brief  The conformance suite through policies: all eight combinations, and the three that a slow launcher can
///         afford. conforms_with_policies<SomePolicies>(comm), called by all ranks. Installed beside the suite.
#pragma once

#include <reshard/comm/abort_on_failure.hpp>
#include <reshard/comm/staged.hpp>
#include <reshard/comm/traced.hpp>

#include "conformance.hpp"

namespace reshard::test {

template <template <class> class... Policies>
struct PolicySet {
    /// The policies around `comm`.
    template <Communicator C>
    static Composed<C, Policies...> around(C comm, [[maybe_unused]] Trace& trace) {
        if constexpr (detail::policies_of<Policies...>(PolicyKind::observation) == 1) {
            return compose<Policies...>(std::move(comm), trace);
        } else {
            return compose<Policies...>(std::move(comm));
        }
    }
};

template <class... Sets>
struct PolicySets {};

/// Every combination of memory, observation and failure.
using AllPolicies = PolicySets<PolicySet<>, PolicySet<Staged>, PolicySet<Traced>, PolicySet<AbortOnFailure>,
                               PolicySet<Staged, Traced>, PolicySet<Staged, AbortOnFailure>,
                               PolicySet<Traced, AbortOnFailure>, PolicySet<Staged, Traced, AbortOnFailure>>;
/// One policy inside, one outside, all of them.
using SomePolicies = PolicySets<PolicySet<Staged>, PolicySet<Traced>, PolicySet<AbortOnFailure, Traced, Staged>>;

/// Collective over `comm`, which is split once per combination. The communicator of each keeps every promise.
template <class Sets, Communicator C>
void conforms_with_policies(C& comm) {
    auto const one = [&]<class Set>(Set) {
        Trace trace(64);  // full soon: what does not fit may not matter
        auto composed = Set::around(comm.split(0, comm.rank()), trace);
        conforms(composed);
    };
    [&]<class... Each>(PolicySets<Each...>) { (one(Each{}), ...); }(Sets{});
}

}  // namespace reshard::test
