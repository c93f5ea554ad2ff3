// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/scarce.hpp
/// \brief  One allocation of one rank is refused, whichever it is: then all ranks say so, at once and alike.
#pragma once

#include <reshard/comm/policy.hpp>
#include <reshard/comm/threads.hpp>

#include "allocations.hpp"
#include "random.hpp"
#include "thrown.hpp"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace reshard::test {

/// What this thread may not allocate does not bind it for as long as this lives.
class Plenty {
public:
    Plenty() { allocation_counter().refused_from = SIZE_MAX; }
    ~Plenty() { allocation_counter().refused_from = before_; }
    Plenty(Plenty const&) = delete;
    Plenty& operator=(Plenty const&) = delete;

private:
    std::size_t before_ = allocation_counter().refused_from;
};

/// A transport that has memory for what it does itself: to agree it copies words, and a rank that cannot say what is
/// wrong with it cannot agree on that. (Then the transport tells the others that this rank has failed; exchanges
/// allocate nothing, by contract.) What is tried here is what a rank does between two calls.
template <class C>
class WithMemory : public PolicyBase<WithMemory<C>, C> {
    using Base = PolicyBase<WithMemory, C>;

public:
    using Base::Base;
    using Base::split;

    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) {
        Plenty const plenty;
        return Base::agree(std::move(mine));
    }
    [[nodiscard]] WithMemory split(int colour, int key) {
        Plenty const plenty;
        return WithMemory(this->inner_.split(colour, key));
    }
};

/// `prepare(comm)` returns what a rank calls: what that needs is there already. One rank is refused its first
/// allocation in the call, in the next run its second, and so on, until a run asks for no more. (A run may also get by
/// without what it was refused: sorting is slower then, and threads are fewer.) `after(thrown)` looks at what each run
/// has left. Returns the number of runs whose ranks all had the error.
///
/// One allocation in five is tried (in fifteen under sanitizers), and others with each call of this: all of them where
/// RESHARD_TEST_SEEDS=all.
template <class Prepare, class After>
int without_memory(int ranks, int poor, Prepare const& prepare, After const& after) {
    static int turn = 0;
    int const step = std::getenv("RESHARD_TEST_SEEDS") != nullptr ? 1 : fewer_seeds() ? 15 : 5;
    int failed = 0;
    for (int granted = turn++ % step;; granted += step) {
        std::vector<Thrown> thrown(static_cast<std::size_t>(ranks));
        bool refused = false;
        run_on_threads(ranks, {.deadline = std::chrono::seconds(20)}, [&](ThreadCommunicator& plain) {
            WithMemory<ThreadCommunicator> comm(std::move(plain));
            auto call = prepare(comm);
            Thrown& end = thrown[static_cast<std::size_t>(comm.rank())];
            AllocationCounter& counter = allocation_counter();
            counter.granted = granted;
            counter.once = true;
            counter.refused = 0;
            counter.refused_from = comm.rank() == poor ? 0 : SIZE_MAX;
            try {
                call();
                counter.refused_from = SIZE_MAX;
            } catch (Error const& error) {
                counter.refused_from = SIZE_MAX;
                end = {error.code(), error.message()};
            } catch (std::exception const& error) {
                counter.refused_from = SIZE_MAX;
                end = {ErrorCode::user, error.what()};
            }
            if (comm.rank() == poor) refused = counter.refused != 0;
        });
        CAPTURE(granted);
        if (thrown[0].code != ErrorCode::none) {
            ++failed;
            check_same(thrown, ErrorCode::out_of_memory, {errors::concat("rank ", poor, " of "), "out of memory"});
        }
        for (Thrown const& each : thrown) CHECK(each == thrown[0]);
        after(thrown[0]);
        if (!refused || !(thrown == std::vector<Thrown>(thrown.size(), thrown[0]))) return failed;
    }
}

}  // namespace reshard::test
