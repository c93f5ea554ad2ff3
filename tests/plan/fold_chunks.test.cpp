// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/fold_chunks.hpp.
#include <reshard/plan/fold_chunks.hpp>

#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {
using namespace reshard;

planning::Steps steps_of(std::string const& from, std::string const& to, Index rows, Index columns,
                         Index fold_elements) {
    Shape const shape{rows, columns};
    planning::Steps steps = plan(parse(from, shape), parse(to, shape)).steps();
    steps.fold_elements = fold_elements;
    return steps;
}
Index chunks(std::string const& from, std::string const& to, Index rows, Index columns, Index fold_elements) {
    return planning::FoldChunks(steps_of(from, to, rows, columns, fold_elements)).count();
}

/// Every element of the messages, as an index of the grid.
std::multiset<std::pair<Index, std::vector<Index>>> elements_of(std::vector<Message> const& messages) {
    std::multiset<std::pair<Index, std::vector<Index>>> result;
    for (Message const& message : messages) {
        for (Index k = 0; k < message.elements(); ++k) {
            std::vector<Index> at;
            Index rest = k;
            for (int dim = message.box.size() - 1; dim >= 0; --dim) {
                at.push_back(message.box[dim].begin + rest % message.box[dim].size());
                rest /= message.box[dim].size();
            }
            result.insert({message.peer, at});
        }
    }
    return result;
}

}  // namespace

TEST_SUITE("plan/fold_chunks") {
    TEST_CASE("a fold of few addends is one chunk; of many, chunks have as many addends as were asked for") {
        CHECK(chunks("(4):(S0)", "(4):(R)", 1 << 20, 1, 1) == 1);  // nothing is folded
        CHECK(chunks("(4):(P+)", "(4):(S0)", 1024, 1, 256) == 1);  // four times that
        CHECK(chunks("(4):(P+)", "(4):(S0)", 1028, 1, 256) == 5);  // 257 rows in chunks of 64
        CHECK(chunks("(4):(P+)", "(4):(R)", 4096, 1, 1000) == 5);
        CHECK(chunks("(4):(P+)", "(4):(S0:cyc8)", 4096, 1, 1024) == 1);  // many boxes
        CHECK(chunks("(4):(P+)", "(4):(S0)", 1 << 20, 1, 1) == 64);      // so many exchanges at most
        CHECK(chunks("(4):(P+)", "(4):(S0)", 1 << 20, 1, -5) == 64);
        CHECK(chunks("(64):(P+)", "(64):(S0)", 1 << 18, 1, 1024) == 64);  // messages of 32, not of 16
        CHECK(chunks("(1024):(P+)", "(1024):(S0)", 1 << 15, 1, 1024) == 1);
        CHECK(chunks("(1024):(P+)", "(1024):(S0)", 1 << 16, 1, 1024) == 2);
    }

    TEST_CASE("scratch memory is that of one chunk, and of the result where it waits or is converted") {
        auto steps = steps_of("(4):(P+)", "(4):(S0)", 4096, 16, 4096);
        CHECK(planning::FoldChunks(steps).count() == 16);
        CHECK(planning::scratch_elements(steps, 0) == 4096);
        steps.convert();
        CHECK(planning::scratch_elements(steps, 0) == 4096 + 1024);
        auto gathered = steps_of("(4):(P+)", "(4):(R)", 4096, 16, 4096);
        CHECK(planning::scratch_elements(gathered, 0) == 4096);
        gathered.convert();  // the folded share waits for the gather
        CHECK(planning::scratch_elements(gathered, 0) == 4096 + 1024 * 16);
        for (std::string const to : {"(4):(R)", "(4):(S0)"}) {  // of 64 MiB as F32, 1 MiB and not 64
            auto const large = steps_of("(4):(P+)", to, 4096, 4096, planning::Steps{}.fold_elements);
            CHECK(planning::scratch_elements(large, 0) == 1 << 18);
        }
    }

    TEST_CASE("law: chunks are the exchange, each element in one of them, on both sides in the same") {
        int cut = 0;
        for (std::uint64_t seed : test::seeds(300)) {
            test::Limits limits;
            limits.max_elements = 500;
            limits.max_ranks = 12;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            DynamicMesh const mesh = random.mesh();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(random.chance(50) ? mesh : random.mesh(), shape);
            Plan<> const whole = from.mesh() == to.mesh() ? plan(from, to) : plan_across(from, to);
            INFO(test::reproduction(seed, from, to));
            planning::Steps steps = whole.steps();
            steps.fold_elements = random.between(1, 60);
            planning::FoldChunks const chunks(steps);
            if (chunks.count() == 1) continue;
            ++cut;
            planning::Step const& step = steps.exchange(0);
            DynamicDistribution const& folded = steps.to(step).distribution;
            for (Index rank : oracle::ranks(from)) {
                Exchange const all = planning::exchange_of(steps, step, rank);
                std::vector<Message> sends;
                std::vector<Message> receives;
                std::vector<Message> kept;
                for (Index chunk = 0; chunk < chunks.count(); ++chunk) {
                    Exchange const part = chunks.of(all, folded, rank, chunk);
                    sends.insert(sends.end(), part.sends.begin(), part.sends.end());
                    receives.insert(receives.end(), part.receives.begin(), part.receives.end());
                    kept.insert(kept.end(), part.kept.begin(), part.kept.end());
                    for (Message const& message : part.sends) {  // what the peer expects in this chunk
                        Exchange const there =
                            chunks.of(planning::exchange_of(steps, step, message.peer), folded, message.peer, chunk);
                        Message expected = message;
                        expected.peer = rank;
                        REQUIRE(std::find(there.receives.begin(), there.receives.end(), expected) !=
                                there.receives.end());
                    }
                }
                REQUIRE(elements_of(sends) == elements_of(all.sends));
                REQUIRE(elements_of(receives) == elements_of(all.receives));
                REQUIRE(elements_of(kept) == elements_of(all.kept));
            }
        }
        CHECK(cut > 0);
    }
}
