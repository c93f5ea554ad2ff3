// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/policy.hpp.
#include <reshard/comm/policy.hpp>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/exec/redistribute.hpp>

#include "counted.hpp"
#include "policies.hpp"

#include <doctest/doctest.h>

#include "../support/random.hpp"

#include <vector>

namespace {
using namespace reshard;

// What is not asked for costs nothing.
static_assert(std::is_same_v<Composed<ThreadCommunicator>, ThreadCommunicator>);
// The order of the list says nothing; each kind has its place.
static_assert(std::is_same_v<Composed<ThreadCommunicator, Staged, Traced, AbortOnFailure>,
                             AbortOnFailure<Traced<Staged<ThreadCommunicator>>>>);
static_assert(std::is_same_v<Composed<ThreadCommunicator, AbortOnFailure, Staged, Traced>,
                             AbortOnFailure<Traced<Staged<ThreadCommunicator>>>>);
static_assert(std::is_same_v<Composed<SelfCommunicator, AbortOnFailure>, AbortOnFailure<SelfCommunicator>>);
static_assert(Communicator<Composed<SelfCommunicator, Staged, Traced, AbortOnFailure>>);
static_assert(Communicator<Composed<ThreadCommunicator, Staged, Traced, AbortOnFailure>>);
// A list twice composed is a list: the parts of a communicator have its type.
static_assert(std::is_same_v<decltype(std::declval<Composed<ThreadCommunicator, Staged, Traced>&>().split(0, 0)),
                             Composed<ThreadCommunicator, Staged, Traced>>);
static_assert(std::is_same_v<decltype(std::declval<Composed<ThreadCommunicator, Traced>&>().split(Mesh{1}, 0)),
                             Composed<ThreadCommunicator, Traced>>);

template <class C>
concept HasStream = requires(C const& comm) {
    comm.stream();
};
static_assert(!HasStream<Composed<ThreadCommunicator, Traced, AbortOnFailure>>);

using test::Counted;

}  // namespace

TEST_SUITE("comm/policy") {
    TEST_CASE("every combination of policies is a communicator, on one rank to eight") {
        SelfCommunicator self;
        test::conforms_with_policies<test::AllPolicies>(self);
        for (int const ranks : {1, 2, 3, 4, 8}) {
            if (test::fewer_seeds() && ranks > 3) continue;
            CAPTURE(ranks);
            run_on_threads(ranks,
                           [](ThreadCommunicator& comm) { test::conforms_with_policies<test::AllPolicies>(comm); });
        }
    }

    TEST_CASE("compose: settings go to the policies that take them, in any order") {
        Trace trace(4);
        auto comm = compose<Traced, Staged>(SelfCommunicator(), trace, StagingOptions{.reserve_bytes = 4096});
        static_assert(std::is_same_v<decltype(comm), Traced<Staged<SelfCommunicator>>>);
        CHECK(comm.inner().staging_bytes() == 4096);
        barrier(comm);
        CHECK(trace.records().size() == 1);
        auto other = compose<Traced, Staged>(SelfCommunicator(), StagingOptions{.reserve_bytes = 64}, trace);
        CHECK(other.inner().staging_bytes() == 64);
        CHECK(&other.trace() == &trace);
        auto none = compose(SelfCommunicator());
        static_assert(std::is_same_v<decltype(none), SelfCommunicator>);
        CHECK(none.size() == 1);
    }

    TEST_CASE("a policy of the program's own composes with the others") {
        int count = 0;
        auto comm = compose<AbortOnFailure, Counted, Staged>(SelfCommunicator(), count);
        static_assert(std::is_same_v<decltype(comm), AbortOnFailure<Counted<Staged<SelfCommunicator>>>>);
        barrier(comm);
        auto part = comm.split(0, 0);
        barrier(part);
        CHECK(count == 2);
    }

    TEST_CASE("plans run through all policies at once") {
        run_on_threads(4, [](ThreadCommunicator& plain) {
            Trace trace;
            auto comm = compose<Staged, Traced, AbortOnFailure>(std::move(plain), trace);
            Mesh const mesh{4};
            Shape const shape{8, 12};
            auto const rows = distribution<Shard<0>>(mesh, shape);
            auto const columns = distribution<Shard<1>>(mesh, shape);
            auto const from = rows.boxes(comm.rank());
            std::vector<int> source(static_cast<std::size_t>(2 * 12));
            for (int i = 0; i != 2; ++i)
                for (int j = 0; j != 12; ++j)
                    source[static_cast<std::size_t>(i * 12 + j)] = (2 * comm.rank() + i) * 100 + j;
            std::vector<int> destination(static_cast<std::size_t>(8 * 3), -1);
            redistribute(plan(rows, columns), comm, TensorView<int const>{source.data(), Shape{2, 12}},
                         TensorView<int>{destination.data(), Shape{8, 3}});
            int wrong = 0;
            for (int i = 0; i != 8; ++i)
                for (int j = 0; j != 3; ++j)
                    wrong += destination[static_cast<std::size_t>(i * 3 + j)] != i * 100 + comm.rank() * 3 + j ? 1 : 0;
            CHECK(wrong == 0);
            CHECK(!trace.records().empty());
        });
    }
}
