// SPDX-License-Identifier: Apache-2.0
// The transport of this project, tried by the suite that the library installs.
#define RESHARD_CONFORMANCE_WITHOUT_DOCTEST
#include "pipes.hpp"

#include <reshard/testing/policies.hpp>  // and so <reshard/testing/conformance.hpp>

int main() {
    using namespace std::chrono_literals;
    using Watched = reshard::test::PolicySet<reshard::Traced, reshard::AbortOnFailure>;
    int failed = 0;
    auto const try_on = [&](int ranks, auto const& promise) {
        failed += runtime::run_on_processes(ranks, 20s, [&](reshard::AnyCommunicator comm) {
            promise(comm);
            return 0;
        });
    };
    for (int ranks : {1, 2, 3, 4, 8}) {
        try_on(ranks, [](reshard::AnyCommunicator& comm) {
            reshard::test::conforms(comm);
            reshard::test::conforms_with_policies<reshard::test::PolicySets<Watched>>(comm);
            reshard::test::refuses_a_second_start(comm);
        });
        if (ranks == 1) continue;
        for (auto const& one : reshard::test::different_payloads)
            try_on(ranks,
                   [&](reshard::AnyCommunicator& comm) { reshard::test::notices_different_payloads(comm, one); });
    }
    std::printf("conformance on 1, 2, 3, 4 and 8 processes: %s\n", failed == 0 ? "passed" : "failed");
    return failed == 0 ? 0 : 1;
}
