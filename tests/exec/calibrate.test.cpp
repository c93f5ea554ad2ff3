// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/calibrate.hpp: that the numbers are numbers and the same everywhere, never how large.
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/exec/calibrate.hpp>

#include "support/fails_to_bind.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <mutex>
#include <vector>

namespace {
using namespace reshard;

CalibrateOptions quick() {
    CalibrateOptions options;
    options.large_bytes = 1 << 16;
    options.repeats = 3;
    return options;
}

}  // namespace

TEST_SUITE("exec/calibrate") {
    TEST_CASE("two tiers on threads: positive, finite, and the same on every rank") {
        std::mutex mutex;
        std::vector<Topology> found;
        run_on_threads(5, [&](ThreadCommunicator& comm) {
            Topology const topology = calibrate(comm, {{"pair", 2}, {"all", 0}}, quick());
            std::lock_guard const lock(mutex);
            found.push_back(topology);
        });
        REQUIRE(found.size() == 5);
        for (Topology const& topology : found) CHECK(topology == found[0]);
        for (Tier const& tier : found[0].tiers()) {
            CHECK(tier.latency > 0);
            CHECK(std::isfinite(tier.latency));
            CHECK(tier.bandwidth > 0);
            CHECK(std::isfinite(tier.bandwidth));
            CHECK(tier.uplink >= 0);
            CHECK(std::isfinite(tier.uplink));
        }
        CHECK(found[0].tier(0).name == "pair");
        CHECK(found[0].tier(0).ranks == 2);
        CHECK(found[0].tier(1).uplink == 0);
    }

    TEST_CASE("a rank that cannot bind an exchange has OutOfMemory, and the others hear of it") {
        test::check_failing_bind([](test::FailsToBind& comm) {
            static_cast<void>(calibrate(comm, {{"all", 0}}, quick()));
        });
    }

    TEST_CASE("tiers in which nobody meets, no tiers and sizes without sense are errors on every rank") {
        std::mutex mutex;
        int mesh_errors = 0;
        int buffer_errors = 0;
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            auto const refused = [&](std::vector<Tier> const& tiers, CalibrateOptions const& options) {
                try {
                    static_cast<void>(calibrate(comm, tiers, options));
                } catch (MeshError const&) {
                    std::lock_guard const lock(mutex);
                    ++mesh_errors;
                } catch (BufferError const&) {
                    std::lock_guard const lock(mutex);
                    ++buffer_errors;
                }
            };
            refused({{"node", 4}, {"all", 0}}, quick());  // all three are in one node
            refused({{"rank", 1}, {"all", 0}}, quick());
            refused({{"node", 2}}, quick());  // rank 2 is outside
            refused({}, quick());
            CalibrateOptions none = quick();
            none.repeats = 0;
            refused({{"all", 0}}, none);
            CalibrateOptions equal = quick();
            equal.large_bytes = equal.small_bytes;
            refused({{"all", 0}}, equal);
        });
        CHECK(mesh_errors == 4 * 3);
        CHECK(buffer_errors == 2 * 3);
        SelfCommunicator alone;
        CHECK_THROWS_AS(static_cast<void>(calibrate(alone, {{"all", 0}}, quick())), MeshError);
    }
}
