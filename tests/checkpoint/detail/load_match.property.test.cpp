// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/load_match.hpp: ranks that need something, against asking every rank.
#include <reshard/checkpoint/detail/load_match.hpp>

#include <doctest/doctest.h>

#include "../../support/random.hpp"

#include <set>
#include <vector>

namespace {
using namespace reshard;
using detail::WantedExtent;
}  // namespace

TEST_SUITE("checkpoint/detail/load_match") {
    TEST_CASE("who needs something of a box is found, each rank once, and nobody else") {
        Index found = 0;
        for (std::uint64_t seed : test::seeds(400)) {
            test::Limits limits;
            limits.ops = {Reduce::sum, Reduce::max};
            test::Random random(seed, limits);
            DynamicDistribution const to = random.distribution();
            INFO(test::reproduction(seed, to));
            LocalTensor target{"w", to, DynamicView(nullptr, DType::u8, Shape{0})};
            if (random.between(0, 1) == 1) {  // a box of a larger tensor, which may have more on each side
                Indices extents;
                for (Index const extent : to.shape().extents()) {
                    target.within.begin.push_back(random.between(0, 3));
                    extents.push_back(target.within.begin[extents.size()] + extent + random.between(0, 3));
                }
                target.within.shape = DynamicShape(extents);
            }
            Box box(detail::whole_shape(target));
            for (int dim = 0; dim < box.rank(); ++dim) {
                Index const begin = random.between(0, box.end(dim));
                box.set(dim, {begin, random.between(begin, box.end(dim))});
            }
            CAPTURE(detail::text_of(target.within));
            CAPTURE(to_string(box));
            WantedExtent extent{0, 0, 0, 0, DType::u8, Box(detail::whole_shape(target))};
            extent.replicas = static_cast<int>(random.between(1, 3));
            extent.replica = static_cast<int>(random.between(0, extent.replicas - 1));
            extent.replica_axes = static_cast<unsigned>(random.between(0, (1 << to.mesh().axes()) - 1));
            std::set<Index> expected;
            detail::Needs needs;
            for (Index i = 0; i < to.mesh().size(); ++i) {
                Index const rank = to.mesh().rank_at(i);
                if (detail::needed_bytes(box, extent, target, rank, needs) != 0) expected.insert(rank);
            }
            std::vector<Index> ranks;
            detail::for_each_needing(extent, box, target, [&](Index rank) { ranks.push_back(rank); });
            found += static_cast<Index>(ranks.size());
            CHECK(std::set<Index>(ranks.begin(), ranks.end()) == expected);
            CHECK(ranks.size() == expected.size());
            // Who has seen enough says so, and sees no more.
            std::vector<Index> some;
            auto const enough = static_cast<std::size_t>(random.between(1, 4));
            detail::for_each_needing(extent, box, target, [&](Index rank) {
                some.push_back(rank);
                return some.size() < enough;
            });
            ranks.resize(detail::smaller(ranks.size(), enough));
            CHECK(some == ranks);
        }
        CHECK(found > test::of_seeds(100));
    }

    TEST_CASE("of a name that is not there, the three nearest are told") {
        auto const told = [](std::vector<std::string> const& names, std::string_view name) {
            std::vector<StoredTensor> tensors(names.size());
            for (std::size_t i = 0; i < names.size(); ++i) tensors[i].name = names[i];
            return detail::similar_names(tensors, name);
        };
        std::vector<std::string> const model{"embed.weight",
                                             "layers.0.attn.wk.weight",
                                             "layers.0.attn.wq.weight",
                                             "layers.1.attn.wq.weight",
                                             "layers.2.attn.wq.weight",
                                             "norm"};
        // Behind another beginning, in either list.
        CHECK(told(model, "module.norm") == "; similar names: 'norm'");
        CHECK(told({"base_model.model.language_model.norm", "scale"}, "norm") ==
              "; similar names: 'base_model.model.language_model.norm'");
        CHECK(told(model, "a.long.way.up.layers.0.attn.wq.weight")
                  .starts_with("; similar names: 'layers.0.attn.wq.weight'"));
        // A few characters are others: the nearest first, then by name.
        CHECK(told(model, "layers.1.attn.wk.weight") ==
              "; similar names: 'layers.0.attn.wk.weight', 'layers.1.attn.wq.weight', 'layers.0.attn.wq.weight'");
        CHECK(told(model, "layer.2.attention.wq.weight").starts_with("; similar names: 'layers.2.attn.wq.weight'"));
        // Nothing is near.
        for (std::string_view const name : {"", "x", "nrm.of.something", "head"}) CHECK(told(model, name).empty());
        CHECK(told({}, "norm").empty());
        CHECK(told({"", "a", "b"}, "c").empty());
    }
}
