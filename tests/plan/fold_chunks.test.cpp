// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/fold_chunks.hpp.
#include <reshard/plan/fold_chunks.hpp>

#include <reshard/plan/plan.hpp>
#include <reshard/plan/relay.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <map>
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

/// The indices of a message along one dimension.
std::vector<Index> indices_of(planning::Message const& message, int dim) {
    std::vector<Index> result;
    for (Index i = message.box[dim].begin; i < message.box[dim].end; ++i) result.push_back(i);
    for (planning::BoxRepeat const& repeat : message.repeats) {
        if (repeat.dim != dim) continue;
        std::vector<Index> const once = result;
        for (Index k = 1; k < repeat.count; ++k)
            for (Index i : once) result.push_back(i + k * repeat.pitch);
    }
    return result;
}
/// Every element of the messages, as an index of the grid.
std::multiset<std::pair<Index, std::vector<Index>>> elements_of(std::vector<planning::Message> const& messages) {
    std::multiset<std::pair<Index, std::vector<Index>>> result;
    for (planning::Message const& message : messages) {
        std::vector<std::vector<Index>> grid{{}};
        for (int dim = 0; dim < message.box.size(); ++dim) {
            std::vector<std::vector<Index>> longer;
            for (std::vector<Index> at : grid) {
                at.push_back(0);
                for (Index i : indices_of(message, dim)) {
                    at.back() = i;
                    longer.push_back(at);
                }
            }
            grid.swap(longer);
        }
        for (std::vector<Index> const& at : grid) result.insert({message.peer, at});
    }
    return result;
}

/// Those of the messages that go to a rank or come from it, in their order.
std::vector<planning::Message> between(std::vector<planning::Message> const& messages, Index peer) {
    std::vector<planning::Message> result;
    for (planning::Message const& message : messages) {
        if (message.peer != peer) continue;
        result.push_back(message);
        result.back().peer = 0;
    }
    return result;
}

/// Whether a rank's share is several pieces.
bool is_in_pieces(DynamicDistribution const& share) {
    for (Index rank : oracle::ranks(share))
        if (share.boxes(rank).size() > 1) return true;
    return false;
}

}  // namespace

TEST_SUITE("plan/fold_chunks") {
    TEST_CASE("a fold of few addends is one chunk; of many, chunks have as many addends as were asked for") {
        CHECK(chunks("(4):(S0)", "(4):(R)", 1 << 20, 1, 1) == 1);  // nothing is folded
        CHECK(chunks("(4):(P+)", "(4):(S0)", 1024, 1, 256) == 1);  // four times that
        CHECK(chunks("(4):(P+)", "(4):(S0)", 1028, 1, 256) == 5);  // 257 rows in chunks of 64
        CHECK(chunks("(4):(P+)", "(4):(R)", 4096, 1, 1000) == 5);
        CHECK(chunks("(4):(P+)", "(4):(S0:cyc8)", 1028, 1, 256) == 5);  // of 260 in many pieces
        CHECK(chunks("(4):(P+)", "(4):(S0)", 1 << 20, 1, 1) == 64);     // so many exchanges at most
        CHECK(chunks("(4):(P+)", "(4):(S0)", 1 << 20, 1, -5) == 64);
        CHECK(chunks("(64):(P+)", "(64):(S0)", 1 << 18, 1, 1024) == 64);  // messages of 32, not of 16
        CHECK(chunks("(1024):(P+)", "(1024):(S0)", 1 << 15, 1, 1024) == 1);
        CHECK(chunks("(1024):(P+)", "(1024):(S0)", 1 << 16, 1, 1024) == 2);
    }

    TEST_CASE("scratch memory is that of one chunk, and of what becomes of it where that lies there") {
        auto steps = steps_of("(4):(P+)", "(4):(S0)", 4096, 16, 4096);
        CHECK(planning::FoldChunks(steps).count() == 16);
        CHECK(planning::scratch_elements(steps, 0) == 4096);
        steps.convert();
        CHECK(planning::scratch_elements(steps, 0) == 4096 + 1024);
        auto gathered = steps_of("(4):(P+)", "(4):(R)", 4096, 16, 4096);
        CHECK(planning::scratch_elements(gathered, 0) == 4096);
        gathered.convert();  // what is folded is passed on chunk by chunk
        CHECK(planning::scratch_elements(gathered, 0) == 4096 + 1024);
        for (std::string const to : {"(4):(R)", "(4):(S0)"}) {  // of 64 MiB as F32, 1 MiB and not 64
            auto const large = steps_of("(4):(P+)", to, 4096, 4096, planning::Steps{}.fold_elements);
            CHECK(planning::scratch_elements(large, 0) == 1 << 18);
        }
    }

    TEST_CASE("scratch memory of 64 MiB as F32 is at most 1 MiB a rank, whatever is folded, in pieces too") {
        constexpr char const* placements[] = {"R", "S0", "S1", "P+"};
        Shape const shape{4096, 4096};
        int in_pieces = 0;
        for (DynamicMesh const& mesh : {DynamicMesh(Mesh{2, 4}), DynamicMesh(Mesh{2, 2, 2})}) {
            std::vector<std::string> texts{""};
            for (int axis = 0; axis < mesh.axes(); ++axis) {
                std::vector<std::string> longer;
                for (std::string const& text : texts)
                    for (char const* next : placements) longer.push_back(text + (axis == 0 ? "" : ",") + next);
                texts.swap(longer);
            }
            std::vector<DynamicDistribution> sides;
            for (std::string const& text : texts) sides.push_back(distribution(mesh, shape, text));
            for (DynamicDistribution const& from : sides) {
                for (DynamicDistribution const& to : sides) {
                    planning::Steps const steps = plan(from, to).steps();
                    planning::Step const* const fold = steps.find(planning::StepKind::fold);
                    if (fold == nullptr) continue;
                    in_pieces += is_in_pieces(steps.to(*fold).distribution) ? 1 : 0;
                    CAPTURE(to_string(from));
                    CAPTURE(to_string(to));
                    for (Index rank = 0; rank < mesh.size(); ++rank) {
                        REQUIRE(planning::scratch_elements(steps, rank) <= 1 << 18);
                    }
                }
            }
        }
        CHECK(in_pieces > 0);
    }

    TEST_CASE("law: chunks are the exchange, each element in one of them, on both sides in the same") {
        int pieces = 0;   // whose shares are
        int blocks = 0;   // whose messages repeat
        int results = 0;  // passed on from scratch memory
        for (std::uint64_t seed : test::seeds(600)) {
            test::Limits limits;
            limits.max_elements = 500;
            limits.max_ranks = 12;
            limits.ops = {Reduce::sum};
            limits.mostly_cyclic = seed % 2 == 0;
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            DynamicMesh const mesh = random.mesh();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(random.chance(50) ? mesh : random.mesh(), shape);
            Plan<> const direct = from.mesh() == to.mesh() ? plan(from, to) : plan_across(from, to);
            Plan<> const whole = random.chance(25) ? direct.relayed(random.between(2, 4)) : direct;
            INFO(test::reproduction(seed, from, to));
            planning::Steps steps = whole.steps();
            steps.fold_elements = random.between(1, 60);
            if (random.chance(25)) steps.convert();
            planning::FoldChunks const chunks(steps);
            if (chunks.count() == 1) continue;
            std::vector<Index> const givers = oracle::ranks(from);
            std::vector<Index> const takers = oracle::ranks(to);
            std::set<Index> ranks(givers.begin(), givers.end());
            ranks.insert(takers.begin(), takers.end());
            for (planning::Step const& step : steps.list) {
                if (step.kind != planning::StepKind::exchange || !steps.in_chunks(step)) continue;
                if (steps.to(step).addends == 0) ++results;
                if (is_in_pieces(steps.to(step).distribution)) ++pieces;
                std::map<Index, std::vector<planning::Exchange>> parts;  // by rank, of every chunk
                for (Index rank : ranks) {
                    planning::Exchange const all = planning::exchange_of(steps, step, rank);
                    planning::Exchange sum;
                    for (Index chunk = 0; chunk < chunks.count(); ++chunk) {
                        planning::Exchange const part = chunks.of(all, steps, step, rank, chunk);
                        sum.sends.insert(sum.sends.end(), part.sends.begin(), part.sends.end());
                        sum.receives.insert(sum.receives.end(), part.receives.begin(), part.receives.end());
                        sum.kept.insert(sum.kept.end(), part.kept.begin(), part.kept.end());
                        parts[rank].push_back(part);
                    }
                    for (planning::Message const& message : all.sends) blocks += message.repeats.empty() ? 0 : 1;
                    bool const same = elements_of(sum.sends) == elements_of(all.sends) &&
                                      elements_of(sum.receives) == elements_of(all.receives) &&
                                      elements_of(sum.kept) == elements_of(all.kept);
                    REQUIRE(same);
                }
                for (auto const& [rank, mine] : parts) {
                    for (auto const& [peer, there] : parts) {
                        for (std::size_t chunk = 0; chunk < mine.size(); ++chunk) {
                            bool const same = between(mine[chunk].sends, peer) == between(there[chunk].receives, rank);
                            REQUIRE(same);
                        }
                    }
                }
            }
        }
        CHECK((pieces > 0 || test::fewer_seeds()));
        CHECK((blocks > 0 || test::fewer_seeds()));
        CHECK((results > 0 || test::fewer_seeds()));
    }
}
