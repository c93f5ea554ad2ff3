// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/whole_files.hpp.
#include <reshard/checkpoint/detail/whole_files.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {
using namespace reshard;
using detail::replica_name;

Manifest manifest_of(std::vector<StoredTensor> tensors) {
    Manifest manifest;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        manifest.extents.push_back({i, 0, 0, static_cast<Index>(8 * i), Box(tensors[i].shape)});
    }
    manifest.tensors = std::move(tensors);
    return manifest;
}
StoredTensor tensor(std::string name, Index extent = 2) { return {std::move(name), DType::f32, Shape{extent}, 1, ""}; }

std::vector<std::string> names(Manifest const& manifest) {
    std::vector<std::string> list;
    for (StoredTensor const& each : manifest.tensors) list.push_back(each.name);
    return list;
}
}  // namespace

TEST_SUITE("checkpoint/detail/whole_files") {
    TEST_CASE("both spellings name a copy, and nothing else does") {
        for (std::string const suffix : {".__tp_replica_", "._tp_replica"}) {
            for (int number : {0, 7, 10, 123456789}) {
                std::string const text = errors::concat("layer.0.w", suffix, number);
                auto const name = replica_name(text);
                REQUIRE(name.has_value());
                CHECK(name->tensor == "layer.0.w");
                CHECK(name->replica == number);
            }
        }
        for (std::string_view none : {"", "w", "w.0", "17", "w.__tp_replica_", "w.__tp_replica_01", "w.__tp_replica_-1",
                                      "w.__tp_replica_1x", "w.__tp_replica_1234567890", ".__tp_replica_0",
                                      "w__tp_replica_0", "w._tp_replica_0", "w.__tp_replica_0.__box_1"}) {
            CAPTURE(none);
            CHECK_FALSE(replica_name(none).has_value());
        }
    }

    TEST_CASE("copies 0, 1, ... become one tensor under the plain name") {
        Manifest manifest = manifest_of({tensor("a.__tp_replica_0"), tensor("a._tp_replica1"), tensor("a.a"),
                                         tensor("z.__tp_replica_0", 3), tensor("z.__tp_replica_1", 3)});
        detail::group_replicas(manifest);
        CHECK(names(manifest) == std::vector<std::string>{"a", "a.a", "z"});
        CHECK(manifest.tensors[0].replicas == 2);
        CHECK(manifest.tensors[1].replicas == 1);
        CHECK(manifest.tensors[2].replicas == 2);
        CHECK(manifest.tensors[2].shape == DynamicShape(Shape{3}));
        REQUIRE(manifest.extents.size() == 5);
        CHECK(manifest.extents[1].tensor == 0);
        CHECK(manifest.extents[1].replica == 1);
        CHECK(manifest.extents[1].key == "a._tp_replica1");
        CHECK(manifest.extents[2].tensor == 1);
        CHECK(manifest.extents[2].key.empty());
        CHECK(manifest.extents[4].tensor == 2);
    }

    TEST_CASE("a plain tensor of the name, a gap, a twin, another shape, or one alone: all stay as they are") {
        for (auto const& list : std::vector<std::vector<StoredTensor>>{
                 {tensor("a"), tensor("a.__tp_replica_0"), tensor("a.__tp_replica_1")},
                 {tensor("a.__tp_replica_0"), tensor("a.__tp_replica_2")},
                 {tensor("a.__tp_replica_1")},
                 {tensor("a.__tp_replica_0")},
                 {tensor("a.__tp_replica_0"), tensor("a._tp_replica0")},
                 {tensor("a.__tp_replica_0"), tensor("a.__tp_replica_1", 3)}}) {
            Manifest const before = manifest_of(list);
            Manifest manifest = before;
            detail::group_replicas(manifest);
            CHECK(manifest == before);
        }
    }

    TEST_CASE("what is wrong with copies is said") {
        auto const fault = [](std::vector<StoredTensor> const& list) {
            return detail::fault_of(detail::named_replicas(list), list);
        };
        CHECK(fault({tensor("a.__tp_replica_0"), tensor("a.__tp_replica_1")}).empty());
        CHECK(fault({tensor("a.__tp_replica_0"), tensor("a.__tp_replica_2")}) ==
              "its replica 1 is missing, but 'a.__tp_replica_2' is there");
        CHECK(fault({tensor("a.__tp_replica_0"), tensor("a._tp_replica0")}) == "its replica 0 is there twice");
        CHECK(fault({tensor("a.__tp_replica_0"), tensor("a.__tp_replica_1", 3)}) ==
              "its replicas 'a.__tp_replica_0' and 'a.__tp_replica_1' differ in shape or element type");
    }
}
