// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/global_tensor.hpp.
#include <reshard/exec/global_tensor.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace {
using namespace reshard;

DynamicShape local_shape(DynamicDistribution const& distribution, Index rank) {
    return distribution.contains(rank) ? distribution.local_shape(rank) : DynamicShape(Shape<0>{});
}

/// What all ranks of a group are told when their parts do not make one tensor.
void refuses(DynamicMesh const& mesh, char const* text, std::vector<Indices> const& parts, ErrorCode code,
             std::string const& words) {
    run_on_threads(static_cast<int>(parts.size()), [&](ThreadCommunicator& comm) {
        transport::Verdict const told = detail::verdict_of([&] {
            static_cast<void>(from_local(mesh, text, comm, DynamicShape(parts[static_cast<std::size_t>(comm.rank())])));
        });
        CHECK(told.code == code);
        CHECK_MESSAGE(told.reason.find(words) != std::string::npos, told.reason);
    });
}

}  // namespace

TEST_SUITE("exec/global_tensor") {
    TEST_CASE("full_tensor: every rank of the mesh has the whole, whatever it was") {
        for (std::uint64_t seed : test::seeds(60)) {
            test::Limits limits;
            limits.max_elements = 300;
            limits.max_ranks = 8;
            limits.ops = {Reduce::sum, Reduce::max};
            test::Random random(seed, limits);
            DynamicDistribution const from = random.distribution();
            std::vector<std::int64_t> const global = random.values<std::int64_t>(from.shape().size());
            auto const parts = oracle::scatter(global, from, random.engine());
            INFO("seed ", seed, ": ", to_string(from));
            run_on_threads(static_cast<int>(oracle::rank_limit(from)), [&](ThreadCommunicator& comm) {
                auto const& mine = parts[static_cast<std::size_t>(comm.rank())];
                Tensor<std::int64_t> const whole = full_tensor(
                    from, comm, TensorView<std::int64_t const>(mine.data(), local_shape(from, comm.rank())));
                if (!from.contains(comm.rank())) {
                    REQUIRE(whole.size() == 0);
                    return;
                }
                REQUIRE(whole.shape() == from.shape());
                REQUIRE(std::equal(global.begin(), global.end(), whole.data()));
            });
        }
    }

    TEST_CASE("from_local: uneven parts add up to the tensor that they were cut from") {
        for (std::uint64_t seed : test::seeds(200)) {
            test::Limits limits;
            limits.max_elements = 2000;
            limits.max_ranks = 8;
            test::Random random(seed, limits);
            DynamicDistribution const wanted = random.distribution();
            std::string const text = to_string(wanted);
            INFO("seed ", seed, ": ", text);
            run_on_threads(static_cast<int>(oracle::rank_limit(wanted)), [&](ThreadCommunicator& comm) {
                DynamicDistribution const found =
                    from_local(wanted.mesh(), text.substr(text.find(':') + 1), comm, local_shape(wanted, comm.rank()));
                REQUIRE(found == wanted);
            });
        }
    }

    TEST_CASE("from_local: what does not fit is told to all ranks alike, and names the first rank") {
        auto const named = Mesh{2, 2}.named("dp", "tp");
        refuses(Mesh{3}, "S0", {{4, 2}, {3, 2}, {2, 2}}, ErrorCode::mismatch,
                "reshard::from_local: rank 0 has a part of shape [4,2], but under (3):(S0) of [9,2] it holds [3,2]. "
                "Fix: give the parts that the placements cut, or say where they are cut: S0[0,4,7,9].");
        refuses(named, "[(tp,dp),-]", {{3}, {1}, {2}, {2}}, ErrorCode::notation, "more than the 1 dimensions");
        refuses(named, "[(tp,dp)]", {{3}, {1}, {2}, {2}}, ErrorCode::mismatch,
                "rank 0 has a part of shape [3], but under (dp=2,tp=2):(S0,S0)@1,0 of [8] it holds [2]. Fix: give the "
                "parts that the placements cut.");
        refuses(Mesh{2}, "R", {{4, 2}, {4, 3}}, ErrorCode::mismatch, "rank 1 has a part of shape [4,3]");
        refuses(Mesh{2}, "R", {{4, 2}, {4}}, ErrorCode::mismatch,
                "rank 1 has a part of shape [4], but that of rank 0 has 2 dimensions. Fix: give parts of one tensor.");
        refuses(Mesh{2}, "S0[0,1,4]", {{1}, {4}}, ErrorCode::placement,
                "do not ascend from 0 to 5: 4 stands at place 2 of them");
        refuses(Mesh{3}, "S0", {{1}, {1}}, ErrorCode::mesh, "the mesh (3) has rank 2, the communicator only 2 ranks");
        refuses(Mesh{2}, "S0,R", {{1}, {1}}, ErrorCode::placement, "2 placements for a mesh of 1 axes");
        run_on_threads(2, [](ThreadCommunicator& comm) {
            transport::Verdict const told = detail::verdict_of(
                [&] { static_cast<void>(from_local(Mesh{2}, comm.rank() == 0 ? "S0" : "R", comm, Shape{4})); });
            CHECK(told.code == ErrorCode::mismatch);
            CHECK_MESSAGE(told.reason.find("has parts of (2):R, but rank 0 has parts of (2):S0") != std::string::npos,
                          told.reason);
        });
    }
}
