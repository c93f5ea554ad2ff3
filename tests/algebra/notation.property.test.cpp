// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/notation.hpp>

#include "support/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

using namespace reshard;

namespace {

/// The same distribution said differently: ranks listed one by one, cutting order spelled out in another way.
DynamicDistribution said_differently(DynamicDistribution const& d, test::Random& random) {
    std::vector<Index> ranks;
    for (Index i = 0; i < d.mesh().size(); ++i) ranks.push_back(d.mesh().rank_at(i));
    DynamicMesh const mesh(d.mesh().extents(), RankList{0, IndexList(ranks.data(), d.mesh().size())});
    std::vector<int> dims(static_cast<std::size_t>(d.shape().rank()));
    std::iota(dims.begin(), dims.end(), 0);
    std::shuffle(dims.begin(), dims.end(), random.engine());
    AxisList order;
    for (int dim : dims)
        for (std::int8_t axis : d.cuts(dim)) order.push_back(axis);
    return DynamicDistribution(mesh, d.shape(), d.placements(), order);
}

std::string mutate(std::string text, test::Random& random) {
    static std::string const alphabet = "(),:@+[]RSPSbalcyc0123456789*<>&|^avg -.\t";
    auto const position = [&](std::size_t size) {
        return static_cast<std::size_t>(random.between(0, static_cast<Index>(size) - 1));
    };
    for (Index edits = random.chance(60) ? 1 : random.between(2, 4); edits > 0; --edits) {
        char const letter =
            random.chance(3) ? static_cast<char>(random.between(-128, 127)) : alphabet[position(alphabet.size())];
        switch (random.between(0, 4)) {
            case 0:
                if (!text.empty()) text.erase(position(text.size()), 1);
                break;
            case 1: text.insert(text.begin() + random.between(0, static_cast<Index>(text.size())), letter); break;
            case 2:
                if (!text.empty()) text[position(text.size())] = letter;
                break;
            case 3:
                if (!text.empty()) text.resize(position(text.size()));
                break;
            default: {
                std::string const digits(static_cast<std::size_t>(random.between(1, 21)), '9');
                text.insert(text.begin() + random.between(0, static_cast<Index>(text.size())), digits.begin(),
                            digits.end());
            }
        }
    }
    return text;
}

}  // namespace

TEST_CASE("law: parse(print(d)) == d") {
    for (std::uint64_t seed : test::seeds(5000)) {
        test::Random random(seed);
        DynamicDistribution const d = random.distribution();
        INFO(test::reproduction(seed, d));
        DynamicDistribution const again = parse(to_string(d), d.shape());
        CHECK(again == d);
        CHECK(to_string(again) == to_string(d));
    }
}

TEST_CASE("equal distributions print alike, different ones differently") {
    for (std::uint64_t seed : test::seeds(3000)) {
        test::Random random(seed);
        DynamicDistribution const d = random.distribution();
        INFO(test::reproduction(seed, d));
        DynamicDistribution const twin = said_differently(d, random);
        CHECK(twin == d);
        CHECK(to_string(twin) == to_string(d));
        DynamicDistribution const other = random.distribution(d.mesh(), d.shape());
        CHECK((other == d) == (to_string(other) == to_string(d)));
    }
}

TEST_CASE("damaged text either parses into something that prints and answers, or is refused with an error of ours") {
    int parsed = 0;
    int refused = 0;
    for (std::uint64_t seed : test::seeds(20'000)) {
        test::Random random(seed);
        DynamicShape const shape = random.shape();
        std::string const text = mutate(to_string(random.distribution(random.mesh(), shape)), random);
        INFO("seed ", seed, ": ", text);
        try {
            DynamicDistribution const d = parse(text, shape);
            CHECK(parse(to_string(d), shape) == d);
            for (Index ordinal : {Index{0}, d.mesh().size() / 2, d.mesh().size() - 1}) {
                Index const rank = d.mesh().rank_at(ordinal);
                CHECK(d.boxes(rank).empty() == (d.local_shape(rank).size() == 0));
            }
            ++parsed;
        } catch (NotationError const& error) {
            CHECK(error.message().find("Fix: ") != std::string::npos);
            ++refused;
        } catch (PlacementError const& error) {
            CHECK(error.message().find("Fix: ") != std::string::npos);
        } catch (MeshError const& error) {
            CHECK(error.message().find("Fix: ") != std::string::npos);
        }
    }
    CHECK(parsed > test::of_seeds(300));
    CHECK(refused > test::of_seeds(1000));
}
