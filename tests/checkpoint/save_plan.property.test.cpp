// SPDX-License-Identifier: Apache-2.0
// include/reshard/checkpoint/save_plan.hpp against the oracle: every element of every copy is written once, by a rank
// that holds it, and nobody writes much more than others where that can be helped.
#include <reshard/checkpoint/save_plan.hpp>

#include <doctest/doctest.h>

#include "../support/oracle.hpp"
#include "../support/random.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// Row-major positions of a box in its tensor.
std::vector<Index> positions(DynamicShape const& shape, Box const& box) {
    std::vector<Index> result;
    for (Index i = 0; i < shape.size(); ++i) {
        Indices index;
        Index rest = i;
        for (int dim = shape.rank() - 1; dim >= 0; --dim) {
            index.push_back(rest % shape.extent(dim));
            rest /= shape.extent(dim);
        }
        bool inside = true;
        for (int dim = 0; dim < shape.rank(); ++dim)
            inside = inside && box[dim].contains(index[shape.rank() - 1 - dim]);
        if (inside) result.push_back(i);
    }
    return result;
}

/// The copy that a rank has, by its coordinates. Of no bytes there is one.
int copy_of(PlacedTensor const& source, Index rank, SaveOptions const& options) {
    if (source.distribution.shape().size() == 0) return 0;
    auto const at = oracle::coordinates(source.distribution, rank);
    Index copy = 0;
    for (int axis = 0; axis < static_cast<int>(at.size()); ++axis) {
        bool apart = false;
        for (int named : options.replica_axes) apart = apart || named == axis;
        if (!apart || !source.distribution.placement(axis).is_replicate()) continue;
        copy = copy * source.distribution.mesh().extent(axis) + at[static_cast<std::size_t>(axis)];
    }
    return static_cast<int>(copy);
}

void check_covered_once(std::vector<PlacedTensor> const& list, SavePlan const& plan, SaveOptions const& options) {
    std::vector<std::map<int, std::vector<int>>> counts(list.size());  // tensor, copy -> how often each element
    for (std::size_t t = 0; t < list.size(); ++t) {
        for (int copy = 0; copy < plan.manifest.tensors[t].replicas; ++copy) {
            counts[t][copy].resize(static_cast<std::size_t>(plan.manifest.tensors[t].shape.size()));
        }
    }
    std::map<int, Index> ends;
    std::map<int, std::set<std::string>> keys;
    Index written = 0;
    for (std::size_t e = 0; e < plan.manifest.extents.size(); ++e) {
        Extent const& extent = plan.manifest.extents[e];
        PlacedTensor const& source = list[plan.sources[e]];
        int const writer = plan.manifest.files[static_cast<std::size_t>(extent.file)].writer;
        REQUIRE(extent.begin == ends[writer]);
        ends[writer] += plan.bytes_of(extent);
        written += plan.bytes_of(extent);
        REQUIRE(keys[writer].insert(extent.key.empty() ? source.name : extent.key).second);
        auto const held = oracle::elements(source.distribution, writer);
        REQUIRE(copy_of(source, writer, options) == extent.replica);
        auto& count = counts[extent.tensor].at(extent.replica);
        for (Index position : positions(source.distribution.shape(), extent.box)) {
            REQUIRE(std::find(held.begin(), held.end(), position) != held.end());
            ++count[static_cast<std::size_t>(position)];
        }
    }
    for (auto const& copies : counts)
        for (auto const& [copy, count] : copies)
            for (int times : count) REQUIRE(times == 1);
    CHECK(written == plan.bytes_written);
}

}  // namespace

TEST_SUITE("checkpoint/save_plan property") {
    TEST_CASE("every element of every copy is written once, by a rank that holds it") {
        test::Limits limits;
        limits.partial = false;
        limits.max_ranks = 12;
        limits.max_elements = 400;
        limits.max_dims = 4;
        for (std::uint64_t seed : test::seeds(400)) {
            test::Random random(seed, limits);
            SaveOptions options;
            options.dedup =
                random.pick(std::vector<SaveDedup>{SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared});
            options.small_bytes = random.between(0, 200);
            options.min_slice_bytes = random.between(1, 100);
            std::vector<PlacedTensor> list;
            Index ranks = 1;
            int axes = 0;
            std::string text;
            for (Index i = random.between(1, 6); i > 0; --i) {
                DType const dtype = random.pick(std::vector<DType>{DType::u8, DType::bf16, DType::f32, DType::i64});
                list.push_back({errors::concat(random.chance(50) ? "a" : "z", i), random.distribution(), dtype});
                ranks = detail::larger(ranks, list.back().distribution.mesh().last_rank() + 1);
                axes = detail::larger(axes, list.back().distribution.mesh().axes());
                text += errors::concat(" ", to_string(list.back().distribution), " of ",
                                       to_string(list.back().distribution.shape()));
            }
            for (int axis = 0; axis < axes; ++axis)
                if (random.chance(25)) options.replica_axes.push_back(axis);
            CAPTURE(seed);
            CAPTURE(text);
            SavePlan const plan = plan_save(list, static_cast<int>(ranks + random.between(0, 2)), options);
            check_covered_once(list, plan, options);
            CHECK(plan.bytes_written <= plan.bytes_held);
            Index most = 0;
            for (int rank = 0; rank < plan.ranks; ++rank) {  // a rank finds its part without that of the others
                SavePlan const own = detail::plan_save_of_rank(list, plan.ranks, rank, options);
                auto const all = plan.extents_of(rank);
                CHECK(own.manifest.extents == std::vector<Extent>(all.begin(), all.end()));
                CHECK(own.extents_of(rank).size() == all.size());
                CHECK(own.bytes_of(rank) == plan.bytes_of(rank));
                CHECK(own.manifest.files == plan.manifest.files);
                CHECK(own.manifest.tensors == plan.manifest.tensors);
                REQUIRE(own.sources.size() == all.size());
                if (!all.empty()) {
                    auto const first = plan.sources.begin() + (all.data() - plan.manifest.extents.data());
                    CHECK(std::equal(own.sources.begin(), own.sources.end(), first));
                }
                CHECK(own.bytes_held == plan.bytes_held);
                CHECK(own.bytes_written == plan.bytes_written);
                CHECK(own.bytes_busiest == plan.bytes_busiest);
                most = detail::larger(most, plan.bytes_of(rank));
            }
            CHECK(plan.bytes_busiest == most);
        }
    }

    TEST_CASE("balanced: no rank of one group is a whole item above the mean; shared: hardly above it") {
        for (std::uint64_t seed : test::seeds(200)) {
            CAPTURE(seed);
            test::Random random(seed);
            Index const ranks = random.between(1, 40);
            std::vector<PlacedTensor> list;
            Index largest = 0;
            Index total = 0;
            for (Index i = random.between(1, 60); i > 0; --i) {
                DynamicShape const shape = Shape{random.between(512, 4000), random.between(1, 2000)};
                list.push_back(
                    {errors::concat("t", i), parse(errors::concat("(", ranks, "):(R)"), shape), DType::bf16});
                largest = detail::larger(largest, shape.size() * 2);
                total += shape.size() * 2;
            }
            auto const busiest = [&](SaveOptions const& options) {
                SavePlan const plan = plan_save(list, static_cast<int>(ranks), options);
                Index most = 0;
                for (int rank = 0; rank < plan.ranks; ++rank) most = detail::larger(most, plan.bytes_of(rank));
                return most;
            };
            Index const mean = total / ranks;
            CHECK(busiest({.small_bytes = 0}) <= mean + largest);
            // No slice is larger or smaller than its share by more than half a step or the smallest slice.
            Index const exact = busiest({.dedup = SaveDedup::shared, .small_bytes = 0, .min_slice_bytes = 4096});
            CHECK(exact <= mean + mean / 40 + 2 * 4096);
            if (mean > 40 * 2 * 4096) CHECK(static_cast<double>(exact) <= 1.05 * static_cast<double>(mean));
        }
    }

    TEST_CASE("shared levels what only some ranks can write") {
        for (std::uint64_t seed : test::seeds(100)) {
            CAPTURE(seed);
            test::Random random(seed);
            Index const replicas = random.between(2, 6);
            Index const parts = random.between(1, 5);
            DynamicShape const big = Shape{4096, 4096};
            std::string const mesh = errors::concat("(", replicas, ",", parts, "):");
            std::vector<PlacedTensor> list{{"everywhere", parse(mesh + "(R,R)", big), DType::f32},
                                           {"cut", parse(mesh + "(R,S0)", big), DType::f32}};
            Index most_own = 0;
            for (Index rank = 0; rank < replicas * parts; ++rank) {
                DynamicShape const own = Shape{random.between(1, 1000), 1024};
                list.push_back(
                    {errors::concat("own", rank), parse(errors::concat("(1)+", rank, ":(R)"), own), DType::u8});
                most_own = detail::larger(most_own, own.size());
            }
            SavePlan const plan = plan_save(list, static_cast<int>(replicas * parts), {.dedup = SaveDedup::shared});
            Index most = 0;
            for (int rank = 0; rank < plan.ranks; ++rank) most = detail::larger(most, plan.bytes_of(rank));
            double const mean = static_cast<double>(plan.bytes_written) / plan.ranks;
            CHECK(static_cast<double>(most) <= detail::larger(1.05 * mean, static_cast<double>(most_own)));
        }
    }
}
